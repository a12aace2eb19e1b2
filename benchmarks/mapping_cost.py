"""How much of a training step the statistics and the mapping cost: run alternately with the step itself, best of N.

    python benchmarks/mapping_cost.py [--rounds 7]

Prints a table and writes benchmarks/mapping_cost.json. The step is one forward and backward pass of the bundled
EfficientNet-Lite0 on a batch of 256 canvases of 48 px, the cheapest step that the demo takes; real steps are dearer.
"""

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from reprogram import load_frozen
from reprogram.errors import EvidenceWarning
from reprogram.mappings import bayes, one_to_one
from reprogram.programs import Padding
from reprogram.statistics import JointStatistics

BATCH, K_SOURCE = 256, 1000


def seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    frozen = load_frozen("bundled:efficientnet_lite0")
    program = Padding(48, 32).bind(frozen.mean, frozen.std)
    images = torch.rand(BATCH, 3, 32, 32)

    def step() -> None:
        program.zero_grad()
        frozen(program(images)).logsumexp(1).sum().backward()

    warnings.simplefilter("ignore", EvidenceWarning)  # a single batch cannot show all of 397 classes
    rows = []
    logits = torch.randn(BATCH, K_SOURCE)
    for k_target in (10, 100, 397):
        targets = torch.arange(BATCH) % k_target
        counts = JointStatistics.counts(K_SOURCE, k_target)
        sums = JointStatistics.probabilities(K_SOURCE, k_target, max(1, 15 * k_target // 100))
        acts: dict[str, Callable[[], object]] = {
            "training step": step,
            "counts.update": lambda counts=counts, targets=targets: counts.update(logits, targets),
            "probabilities.update": lambda sums=sums, targets=targets: sums.update(logits, targets),
            "bayes (per epoch)": lambda sums=sums: bayes(sums),
            "one_to_one (per epoch)": lambda sums=sums: one_to_one(sums),
        }
        for act in acts.values():
            act()
        best = dict.fromkeys(acts, float("inf"))
        for _ in range(given.rounds):
            for name, act in acts.items():
                best[name] = min(best[name], seconds(act))
        rows += [
            {"k_target": k_target, "what": name, "milliseconds": 1000 * value, "of_a_step": value / best["training step"]}
            for name, value in best.items()
        ]
    table = Table(
        "k_T", "what", "ms", "of a training step", title=f"batch {BATCH}, k_S = {K_SOURCE}, best of {given.rounds}"
    )
    for row in rows:
        table.add_row(str(row["k_target"]), row["what"], f"{row['milliseconds']:.2f}", f"{100 * row['of_a_step']:.2f} %")
    Console().print(table)
    machine = {"platform": platform.platform(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    content = {"command": "python benchmarks/mapping_cost.py", "machine": machine, "rows": rows}
    Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
