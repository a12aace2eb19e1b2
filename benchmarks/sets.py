"""Logits of image sets under the bundled EfficientNet-Lite0, for the studies that need nothing else of the images.

    python benchmarks/sets.py FOLDER [FOLDER ...]

Each folder holds train/, val/ and test/ with one folder of images per class; its logits, labels and names are computed once
and kept in benchmarks/.logits/<set>.npz. The images are resized to the model's own input, without a program.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from reprogram import load_data, load_frozen
from reprogram.programs import NoProgram

HERE = Path(__file__).parent
KEPT = HERE / ".logits"
MODEL = "bundled:efficientnet_lite0"
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class LogitSet:
    """A data set as a frozen model sees it.

    Attributes:
        name: that of its folder.
        logits: (n, k_S) float32, by split.
        labels: (n,) class numbers, by split.
        classes: k_T names.
        source_labels: k_S names.
    """

    name: str
    logits: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    classes: list[str]
    source_labels: list[str]


def drawn(labels: np.ndarray, shots: int | None, seed: int) -> np.ndarray:
    """The places of some images of each class, or of all."""
    if shots is None:
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(np.flatnonzero(labels == label))[:shots] for label in np.unique(labels)])


def load_logits(folder: str | Path) -> LogitSet:
    """Of one folder; read from where they are kept, or computed."""
    folder = Path(folder).expanduser().resolve()
    path = KEPT / f"{folder.name}.npz"
    if not path.exists():
        _compute(folder, path)
    with np.load(path, allow_pickle=False) as held:
        return LogitSet(
            folder.name,
            {split: held[f"{split}_logits"] for split in SPLITS},
            {split: held[f"{split}_labels"] for split in SPLITS},
            held["classes"].tolist(),
            held["source_labels"].tolist(),
        )


@torch.no_grad()
def _compute(folder: Path, path: Path) -> None:
    data, frozen = load_data(str(folder)), load_frozen(MODEL)
    program = NoProgram(frozen.input_size).bind(frozen.mean, frozen.std)
    held: dict[str, np.ndarray] = {"classes": np.array(data.classes), "source_labels": np.array(list(frozen.labels))}
    for name in SPLITS:
        split = getattr(data, name)
        images = split.pixels(program.image_size, program.interpolation).split(64)
        held[f"{name}_logits"] = torch.cat([frozen(program(batch)) for batch in images]).numpy()
        held[f"{name}_labels"] = split.labels.numpy()
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **held)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+")
    for given in parser.parse_args().folders:
        found = load_logits(given)
        print(found.name, {split: values.shape for split, values in found.logits.items()}, flush=True)
