"""Injected label errors found by an audit, beside cleanlab with cross-validated logistic regression on the same logits.

    python benchmarks/audit.py FOLDER [FOLDER ...]

Each folder holds train/, val/ and test/ with one folder of images per class; what is kept of them is their logits (see
sets.py). 5, 10 and 20 % of the training labels are made wrong, by another class at random or by the class that is most
easily taken for the right one. Both sides rank all labels by suspicion. cleanlab is under the AGPL and no dependency of
this project; without it its columns are left out. To have it:

    pip install --target SOMEWHERE --no-deps cleanlab tqdm termcolor && PYTHONPATH=SOMEWHERE python benchmarks/audit.py ...

Seconds are those of the processor, with one thread, so that other work on the machine does not matter. Writes
benchmarks/audit.json and docs/results/audit.md.
"""

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from reprogram import audit_logits
from reprogram.audit import Audit
from reprogram.audit.duplicates import find_duplicates
from reprogram.audit.material import from_arrays
from reprogram.run.folder import environment
from sets import LogitSet, load_logits

try:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    find_label_issues = get_label_quality_scores = None

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "audit.md"
LOOK = HERE / "audit-look.md"
SEEDS = (0, 1, 2)
SHARES = (0.05, 0.1, 0.2)
KINDS = ("uniform", "confusable")
LARGE = 20_000
Array = np.ndarray[Any, Any]


def our_audit(logits: Array, labels: Array, classes: list[str]) -> Audit:
    """As `reprogram audit` judges training rows."""
    return audit_logits(logits, labels, classes=classes, duplicates=False)


def neighbours(data: LogitSet) -> Array:
    """For each class the one that it is most easily taken for: by leave-one-out on the true labels, then by its mean."""
    logits, labels, count = data.logits["train"], data.labels["train"], len(data.classes)
    found = our_audit(logits, labels, data.classes)
    taken = np.zeros((count, count))
    np.add.at(taken, (labels, found.judged.suggested.numpy()), 1)
    means = np.stack([logits[labels == label].mean(0) for label in range(count)])
    apart = np.square(means[:, None] - means[None]).sum(2)
    near = taken + taken.T - 0.5 * apart / apart.max()
    np.fill_diagonal(near, -math.inf)
    return near.argmax(1)


def with_errors(labels: Array, kind: str, share: float, near: Array, seed: int) -> tuple[Array, Array]:
    """The labels with so many wrong ones, and which these are."""
    draw = np.random.default_rng(seed)
    rows = draw.choice(len(labels), round(share * len(labels)), replace=False)
    wrong = labels.copy()
    others = (labels[rows] + draw.integers(1, len(near), len(rows))) % len(near)
    wrong[rows] = others if kind == "uniform" else near[labels[rows]]
    return wrong, np.isin(np.arange(len(labels)), rows)


def ours(logits: Array, labels: Array, classes: list[str]) -> tuple[Array, float]:
    """Suspicion of each label, and how many are said to be wrong."""
    found = our_audit(logits, labels, classes)
    return found.judged.lead.numpy(), found.wrong


def theirs(logits: Array, labels: Array, _classes: list[str]) -> tuple[Array, float]:
    """The same by cleanlab: self-confidence of cross-validated probabilities, and how many issues it finds."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = cross_val_predict(model, logits, labels, cv=5, method="predict_proba")
    return -get_label_quality_scores(labels, said), float(find_label_issues(labels, said, n_jobs=1).sum())


def measured(
    judge: Callable[..., tuple[Array, float]], data: tuple[Array, Array, list[str]], bad: Array
) -> dict[str, float]:
    """Average precision, precision among as many as there are errors, how many are said to be wrong, seconds."""
    began = time.process_time()
    suspicion, said = judge(*data)
    seconds = time.process_time() - began
    first = np.argsort(-suspicion, kind="stable")[: int(bad.sum())]
    return {
        "average_precision": float(average_precision_score(bad, suspicion)),
        "precision": float(bad[first].mean()),
        "said": said,
        "seconds": seconds,
    }


def study(data: LogitSet) -> list[dict[str, Any]]:
    """All kinds and shares of errors on one set, over the seeds."""
    logits, labels, near = data.logits["train"], data.labels["train"], neighbours(data)
    rows = []
    for kind in KINDS:
        for share in SHARES:
            found: dict[str, list[dict[str, float]]] = {"reprogram": [], "cleanlab": []}
            for seed in SEEDS:
                given, bad = with_errors(labels, kind, share, near, seed)
                found["reprogram"].append(measured(ours, (logits, given, data.classes), bad))
                if find_label_issues is not None:
                    found["cleanlab"].append(measured(theirs, (logits, given, data.classes), bad))
            rows.append({"set": data.name, "kind": kind, "share": share, "errors": int(bad.sum()), **found})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def clean(data: LogitSet) -> dict[str, Any]:
    """What is said about the set as it is, with all its splits."""
    parts = list(data.logits)
    logits = np.concatenate([data.logits[part] for part in parts])
    labels = np.concatenate([data.labels[part] for part in parts])
    splits = [part for part in parts for _ in data.labels[part]]
    found = audit_logits(logits, labels, classes=data.classes, source_labels=data.source_labels, splits=splits)
    low, high = found.interval
    exact = sum(pair.exact for pair in found.duplicates)
    across = sum(pair.across for pair in found.duplicates)
    pairs = {"pairs": len(found.duplicates), "exact": exact, "across": across}
    return {"set": data.name, "labels": len(labels), "wrong": found.wrong, "interval_95": [low, high], **pairs}


def enlarged(data: LogitSet, rows: int) -> tuple[Array, Array]:
    """So many rows of realistic logits: a row, and half of another's deviation from the mean of the class they share."""
    draw = np.random.default_rng(0)
    logits, labels = np.concatenate(list(data.logits.values())), np.concatenate(list(data.labels.values()))
    wanted = np.arange(rows) % len(data.classes)
    made = np.empty((rows, logits.shape[1]), np.float32)
    for label in range(len(data.classes)):
        own, places = logits[labels == label], np.flatnonzero(wanted == label)
        one, other = draw.integers(0, len(own), (2, len(places)))
        made[places] = own[one] + 0.5 * (own[other] - own.mean(0))
    return made, wanted


def large(data: LogitSet) -> dict[str, Any]:
    """10 % uniform errors in 20,000 rows, with the seconds that each side takes, and those of looking for duplicates."""
    logits, labels = enlarged(data, LARGE)
    given, bad = with_errors(labels, "uniform", 0.1, neighbours(data), 0)
    result: dict[str, Any] = {
        "set": data.name,
        "rows": LARGE,
        "reprogram": measured(ours, (logits, given, data.classes), bad),
    }
    began = time.process_time()
    find_duplicates(from_arrays(logits, given, classes=data.classes))
    result["duplicates_seconds"] = time.process_time() - began
    print(json.dumps(result), flush=True)
    if find_label_issues is not None:
        result["cleanlab"] = measured(theirs, (logits, given, data.classes), bad)
    print(json.dumps(result), flush=True)
    return result


def mean_and_interval(values: list[float]) -> str:
    """The mean over seeds, with the 95 % interval of the mean by Student's t."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.3f} ± {half:.3f}"


def mean(row: dict[str, Any], side: str, what: str) -> float:
    """Of one number over the seeds."""
    return statistics.mean(one[what] for one in row[side])


def page(content: dict[str, Any], look: str) -> str:
    """The tables for a reader."""
    rows, made = content["rows"], content["environment"]
    sides = ["reprogram", *(["cleanlab"] if rows[0]["cleanlab"] else [])]
    names = list(dict.fromkeys(row["set"] for row in rows))
    lines = [
        "# Label errors found by an audit",
        "",
        "Errors are injected into the training labels of each set, by another class at random (uniform) or by the class",
        "that is most easily taken for the right one (confusable). reprogram is `reprogram audit` as it is by default",
        "(`gaussian`, no program, two rounds), cleanlab is `get_label_quality_scores` (self-confidence) and",
        "`find_label_issues` with 5-fold cross-validated, standardised logistic regression on the same logits. AP is the",
        f"average precision of the ranking, mean over {len(SEEDS)} seeds ± half its 95 % interval; P is the precision",
        "among as many labels as there are errors;",
        "*said* is how many labels each says are wrong; seconds are of one processor core.",
        "",
        "Made by `python benchmarks/audit.py " + " ".join(names) + "`",
        f"({made['cores']} cores, one thread, torch {made['packages']['torch']}).",
        "",
        "| set | errors | " + " | ".join(f"{side}: AP | P | said | s" for side in sides) + " |",
        "|---|---|" + "---|---|---|---|" * len(sides),
    ]
    for row in rows:
        cells = [f"{row['set']}", f"{row['errors']} {row['kind']} ({100 * row['share']:g} %)"]
        for side in sides:
            precisions = mean_and_interval([one["average_precision"] for one in row[side]])
            cells += [precisions, f"{mean(row, side, 'precision'):.2f}", f"{mean(row, side, 'said'):.0f}"]
            cells.append(f"{mean(row, side, 'seconds'):.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *verdict(rows, content["large"]), "", *clean_table(content["clean"]), "", look.strip()]
    return "\n".join(lines) + "\n"


def verdict(rows: list[dict[str, Any]], big: dict[str, Any] | None) -> list[str]:
    """The comparison that the table is made for, in words, whatever it says."""
    lines = []
    if rows[0]["cleanlab"]:
        leads = {
            (row["set"], row["kind"], row["share"]): mean(row, "reprogram", "average_precision")
            - mean(row, "cleanlab", "average_precision")
            for row in rows
        }
        (name, kind, share), least = min(leads.items(), key=lambda item: item[1])
        behind = sum(lead < -0.01 for lead in leads.values())
        lines.append(
            f"Average precision less cleanlab's: {statistics.mean(leads.values()):+.3f} on average, at the least "
            f"{least:+.3f} ({name}, {kind}, {100 * share:g} %); more than 0.01 behind in {behind} of {len(leads)} rows."
        )
    if big is not None:
        own = big["reprogram"]
        text = (
            f"At {big['rows']:,} rows (made of those of {big['set']}: a row and half of another's deviation from the mean "
            f"of their class; 10 % uniform errors) the audit takes {own['seconds']:.0f} s for an average precision of "
            f"{own['average_precision']:.3f}, and {big['duplicates_seconds']:.0f} s more to look for duplicates"
        )
        if "cleanlab" in big:
            other = big["cleanlab"]
            text += (
                f"; cleanlab with its logistic regression takes {other['seconds']:.0f} s, "
                f"{other['seconds'] / own['seconds']:.1f} times as long, for {other['average_precision']:.3f}"
            )
        lines += ["", text + "."]
    return lines


def clean_table(found: list[dict[str, Any]]) -> list[str]:
    """What is said about the sets as they are."""
    lines = [
        "## The sets as they are",
        "",
        "| set | labels | look wrong (95 % interval) | pairs of duplicates (exact, across splits) |",
    ]
    lines.append("|---|---|---|---|")
    for one in found:
        low, high = one["interval_95"]
        pairs = f"{one['pairs']} ({one['exact']}, {one['across']})"
        lines.append(f"| {one['set']} | {one['labels']} | {one['wrong']:.0f} ({low:.0f}–{high:.0f}) | {pairs} |")
    return lines


def main() -> None:
    """Study all folders and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--large", metavar="SET", help="make 20,000 rows of this set; by default of the largest")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sets = [load_logits(folder) for folder in asked.folders]
    biggest = max(sets, key=lambda data: (data.name == asked.large, len(data.labels["train"])))
    content = {
        "environment": environment(torch.device("cpu")),
        "clean": [clean(data) for data in sets],
        "rows": [row for data in sets for row in study(data)],
        "large": large(biggest),
    }
    (HERE / "audit.json").write_text(json.dumps(content, indent=1) + "\n")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(content, LOOK.read_text() if LOOK.exists() else ""))


if __name__ == "__main__":
    main()
