"""How far probabilities, prediction sets and "none of these" can be believed, on logits of real image sets.

    python benchmarks/certainty.py FOLDER [FOLDER ...]

Writes benchmarks/certainty.json and docs/results/certainty.md.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from reprogram.mappings.base import Mapping
from reprogram.mappings.certainty import measure_certainty
from reprogram.mappings.making import make_mapping
from reprogram.mappings.prediction_sets import sets_of
from reprogram.mappings.reliability import ReliabilitySums
from reprogram.mappings.selection import select
from sets import HERE, LogitSet, load_logits

SHOTS = (None, 8, 4, 2, 1)
METHODS = ("gaussian", "blm+", "blm", "flm", "auto")
DRAWS = 3  # of few-shot training sets
SPLITS = 200
WHOLE_SPLITS = 5  # in all coordinates
COORDINATES = 128  # of the 200 splits
TESTED = 400  # samples of each split that are asked about
COVERAGE = 0.9


def fitted(name: str, logits: torch.Tensor, targets: torch.Tensor, data: LogitSet) -> Mapping:
    """A mapping of these samples."""
    settings = {}
    if name == "auto":
        choice = select((logits, targets), len(data.classes)).choice
        name, settings = choice.mapping, choice.settings
    labels = [f"label {number}" for number in range(logits.shape[1])]
    mapping = make_mapping(name, labels, data.classes, **settings)
    mapping.estimate(mapping.count(logits, targets))
    return mapping


def few(targets: np.ndarray, shots: int | None, rng: np.random.Generator) -> np.ndarray:
    """The places of so many samples of each class."""
    if shots is None:
        return np.arange(len(targets))
    return np.concatenate([rng.permutation(np.flatnonzero(targets == each))[:shots] for each in np.unique(targets)])


def probabilities(data: LogitSet) -> list[dict]:
    """Test reliability before and after, by method and number of samples."""
    rows = []
    test, truth = torch.from_numpy(data.logits["test"]), torch.from_numpy(data.labels["test"]).long()
    for method in METHODS:
        for shots in SHOTS:
            if method == "auto" and shots not in (None, 4):
                continue
            found = []
            for draw in range(1 if shots is None else DRAWS):
                chosen = few(data.labels["train"], shots, np.random.default_rng(draw))
                logits = torch.from_numpy(data.logits["train"][chosen])
                targets = torch.from_numpy(data.labels["train"][chosen]).long()
                mapping = fitted(method, logits, targets, data)
                certainty = measure_certainty(mapping, (logits, targets), sets=False)
                scores, real = mapping(test), {}
                for when, divisor in (("raw", 1.0), ("honest", certainty.temperature)):
                    sums = ReliabilitySums()
                    sums.add(scores / divisor, truth)
                    real[when] = sums.mean().to_json()
                found.append({"temperature": certainty.temperature, **real})
            mean = {
                when: {name: float(np.mean([one[when][name] for one in found])) for name in found[0][when]}
                for when in ("raw", "honest")
            }
            rows.append({"method": method, "shots": shots, "temperature": found[0]["temperature"], **mean})
            print(data.name, method, shots, rows[-1]["raw"]["log_loss"], rows[-1]["honest"]["log_loss"], flush=True)
    return rows


def judged(mapping: Mapping, logits: torch.Tensor, truth: torch.Tensor, **how: bool) -> dict[str, float]:
    """Coverage, mean size and the worst class's coverage of sets."""
    assert mapping.certainty is not None
    assert mapping.certainty.sets is not None
    kept = mapping.certainty.sets.p_values(mapping, logits, **how) > 1 - COVERAGE
    inside = kept.gather(1, truth[:, None]).flatten().double()
    return {"covered": float(inside.mean()), "size": float(kept.sum(1).double().mean()), "inside": inside.tolist()}


def coverage(data: LogitSet, coordinates: int | None, splits: int) -> dict:
    """Sets over random splits of all samples: as many to train on as the set has, the others are asked about."""
    pool = torch.from_numpy(np.concatenate([data.logits[split] for split in data.logits])).double()
    labels = torch.from_numpy(np.concatenate([data.labels[split] for split in data.labels])).long()
    if coordinates is not None:  # of the largest deviation; without looking at labels
        pool = pool - pool.mean(0)
        pool = pool @ torch.linalg.eigh(pool.T @ pool).eigenvectors[:, -coordinates:]
    n = len(data.labels["train"])
    found: dict[str, list[dict]] = {"cross": [], "per class": [], "strict": [], "split 70/30": []}
    classes: list[tuple[list[int], list[float]]] = []
    for draw in range(splits):
        order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(draw))
        train, test = order[:n], order[n : n + TESTED]
        logits, targets, asked, truth = pool[train], labels[train], pool[test], labels[test]
        mapping = fitted("gaussian", logits, targets, data)
        measure_certainty(mapping, (logits, targets))
        found["cross"].append(judged(mapping, asked, truth))
        found["per class"].append(judged(mapping, asked, truth, per_class=True))
        found["strict"].append(judged(mapping, asked, truth, strict=True))
        classes.append((truth.tolist(), found["per class"][-1]["inside"]))
        cut = int(0.7 * n)
        half = fitted("gaussian", logits[:cut], targets[:cut], data)
        measure_certainty(half, (logits[cut:], targets[cut:]), held_out=True)
        found["split 70/30"].append(judged(half, asked, truth))
        if draw % 50 == 0:
            print(data.name, coordinates, draw, found["cross"][-1]["covered"], found["cross"][-1]["size"], flush=True)
    started = time.perf_counter()
    assert mapping.certainty is not None
    assert mapping.certainty.sets is not None
    values = mapping.certainty.sets.p_values(mapping, asked)
    sets_of(values, COVERAGE, data.classes)
    seconds = (time.perf_counter() - started) / len(asked)
    each = np.array([truth for truths, _ in classes for truth in truths])
    hits = np.array([hit for _, inside in classes for hit in inside])
    by_class = [float(hits[each == number].mean()) for number in range(len(data.classes)) if (each == number).any()]
    result: dict = {"microseconds": 1e6 * seconds, "by_class": [min(by_class), max(by_class)], "splits": splits}
    for how, runs in found.items():
        shares, sizes = (np.array([run[name] for run in runs]) for name in ("covered", "size"))
        error = 1.96 * float(shares.std(ddof=1)) / len(runs) ** 0.5
        result[how] = {"covered": float(shares.mean()), "error": error, "size": float(sizes.mean())}
    return result


def strangers(data: LogitSet, others: list[LogitSet]) -> dict:
    """How images of other sets are told from test images of this one."""
    logits = torch.from_numpy(data.logits["train"])
    mapping = fitted("gaussian", logits, torch.from_numpy(data.labels["train"]).long(), data)
    measure_certainty(mapping, (logits, torch.from_numpy(data.labels["train"]).long()))
    own = mapping.predict(torch.from_numpy(data.logits["test"]), unlike=0.01)
    assert own.typicality is not None
    assert mapping.certainty is not None
    result = {"false": float((own.typicality < 0.01).double().mean()), "from": {}}
    for other in others:
        said = mapping.predict(torch.from_numpy(other.logits["test"]), unlike=0.01)
        assert said.typicality is not None
        inside, outside = own.typicality.numpy(), said.typicality.numpy()
        above = (inside[:, None] > outside).mean() + (inside[:, None] == outside).mean() / 2
        sure = (own.confidence.numpy()[:, None] > said.confidence.numpy()).mean()
        flagged = float((outside < 0.01).mean())
        result["from"][other.name] = {"auroc": float(above), "by_confidence": float(sure), "flagged": flagged}
    return result


def page(results: dict, names: list[str]) -> str:
    """The study as Markdown."""
    lines = [
        "# How far answers can be believed",
        "",
        'Probabilities, prediction sets and "none of these" on logits of the bundled EfficientNet-Lite0, without a program.',
        "[What they are](../certainty.md).",
        "",
        f"Made by `python benchmarks/certainty.py {' '.join(names)}`",
        f"({os.cpu_count()} cores, torch {torch.__version__}).",
        "",
        "## Honest probabilities",
        "",
        "Test log-loss, Brier score and calibration error (15 bins) of the plain softmax → at the temperature that",
        f"leave-one-out on the training images has chosen. Few samples: mean of {DRAWS} draws. With one or two samples of",
        "each class nothing is judged, and the temperature is the stated default.",
        "",
    ]
    for name in names:
        lines += [
            f"### {name}",
            "",
            "| mapping | samples per class | T | log-loss | Brier | calibration error |",
            "|---|---|---|---|---|---|",
        ]
        for row in results[name]["probabilities"]:
            cells = [
                f"{row['raw'][key]:.{digits}f} → {row['honest'][key]:.3f}"
                for key, digits in (("log_loss", 2), ("brier", 3), ("calibration_error", 3))
            ]
            lines.append(f"| {row['method']} | {row['shots'] or 'all'} | {row['temperature']:.3g} | {' | '.join(cells)} |")
        lines.append("")
    lines += [
        "## Prediction sets",
        "",
        f"`gaussian`, coverage {COVERAGE:.0%} asked for. All images of a set are put together and divided anew, as many to",
        f"train on as the set has and {TESTED} others to ask: {SPLITS} times in {COORDINATES} principal coordinates of",
        f"the logits (which makes each fit far quicker), and {WHOLE_SPLITS} times in all 1,000. The share of truths",
        "inside, ± 1.96 standard errors over the splits, and classes per set. `cross` is the default, `strict` one fold of",
        "it; `split 70/30` is split conformal prediction with the same labels, 30 % of them set aside.",
        "",
        "| data | coordinates | cross | strict | split 70/30 | per class, worst to best class | µs per query |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        for key in ("coverage", "whole"):
            found = results[name][key]
            cells = [
                f"{100 * found[how]['covered']:.1f} ± {100 * found[how]['error']:.1f} %, {found[how]['size']:.2f}"
                for how in ("cross", "strict", "split 70/30")
            ]
            low, high = (f"{100 * value:.1f}" for value in found["by_class"])
            mine = found["per class"]
            cells.append(f"{low} to {high} %, {mine['size']:.2f} classes")
            size = COORDINATES if key == "coverage" else "all"
            lines.append(f"| {name} | {size} | {' | '.join(cells)} | {found['microseconds']:.0f} |")
    lines += [
        "",
        "## None of these",
        "",
        "`gaussian` on the training images of one set, asked about test images of the others. AUROC of the p-value, and",
        "beside it that of the calibrated confidence; the share of strangers with p < 0.01; and of own test images with",
        "p < 0.01, which should be 1 %.",
        "",
        "| trained on | false flags | " + " | ".join(f"strangers: {name}" for name in names) + " |",
        "|---" * (2 + len(names)) + "|",
    ]
    for name in names:
        found = results[name]["strangers"]
        cells = [
            "-"
            if other == name
            else "AUROC {auroc:.3f} (confidence {by_confidence:.3f}), {flagged:.0%} flagged".format(**found["from"][other])
            for other in names
        ]
        lines.append(f"| {name} | {100 * found['false']:.1f} % | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


PARTS = {
    "probabilities": lambda data, _: probabilities(data),
    "coverage": lambda data, _: coverage(data, COORDINATES, SPLITS),
    "whole": lambda data, _: coverage(data, None, WHOLE_SPLITS),
    "strangers": strangers,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), help="which of them to measure anew; the others are kept")
    given = parser.parse_args()
    kept, names = HERE / "certainty.json", [Path(folder).name for folder in given.folders]
    results = json.loads(kept.read_text()) if kept.exists() else {}
    if given.parts:
        loaded = [load_logits(folder) for folder in given.folders]
        for data in loaded:
            found = results.setdefault(data.name, {})
            for part in given.parts:
                found[part] = PARTS[part](data, [other for other in loaded if other is not data])
            kept.write_text(json.dumps(results, indent=1) + "\n")
    text = page(results, names)
    target = HERE.parent / "docs" / "results" / "certainty.md"
    reading = target.read_text().partition("## Reading\n") if target.exists() else ("", "", "")
    target.write_text(text + ("\n" + "".join(reading[1:]) if reading[1] else ""))
