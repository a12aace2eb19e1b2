"""Image folders: `train/ [val/] test/` with class folders in each, or class folders alone, split by a seed."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from reprogram.data.dataset import DataSet, FileSplit
from reprogram.data.file_kinds import counted_kinds, is_meant, kind_of_file
from reprogram.data.group_patterns import GroupPattern
from reprogram.data.splits import PARTS, drawn_test, resembles_split, split_of
from reprogram.errors import ReprogramError, short
from reprogram.files.foreign import absolute, is_folder, listed


def load_folder(folder: Path, split_seed: int | None = 0, group: str | None = None) -> DataSet:
    """Load an image folder of either layout; a class is a folder, and the order of classes is that of their names.

    Args:
        folder: with `train/`, `test/` and perhaps `val/` (in any capitals, also training, testing, valid, validation) of
            class folders, or with class folders alone.
        split_seed: of the test split where the folder has none.
        group: a pattern that reads the group of an image off its path (`GroupPattern`); groups are not divided.
    """
    pattern = None if group is None else GroupPattern.read(group)
    name, source = absolute(folder).name, f"folder {str(folder)!r}"
    splits = _split_folders(folder)
    left_out: Counter[str] = Counter()
    if not splits:
        classes = tuple(_folders(folder))
        if classes and all(resembles_split(entry) for entry in classes):
            raise ReprogramError(
                f"{source} has {_listed(classes)}, which look like splits and not like classes; call them train/, test/ and "
                "perhaps val/, or rename what are classes"
            )
        everything = _scan(folder, classes, left_out)
        notes = _group_by(pattern, [everything], source)
        parts = everything.divided(drawn_test(everything.labels, split_seed, source, everything.group_numbers()))
        return DataSet.of_parts(name, classes, parts, source=source, notes=[*_left_out_notes(left_out), *notes])
    others = [entry for entry in _folders(folder) if split_of(entry) is None]
    for part in ("train", "test"):
        if part not in splits:
            found = next(iter(splits.values()))
            raise ReprogramError(
                f"{source} has {found.name}/ but no {part} split{f' beside {_listed(others)}' if others else ''}; add "
                f"{part}/ with the same class folders, give {str(found)!r} itself to have it split by the seed, or rename "
                f"{found.name}/ if it is a class"
            )
    classes = tuple(sorted({entry for place in splits.values() for entry in _folders(place)}))
    scanned = {part: _scan(place, classes, left_out) for part, place in splits.items()}
    notes = [f"left out beside the splits: {_listed(others)}"] if others else []
    notes += _group_by(pattern, list(scanned.values()), source)
    return DataSet.of_parts(name, classes, scanned, source=source, notes=[*notes, *_left_out_notes(left_out)])


def load_labelled(folder: Path, split: str, classes: Sequence[str], group: str | None = None) -> FileSplit:
    """Load the labelled images of a folder for a model that has these classes already.

    A folder with splits gives the named one; a folder of class folders gives all its images. It may lack classes. `group`
    is as in `load_folder`.
    """
    splits = _split_folders(folder)
    if splits and split not in splits:
        raise ReprogramError(f"folder {str(folder)!r} has no {split} split; choose another one with --split")
    place = splits.get(split, folder)
    foreign = [name for name in _folders(place) if name not in classes]
    if foreign:
        raise ReprogramError(
            f"folder {str(place)!r} has a class {foreign[0]!r}, but the model has {', '.join(map(short, classes[:4]))}"
            f"{' ...' if len(classes) > 4 else ''}; give folders with the model's class names"
        )
    images = _scan(place, tuple(classes), Counter())
    _group_by(None if group is None else GroupPattern.read(group), [images], f"folder {str(folder)!r}")
    return images


def _group_by(pattern: GroupPattern | None, splits: Sequence[FileSplit], source: str) -> list[str]:
    """Give the images the groups that a pattern reads off their paths; the notes that it leads to."""
    if pattern is None:
        return []
    groups, notes = pattern.groups_of([str(path) for split in splits for path in split.paths], source)
    start = 0
    for split in splits:
        split.with_groups(groups[start : start + len(split)])
        start += len(split)
    return notes


def _split_folders(folder: Path) -> dict[str, Path]:
    """The folders that are splits, by what they are called in any capitals; each split at most once."""
    found: dict[str, Path] = {}
    for name in _folders(folder):
        part = split_of(name)
        if part is None:
            continue
        if part in found:
            raise ReprogramError(
                f"folder {str(folder)!r} has both {found[part].name}/ and {name}/, which mean the same split; "
                "keep one of them"
            )
        found[part] = folder / name
    return {part: found[part] for part in PARTS if part in found}


def _folders(folder: Path) -> list[str]:
    return [entry.name for entry in listed(folder) if is_folder(entry) and not entry.name.startswith(".")]


def _listed(names: Sequence[str]) -> str:
    shown = [f"{short(name)}/" for name in names[:4]]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) + (" ..." if len(names) > 4 else "")


def _scan(folder: Path, classes: tuple[str, ...], left_out: Counter[str]) -> FileSplit:
    """All images of class folders; what else lies there is counted in `left_out`, by kind."""
    if all((folder / name).is_file() for name in ("config.json", "environment.json")):
        raise ReprogramError(
            f"folder {str(folder)!r} is a run of reprogram, but images are expected; name what it was fitted to"
        )
    if len(classes) < 2:
        raise ReprogramError(
            f"folder {str(folder)!r} has {len(classes)} class folders, but at least 2 are expected, "
            "each with the images of one class"
        )
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if not is_folder(folder / name):
            continue  # a split may lack a class; the class keeps its number
        images, others = _images_below(folder / name)
        if not images:
            found = f" ({counted_kinds(others)})" if others else ""
            raise ReprogramError(
                f"class folder {str(folder / name)!r} holds no image{found}; add images to it or remove the folder"
            )
        paths += images
        labels += [label] * len(images)
        left_out.update(others)
    if not paths:
        raise ReprogramError(
            f"folder {str(folder)!r} holds no image of any class; add class folders with images or remove it"
        )
    return FileSplit(paths, torch.tensor(labels, dtype=torch.int64))


def _images_below(folder: Path) -> tuple[list[Path], Counter[str]]:
    """The image files of a folder and of those inside it, and how many other files there are of each kind."""
    images: list[Path] = []
    others: Counter[str] = Counter()
    for path in _below(folder):
        if kind := kind_of_file(path):
            others[kind] += 1
        else:
            images.append(path)
    return images, others


def _below(folder: Path) -> list[Path]:
    """All that lies in a folder and in those inside it, sorted, but for real folders and what is hidden."""

    def refuse(error: OSError) -> None:
        raise ReprogramError(
            f"folder {str(error.filename)!r} cannot be read ({error.strerror}); change its permissions or remove it"
        )

    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]  # noqa: PTH114, PTH118  # fast
        kept = [name for name in files if is_meant(name)]
        found += [Path(place, name) for name in (*linked, *kept)]
    return sorted(found)


def _left_out_notes(kinds: Counter[str]) -> list[str]:
    total = kinds.total()
    return [f"{total} {'file was' if total == 1 else 'files were'} left out: {counted_kinds(kinds)}"] if kinds else []
