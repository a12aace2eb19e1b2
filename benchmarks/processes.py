"""One training on several processes: two with a thread each, against one with two threads.

    python benchmarks/processes.py [--data digits] [--rounds 5] [--processes 2] [--images 256] [--epochs 3] [--batch-size 64]
                                   [--canvas 224] [--image-size 32] [--program padding]

Fits EfficientNet-Lite0 under a program in fresh processes, alternately as one process with N threads and as N processes with
one thread that `torchrun` starts, with the same images, order and batches. What is compared is images per second in an epoch
of training, without the first one. In that one both must have the same loss, or nothing is written; later, Adam makes more
of what rounding differs in. Prints a table and writes benchmarks/processes.json and docs/results/processes.md; the machine
should have nothing else to do.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "processes.md"
ONE_FIT = """
import json
import sys

import torch

from reprogram import Reprogrammed, fit, load_data, load_frozen, make_mapping, make_program
from reprogram.data import DataSet
from reprogram.ranks import joined

given = json.loads(sys.argv[1])
whole = load_data(given["data"])
spread = torch.linspace(0, len(whole.train) - 1, min(given["images"], len(whole.train))).long()
data = DataSet("some", whole.classes, train=whole.train.subset(spread), test=whole.test.subset(torch.arange(8)))
frozen = load_frozen("bundled:efficientnet_lite0")
own = {"image_size": given["image_size"]} if given["program"] == "padding" else {}
program = make_program(given["program"], given["canvas"], **own)
model = Reprogrammed(program, frozen, make_mapping("blm+", frozen.labels, data.classes))
with joined() as ranks:
    how = {"epochs": given["epochs"], "batch_size": given["batch_size"], "evaluate_every": given["epochs"]}
    result = fit(model, data, **how, calibration="none", ranks=ranks)
    if ranks.leads:
        print(json.dumps([[record["images_per_second"], record["loss"]] for record in result.records]))
"""


def way(count: int, threads: int) -> str:
    """How a way of computing is called."""
    return f"{count} process{'es' if count > 1 else ''} × {threads} thread{'s' if threads > 1 else ''}"


def fit_once(count: int, threads: int, given: argparse.Namespace) -> tuple[float, float]:
    """Images per second, the median of the epochs after the first one, and the loss of the first one."""
    sleeping = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "OMP_NUM_THREADS": str(threads)}
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "one_fit.py"
        script.write_text(ONE_FIT)
        command = [sys.executable, *start, str(script), json.dumps(vars(given))]
        done = subprocess.run(command, env={**os.environ, **sleeping}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    epochs = json.loads(done.stdout.splitlines()[-1])
    return statistics.median(speed for speed, _ in epochs[1:] or epochs), epochs[0][1]


def measure(given: argparse.Namespace) -> tuple[dict[str, list[float]], float]:
    """All speeds, the two ways alternately; and how many processes wanted the cores when a fit began, in the median."""
    ways = [(1, given.processes), (given.processes, 1)]
    speeds: dict[str, list[float]] = {way(*one): [] for one in ways}
    losses, loads = [], []
    for turn in range(given.rounds):
        for one in ways if turn % 2 == 0 else ways[::-1]:
            loads.append(os.getloadavg()[0])
            speed, loss = fit_once(*one, given)
            speeds[way(*one)].append(speed)
            losses.append(loss)
            print(f"round {turn + 1}, {way(*one)}: {speed:.1f} images/s, loss {loss:.6f}", flush=True)
    if max(losses) - min(losses) > 1e-5 * max(losses):
        sys.exit(f"the losses differ ({min(losses)} to {max(losses)}): the two ways do not train the same")
    return speeds, statistics.median(loads)


def page(content: dict[str, Any]) -> str:
    """The table for a reader: medians and extremes, and the ratio of each round."""
    machine, speeds = content["machine"], content["speeds"]
    (first, one), (second, many) = speeds.items()
    ratios = [after / before for before, after in zip(one, many, strict=True)]
    own = f"{content['image_size']} px images on a" if content["program"] == "padding" else "a"
    beside = ": most of it was other work, and the numbers say little about a quiet machine" if content["load"] > 2 else ""
    lines = [
        "# Two processes against two threads",
        "",
        f"`{content['command']}` ({machine['cores']} cores, torch {machine['torch']}): {content['epochs']} epochs of "
        f"{content['images']} images of {Path(content['data']).name} in batches of {content['batch_size']}, "
        f"{content['program']}, {own} canvas of {content['canvas']}, EfficientNet-Lite0, in fresh processes, alternately, "
        f"{content['rounds']} times each. Images per second in an epoch of training, without the first one: median (least "
        "to most). The loss of the first epoch is the same to five digits. The load of the machine when a fit began was "
        f"{content['load']:.1f} in the median{beside}.",
        "",
        f"| {first} | {second} | ratio, median of the rounds (least to most) |",
        "|---|---|---|",
        f"| {spread(one)} | {spread(many)} | {spread(ratios, 2)} |",
    ]
    return "\n".join(lines) + "\n"


def spread(values: list[float], digits: int = 1) -> str:
    """Median and extremes."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", help="digits, or a folder of images")
    parser.add_argument("--rounds", type=int, default=5, help="fits of each kind")
    parser.add_argument("--processes", type=int, default=2, help="and threads of the one process")
    parser.add_argument("--images", type=int, default=256, help="images to train on")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--canvas", type=int, default=224)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--program", default="padding")
    given = parser.parse_args()
    speeds, load = measure(given)
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "torch": version("torch")}
    told = [Path(word).name if word == given.data else word for word in sys.argv[1:]]
    command = shlex.join(["python", "benchmarks/processes.py", *told])
    content = {
        **vars(given),
        "data": Path(given.data).name,
        "command": command,
        "machine": machine,
        "speeds": speeds,
        "load": load,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    PAGE.write_text(page(content))
    print(page(content))


if __name__ == "__main__":
    main()
