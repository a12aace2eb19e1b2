"""A data format: a text becomes classes and splits of images."""

from pathlib import Path

import torch

from reprogram.data import ArraySplit, DataSet
from reprogram.data.registry import LoadOptions, given_path
from reprogram.errors import ReprogramError

SIDE = 16


def load(spec: str, options: LoadOptions) -> DataSet:
    """Read a file of lines such as `train warm #ff8800`."""
    path = given_path(spec)
    found: dict[str, list[tuple[str, list[int]]]] = {"train": [], "val": [], "test": []}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            split, label, colour = line.split()
            found[split].append((label, list(bytes.fromhex(colour.removeprefix("#")))))
        except (ValueError, KeyError):
            raise ReprogramError(
                f"line {number} of {spec!r} is {line!r}, but a split (train, val, test), a class and #rrggbb are expected"
            ) from None
    classes = sorted({label for rows in found.values() for label, _ in rows})
    parts = {split: _pictures(rows, classes) for split, rows in found.items() if rows}
    return DataSet.of_parts(Path(spec).stem, classes, parts)


def _pictures(rows: list[tuple[str, list[int]]], classes: list[str]) -> ArraySplit:
    colours = torch.tensor([colour for _, colour in rows], dtype=torch.uint8)
    images = colours[:, :, None, None].expand(-1, -1, SIDE, SIDE).contiguous()
    return ArraySplit(images, torch.tensor([classes.index(label) for label, _ in rows]))
