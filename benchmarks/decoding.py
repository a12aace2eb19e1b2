"""How much faster a data set loads the second time, when its decoded images are in the cache.

python benchmarks/decoding.py [--images 2000]
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from reprogram import load_data
from reprogram.data.decode import Decoding


def main() -> None:
    """Write JPEGs of 400×300 pixels, load them three times, print the first and the best later time and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for label in ("a", "b"):
            (root / "set" / label).mkdir(parents=True)
            for index in range(given.images // 2):
                smooth = Image.fromarray(rng.integers(0, 255, (9, 12, 3), dtype=np.uint8)).resize((400, 300))
                smooth.save(root / "set" / label / f"{index}.jpg")
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            data, _ = Decoding(root / "cache", processes=2).decode(load_data(root / "set"), {"train": 128, "test": 128})
            assert len(data.train.pixels(128)) == 8 * given.images // 10
            seconds.append(time.perf_counter() - start)
        first, again = seconds[0], min(seconds[1:])
        print(f"first load {first:.2f} s, from the cache {again:.3f} s: {100 * again / first:.1f} %")


if __name__ == "__main__":
    main()
