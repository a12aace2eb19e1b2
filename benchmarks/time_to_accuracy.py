"""How long until the accuracy of the paper's 200 epochs? The paper's schedule against short ones, in epochs and in seconds.

    python benchmarks/time_to_accuracy.py FOLDER [FOLDER ...] [--part references|short|seconds|page] [--minutes N]

Each folder holds train/, val/ and test/ with one folder of images per class. The frozen model is the bundled
EfficientNet-Lite0 on a small canvas, with few images of each class, so that 200 epochs take minutes. `references` trains by
the paper's schedule (Adam, lr 0.01, a tenth at 50 % and 72 %, ω by a pass of its own before each epoch). `short` trains
schedules of 20 epochs and fewer, each with three seeds. The epoch of every run is selected on validation. `seconds` times an
epoch of the plain loop and ours in turn; seconds of a run are epochs times these, so that a busy hour does not count. Each
run is written to benchmarks/time_to_accuracy.json when it is done, and is not done again; two parts may run side by side.
Writes docs/results/time-to-accuracy.md.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plain import Plain
from reprogram import Reprogrammed, fit, load_data, load_frozen, make_mapping
from reprogram.data import DataSet
from reprogram.data.decode import Decoding
from reprogram.files import locked, write_file
from reprogram.programs import make_program
from reprogram.programs.settings import default_image_size
from reprogram.run.folder import environment
from reprogram.sources import Frozen
from sets import MODEL, drawn

HERE = Path(__file__).parent
KEPT = HERE / "time_to_accuracy.json"
PAGE = HERE.parent / "docs" / "results" / "time-to-accuracy.md"
MARK = "<!-- tables: made by benchmarks/time_to_accuracy.py -->"
CANVAS = 64
IMAGES = 32  # of each class
NATIVE = 64
BATCH = 64
LONG = 200
LOOKS = 4  # epochs of a reference between two evaluations
SEEDS = (0, 1, 2)
PROGRAMS = ("padding", "watermark")
MAPPINGS = ("blm+", "gaussian")
NEAR = 0.005  # what may be missing to the accuracy of the long run
PAPER: dict[str, Any] = {"lr": 0.01, "schedule": "multistep", "refresh": "fresh"}
#: Of 20 epochs and fewer: what was tried, by its name.
SHORT: dict[str, dict[str, Any]] = {
    "paper's, 20 epochs": {**PAPER, "epochs": 20},
    "one cycle, 10 epochs": {"epochs": 10, "lr": 0.01, "schedule": "onecycle"},
    "one cycle, 20 epochs": {"epochs": 20, "lr": 0.01, "schedule": "onecycle"},
    "one cycle, 10 epochs, small steps": {"epochs": 10, "lr": 0.002, "schedule": "onecycle"},
    "one cycle, 20 epochs, long steps": {"epochs": 20, "lr": 0.05, "schedule": "onecycle"},
    "one cycle, 10 epochs, averaged": {"epochs": 10, "lr": 0.01, "schedule": "onecycle", "average": 1.0},
    "one cycle, 10 epochs, ω after": {"epochs": 10, "lr": 0.01, "schedule": "onecycle", "refresh": "after"},
    "one cycle, 10 epochs, batches of 16": {"epochs": 10, "lr": 0.005, "schedule": "onecycle", "batch_size": 16},
}


class Kept:
    """Runs by what they are, in one file that two parts may write to."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def read(self) -> dict[str, Any]:
        """All runs."""
        return json.loads(KEPT.read_text()) if KEPT.exists() else {"runs": {}}

    def run(self, key: list[Any], make: Any) -> None:
        """Make what is not there, unless time is up."""
        name = json.dumps(key, sort_keys=True)
        if name in self.read()["runs"] or time.monotonic() > self.end:
            return
        started = time.process_time()
        found = {**make(), "processor_seconds": round(time.process_time() - started, 1)}
        with locked(KEPT.with_suffix(".lock"), str(KEPT), wait=60):
            content = self.read()
            content["environment"] = environment(torch.device("cpu"))
            content["runs"][name] = found
            write_file(KEPT, lambda path: path.write_text(json.dumps(content, indent=1) + "\n"))
        told = {part: value for part, value in found.items() if part != "curve"}
        print(name, json.dumps(told), flush=True)


def few(folder: str) -> DataSet:
    """A set with few training images."""
    whole = load_data(folder)
    places = torch.from_numpy(drawn(whole.train.labels.numpy(), IMAGES, 0))
    return replace(whole, train=whole.train.subset(places))


def build(frozen: Frozen, data: DataSet, program: str, mapping: str, **settings: Any) -> Reprogrammed:
    """A model with a program that is not trained yet."""
    own = {"image_size": default_image_size(NATIVE, CANVAS)} if program == "padding" else {}
    made = make_mapping(mapping, frozen.labels, data.classes, span=frozen.span, **settings)
    return Reprogrammed(make_program(program, CANVAS, **own), frozen, made)


def trained(frozen: Frozen, data: DataSet, program: str, mapping: str, seed: int, how: dict[str, Any]) -> dict[str, Any]:
    """One training: the epoch that validation selects, and the whole curve."""
    how = {"batch_size": BATCH, **how}
    own = {"refresh": how.pop("refresh")} if "refresh" in how else {}
    if mapping == "gaussian" and how["schedule"] != "multistep":
        how["loss_temperature"] = "auto"
    model = build(frozen, data, program, mapping, **own)
    result = fit(model, data, seed=seed, decoding=Decoding(cache=False), calibration="none", **how)
    curve = [
        [record["epoch"], round(record["accuracy"]["val"], 4), round(record["accuracy"]["test"], 4)]
        for record in result.records
        if record["accuracy"]["val"] is not None
    ]
    accuracy = {name: round(value, 4) for name, value in result.accuracy.items()}
    return {**accuracy, "selected_epoch": result.selected_epoch, "curve": curve}


def seconds(frozen: Frozen, data: DataSet, program: str, mapping: str, rounds: int = 5) -> dict[str, Any]:
    """Seconds of an epoch in turn: the plain loop by the paper's algorithm, ours by it, and ours with outputs used again."""
    image = CANVAS if program == "watermark" else default_image_size(NATIVE, CANVAS)
    plain = Plain(frozen.module, frozen.mean, frozen.std, CANVAS, image, len(data.classes))
    pixels, labels = data.train.pixels(image).float() / 255, data.train.labels
    quiet = replace(data, val=None, test=data.test.subset(torch.arange(1)))

    def by_the_book() -> None:
        with torch.no_grad():
            for part in pixels.split(BATCH):
                plain.source_logits(part)
        for part, right in zip(pixels.split(BATCH), labels.split(BATCH), strict=True):
            plain.step(part, right)
        plain.logits.clear()
        plain.labels.clear()

    def ours(refresh: str) -> list[float]:
        model = build(frozen, data, program, mapping, refresh=refresh)
        result = fit(
            model, quiet, epochs=3, batch_size=BATCH, evaluate_every=3, decoding=Decoding(cache=False), calibration="none"
        )
        return [record["seconds"] for record in result.records[1:2]]

    times: dict[str, list[float]] = {"plain": [], "paper's": [], "ours": []}
    for _ in range(rounds):
        began = time.perf_counter()
        by_the_book()
        times["plain"].append(time.perf_counter() - began)
        times["paper's"] += ours("fresh")
        times["ours"] += ours("reuse")
    return {name: round(statistics.median(found), 3) for name, found in times.items()} | {"images": len(labels)}


def cells(folders: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Every set, program and mapping."""
    for name in folders:
        for program in PROGRAMS:
            for mapping in MAPPINGS:
                yield name, program, mapping


def percent(value: float) -> str:
    """A share for a reader."""
    return f"{100 * value:.1f}"


def tables(runs: dict[str, Any], names: list[str]) -> str:
    """What was found, for a reader."""
    found = {tuple(json.loads(key)): value for key, value in runs.items()}
    lines = ["### Test accuracy in %, of the epoch that validation selects, and the last one", ""]
    lines += [f"| set | program | mapping | paper's, {LONG} epochs (epoch, last) | " + " | ".join(SHORT) + " |"]
    lines += ["|---|---|---|---:|" + "---:|" * len(SHORT)]
    faster = ["### How many times as fast to that accuracy less half a point", ""]
    faster += ["| set | program | mapping | epoch: plain, paper's by us, ours, s | " + " | ".join(SHORT) + " |"]
    faster += ["|---|---|---|---:|" + "---:|" * len(SHORT)]
    for name, program, mapping in cells(dict.fromkeys(names, "")):
        long = found.get(("long", name, program, mapping))
        cost = found.get(("seconds", name, program, mapping))
        row, speeds = [], []
        for schedule, how in SHORT.items():
            short = [found.get(("short", name, program, mapping, schedule, seed)) for seed in SEEDS]
            done = [one["selected"] for one in short if one is not None]
            spread = f" ± {100 * statistics.stdev(done):.1f}" if len(done) > 1 else ""
            row.append(percent(statistics.mean(done)) + spread if done else "–")
            if not done or long is None or cost is None:
                speeds.append("–")
            elif statistics.mean(done) < long["selected"] - NEAR:
                speeds.append("not reached")
            else:
                own = cost["paper's"] if how.get("refresh") in ("fresh", "after") else cost["ours"]
                speeds.append(f"{LONG * cost['plain'] / (how['epochs'] * own):.0f}")
        told = "–" if long is None else f"{percent(long['selected'])} ({long['selected_epoch']}, {percent(long['last'])})"
        lines.append(f"| {name} | {program} | {mapping} | {told} | " + " | ".join(row) + " |")
        times = "–" if cost is None else ", ".join(f"{cost[part]:.2f}" for part in ("plain", "paper's", "ours"))
        faster.append(f"| {name} | {program} | {mapping} | {times} | " + " | ".join(speeds) + " |")
    return "\n".join([*lines, "", *faster, ""])


def main() -> None:
    """Do what is not done yet, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--part", choices=["references", "short", "seconds", "page"], action="append")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after so many")
    given = parser.parse_args()
    torch.set_num_threads(1)
    kept, parts = Kept(given.minutes), given.part or ["references", "short", "seconds"]
    folders = {Path(folder).resolve().name: folder for folder in given.folders}
    frozen = load_frozen(MODEL)
    data = {name: few(folder) for name, folder in folders.items()}
    for name, program, mapping in cells(folders) if "references" in parts else ():
        how = {**PAPER, "epochs": LONG, "evaluate_every": LOOKS}
        what = (frozen, data[name], program, mapping, SEEDS[0], how)
        kept.run(["long", name, program, mapping], lambda what=what: trained(*what))
    for seed in SEEDS if "short" in parts else ():
        for schedule, how in SHORT.items():
            for name, program, mapping in cells(folders):
                what = (frozen, data[name], program, mapping, seed, how)
                kept.run(["short", name, program, mapping, schedule, seed], lambda what=what: trained(*what))
    for name, program, mapping in cells(folders) if "seconds" in parts else ():
        what = (frozen, data[name], program, mapping)
        kept.run(["seconds", name, program, mapping], lambda what=what: seconds(*what))
    before = PAGE.read_text().partition(MARK)[0] if PAGE.exists() else "# Time to accuracy\n\n"
    PAGE.write_text(f"{before}{MARK}\n\n{tables(kept.read()['runs'], list(folders))}")


if __name__ == "__main__":
    main()
