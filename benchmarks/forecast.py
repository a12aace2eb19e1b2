"""Forecasts of the accuracy with more labels, from an eighth and a quarter of the labels, beside what these brought.

    python benchmarks/forecast.py FOLDER [FOLDER ...]

Each folder holds train/, val/ and test/ with one folder of images per class; see benchmarks/sets.py for their logits. From a
part of train, `reprogram.forecast` says what twice and four times as many labels will bring to the Gaussian mapping. Then
the mapping is estimated from so many (the part among them), and measured on all images that neither it nor the forecast has
seen: val, test and the rest of train, and of those of train that it has seen but the forecast has not, each by
leave-one-out. Writes benchmarks/forecast.json and docs/results/forecast.md.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor

from reprogram import Forecast, Mapping, forecast, make_mapping
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.selection import leads
from reprogram.run.folder import environment
from sets import LogitSet, load_logits

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "forecast.md"
SHARES = (8, 4)
FACTORS = (2, 4)
SEEDS = 4
CLOSE = 0.02


class Truth:
    """What the mapping of a part of train gets right."""

    def __init__(self, found: LogitSet) -> None:
        self.logits = {name: torch.from_numpy(values) for name, values in found.logits.items()}
        self.labels = {name: torch.from_numpy(values).long() for name, values in found.labels.items()}
        self.others = torch.cat([self.logits["val"], self.logits["test"]])
        self.mapping: Mapping = make_mapping("gaussian", found.source_labels, found.classes)
        self.targets = torch.cat([self.labels[name] for name in ("train", "val", "test")])
        self._kept: dict[bytes, Tensor] = {}

    def right(self, part: Tensor) -> Tensor:
        """Whether each image of train, val and test is classified rightly, by the mapping of this part without it, (n,)."""
        key = part.numpy().tobytes()
        if key not in self._kept:
            train, targets = self.logits["train"], self.labels["train"]
            scores = torch.empty(len(self.targets), self.mapping.k_target, dtype=torch.float64)
            mapping = self.mapping
            mapping.estimate(mapping.count(train[part], targets[part]))
            scores[: len(train)][~part] = mapping(train[~part]).double()
            scores[len(train) :] = mapping(self.others).double()
            inside = [rows for rows, _ in LeftOut(mapping)((train[part], targets[part]))]
            scores[: len(train)][part] = torch.cat(inside)
            self._kept[key] = leads(scores, self.targets)
        return self._kept[key]


def drawn(labels: Tensor, seed: int) -> Tensor:
    """A random number of each image within its class, from 0: the first of them are a part."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    places = torch.empty_like(labels)
    for label in labels.unique():
        members = order[labels[order] == label]
        places[members] = torch.arange(len(members))
    return places


def judge(truth: Truth, seed: int, share: int) -> dict[str, object]:
    """One forecast beside what came of it."""
    labels = truth.labels["train"]
    counts, places = torch.bincount(labels), drawn(labels, seed)
    parts = {factor: places < (counts * factor / share).round().clamp_min(1)[labels] for factor in (1, *FACTORS)}
    part = parts[1]
    started = time.process_time()
    said = forecast((truth.logits["train"][part], labels[part]), truth.mapping, factors=FACTORS, seed=seed)
    seconds = time.process_time() - started
    unseen = torch.ones(len(truth.targets), dtype=torch.bool)
    unseen[: len(labels)] = ~part
    hits = {factor: truth.right(rows)[unseen].double() for factor, rows in parts.items()}
    rows = []
    for point in said.points:
        before, after = float(hits[1].mean()), float(hits[round(point.factor)].mean())
        rows.append(
            {
                "factor": point.factor,
                "forecast": point.accuracy,
                "low": point.low,
                "high": point.high,
                "truth": after,
                "gain": point.gain,
                "gain_low": point.gain_low,
                "gain_high": point.gain_high,
                "true_gain": after - before,
                "by_doubling": doubled(said, point.factor),
            }
        )
    return {"seed": seed, "share": share, "samples": int(part.sum()), "seconds": seconds, "points": rows} | classes(
        truth, said, hits[FACTORS[0]] - hits[1], unseen
    )


def doubled(said: Forecast, factor: float) -> float:
    """The simplest forecast: every doubling brings what the last one brought."""
    last, half = said.measured[-1], min(said.measured, key=lambda point: abs(point.size - said.measured[-1].size / 2))
    steps = torch.tensor(last.size / half.size).log2().item() or 1.0
    gain = max(last.accuracy - half.accuracy, 0.0) / steps if half is not last else 0.0
    return min(1.0, last.accuracy + gain * float(torch.tensor(factor).log2()))


def classes(truth: Truth, said: Forecast, gained: Tensor, unseen: Tensor) -> dict[str, object]:
    """What the class gained that is named first, what the average one did, and how often intervals of classes hold."""
    targets = truth.targets[unseen]
    sizes = torch.bincount(targets, minlength=truth.mapping.k_target)
    found = torch.bincount(targets, gained, minlength=truth.mapping.k_target) / sizes
    true = {name: float(found[truth.mapping.classes.index(name)]) for name in (gain.name for gain in said.gains)}
    ranked = sorted(said.gains, key=lambda gain: -gain.first)
    squares = torch.bincount(targets, gained.square(), minlength=truth.mapping.k_target) / sizes
    error = 1.645 * ((squares - found.square()).clamp_min(0) / sizes).sqrt()  # of the measured gains
    held = []
    for gain in said.gains:
        off = true[gain.name] - gain.gain
        reach = gain.high - gain.gain if off > 0 else gain.gain - gain.low
        held.append(abs(off) <= (reach**2 + float(error[truth.mapping.classes.index(gain.name)]) ** 2) ** 0.5)
    return {
        "told": said.most is not None,
        "first": true[ranked[0].name],
        "average": statistics.mean(true.values()),
        "best": max(true.values()),
        "classes_held": sum(held) / len(held),
    }


def mean(values: list[float]) -> float:
    """Of a list that may be empty."""
    return statistics.mean(values) if values else float("nan")


def summary(runs: list[dict], factor: int) -> dict[str, float]:
    """Of all runs of one set and share."""
    points = [point for run in runs for point in run["points"] if point["factor"] == factor]
    off = [point["forecast"] - point["truth"] for point in points]
    gain = [point["gain"] - point["true_gain"] for point in points]
    return {
        "forecasts": len(points),
        "truth": mean([point["truth"] for point in points]),
        "forecast": mean([point["forecast"] for point in points]),
        "off": mean([abs(value) for value in off]),
        "close": mean([float(abs(value) <= CLOSE) for value in off]),
        "held": mean([float(point["low"] <= point["truth"] <= point["high"]) for point in points]),
        "width": mean([point["high"] - point["low"] for point in points]),
        "true_gain": mean([point["true_gain"] for point in points]),
        "gain_off": mean([abs(value) for value in gain]),
        "gain_close": mean([float(abs(value) <= CLOSE) for value in gain]),
        "gain_held": mean([float(point["gain_low"] <= point["true_gain"] <= point["gain_high"]) for point in points]),
        "same": mean([abs(point["true_gain"]) for point in points]),
        "doubling": mean([abs(point["by_doubling"] - point["truth"]) for point in points]),
    }


def page(results: dict[str, list[dict]], whole: dict[str, dict], made: dict) -> str:
    """The tables for a reader."""
    lines = [
        "# How many more labels: forecasts beside what came of them",
        "",
        "From a part of the training images of each set, the accuracy of `gaussian` with 2 and 4 times as many was forecast",
        f"({SEEDS} random parts each, bundled EfficientNet-Lite0, no program), and then measured on images that neither the",
        "mapping nor the forecast had seen. In points of accuracy; `off` is the mean absolute error, `within 2` the share",
        "of forecasts that are off by at most 2 points, `held` how often the 90 % interval holds what was measured.",
        "",
        "Made by `python benchmarks/forecast.py " + " ".join(results) + "`",
        f"({made['cores']} cores, torch {made['packages']['torch']}).",
        "",
        "## The accuracy",
        "",
        "| from | to | measured | forecast | off | within 2 | held | interval's width | off, if the last doubling went on |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    totals: list[dict[str, float]] = []
    rows = []
    for name, runs in results.items():
        for share in SHARES:
            chosen = [run for run in runs if run["share"] == share]
            for factor in FACTORS:
                found = summary(chosen, factor)
                totals.append(found)
                rows.append((f"{name}, {chosen[0]['samples']} labels", f"{factor} ×", found))
    total = {key: mean([entry[key] for entry in totals]) for key in totals[0]}
    for what, to, found in [*rows, ("**all**", "", total)]:
        lines.append(
            f"| {what} | {to} | {_p(found['truth'])} | {_p(found['forecast'])} | {_p(found['off'])} | "
            f"{100 * found['close']:.0f} % | {100 * found['held']:.0f} % | {_p(found['width'])} | {_p(found['doubling'])} |"
        )
    lines += [
        "",
        "## The gain",
        "",
        "What more labels bring is surer than where it starts from, because the same images are measured on all along.",
        "",
        "| from | to | measured gain | off | within 2 | held | off, if nothing were gained |",
        "|---|---|---|---|---|---|---|",
    ]
    for what, to, found in [*rows, ("**all**", "", total)]:
        lines.append(
            f"| {what} | {to} | {_p(found['true_gain'])} | {_p(found['gain_off'])} | {100 * found['gain_close']:.0f} % | "
            f"{100 * found['gain_held']:.0f} % | {_p(found['same'])} |"
        )
    lines += [
        "",
        "## Which class gains most",
        "",
        "What the class gained, with twice the labels, that was thought the likeliest to gain most; what the average class",
        "gained, and the best. `told` is how often the forecast dared to name it without a perhaps. A class's gain is",
        "measured on few images: its interval counts as held where the two differ by no more than both intervals allow.",
        "",
        "| from | told | the class | the average | the best | intervals of classes that held |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in results.items():
        for share in SHARES:
            chosen = [run for run in runs if run["share"] == share]
            found = {
                key: mean([float(run[key]) for run in chosen])
                for key in ("told", "first", "average", "best", "classes_held")
            }
            lines.append(
                f"| {name}, {chosen[0]['samples']} labels | {100 * found['told']:.0f} % | {_p(found['first'])} | "
                f"{_p(found['average'])} | {_p(found['best'])} | {100 * found['classes_held']:.0f} % |"
            )
    lines += ["", "## From all training images", "", "Nobody knows yet whether these are true. Seconds of one core.", ""]
    lines += [f"- {name}: {entry['sentence']} ({entry['seconds']:.1f} s)" for name, entry in whole.items()]
    return "\n".join([*lines, "", *verdict(total)]) + "\n"


def verdict(total: dict[str, float]) -> list[str]:
    """What the tables say, in words, whatever that is."""
    reached = "reached" if total["off"] <= CLOSE else "missed"
    close, held, gain_held = (100 * total[key] for key in ("close", "held", "gain_held"))
    return [
        f"**Reading.** The mean forecast is off by {_p(total['off'])} points, so the goal of 2 points is {reached}; "
        f"{close:.0f} % of the forecasts are within it.",
        f"Of the gain alone the forecast is off by {_p(total['gain_off'])} points, and {100 * total['gain_close']:.0f} % "
        "are within 2. Much of the rest is the level:",
        "an accuracy of 85 % that is measured on 80 to 500 images has a standard error of 4 to 1.6 points before any curve",
        f"is followed. The 90 % intervals held in {held:.0f} % of the cases for the accuracy and in {gain_held:.0f} % for",
        f"the gain; with {SEEDS} parts, which overlap, each cell is coarse.",
        "",
        "With two labels per class (objects100, 200 labels) the accuracy is a guess, far too low here, and its interval so",
        "wide that the sentence says so. One label of two has to be measured on, so the curve has a single point, at one",
        "label per class; that the mapping has no scatter there to estimate is a likely cause, which was not tried apart.",
        "",
        "What was set with which results in view: the prior of the power laws, the allowance for being off the law and that",
        "for bends were chosen among a handful of values on other random parts of eurosat-mini and textures10, so that",
        "cifar10-mini and objects100 are the fairer test of the first two tables. The classes' intervals are no test at",
        "all: in a first run on all four sets, without the luck of the samples and counted strictly, they held in 32 to",
        "68 % of the cases; then the luck was added, at a size that was not tuned, and the error of the measured gains",
        "taken into account. Since then they hold too often for 90 %, so they are wider than they need be. No class was",
        "ever named without a perhaps.",
    ]


def _p(share: float) -> str:
    return f"{100 * share:.1f}"


def main() -> None:
    """Judge all folders and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    torch.set_num_threads(1)
    results: dict[str, list[dict]] = {}
    whole: dict[str, dict] = {}
    for folder in parser.parse_args().folders:
        found = load_logits(folder)
        truth = Truth(found)
        results[found.name] = []
        for seed in range(SEEDS):
            for share in SHARES:
                results[found.name].append(judge(truth, seed, share))
            print(found.name, seed, json.dumps(results[found.name][-1]["points"][1]), flush=True)
        started = time.process_time()
        said = forecast((truth.logits["train"], truth.labels["train"]), truth.mapping, factors=FACTORS)
        whole[found.name] = {"sentence": str(said), "seconds": time.process_time() - started, **said.to_json()}
        print(found.name, said, f"{whole[found.name]['seconds']:.1f} s", flush=True)
    made = environment(torch.device("cpu"))
    (HERE / "forecast.json").write_text(
        json.dumps({"environment": made, "results": results, "whole": whole}, indent=1) + "\n"
    )
    PAGE.write_text(page(results, whole, made))


if __name__ == "__main__":
    main()
