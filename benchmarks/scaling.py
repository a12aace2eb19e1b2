"""What an epoch costs, as a small model with measured constants; how far it is off; and what it says of the paper's sets.

    python benchmarks/scaling.py [--only network statistics epochs threads] [--rounds 5]

A part that was measured stays in benchmarks/scaling.json until it is asked for again with `--only`, so the command can be
interrupted. Writes docs/results/scaling.md and docs/results/scaling.png. One thread's own computing time is what counts
(other work on the machine does not), but for the part `threads`, which compares one and two threads by the clock.
"""

import argparse
import functools
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from reprogram import Reprogrammed, fit, load_frozen, make_mapping
from reprogram.data import ArraySplit, DataSet
from reprogram.data.paper_sets import PAPER
from reprogram.errors import EvidenceWarning
from reprogram.memory import keep_freed_memory
from reprogram.programs import Padding
from reprogram.training.settings import TrainingSettings
from scaling_model import ACTS, NAMES, PER_SAMPLE, Costs, Model, Row
from scaling_page import draw, page, paper_hours

HERE = Path(__file__).parent
STORED = HERE / "scaling.json"
PAGE = HERE.parent / "docs" / "results" / "scaling.md"
# (canvas, image, batch); an image as large as the canvas: a watermark. On one thread, torch has another, slower convolution
# for less than 16 images, so all have as many.
DESIGN = ((48, 32, 64), (64, 64, 16), (96, 64, 16), (128, 32, 32), (224, 32, 16), (224, 128, 16), (224, 224, 16))
HELD_OUT = ((80, 48, 24), (112, 112, 16), (160, 64, 16), (192, 160, 16), (224, 64, 32))
# (k_S, k_T), and what is fitted to them
SIZES = ((250, 10), (250, 200), (1000, 10), (1000, 100), (1000, 397), (2000, 50))
SIZES_HELD_OUT = ((500, 100), (1500, 200))
SAMPLES = 1024
# model, canvas, image, batch, n, k_T, mapping, refresh: whole epochs of `fit`, which none of the constants has seen
EPOCHS = (
    ("lite0", 48, 32, 64, 512, 10, "blm+", "reuse"),
    ("lite0", 128, 64, 32, 192, 50, "blm+", "fresh"),
    ("lite0", 224, 128, 32, 64, 10, "gaussian", "fresh"),
    ("resnet18", 96, 32, 64, 256, 100, "blm", "reuse"),
    ("resnet18", 160, 128, 16, 64, 10, "blm+", "fresh"),
    ("resnet18", 224, 32, 32, 64, 43, "blm+", "fresh"),
)
THREADS = (("lite0", 48, 32, 64), ("lite0", 224, 32, 16), ("resnet18", 224, 32, 16), ("resnet18", 224, 128, 16))


def fastest(acts: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """The best time of each, alternately, after a round that does not count."""
    best = dict.fromkeys(acts, math.inf)
    for turn in range(rounds + 1):
        for name, act in acts.items():
            start = clock()
            act()
            if turn:
                best[name] = min(best[name], clock() - start)
    return best


def measure_network(rounds: int) -> list[Row]:
    rows = []
    for name, source in NAMES.items():
        frozen = load_frozen(source, pretrained=False)
        for held_out, places in ((False, DESIGN), (True, HELD_OUT)):
            for canvas, image, batch in places:
                model = Model(frozen, canvas, image)
                seconds = fastest(model.acts(batch), rounds, time.thread_time)
                for act in ACTS:
                    work = model.work(act, batch)
                    rows.append(
                        {"model": name, "canvas": canvas, "image": image, "batch": batch, "act": act}
                        | {"held_out": held_out, "work": work, "seconds": seconds[act]}
                    )
                print(name, canvas, image, batch, {act: round(s, 3) for act, s in seconds.items()}, flush=True)
    return rows


def measure_statistics(rounds: int) -> list[Row]:
    rows = []
    for held_out, sizes in ((False, SIZES), (True, SIZES_HELD_OUT)):
        for k_source, k_target in sizes:
            draw = torch.Generator().manual_seed(0)
            logits = 3 * torch.randn(SAMPLES, k_source, generator=draw)
            targets = torch.arange(SAMPLES) % k_target
            for kind in PER_SAMPLE:
                labels = [f"s {number}" for number in range(k_source)], [f"t {number}" for number in range(k_target)]
                mapping = make_mapping(kind, *labels)
                counted = mapping.count(logits, targets)

                def update(mapping: Any = mapping, logits: Any = logits, targets: Any = targets) -> None:
                    sums = mapping.new_statistics()
                    for part, classes in zip(logits.split(256), targets.split(256), strict=True):
                        sums.update(part, classes)

                acts = {"sample": update, "estimate": lambda mapping=mapping, counted=counted: mapping.estimate(counted)}
                best = fastest(acts, rounds, time.thread_time)
                rows.append(
                    {"mapping": kind, "k_source": k_source, "k_target": k_target, "held_out": held_out}
                    | {"sample": best["sample"] / SAMPLES, "estimate": best["estimate"]}
                )
            print(
                k_source, k_target, [{k: f"{v:.2e}" for k, v in row.items() if k in acts} for row in rows[-3:]], flush=True
            )
    return rows


def measure_epochs(_: int) -> list[Row]:
    """The second of three epochs of `fit`, without validation."""
    rows = []
    for name, canvas, image, batch, n, k_target, kind, refresh in EPOCHS:
        # its own weights where they are at hand, as logits of random ones have a covariance that is nearly singular
        frozen, draw = load_frozen(NAMES[name], pretrained=name == "lite0"), torch.Generator().manual_seed(0)
        images = torch.randint(256, (n, 3, image, image), dtype=torch.uint8, generator=draw)
        split, classes = ArraySplit(images, torch.arange(n) % k_target), [f"t {number}" for number in range(k_target)]
        data = DataSet("noise", tuple(classes), train=split, test=split.subset(torch.arange(4)))
        model = Reprogrammed(Padding(canvas, image), frozen, make_mapping(kind, frozen.labels, classes, refresh=refresh))
        model.accelerate()
        ends: list[float] = []
        fit(
            model,
            data,
            TrainingSettings(epochs=4, batch_size=batch, evaluate_every=4),
            on_epoch=lambda *_, ends=ends: ends.append(time.thread_time()),
        )
        rows.append(
            {"model": name, "canvas": canvas, "image": image, "batch": batch, "n": n, "k_target": k_target}
            | {"mapping": kind, "refresh": refresh, "seconds": min(ends[1] - ends[0], ends[2] - ends[1])}
        )
        print(rows[-1], flush=True)
    return rows


def _on_threads(threads: int, act: Callable[[], None]) -> None:
    torch.set_num_threads(threads)
    act()


def measure_threads(rounds: int) -> list[Row]:
    rows = []
    for name, canvas, image, batch in THREADS:
        model = Model(load_frozen(NAMES[name], pretrained=False), canvas, image)

        acts = {
            f"{act} {threads}": functools.partial(_on_threads, threads, run)
            for act, run in model.acts(batch).items()
            for threads in (1, 2)
        }
        best = fastest(acts, rounds, time.perf_counter)
        torch.set_num_threads(1)
        for act in ACTS:
            rows.append(
                {"model": name, "canvas": canvas, "image": image, "batch": batch, "act": act}
                | {"ratio": best[f"{act} 1"] / best[f"{act} 2"]}
            )
        print(name, canvas, image, batch, [round(row["ratio"], 2) for row in rows[-2:]], flush=True)
    return rows


PARTS = {
    "network": measure_network,
    "statistics": measure_statistics,
    "epochs": measure_epochs,
    "threads": measure_threads,
}


def main() -> None:
    """Measure what is missing, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "page"], help="measure these parts again, and no others")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore", EvidenceWarning)  # a few images cannot show all classes
    keep_freed_memory()  # as the command line does
    torch.set_num_threads(1)
    content: Row = json.loads(STORED.read_text()) if STORED.is_file() else {}
    missing = [part for part in PARTS if part not in content]
    for part in given.only or missing:
        if part in PARTS:
            print(part, flush=True)
            content[part] = PARTS[part](given.rounds)
            STORED.write_text(json.dumps(content, indent=1) + "\n")
    if not all(part in content for part in PARTS if part != "threads"):
        return
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line)
        if Path("/proc/cpuinfo").is_file()
        else iter(()),
        platform.processor(),
    )
    content["machine"] = {"processor": processor, "cores": os.cpu_count(), "torch": torch.__version__}
    costs = Costs(content)
    content["hours"] = {name: paper_hours(costs, entry) for name, entry in PAPER.items()}
    STORED.write_text(json.dumps(content, indent=1) + "\n")
    PAGE.write_text(page(content, costs))
    draw(content, costs, PAGE.with_suffix(".png"))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
