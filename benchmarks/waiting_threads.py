"""What waiting threads cost: `fit` with threads that spin while they wait, and with threads that sleep.

    python benchmarks/waiting_threads.py [--rounds 5] [--busy 2] [--threads 2] [--images 256] [--epochs 1] [--canvas 224]

torch's OpenMP threads spin for a while before they sleep. `reprogram` lets them sleep at once (OMP_WAIT_POLICY=PASSIVE,
GOMP_SPINCOUNT=0), which costs a little on a quiet machine and gains where other work wants the cores. A few batches of
digits are fitted in fresh processes, alternately with each way of waiting, first on a machine that is quiet but for that,
then beside `--busy` processes that do nothing but compute. Only the epochs are timed, not the imports. Prints a table and
writes benchmarks/waiting_threads.json and docs/results/threads.md; the machine should have nothing else to do.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "threads.md"
WAITING: dict[str, dict[str, str]] = {
    "spinning (torch's default)": {},
    "sleeping (ours)": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"},
}
DECIDES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")
ONE_FIT = """
import sys
import torch
from reprogram import Reprogrammed, fit, load_data, load_frozen, make_mapping, make_program
from reprogram.data import DataSet
images, epochs, canvas = map(int, sys.argv[1:])
digits = load_data("digits")
train, test = digits.train.subset(torch.arange(images)), digits.test.subset(torch.arange(8))
data = DataSet("digits", digits.classes, train=train, test=test)
frozen = load_frozen("bundled:efficientnet_lite0")
program = make_program("padding", canvas, image_size=min(32, canvas))
model = Reprogrammed(program, frozen, make_mapping("blm+", frozen.labels, data.classes))
result = fit(model, data, epochs=epochs, batch_size=64, evaluate_every=epochs)
print(sum(record["seconds"] for record in result.records))
"""


def compute() -> None:
    """Keep a core busy until the process is ended."""
    number = 0
    while True:
        number = (number * 1103515245 + 12345) % 2**31


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """That many processes beside, which want the cores too."""
    others = [multiprocessing.get_context("spawn").Process(target=compute, daemon=True) for _ in range(count)]
    for process in others:
        process.start()
    try:
        yield
    finally:
        for process in others:
            process.terminate()
        for process in others:
            process.join()


def seconds_of_fit(waiting: dict[str, str], given: argparse.Namespace) -> float:
    """A fit in a fresh process, since the way of waiting is decided when torch is imported."""
    environment = {name: value for name, value in os.environ.items() if name not in DECIDES}
    environment |= waiting | {"OMP_NUM_THREADS": str(given.threads)}
    command = [sys.executable, "-c", ONE_FIT, str(given.images), str(given.epochs), str(given.canvas)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout)


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """All times: quiet and busy, the two ways of waiting alternately."""
    rows = []
    for place, count in (("quiet", 0), (f"beside {given.busy} busy processes", given.busy)):
        times: dict[str, list[float]] = {name: [] for name in WAITING}
        with busy_cores(count):
            for turn in range(given.rounds):
                for name, waiting in WAITING.items():
                    times[name].append(seconds_of_fit(waiting, given))
                    print(f"{place}, round {turn + 1}, {name}: {times[name][-1]:.2f} s", flush=True)
        rows.append({"place": place, "busy": count, "seconds": times})
    return rows


def page(content: dict[str, Any]) -> str:
    """The table for a reader: medians, extremes, and how many times as long spinning takes."""
    machine, (first, second) = content["machine"], WAITING
    lines = [
        "# Threads that wait: spinning or sleeping",
        "",
        f"`{content['command']}` ({machine['cores']} cores, {content['threads']} threads, torch {machine['torch']}): "
        f"{content['epochs']} epoch(s) of {content['images']} digits in batches of 64 on a canvas of {content['canvas']}, "
        f"EfficientNet-Lite0, in fresh processes, alternately, {content['rounds']} times each. "
        "Median seconds (least to most).",
        "",
        f"| machine | {first} | {second} | spinning takes, times sleeping |",
        "|---|---|---|---|",
    ]
    for row in content["rows"]:
        cells = []
        for name in WAITING:
            values = row["seconds"][name]
            cells.append(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
        ratio = statistics.median(row["seconds"][first]) / statistics.median(row["seconds"][second])
        lines.append(f"| {row['place']} | {' | '.join(cells)} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="fits of each kind")
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="processes that keep cores busy")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch")
    parser.add_argument("--images", type=int, default=256, help="digits to train on")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--canvas", type=int, default=224)
    given = parser.parse_args()
    rows = measure(given)
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "torch": version("torch")}
    command = shlex.join(["python", "benchmarks/waiting_threads.py", *sys.argv[1:]])
    content = {"command": command, "machine": machine, **vars(given), "rows": rows}
    Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(content))
    print(page(content))


if __name__ == "__main__":
    main()
