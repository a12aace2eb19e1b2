"""How much of a training epoch is spent outside the model: batches, augmentation, mapping, statistics, metrics.

    python benchmarks/epoch_overhead.py [--rounds 3]

The same epoch is timed alternately with the whole loop and with its model passes alone (forward and backward of the same
batches), best of N; the difference is the loop's own cost. Padding with 32-px images on a canvas of 224, bundled model.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import torch

from reprogram import Reprogrammed, fit, load_frozen, make_mapping
from reprogram.data import ArraySplit, DataSet
from reprogram.programs import Padding

IMAGES, BATCH = 256, 64


def main() -> None:
    """Measure, print, write benchmarks/epoch_overhead.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    frozen = load_frozen("bundled:efficientnet_lite0")
    classes = tuple(f"class {index}" for index in range(10))
    labels = torch.arange(IMAGES) % 10
    train = ArraySplit(torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8), labels)
    data = DataSet("noise", classes, train=train, test=train.subset(torch.arange(2)))
    program = Padding(224, 32)
    model = Reprogrammed(program, frozen, make_mapping("blm+", frozen.labels, classes, refresh="reuse"))
    pixels = train.pixels(32)

    def passes_alone() -> float:
        start = time.perf_counter()
        for batch in pixels.split(BATCH):
            program.zero_grad()
            frozen(program(batch)).sum().backward()
        return time.perf_counter() - start

    def whole_loop() -> float:
        return IMAGES / fit(model, data, epochs=1, batch_size=BATCH).records[0]["images_per_second"]

    passes_alone()
    alone, whole = float("inf"), float("inf")
    for _ in range(given.rounds):
        alone, whole = min(alone, passes_alone()), min(whole, whole_loop())
    share = max(0.0, (whole - alone) / whole)
    content = {
        "command": "python benchmarks/epoch_overhead.py",
        "machine": {"platform": platform.platform(), "torch": torch.__version__, "threads": torch.get_num_threads()},
        "seconds": {"model passes alone": alone, "training pass of the loop": whole},
        "share_outside_the_model": share,
    }
    print(f"model passes alone {alone:.2f} s, the loop {whole:.2f} s: {100 * share:.1f} % outside the model")
    Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
