"""Whether bf16 passes cost accuracy: the same trainings in fp32 and in bf16, with the same seeds.

    python benchmarks/bf16_accuracy.py FOLDER [FOLDER ...] [--minutes N] [--page]

Each folder holds train/, val/ and test/ with one folder of images per class. The frozen models are the bundled
EfficientNet-Lite0, and for padding with BLM+ also Lite1, on a small canvas, with few images of each class. Of every run
the epoch is selected on validation and reported on test, beside how many test images its model classifies otherwise in the
other precision. Each run is written to benchmarks/bf16_accuracy.json when it is done, and is not done again. Writes the
tables of docs/results/bf16.md. It wants a processor with bf16 in hardware: emulated, it would take days.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kept import Kept
from reprogram import Reprogrammed, fit, load_data, load_frozen, make_mapping
from reprogram.data import DataSet
from reprogram.data.decode import Decoding
from reprogram.devices import in_hardware
from reprogram.programs import make_program
from reprogram.programs.settings import default_image_size
from reprogram.sources import Frozen
from reprogram.training import evaluate
from sets import drawn

HERE = Path(__file__).parent
KEPT = HERE / "bf16_accuracy.json"
PAGE = HERE.parent / "docs" / "results" / "bf16.md"
MARK = "<!-- tables: made by benchmarks/bf16_accuracy.py -->"
CANVAS = 64
NATIVE = 64
IMAGES = 32  # of each class
EPOCHS = 10
SEEDS = (0, 1, 2)
PRECISIONS = ("fp32", "bf16")
LITE0, LITE1 = "efficientnet_lite0", "efficientnet_lite1"


def few(folder: str) -> DataSet:
    """A set with few training images."""
    whole = load_data(folder)
    places = torch.from_numpy(drawn(whole.train.labels.numpy(), IMAGES, 0))
    return replace(whole, train=whole.train.subset(places))


def trained(frozen: Frozen, data: DataSet, program: str, mapping: str, seed: int, precision: str) -> dict[str, Any]:
    """One training: the accuracy of the epoch that validation selects, and of its model in the other precision."""
    own = {"image_size": default_image_size(NATIVE, CANVAS)} if program == "padding" else {}
    made = make_mapping(mapping, frozen.labels, data.classes, span=frozen.span)
    model = Reprogrammed(make_program(program, CANVAS, **own), frozen, made)
    quiet = Decoding(cache=False)
    how: dict[str, Any] = {"lr": 0.01, "schedule": "onecycle", "epochs": EPOCHS, "batch_size": 64, "evaluate_every": 2}
    if mapping == "gaussian":
        how["loss_temperature"] = "auto"
    result = fit(model, data, seed=seed, decoding=quiet, calibration="none", precision=precision, **how)
    other = "fp32" if precision == "bf16" else "bf16"
    crossed: Any = evaluate(model, data.test, precision=other, decoding=quiet)
    accuracy = {name: round(float(value), 4) for name, value in result.accuracy.items() if value is not None}
    return {
        **accuracy,
        "selected_epoch": result.selected_epoch,
        "loss": round(result.records[-1]["loss"], 4),
        "in_the_other": round(crossed.accuracy, 4),
        "otherwise": int((crossed.predicted != result.test.predicted).sum()),
        "test_images": len(data.test),
    }


def cells(names: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Every model, set, program and mapping."""
    for name in names:
        for program in ("padding", "watermark"):
            for mapping in ("blm+", "gaussian"):
                yield LITE0, name, program, mapping
    for name in names:
        yield LITE1, name, "padding", "blm+"


def tables(runs: dict[str, Any], names: list[str]) -> str:
    """What was found, for a reader."""
    found = {tuple(json.loads(key)): value for key, value in runs.items()}
    lines = [
        "| model | set | program | mapping | fp32, each seed | bf16, each seed | paired differences | mean "
        "| deviation of fp32 over seeds | same model in the other precision: classified otherwise |",
        "|---|---|---|---|---|---|---|---:|---:|---:|",
    ]
    paired: list[float] = []
    otherwise = images = 0
    for cell in cells(names):
        pairs = [[found.get((*cell, seed, precision)) for precision in PRECISIONS] for seed in SEEDS]
        whole = [pair for pair in pairs if None not in pair]
        if not whole:
            continue
        scores = {p: [100 * pair[place]["selected"] for pair in whole] for place, p in enumerate(PRECISIONS)}
        gaps = [low - full for full, low in zip(scores["fp32"], scores["bf16"], strict=True)]
        changed = sum(run["otherwise"] for pair in whole for run in pair)
        asked = sum(run["test_images"] for pair in whole for run in pair)
        paired, otherwise, images = [*paired, *gaps], otherwise + changed, images + asked
        shown = {name: ", ".join(f"{score:.1f}" for score in row) for name, row in scores.items()}
        spread = f"{statistics.stdev(scores['fp32']):.2f}" if len(whole) > 1 else "–"
        lines.append(
            f"| {' | '.join(cell)} | {shown['fp32']} | {shown['bf16']} | {', '.join(f'{gap:+.1f}' for gap in gaps)} "
            f"| {statistics.mean(gaps):+.2f} | {spread} | {changed} of {asked} |"
        )
    if len(paired) > 1:
        error = statistics.stdev(paired) / len(paired) ** 0.5
        better, worse = sum(gap > 0 for gap in paired), sum(gap < 0 for gap in paired)
        lines += [
            "",
            f"All {len(paired)} pairs: bf16 − fp32 is {statistics.mean(paired):+.2f} points, standard error {error:.2f}; "
            f"bf16 is better in {better}, worse in {worse}, equal in {len(paired) - better - worse}. The largest "
            f"differences are {min(paired):+.1f} and {max(paired):+.1f}. Of {images:,} test images, a trained model "
            f"classifies {otherwise} otherwise in the precision that it was not trained in.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Do what is not done yet, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after so many")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folders = {Path(folder).resolve().name: folder for folder in given.folders}
    kept = Kept(KEPT, 0 if given.page else given.minutes)
    if not given.page and not in_hardware(torch.device("cpu"), "bf16"):
        parser.error("this processor has no bf16 in hardware")
    data = {name: few(folder) for name, folder in folders.items()}
    models = {name: load_frozen(f"bundled:{name}") for name in (LITE0, LITE1)}
    for seed in SEEDS:
        for model, name, program, mapping in cells(list(folders)):
            for precision in PRECISIONS:
                what = (models[model], data[name], program, mapping, seed, precision)
                kept.run([model, name, program, mapping, seed, precision], lambda what=what: trained(*what))
    before = PAGE.read_text().partition(MARK)[0] if PAGE.exists() and MARK in PAGE.read_text() else "# bf16 against fp32\n\n"
    PAGE.write_text(f"{before}{MARK}\n\n{tables(kept.read()['runs'], list(folders))}")


if __name__ == "__main__":
    main()
