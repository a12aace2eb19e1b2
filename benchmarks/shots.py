"""Few samples and prior knowledge: the prior alone, the Gaussian mapping alone, and both together.

    python benchmarks/shots.py FOLDER [FOLDER ...]

Logits as in benchmarks/sets.py. Three priors: what the names tell; the mapping blm of the validation images, which stands
for a prior of another origin that is good; and random numbers, which stand for one that is worthless. Writes
benchmarks/shots.json and docs/results/shots.md.
"""

import argparse
import json
import math
import os
import statistics as stats
import sys
from pathlib import Path

import torch

from reprogram.mappings.bayesian import bayes
from reprogram.mappings.densities import GaussianFit
from reprogram.mappings.gaussians import gaussian_of
from reprogram.mappings.prior import prior_matrix
from reprogram.statistics import GaussianStatistics, JointStatistics

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from sets import LogitSet, load_logits  # noqa: E402

SHOTS = (1, 2, 4, 8, 16)
SEEDS = 5
PRIORS = {"names": "the names of the labels", "blm of others": "blm of the validation images", "random": "random numbers"}
STUDENT = {5: 2.776, 8: 2.365}[SEEDS]  # 97.5 % quantile of Student's t for so many seeds


def priors_of(data: LogitSet) -> dict[str, torch.Tensor]:
    """The matrices."""
    k_source, k_target = len(data.source_labels), len(data.classes)
    joint = JointStatistics.counts(k_source, k_target)
    joint.update(torch.from_numpy(data.logits["val"]), torch.from_numpy(data.labels["val"]))
    names = prior_matrix("names", data.source_labels, data.classes)
    assert names is not None
    draw = torch.Generator().manual_seed(0)
    return {
        "names": names.double(),
        "blm of others": bayes(joint).double(),
        "random": torch.randn(k_source, k_target, generator=draw, dtype=torch.float64),
    }


def drawn(labels: torch.Tensor, shots: int, seed: int) -> torch.Tensor:
    """The numbers of so many samples of each class."""
    draw, chosen = torch.Generator().manual_seed(seed), []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten()
        chosen.append(members[torch.randperm(len(members), generator=draw)[:shots]])
    return torch.cat(chosen)


def measured(data: LogitSet) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Test accuracies in %, for each seed, by shots and then by prior."""
    train, test = (torch.from_numpy(data.logits[split]).double() for split in ("train", "test"))
    labels, truth = (torch.from_numpy(data.labels[split]).long() for split in ("train", "test"))
    priors = priors_of(data)

    def accuracy(scores: torch.Tensor) -> float:
        return 100 * float((scores.argmax(1) == truth).double().mean())

    alone = {name: accuracy(test @ prior) for name, prior in priors.items()}
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for shots in SHOTS:
        if int(torch.bincount(labels).min()) < shots:
            continue
        rows = {name: {"prior": [], "gaussian": [], "both": []} for name in priors}
        for seed in range(SEEDS):
            chosen = drawn(labels, shots, seed)
            fit = GaussianFit.of(GaussianStatistics(train.shape[1], len(data.classes)).update(train[chosen], labels[chosen]))

            def scored(prior: torch.Tensor | None, fit: GaussianFit = fit) -> float:
                omega, mean, bias = gaussian_of(fit, prior=prior)
                return accuracy((test - mean) @ omega + bias)

            plain = scored(None)
            for name, prior in priors.items():
                for key, value in (("prior", alone[name]), ("gaussian", plain), ("both", scored(prior))):
                    rows[name][key].append(value)
        found[str(shots)] = rows
        print(
            data.name,
            shots,
            {name: [round(stats.mean(v), 1) for v in row.values()] for name, row in rows.items()},
            flush=True,
        )
    return found


def lead(row: dict[str, list[float]]) -> tuple[float, float]:
    """How far both are above the better of the two, and half of the 95 % interval of it over the seeds."""
    better = max(("prior", "gaussian"), key=lambda key: stats.mean(row[key]))
    apart = [both - other for both, other in zip(row["both"], row[better], strict=True)]
    return stats.mean(apart), STUDENT * stats.stdev(apart) / math.sqrt(len(apart))


def page(results: dict, sizes: dict[str, str], reading: str) -> str:
    """The tables."""
    lines = [
        "# Few samples, and what was known before",
        "",
        "Test accuracy in % with 1 to 16 samples of each class, mean of "
        f"{SEEDS} draws: the prior alone (no sample), `gaussian` alone, and",
        "`gaussian` with that prior (`prior_weight` as it is by default). The last column is how far both together are",
        "above the better of the two, with the 95 % interval over the draws. The frozen model is the bundled",
        "EfficientNet-Lite0, without a program. [What a prior is](../priors.md).",
        "",
        "These test images are not fresh: how prior and class means are put together, the default of `prior_weight` and the",
        "threshold for noise were chosen by looking at accuracies on them, among six rules and several weights. Read the",
        "last column as how well the rule can do, not as what a new set will show.",
        "",
        f"Made by `python benchmarks/shots.py {' '.join(results)}`",
        f"(2 cores, torch {torch.__version__}).",
        "",
        reading,
    ]
    for prior, what in PRIORS.items():
        lines += [
            "",
            f"## Prior: {what}",
            "",
            "| data | samples of each class | prior | gaussian | both | above the better |",
        ]
        lines += ["|---|---|---|---|---|---|"]
        for name, found in results.items():
            for shots, rows in found.items():
                row = rows[prior]
                gain, half = lead(row)
                cells = " | ".join(f"{stats.mean(values):.1f}" for values in row.values())
                lines.append(f"| {name} ({sizes[name]}) | {shots} | {cells} | {gain:+.1f} ± {half:.1f} |")
    return "\n".join(lines) + "\n"


def read(results: dict) -> str:
    """What the tables say, in words."""
    parts = []
    for prior, what in PRIORS.items():
        leads = [lead(rows[prior])[0] for found in results.values() for rows in found.values()]
        worst, below = min(leads), sum(value < -0.3 for value in leads)
        parts.append(
            f"- {what}: {stats.mean(leads):+.1f} points above the better of the two on average, from {worst:+.1f} to "
            f"{max(leads):+.1f}; in {below} of {len(leads)} cases more than 0.3 points below it."
        )
    return "\n".join(parts)


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+")
    folders = parser.parse_args().folders
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    results, sizes = {}, {}
    for folder in folders:
        data = load_logits(folder)
        results[data.name], sizes[data.name] = measured(data), f"{len(data.classes)} classes"
    (HERE / "shots.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    (HERE.parent / "docs" / "results" / "shots.md").write_text(page(results, sizes, read(results)), "utf-8")


if __name__ == "__main__":
    main()
