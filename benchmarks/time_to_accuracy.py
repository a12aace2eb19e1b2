"""How long until the accuracy of the paper's 200 epochs? The paper's schedule against short ones, in epochs and in seconds.

    python benchmarks/time_to_accuracy.py FOLDER [FOLDER ...] [--part references|short|seconds|page] [--minutes N]

Each folder holds train/, val/ and test/ with one folder of images per class. The frozen model is the bundled
EfficientNet-Lite0 on a small canvas, with few images of each class, so that 200 epochs take minutes. `references` trains by
the paper's schedule (Adam, lr 0.01, a tenth at 50 % and 72 %, ω by a pass of its own before each epoch). `short` trains
schedules of 40 epochs and fewer. The epoch of every run is selected on validation. `seconds` times an epoch of the plain
loop and ours in turn, each with memory as it has it (glibc's way, and ours); seconds of a run are epochs times these,
without any evaluation, so that a busy hour does not count. Each run is written to benchmarks/time_to_accuracy.json when it
is done, and is not done again; two parts may run side by side. Writes docs/results/time-to-accuracy.md and .png.
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

from kept import Kept
from kept_memory import give_back
from plain import Plain
from reprogram import Reprogrammed, fit, load_data, load_frozen, make_mapping
from reprogram.data import DataSet
from reprogram.data.decode import Decoding
from reprogram.memory import keep_freed_memory
from reprogram.programs import make_program
from reprogram.programs.settings import default_image_size
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
#: The step that suits a program: padding squashes θ and then scales it, so that 0.1 of θ is about 0.05 of a pixel's range
#: before normalisation; a watermark is added to normalised pixels as it is.
STEPS = {"padding": 0.1, "watermark": 0.002}
_CYCLE: dict[str, Any] = {"schedule": "onecycle", "loss_temperature": "auto", "evaluate_every": 2}
#: Of 40 epochs and fewer: what was tried, by its name; `share` is that of the rate in `STEPS`.
SHORT: dict[str, dict[str, Any]] = {
    "one cycle, 20": {**_CYCLE, "epochs": 20},
    "one cycle, 10": {**_CYCLE, "epochs": 10},
    "one cycle, 20, lr / 3": {**_CYCLE, "epochs": 20, "share": 1 / 3},
    "one cycle, 40": {**_CYCLE, "epochs": 40, "evaluate_every": 4},
    "paper's, 20": {**PAPER, "epochs": 20, "evaluate_every": 2},
    "one cycle, 20, averaged": {**_CYCLE, "epochs": 20, "average": 1.0},
    "cosine, 20": {**_CYCLE, "schedule": "cosine", "epochs": 20},
    "one cycle, 20, plain loss": {**_CYCLE, "epochs": 20, "loss_temperature": "none"},
    "one cycle, 10, ω after": {**_CYCLE, "epochs": 10, "refresh": "after"},
    "one cycle, 10, batches of 16": {**_CYCLE, "epochs": 10, "batch_size": 16},
}
#: Of these, all seeds; of the others, the first.
REPEATED = tuple(SHORT)[:4]


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
    how.setdefault("lr", STEPS[program] * how.pop("share", 1.0))
    own = {"refresh": how.pop("refresh")} if "refresh" in how else {}
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

    def by_the_book() -> list[float]:
        give_back()
        began = time.perf_counter()
        with torch.no_grad():
            for part in pixels.split(BATCH):
                plain.source_logits(part)
        for part, right in zip(pixels.split(BATCH), labels.split(BATCH), strict=True):
            plain.step(part, right)
        plain.logits.clear()
        plain.labels.clear()
        return [time.perf_counter() - began]

    def ours(refresh: str) -> list[float]:
        keep_freed_memory()
        model = build(frozen, data, program, mapping, refresh=refresh)
        how: dict[str, Any] = {"epochs": 4, "evaluate_every": 4, "loss_temperature": "auto", "calibration": "none"}
        result = fit(model, quiet, batch_size=BATCH, decoding=Decoding(cache=False), **how)
        return [record["seconds"] for record in result.records[1:3]]  # the first has a pass of its own, the last is tested

    times: dict[str, list[float]] = {"plain": [], "paper's": [], "ours": []}
    for _ in range(rounds):
        times["plain"] += by_the_book() + by_the_book()
        times["paper's"] += ours("fresh")
        times["ours"] += ours("reuse")
    return {name: round(statistics.median(found), 3) for name, found in times.items()} | {"images": len(labels)}


def cells(folders: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Every set, program and mapping."""
    for name in folders:
        for program in PROGRAMS:
            for mapping in MAPPINGS:
                yield name, program, mapping


class Found:
    """What was found of one set, program and mapping.

    Args:
        runs: by their keys.
        cell: set, program, mapping.
    """

    def __init__(self, runs: dict[tuple[Any, ...], Any], cell: tuple[str, str, str]) -> None:
        self.long = [runs[key] for key in (("long", *cell, seed) for seed in SEEDS) if key in runs]
        self.cost = runs.get(("seconds", *cell))
        self._short = {
            name: [runs[key] for key in (("short", *cell, name, seed) for seed in SEEDS) if key in runs] for name in SHORT
        }

    def short(self, schedule: str) -> list[dict[str, Any]]:
        """The runs of a schedule."""
        return self._short[schedule]

    @property
    def wanted(self) -> float:
        """The accuracy of the long runs, less what may be missing."""
        return statistics.mean(run["selected"] for run in self.long) - NEAR

    def reached(self, schedule: str) -> bool:
        """Whether the mean over the seeds is that."""
        return statistics.mean(run["selected"] for run in self.short(schedule)) >= self.wanted

    @property
    def own_epochs(self) -> float:
        """After how many epochs the long runs themselves had it, by the best epoch on validation so far; looking back."""
        firsts = []
        for run in self.long:
            best = 0.0
            for epoch, val, test in run["curve"]:
                if val > best:
                    best = val
                    if test >= run["selected"] - NEAR:
                        firsts.append(epoch)
                        break
        return statistics.mean(firsts)

    def seconds(self, schedule: str) -> float:
        """What a schedule takes: its epochs, and a third of one for the first ω."""
        how = SHORT[schedule]
        return (how["epochs"] + 1 / 3) * self.cost["paper's" if how.get("refresh") in ("fresh", "after") else "ours"]


def told(runs: list[dict[str, Any]]) -> str:
    """The mean of the selected epochs' accuracies, with the deviation over seeds."""
    values = [100 * run["selected"] for run in runs]
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def tables(found: dict[tuple[str, str, str], Found]) -> str:
    """What was found, for a reader."""
    head = "| set | program | mapping | "
    tried = [name for name in SHORT if any(one.short(name) for one in found.values())]
    lines = ["### Test accuracy in %, of the epoch that validation selects", ""]
    lines += [f"{head}paper's, {LONG} epochs | of these, the last epoch | " + " | ".join(tried) + " |"]
    lines += ["|---|---|---|---:|---:|" + "---:|" * len(tried)]
    faster = ["### How many times as fast to that accuracy less half a point, in seconds", ""]
    faster += [f"{head}s of an epoch: plain, paper's by us, ours | " + " | ".join(tried) + " |"]
    faster += ["|---|---|---|---:|" + "---:|" * len(tried)]
    for cell, one in found.items():
        if not one.long:
            continue
        cells_ = [told(one.short(name)) if one.short(name) else "–" for name in tried]
        last = statistics.mean(100 * run["last"] for run in one.long)
        lines.append(f"| {' | '.join(cell)} | {told(one.long)} | {last:.1f} | {' | '.join(cells_)} |")
        speeds = []
        for name in tried:
            if not one.short(name) or one.cost is None:
                speeds.append("–")
            elif one.reached(name):
                whole, own = LONG * one.cost["plain"], one.own_epochs * one.cost["plain"]
                speeds.append(f"**{whole / one.seconds(name):.0f}** ({own / one.seconds(name):.1f})")
            else:
                speeds.append("not reached")
        times = "–" if one.cost is None else ", ".join(f"{one.cost[part]:.2f}" for part in ("plain", "paper's", "ours"))
        faster.append(f"| {' | '.join(cell)} | {times} | {' | '.join(speeds)} |")
    note = (
        f"In bold against all {LONG} epochs of the plain loop; in brackets against that loop if it had been stopped when it "
        "first had this accuracy, which nobody knows before."
    )
    return "\n".join([*lines, "", *faster, "", note, ""])


def draw(found: dict[tuple[str, str, str], Found], path: Path) -> None:
    """Accuracy against seconds: the paper's schedule in the plain loop, and two of ours."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = [(cell, one) for cell, one in found.items() if one.long and one.cost is not None]
    rows = -(-len(shown) // 4)
    figure, axes = plt.subplots(rows, 4, figsize=(15, 3.4 * rows), layout="constrained", squeeze=False, sharex=True)
    for axis, (cell, one) in zip(axes.flat, shown, strict=False):
        for run in one.long:
            epochs, _, test = zip(*run["curve"], strict=True)
            places, label = [epoch * one.cost["plain"] for epoch in epochs], f"paper's {LONG} epochs, plain loop"
            axis.plot(places, [100 * value for value in test], color="0.55", lw=1, label=label)
        axis.axhline(100 * one.wanted, color="0.25", lw=0.8, ls=":", label="its selected accuracy less half a point")
        for name, colour in zip(("one cycle, 20", "one cycle, 10"), ("#0b6e99", "#d1495b"), strict=True):
            each, label = one.seconds(name) / SHORT[name]["epochs"], f"ours, {name}: selected"
            for run in one.short(name):
                epochs, _, test = zip(*run["curve"], strict=True)
                places = [epoch * each for epoch in epochs]
                axis.plot(places, [100 * value for value in test], color=colour, lw=0.8, alpha=0.5)
                axis.plot(run["selected_epoch"] * each, 100 * run["selected"], "o", color=colour, ms=5, label=label)
        axis.set(xscale="log", title=", ".join(cell), ylabel="test accuracy, %")
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("seconds of training on one core")
    handles = {label: handle for handle, label in zip(*axes[0, 0].get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=90)


def main() -> None:
    """Do what is not done yet, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--part", choices=["references", "short", "seconds", "page"], action="append")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after so many")
    given = parser.parse_args()
    torch.set_num_threads(1)
    kept, parts = Kept(KEPT, given.minutes), given.part or ["references", "short", "seconds"]
    folders = {Path(folder).resolve().name: folder for folder in given.folders}
    frozen = load_frozen(MODEL)
    data = {name: few(folder) for name, folder in folders.items()}
    for seed in SEEDS if "references" in parts else ():
        for name, program, mapping in cells(folders):
            how = {**PAPER, "epochs": LONG, "evaluate_every": LOOKS}
            what = (frozen, data[name], program, mapping, seed, how)
            kept.run(["long", name, program, mapping, seed], lambda what=what: trained(*what))
    for schedule, how in SHORT.items() if "short" in parts else ():
        for seed in SEEDS if schedule in REPEATED else SEEDS[:1]:
            for name, program, mapping in cells(folders):
                what = (frozen, data[name], program, mapping, seed, how)
                kept.run(["short", name, program, mapping, schedule, seed], lambda what=what: trained(*what))
    for name, program, mapping in cells(folders) if "seconds" in parts else ():
        what = (frozen, data[name], program, mapping)
        kept.run(["seconds", name, program, mapping], lambda what=what: seconds(*what))
    runs = {tuple(json.loads(key)): value for key, value in kept.read()["runs"].items()}
    found = {cell: Found(runs, cell) for cell in cells(folders)}
    before = PAGE.read_text().partition(MARK)[0] if PAGE.exists() else "# Time to accuracy\n\n"
    PAGE.write_text(f"{before}{MARK}\n\n{tables(found)}\n![Accuracy against seconds]({PAGE.stem}.png)\n")
    if any(one.long and one.cost is not None for one in found.values()):
        draw(found, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
