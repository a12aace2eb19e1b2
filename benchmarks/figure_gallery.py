"""Draw the gallery of docs/figures.md from finished runs: small PNGs with few colours.

reprogram demo --out runs/demo
reprogram fit eurosat-mini --program padding --mapping blm+ --epochs 12 --canvas 128 --out runs/eurosat-padding
python benchmarks/figure_gallery.py --demo runs/demo --eurosat runs/eurosat-padding --out docs/figures
"""

import argparse
import io
from pathlib import Path

from PIL import Image

from reprogram.errors import ReprogramError
from reprogram.figures import FIGURES, plot_of
from reprogram.figures.drawing import rendered
from reprogram.run import gather_examples, read_run

_DPI = 84
_MOST, _MOST_OF_ALL = 60_000, 800_000  # bytes
#: Of the demo: which run a figure is of.
_DEMO = {"labels": "blm+", "joint": "blm", "confusion": "gaussian", "program-epochs": "blm+"}
_DARK = ("evidence", "confusion")


def small(content: bytes) -> bytes:
    """The same PNG with as many colours as there is room for."""
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    for colours in (128, 64, 32, 16):
        target = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(target, "png", optimize=True)
        if target.tell() < _MOST:
            return target.getvalue()
    raise ReprogramError(f"a picture does not fit into {_MOST} bytes; draw it smaller")


def main() -> None:
    """Draw every figure of the one run, some of the demo's, and tell what they take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, default=Path("runs/demo"))
    parser.add_argument("--eurosat", type=Path, default=Path("runs/eurosat-padding"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    total = 0

    def draw(name: str, target: str, record: object, examples: object = None, *, dark: bool = False) -> None:
        nonlocal total
        content = small(rendered(plot_of(name)(record, examples, dark=dark), ".png", dark=dark, dpi=_DPI))
        (given.out / f"{target}.png").write_bytes(content)
        total += len(content)
        print(f"{len(content):>7,}  {target}.png")

    record = read_run(given.eurosat)
    examples = gather_examples(record)
    for name, kind in FIGURES.items():
        if not kind.several:
            draw(name, f"eurosat-{name}", record, examples)
    for name in _DARK:
        draw(name, f"eurosat-{name}-dark", record, examples, dark=True)
    for name, run in _DEMO.items():
        record = read_run(given.demo / run)
        draw(name, f"demo-{name}", record, gather_examples(record) if FIGURES[name].examples else None)
    compared = [read_run(given.demo / run) for run in ("ilm", "blm", "blm+")]
    draw("mappings", "demo-mappings", compared)
    if total > _MOST_OF_ALL:
        raise ReprogramError(f"the gallery has {total:,} bytes, but {_MOST_OF_ALL:,} are its room")
    print(f"{total:>7,}  in all")


if __name__ == "__main__":
    main()
