"""Throughput and memory of the statistics, and the time of choosing a mapping by leave-one-out.

    python benchmarks/statistics_cost.py [--samples 50000]

The kinds are updated alternately in one process, best of several rounds. Writes benchmarks/statistics_cost.json.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import torch

from reprogram.mappings import select
from reprogram.run.folder import environment
from reprogram.statistics import GaussianStatistics, JointStatistics
from reprogram.statistics.joint import top_count

BATCH = 256
ROUNDS = 7
CASES = ((1000, 10), (1000, 100), (1000, 397), (32157, 397))
SPAN = 512  # the dimensions of a CLIP model's features


def kinds(k_source: int, k_target: int) -> dict[str, JointStatistics | GaussianStatistics]:
    top_k = top_count(0.15, k_target, k_source)
    span = None
    if k_source > 8192:
        span = torch.linalg.qr(torch.randn(k_source, SPAN, generator=torch.Generator().manual_seed(0)))[0]
    return {
        "counts (blm)": JointStatistics.counts(k_source, k_target),
        f"probabilities (blm+, K = {top_k})": JointStatistics.probabilities(k_source, k_target, top_k),
        "counts with moments (normalize)": JointStatistics.counts(k_source, k_target, moments=True),
        "gaussian" if span is None else f"gaussian (in a span of {SPAN})": GaussianStatistics(
            k_source if span is None else SPAN, k_target, span=span
        ),
    }


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def throughput() -> list[dict[str, object]]:
    rows = []
    for k_source, k_target in CASES:
        generator = torch.Generator().manual_seed(0)
        logits = 3 * torch.randn(BATCH, k_source, generator=generator)
        targets = torch.randint(0, k_target, (BATCH,), generator=generator)
        tried = kinds(k_source, k_target)
        best = dict.fromkeys(tried, float("inf"))
        for _ in range(ROUNDS):
            for name, statistics in tried.items():
                started = time.perf_counter()
                statistics.update(logits, targets)
                best[name] = min(best[name], time.perf_counter() - started)
        for name, statistics in tried.items():
            held = sum(part.numel() * part.element_size() for part in statistics.buffers()) / 2**20
            rows.append(
                {
                    "k_source": k_source,
                    "k_target": k_target,
                    "kind": name,
                    "samples_per_second": round(BATCH / best[name]),
                    "milliseconds_per_batch": round(1000 * best[name], 2),
                    "held_megabytes": round(held, 1),
                }
            )
    return rows


def selection(n: int) -> list[dict[str, object]]:
    k_source, k_target = 1000, 100
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, k_target, (n,), generator=generator)
    logits = 3 * torch.randn(n, k_source, generator=generator)
    logits += torch.randn(k_target, k_source, generator=generator)[targets]
    rows = []
    for what, options in {
        "paper's grid, 5 α × 6 λ": {"methods": ["blm+"], "grid": {"normalize": ["none"]}},
        "everything that `auto` tries": {},
    }.items():
        before, started = megabytes(), time.perf_counter()
        found = select((logits, targets), k_target, **options)
        rows.append(
            {
                "what": what,
                "n": n,
                "k_source": k_source,
                "k_target": k_target,
                "candidates": len(found.table),
                "seconds": round(time.perf_counter() - started, 1),
                "peak_megabytes": round(megabytes()),
                "peak_megabytes_before": round(before),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50_000, help="to choose a mapping by")
    given = parser.parse_args()
    results = {
        "environment": environment(torch.device("cpu")),
        "batch": BATCH,
        "leave_one_out": selection(given.samples),
        "update": throughput(),
    }
    for row in (*results["leave_one_out"], *results["update"]):
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
