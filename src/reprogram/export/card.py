"""The model card beside an export: what it is, how to feed it, how good it is, what it is not, where it comes from."""

import re
from collections.abc import Mapping
from typing import Any

from reprogram.export.settings import ADAPTER, BACKBONE, FILES
from reprogram.text import printable

# Whatever Markdown, the HTML in it, or a table could take for its own.
_MEANT = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|&~^$=:@/\"'])")
_LISTED = 200


def escaped(text: str) -> str:
    r"""A text that somebody else wrote, as Markdown shows it and never obeys it; on one line.

    >>> print(escaped("<b>*cat*</b> | [x](http://y)"))
    \<b\>\*cat\*\<\/b\> \| \[x\]\(http\:\/\/y\)
    """
    return _MEANT.sub(r"\\\1", printable(text))


def card(facts: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """The text of the card.

    Args:
        facts: as `facts.described` and `with_comparison` give them.
        digests: SHA-256 of the files.
    """
    given, source, compared = facts["input"], facts["source"], facts["compared"]
    labels = facts["labels"]
    some = "\n".join(f"{number}. {escaped(name)}" for number, name in enumerate(labels[:_LISTED]))
    more = f"\n\nand {len(labels) - _LISTED} more, in `export.json`." if len(labels) > _LISTED else ""
    hashes = "\n".join(f"- `{name}`: `{digest}`" for name, digest in digests.items())
    versions = ", ".join(f"{escaped(name)} {escaped(version)}" for name, version in facts["made_by"].items())
    return f"""# {escaped(facts["run"]["name"])}: {len(labels)} classes

{_what(facts)}

## Accuracy

{_accuracy(facts["run"]["accuracy"])}
{_calibration(facts["calibration"], facts["prediction_sets"])}

## How to feed it

Input `{given["name"]}`: {given["type"]} (N, {given["size"]}, {given["size"]}, 3), RGB, 0 to 255, any N.
Images of another size are brought to it by Pillow, {_resizing(given)}; scaling and normalisation are inside.
Outputs: `probabilities` (N, {len(labels)}), and `logits`, of which they are the softmax.
{_feeding(facts)}

## Classes

In the order of the columns, from 0:

{some}{more}

## Limits

- It gives every image one of its classes, also one that shows none of them.
- Its accuracy is that on images like those of the run's test split, and not more.
- {_certain(facts)}
- The frozen model was trained by others, on images and with errors of their own; its licence holds for this file, too.

## Where it comes from

- frozen model {escaped(source["model"])} with {source["labels"]:,} source labels on a canvas of {source["canvas"]},
  fingerprint `{source["fingerprint"]}`
- program {escaped(facts["program"]["name"])}, mapping {escaped(facts["mapping"]["name"])}
- folded: {escaped(source["folded"])}
- artefact `{facts["run"]["artefact"]}`
- made by {versions}
- compared with the live model on {compared["images"]} {escaped(compared["what"])}:
  probabilities differ by at most {compared["probability"]:.1e}, logits by {compared["logit"]:.1e};
  {compared["agreeing"]} of {compared["images"]} classes are the same

SHA-256:

{hashes}
"""


def _what(facts: Mapping[str, Any]) -> str:
    frozen = escaped(facts["source"]["model"])
    forms = {
        "onnx": "One ONNX file, from images to probabilities.",
        "onnx-adapter": f"An ONNX Runtime adapter, which makes `{BACKBONE}` a classifier for these classes.",
        "torch": "One program of torch.export, from images to probabilities.",
    }
    return f"The frozen model {frozen}, unchanged, reprogrammed for other labels. {forms[facts['format']]}"


def _accuracy(found: Mapping[str, Any] | None) -> str:
    if found is None or found["test"] is None:
        return "Not known: the export was made from an artefact without its run."
    low, high = (100 * bound for bound in found["interval_95"])
    return (
        f"{100 * found['test']:.1f} % on the {found['images']:,} test images of the run (95 % interval {low:.1f} to "
        f"{high:.1f} %), measured by the live model."
    )


def _calibration(found: Mapping[str, Any] | None, sets: Mapping[str, Any] | None) -> str:
    if found is None:
        return "Its probabilities were not calibrated."
    words = (
        f"Its probabilities are calibrated: temperature {found['temperature']:.4g}, measured by {escaped(found['how'])} on "
        f"{found['samples']:,} samples, is folded into the weights."
    )
    if found["outdated"]:
        words += " The mapping was changed since."
    if sets is not None and sets["thresholds"]:
        levels = "; ".join(f"{100 * float(level):g} %: {limit:.4g}" for level, limit in sets["thresholds"].items())
        words += (
            "\nPrediction sets: a class belongs to the set where the best other logit less its own is at most the threshold "
            f"of the coverage ({levels}), by {sets['samples']:,} held-out samples."
        )
    return words


def _resizing(given: Mapping[str, Any]) -> str:
    how = str(given["interpolation"])
    if how.endswith("-crop"):
        kind = how.removesuffix("-crop").upper()
        return f"`{kind}`, the shorter side to {given['size']} and the middle cut out of the longer one"
    return f"`{how.upper()}`, both sides to {given['size']} (the aspect is not kept)"


def _feeding(facts: Mapping[str, Any]) -> str:
    file = FILES[facts["format"]]
    if facts["format"] == "onnx-adapter":
        return f"Activate `{ADAPTER}` on a session of the backbone with SHA-256 `{facts['backbone']['sha256']}`."
    return f"The file is `{file}`."


def _certain(facts: Mapping[str, Any]) -> str:
    compared = facts["compared"]
    if compared["real"]:
        return "The export was compared with the live model on images of the run, not on others."
    return "The images of the run could not be read, so the export was compared with the live model on drawn images alone."
