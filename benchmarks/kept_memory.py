"""What it brings that freed memory is kept: passes and training steps with glibc's own way and with ours, in turn.

    python benchmarks/kept_memory.py [--rounds 6] [--threads 2]

Writes docs/results/memory.md. In one process, `mallopt` switches between glibc's way (blocks of 32 MB and more, and what is
free above 64 MB at the end of the heap, go back to the system: where its moving thresholds end up) and `keep_freed_memory`.
"""

import argparse
import ctypes
import os
import resource
import statistics
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from reprogram import Reprogrammed, load_frozen, make_mapping, make_program
from reprogram.memory import keep_freed_memory

PAGE = Path(__file__).parent.parent / "docs" / "results" / "memory.md"
CLASSES = [str(number) for number in range(10)]
CASES = [
    ("bundled:efficientnet_lite0", "none", 224, 224, "pass", 64),
    ("bundled:efficientnet_lite0", "none", 224, 224, "pass", 16),
    ("bundled:efficientnet_lite0", "none", 64, 64, "pass", 64),
    ("bundled:efficientnet_lite0", "padding", 224, 128, "training step", 32),
    ("bundled:efficientnet_lite0", "watermark", 224, 224, "training step", 32),
    ("bundled:efficientnet_lite0", "watermark", 64, 64, "training step", 64),
    ("torchvision:resnet18", "none", 224, 224, "pass", 64),
    ("torchvision:resnet18", "padding", 224, 32, "training step", 64),
    ("torchvision:resnet18", "watermark", 224, 224, "training step", 32),
]


def give_back():
    """Where glibc's own thresholds end up."""
    library = ctypes.CDLL(None)
    library.mallopt(-4, 65536)
    library.mallopt(-3, 32 * 2**20)
    library.mallopt(-1, 64 * 2**20)


def measure(model, act, images, rounds):
    """Images per second of each way, in turn."""
    labels = torch.arange(len(images)) % len(CLASSES)

    def once():
        if act == "pass":
            with torch.inference_mode():
                model.source_logits(images)
        else:
            model.zero_grad(set_to_none=True)
            F.cross_entropy(model(images), labels).backward()

    speeds = {"given back": [], "kept": []}
    once()
    for _ in range(rounds):
        for name, choose in (("given back", give_back), ("kept", keep_freed_memory)):
            choose()
            once()
            began = time.perf_counter()
            once()
            once()
            speeds[name].append(2 * len(images) / (time.perf_counter() - began))
    return speeds


def told(values, digits=1):
    """The median, and the least and the most."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    lines = [
        "# What it brings to keep freed memory",
        "",
        f"`python benchmarks/kept_memory.py --rounds {given.rounds} --threads {given.threads}` on {os.cpu_count()} cores, "
        f"torch {torch.__version__}: images per second in turn, in one process, median (least to "
        f"most) of {given.rounds} rounds.",
        "",
        "| model | program, canvas, image | what, images at once | given back (glibc) | kept (ours) | ratio of the rounds |",
        "|---|---|---|---:|---:|---:|",
    ]
    for name, program, canvas, image, act, batch in CASES:
        frozen = load_frozen(name, **({} if name.startswith("bundled") else {"pretrained": False}))
        own = {"image_size": image} if program == "padding" else {}
        model = Reprogrammed(make_program(program, canvas, **own), frozen, make_mapping("rlm", frozen.labels, CLASSES))
        model.accelerate()
        found = measure(model, act, torch.rand(batch, 3, image, image), given.rounds)
        ratios = [kept / back for back, kept in zip(found["given back"], found["kept"], strict=True)]
        what = f"{name.partition(':')[2]} | {program}, {canvas}, {image} | {act}, {batch}"
        lines.append(f"| {what} | {told(found['given back'])} | {told(found['kept'])} | {told(ratios, 2)} |")
        print(lines[-1], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines += ["", f"The largest memory of the process in all this was {peak:.0f} MB.", ""]
    PAGE.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
