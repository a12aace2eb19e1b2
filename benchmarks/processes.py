"""One training on several processes: two with a thread each, against one with two threads.

    python benchmarks/processes.py [--data digits] [--rounds 10] [--processes 2] [--batch-size 64]

Trains three programs on EfficientNet-Lite0, each in two ways, as one process with N threads and as N processes with one
thread that `torchrun` starts, with the same images, order and batches. Both are started once and then train an epoch each in
turn, while the other one sleeps: so what else the machine does disturbs both alike. What is compared is images per second
in an epoch, without the first one. In that one both must have the same loss, or nothing is written; later, Adam makes more
of what rounding differs in. Prints a table and writes benchmarks/processes.json and docs/results/processes.md.
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
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "processes.md"
#: Programs with few and many pixels, and with a border that a batch shares and without.
CASES: tuple[dict[str, Any], ...] = (
    {"program": "padding", "image_size": 32, "canvas": 224, "images": 256},
    {"program": "watermark", "canvas": 128, "images": 256},
    {"program": "padding", "image_size": 32, "canvas": 48, "images": 1024},
)
ONE_FIT = """
import json
import sys
import time
from pathlib import Path

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
turns = Path(sys.argv[2])


def wait(records, epochs):
    # tell of an epoch, and begin the next one when it is our turn; until then all processes sleep
    def until_asked():
        if records:
            (turns / "done.tmp").write_text(json.dumps([records[-1]["images_per_second"], records[-1]["loss"]]))
            (turns / "done.tmp").rename(turns / f"done {len(records)}")
        while not (turns / f"go {len(records) + 1}").exists():
            time.sleep(0.005)
        return None, {}

    ranks.told(until_asked)


with joined() as ranks:
    epochs = given["rounds"] + 2  # the first one warms up, and the last one never begins
    how = {"epochs": epochs, "batch_size": given["batch_size"], "evaluate_every": epochs, "schedule": "constant"}
    wait([], epochs)
    fit(model, data, **how, on_epoch=wait, calibration="none", ranks=ranks)
"""


def way(count: int, threads: int) -> str:
    """How a way of computing is called."""
    return f"{count} process{'es' if count > 1 else ''} × {threads} thread{'s' if threads > 1 else ''}"


class Training:
    """One way of computing, in processes of its own, which train an epoch when they are asked to."""

    def __init__(self, count: int, threads: int, given: dict[str, Any], folder: Path) -> None:
        sleeping = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "OMP_NUM_THREADS": str(threads)}
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
        self.folder, self.name, self.losses, self.speeds = folder, way(count, threads), [], []
        folder.mkdir()
        (folder / "fit.py").write_text(ONE_FIT)
        command = [sys.executable, *start, str(folder / "fit.py"), json.dumps(given), str(folder)]
        with (folder / "errors").open("w") as errors:
            self.process = subprocess.Popen(command, env={**os.environ, **sleeping}, stdout=errors, stderr=errors)

    def train(self, epoch: int) -> float:
        """Let it train its next epoch; images per second."""
        (self.folder / f"go {epoch}").touch()
        done = self.folder / f"done {epoch}"
        while not done.exists():
            if self.process.poll() is not None:
                sys.exit((self.folder / "errors").read_text())
            time.sleep(0.005)
        speed, loss = json.loads(done.read_text())
        self.losses.append(loss)
        self.speeds.append(speed)
        return speed

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait()


def measure(given: dict[str, Any]) -> dict[str, Any]:
    """All speeds, the two ways in turn; and how many processes wanted the cores in each round, in the median."""
    loads = []
    with tempfile.TemporaryDirectory() as folder:
        ways = [Training(1, given["processes"], given, Path(folder) / "threads")]
        ways.append(Training(given["processes"], 1, given, Path(folder) / "processes"))
        try:
            for turn in range(given["rounds"] + 1):
                loads.append(os.getloadavg()[0])
                for one in ways if turn % 2 == 0 else ways[::-1]:
                    print(f"round {turn}, {one.name}: {one.train(turn + 1):.1f} images/s", flush=True)
        finally:
            for one in ways:
                one.end()
    first = [one.losses[0] for one in ways]
    if abs(first[0] - first[1]) > 1e-2 * first[0]:
        sys.exit(f"the losses differ ({first}): the two ways do not train the same")
    return {"speeds": {one.name: one.speeds[1:] for one in ways}, "load": statistics.median(loads)}


def page(content: dict[str, Any]) -> str:
    """The table for a reader: medians and extremes, and the ratio of the rounds."""
    machine, (first, second) = content["machine"], content["cases"][0]["speeds"]
    lines = [
        "# Two processes against two threads",
        "",
        f"`{content['command']}` ({machine['cores']} cores, torch {machine['torch']}): epochs of {content['data']} in "
        f"batches of {content['batch_size']}, EfficientNet-Lite0, {content['rounds']} of each way, one in turn. Images per "
        "second: median (least to most). The loss of the first epoch is the same to 1 %. A load above 2 is other "
        "work on the machine.",
        "",
        f"| program | images | {first} | {second} | ratio, median of the rounds (least to most) | load |",
        "|---|---|---|---|---|---|",
    ]
    for case in content["cases"]:
        one, many = case["speeds"].values()
        ratios = [after / before for before, after in zip(one, many, strict=True)]
        inside = f" of {case['image_size']} px images" if "image_size" in case else ""
        what = f"{case['program']}{inside}, canvas {case['canvas']}"
        cells = (what, case["images"], spread(one), spread(many), spread(ratios, 2), f"{case['load']:.1f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "Threads sleep while they wait, as the command line has them; with threads that spin, one process is quicker than",
    ]
    lines[-1] += " here on a quiet machine, and much slower beside other work ([why](../speed.md#threads))."
    return "\n".join(lines) + "\n"


def spread(values: list[float], digits: int = 1) -> str:
    """Median and extremes."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", help="digits, or a folder of images")
    parser.add_argument("--rounds", type=int, default=10, help="epochs of each way")
    parser.add_argument("--processes", type=int, default=2, help="and threads of the one process")
    parser.add_argument("--batch-size", type=int, default=64)
    given = vars(parser.parse_args())
    cases = [{**case, **measure({**given, **case})} for case in CASES]
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "torch": version("torch")}
    told = [Path(word).name if word == given["data"] else word for word in sys.argv[1:]]
    command = shlex.join(["python", "benchmarks/processes.py", *told])
    content = {**given, "data": Path(given["data"]).name, "command": command, "machine": machine, "cases": cases}
    Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    PAGE.write_text(page(content))
    print(page(content))


if __name__ == "__main__":
    main()
