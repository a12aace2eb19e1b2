"""What an export tells of itself: in the metadata of its file, in `export.json`, and on its card."""

from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from reprogram import __version__
from reprogram.errors import ReprogramError
from reprogram.export.comparison import Comparison
from reprogram.export.settings import IMAGES, LIMIT, LOGITS, PROBABILITIES, VERSION
from reprogram.export.trunk import Trunk, temperature_of
from reprogram.files import read_sealed, sha256
from reprogram.mappings.artefact import FILES, artefact_folder
from reprogram.mappings.certainty import Certainty
from reprogram.reprogrammed import Reprogrammed
from reprogram.text import finite

COVERAGES = (0.8, 0.9, 0.95, 0.99)


def described(run: Path, model: Reprogrammed, trunk: Trunk, form: str, key: str) -> dict[str, Any]:
    """All but what the comparison found, as plain JSON values; no path of this machine is among them."""
    program, frozen, mapping = model.program, model.frozen, model.mapping
    artefact = artefact_folder(run)
    packages = ("torch", "onnx", "onnxruntime", "onnxscript") if form != "torch" else ("torch",)
    return {
        "version": VERSION,
        "format": form,
        "labels": list(model.classes),
        "input": {
            "name": IMAGES,
            "type": "uint8",
            "layout": "NHWC",
            "channels": "RGB",
            "size": program.image_size,
            "interpolation": program.interpolation,
        },
        "outputs": [PROBABILITIES, LOGITS],
        "source": {
            "model": public_name(frozen.name),
            "fingerprint": frozen.fingerprint,
            "labels": frozen.k_source,
            "canvas": program.canvas,
            "key": key,
            "folded": trunk.folds,
        },
        "program": program.config(),
        "mapping": mapping.config(),
        "calibration": _calibration(mapping.certainty, temperature_of(mapping)),
        "prediction_sets": prediction_sets(model),
        "run": {
            "name": run.resolve().name,
            "artefact": sha256(artefact / FILES[0]),
            "accuracy": accuracy(run),
        },
        "made_by": {"reprogram": __version__, **{name: metadata.version(name) for name in packages}},
    }


def with_comparison(facts: dict[str, Any], found: Comparison) -> dict[str, Any]:
    """The same with how far the export is from the live model."""
    return {
        **facts,
        "compared": {
            "images": found.images,
            "what": found.what,
            "real": found.real,
            "probability": found.probability,
            "logit": found.logit,
            "agreeing": found.agreeing,
            "limit": LIMIT,
        },
    }


def public_name(name: str) -> str:
    """The name of a model; of one that is a file, the file's name without its folders.

    >>> public_name("onnx:/home/me/model.onnx"), public_name("timm:resnet18")
    ('onnx:model.onnx', 'timm:resnet18')
    """
    source, colon, rest = name.partition(":")
    return f"{source}{colon}{Path(rest).name}" if rest.startswith(("/", "~", ".")) else name


def accuracy(run: Path) -> dict[str, Any] | None:
    """What the run says about its test accuracy; None where there is no run beside the artefact."""
    for place in (run / "result.json", run.absolute().parent / "result.json"):
        if place.is_file():
            try:
                found = read_sealed(place, "result")
                share, (low, high) = float(found["accuracy"]["selected"]), found["interval_95"]
                return finite({"test": share, "interval_95": [float(low), float(high)], "images": found["images"]["test"]})  # type: ignore[no-any-return]
            except (ReprogramError, KeyError, TypeError, ValueError):
                return None
    return None


def prediction_sets(model: Reprogrammed) -> dict[str, Any] | None:
    """For some coverages the threshold t of: a class belongs to the set where (best other logit − its logit) ≤ t.

    That is what `reprogram` does where its sets come from images that the mapping was not estimated from. Where they come
    from folds, a set takes the mappings without each fold, and no threshold says the same: None.
    """
    certainty = model.mapping.certainty
    sets = None if certainty is None else certainty.sets
    if sets is None or sets.affines or certainty is None or certainty.answers is not None:
        return None
    values = torch.cat(list(sets.misfits)).double().sort(descending=True).values / certainty.temperature
    thresholds: dict[str, float | None] = {}
    for coverage in COVERAGES:
        counts = torch.arange(len(values) + 1, dtype=torch.float64)
        enough = ((1 + counts) / (len(values) + 1) > 1 - coverage + 1e-12).nonzero()
        least = int(enough[0]) if len(enough) else len(values) + 1
        if 0 < least <= len(values):  # else every class is always in it, or none ever is
            thresholds[f"{coverage:g}"] = float(values[least - 1])
    return {"samples": len(values), "thresholds": thresholds}


def _calibration(certainty: Certainty | None, temperature: float) -> dict[str, Any] | None:
    if certainty is None or certainty.answers is not None:
        return None
    return {
        "temperature": temperature,
        "how": certainty.how,
        "samples": certainty.n,
        "outdated": certainty.outdated,
    }
