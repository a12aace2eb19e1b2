"""Image folders: `train/ [val/] test/` with class folders in each, or class folders alone, split by a seed."""

from collections.abc import Sequence
from pathlib import Path

import torch

from reprogram.data.dataset import DataSet, FileSplit, stratified_split
from reprogram.errors import ReprogramError
from reprogram.images.pictures import SUFFIXES

TEST_FRACTION = 0.2
_ALIASES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


def load_folder(folder: Path, seed: int = 0) -> DataSet:
    """Load an image folder of either layout; a class is a folder, and the order of classes is that of their names."""
    splits = {name: found for name, aliases in _ALIASES.items() if (found := _existing(folder, aliases))}
    if "train" in splits:
        if "test" not in splits:
            raise ReprogramError(
                f"folder {str(folder)!r} has {splits['train'].name}/ but no test split; add test/ with the same class "
                f"folders, or give {str(splits['train'])!r} itself to have it split by the seed"
            )
        classes = tuple(sorted({name for split in splits.values() for name in _class_folders(split)}))
        parts = {name: _scan(split, classes) for name, split in splits.items()}
        return DataSet(folder.resolve().name, classes, train=parts["train"], test=parts["test"], val=parts.get("val"))
    if splits:
        raise ReprogramError(
            f"folder {str(folder)!r} has {next(iter(splits))}/ but no train/; add it, or give class folders"
        )
    classes = tuple(_class_folders(folder))
    everything = _scan(folder, classes)
    train, test = stratified_split(everything.labels, TEST_FRACTION, seed, "test")
    if not len(test):
        raise ReprogramError(
            f"folder {str(folder)!r} has too few images to set a test split aside; give 3 or more per class"
        )
    return DataSet(folder.resolve().name, classes, train=everything.subset(train), test=everything.subset(test))


def load_labelled(folder: Path, split: str, classes: Sequence[str]) -> FileSplit:
    """Load the labelled images of a folder for a model that has these classes already.

    A folder with splits gives the named one; a folder of class folders gives all its images. It may lack classes.
    """
    place = _existing(folder, _ALIASES[split])
    if place is None and any(_existing(folder, aliases) for aliases in _ALIASES.values()):
        raise ReprogramError(f"folder {str(folder)!r} has no {split} split; choose another one with --split")
    place = place or folder
    foreign = [name for name in _class_folders(place) if name not in classes]
    if foreign:
        raise ReprogramError(
            f"folder {str(place)!r} has a class {foreign[0]!r}, but the model has {', '.join(classes[:4])}"
            f"{' ...' if len(classes) > 4 else ''}; give folders with the model's class names"
        )
    return _scan(place, tuple(classes))


def _existing(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def _class_folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _scan(folder: Path, classes: tuple[str, ...]) -> FileSplit:
    if len(classes) < 2:
        raise ReprogramError(
            f"folder {str(folder)!r} has {len(classes)} class folders, but at least 2 are expected, "
            "each with the images of one class"
        )
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            continue  # a split may lack a class; the class keeps its number
        images = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        images = [path for path in images if not path.name.startswith(".")]
        if not images:
            raise ReprogramError(
                f"class folder {str(folder / name)!r} holds no image; add images to it or remove the folder"
            )
        paths += images
        labels += [label] * len(images)
    if not paths:
        raise ReprogramError(
            f"folder {str(folder)!r} holds no image of any class; add class folders with images or remove it"
        )
    return FileSplit(paths, torch.tensor(labels, dtype=torch.int64))
