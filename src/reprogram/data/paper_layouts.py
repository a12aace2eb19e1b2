"""How the paper's data sets lie on a disk: CoOp's folders, torchvision's folders, and the ILM-VP authors' LMDB files."""

import csv
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from reprogram.child import tried_in_child
from reprogram.data.dataset import ArraySplit, FileSplit, Split
from reprogram.data.safe_lmdb import MOST_CLASSES, LmdbSplit
from reprogram.data.safe_pickle import read_cifar_pickle
from reprogram.errors import ReprogramError, first_line
from reprogram.files import read_json
from reprogram.images.decoding import SUFFIXES

_PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Contents:
    """What a layout holds: class names as they are written there, splits by name, and remarks in words."""

    classes: tuple[str, ...]
    splits: Mapping[str, Split]
    remarks: list[str] = field(default_factory=list)


class Layout(ABC):
    """One way in which a data set lies under the data root."""

    @abstractmethod
    def find(self, root: Path) -> Path | None:
        """The file or folder that `load` begins with, or None where the data set does not lie here in this way."""

    @abstractmethod
    def load(self, place: Path) -> Contents:
        """Read the classes and splits from what `find` has found."""


@dataclass(frozen=True)
class Coop(Layout):
    """CoOp's layout: `<folder>/<images>/...` and a json file with the splits."""

    folders: tuple[str, ...]
    images: str
    split_file: str

    @override
    def find(self, root: Path) -> Path | None:
        return _first_file(root / folder / self.split_file for folder in self.folders)

    @override
    def load(self, place: Path) -> Contents:
        folder = place.parent / self.images
        if not folder.is_dir():
            raise ReprogramError(f"folder {str(folder)!r} does not exist beside {place.name!r}; put the images there")
        parts = _split_file(place)
        splits = {
            part: FileSplit([folder / path for path, _, _ in rows], torch.tensor([label for _, label, _ in rows]))
            for part, rows in parts.items()
        }
        return Contents(_class_names(place, parts), splits)


@dataclass(frozen=True)
class Lmdb(Layout):
    """The ILM-VP authors' layout: `<folder>/{train,test}.lmdb` and `split.json`, or `<folder>_{train,test}.lmdb`."""

    folders: tuple[str, ...]
    classes: int

    @override
    def find(self, root: Path) -> Path | None:
        places = [root / pattern.format(folder) for folder in self.folders for pattern in ("{}/train.lmdb", "{}_train.lmdb")]
        return next((place for place in places if place.exists()), None)

    @override
    def load(self, place: Path) -> Contents:
        others = {part: place.with_name(place.name.replace("train.lmdb", f"{part}.lmdb")) for part in _PARTS}
        if not others["test"].exists():
            raise ReprogramError(f"data {str(place)!r} has no {others['test'].name!r} beside it; put it there")
        splits = {part: LmdbSplit.open(path) for part, path in others.items() if path.exists()}
        names = _first_file([place.parent / "split.json", *sorted(place.parent.glob("split_zhou_*.json"))])
        if names is not None:
            return Contents(_class_names(names, _split_file(names)), splits)
        remark = (
            f"the class names are not known, because there is no split.json beside {str(place)!r}; the classes are numbered"
        )
        count = max(self.classes, *(int(split.labels.max()) + 1 for split in splits.values()))
        return Contents(tuple(f"class {number}" for number in range(count)), splits, [remark])


@dataclass(frozen=True)
class Cifar(Layout):
    """CIFAR10 or CIFAR100 as its authors publish it: python batches, or the binary version."""

    folders: tuple[str, ...]
    fine: bool  # CIFAR100

    @override
    def find(self, root: Path) -> Path | None:
        names = ("cifar-100-python", "cifar-100-binary") if self.fine else ("cifar-10-batches-py", "cifar-10-batches-bin")
        places = [base / name for base in (*(root / folder for folder in self.folders), root) for name in names]
        return next((place for place in places if place.is_dir()), None)

    @override
    def load(self, place: Path) -> Contents:
        binary = place.name.endswith(("bin", "binary"))
        suffix = ".bin" if binary else ""
        stems = {"train": ["train"], "test": ["test"]}
        if not self.fine:
            stems = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
        read = self._binary if binary else self._python
        splits = {}
        for part, files in stems.items():
            paths = [place / f"{stem}{suffix}" for stem in files]
            batches = [read(path) for path in paths]
            names = [f"{path}#{row}" for path, (rows, _) in zip(paths, batches, strict=True) for row in range(len(rows))]
            images = torch.from_numpy(np.concatenate([rows for rows, _ in batches]).reshape(-1, 3, 32, 32))
            splits[part] = ArraySplit(images, torch.tensor([label for _, labels in batches for label in labels]), names)
        return Contents(self._names(place, binary), splits)

    def _python(self, path: Path) -> tuple["np.ndarray[Any, Any]", list[int]]:
        batch = read_cifar_pickle(_bytes(path), f"batch {str(path)!r}")
        rows, labels = batch.get("data"), batch.get("fine_labels" if self.fine else "labels")
        if not (
            isinstance(rows, np.ndarray)
            and rows.shape[1:] == (3072,)
            and isinstance(labels, list)
            and len(labels) == len(rows)
            and all(isinstance(label, int) for label in labels)
        ):
            raise ReprogramError(f"batch {str(path)!r} does not hold CIFAR's data and labels; download it again")
        return rows, labels

    def _binary(self, path: Path) -> tuple["np.ndarray[Any, Any]", list[int]]:
        label_bytes = 2 if self.fine else 1  # CIFAR100: coarse label, fine label
        data = np.frombuffer(_bytes(path), dtype=np.uint8)
        if not len(data) or len(data) % (label_bytes + 3072):
            raise ReprogramError(
                f"batch {str(path)!r} has {len(data):,} bytes, no multiple of {label_bytes + 3072}; download it again"
            )
        rows = data.reshape(-1, label_bytes + 3072)
        return rows[:, label_bytes:], rows[:, label_bytes - 1].tolist()

    def _names(self, place: Path, binary: bool) -> tuple[str, ...]:
        if binary:
            path = place / ("fine_label_names.txt" if self.fine else "batches.meta.txt")
            return tuple(_bytes(path).decode("utf-8", "replace").split())
        path = place / ("meta" if self.fine else "batches.meta")
        names = read_cifar_pickle(_bytes(path), f"file {str(path)!r}").get(
            "fine_label_names" if self.fine else "label_names"
        )
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ReprogramError(f"file {str(path)!r} does not hold CIFAR's class names; download it again")
        return tuple(names)


@dataclass(frozen=True)
class Svhn(Layout):
    """SVHN's cropped digits: `train_32x32.mat` and `test_32x32.mat`."""

    @override
    def find(self, root: Path) -> Path | None:
        return _first_file(base / "train_32x32.mat" for base in (root / "svhn", root))

    @override
    def load(self, place: Path) -> Contents:
        splits = {part: self._read(place.with_name(f"{part}_32x32.mat")) for part in ("train", "test")}
        return Contents(tuple("0123456789"), splits)

    def _read(self, path: Path) -> ArraySplit:
        try:
            from scipy.io import loadmat
        except ModuleNotFoundError:
            raise ReprogramError(f"file {str(path)!r} needs scipy; run: pip install 'reprogram[data]'") from None
        if not path.is_file():
            raise ReprogramError(f"file {str(path)!r} does not exist; put it there")
        # scipy's reader follows what a damaged file says to anywhere in the memory
        tried_in_child("reprogram.data.walks:walk_mat", path, "file", "it is no readable SVHN file: download it again")
        try:
            content = loadmat(path, variable_names=["X", "y"])
            images, labels = np.asarray(content["X"]), np.asarray(content["y"]).reshape(-1).astype(np.int64)
        except Exception as error:  # scipy raises whatever a damaged file leads it into
            raise ReprogramError(
                f"file {str(path)!r} is no readable SVHN file ({first_line(error)}); download it again"
            ) from None
        if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(labels)):
            raise ReprogramError(
                f"file {str(path)!r} has images of shape {images.shape} for {len(labels)} labels, "
                "but (32, 32, 3, n) is expected"
            )
        pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1)))
        names = [f"{path}#{row}" for row in range(len(labels))]
        return ArraySplit(pixels, torch.from_numpy(labels % 10), names)  # the file calls the digit 0 class 10


@dataclass(frozen=True)
class Gtsrb(Layout):
    """GTSRB's folders, with the training images of either archive and the test labels in `GT-final_test.csv`."""

    names: tuple[str, ...]

    @override
    def find(self, root: Path) -> Path | None:
        kinds = ("GTSRB/Final_Training/Images", "GTSRB/Training")  # the paper's archive, then torchvision's
        return next((place for base in (root / "gtsrb", root) for kind in kinds if (place := base / kind).is_dir()), None)

    @override
    def load(self, place: Path) -> Contents:
        base = next(parent for parent in place.parents if parent.name == "GTSRB")
        return Contents(self.names, {"train": self._train(place), "test": self._test(base)})

    def _train(self, folder: Path) -> FileSplit:
        paths: list[Path] = []
        labels: list[int] = []
        for entry in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            if not entry.name.isdecimal() or int(entry.name) >= len(self.names):
                raise ReprogramError(f"folder {str(entry)!r} is none of GTSRB's classes 00000 to 00042; take it out")
            images = sorted(path for path in entry.iterdir() if path.suffix.lower() in SUFFIXES)
            paths += images
            labels += [int(entry.name)] * len(images)
        if not paths:
            raise ReprogramError(f"folder {str(folder)!r} holds no image in class folders 00000 to 00042; unpack it again")
        return FileSplit(paths, torch.tensor(labels, dtype=torch.int64))

    def _test(self, base: Path) -> FileSplit:
        images = base / "Final_Test" / "Images"
        table = _first_file(folder / "GT-final_test.csv" for folder in (base.parent, base, images.parent, images))
        if table is None or not images.is_dir():
            raise ReprogramError(
                f"folder {str(base)!r} lacks the test images (Final_Test/Images) or their labels (GT-final_test.csv, "
                "from GTSRB_Final_Test_GT.zip); unpack both archives there"
            )
        try:
            with table.open(encoding="utf-8", newline="") as file:
                rows = [(row["Filename"], int(row["ClassId"])) for row in csv.DictReader(file, delimiter=";")]
            wrong = next((label for _, label in rows if not 0 <= label < len(self.names)), None)
            if wrong is not None:
                raise ValueError(f"there is no class {str(wrong)[:40]}")
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise ReprogramError(
                f"table {str(table)!r} cannot be read ({error}); "
                "it has the columns Filename and ClassId, divided by semicolons"
            ) from None
        if not rows:
            raise ReprogramError(f"table {str(table)!r} lists no image; unpack it again")
        paths = [images / _inside(name, table) for name, _ in rows]
        return FileSplit(paths, torch.tensor([label for _, label in rows], dtype=torch.int64))


def _first_file(paths: Any) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReprogramError(f"file {str(path)!r} cannot be read ({error.strerror}); unpack the archive again") from None


def _inside(path: str, source: Path) -> str:
    """Let a path pass that stays below the folder of images; a downloaded list must not reach for other files."""
    posix, windows = PurePosixPath(path), PureWindowsPath(path)
    if not path or posix.is_absolute() or windows.anchor or ".." in windows.parts or "\0" in path:
        raise ReprogramError(
            f"file {str(source)!r} names the image {path!r}, which leads out of the folder of images; "
            "get the file again from its authors"
        )
    return path


def _split_file(path: Path) -> dict[str, list[tuple[str, int, str]]]:
    """Read `{"train": [[path, label, name], ...], "val": ..., "test": ...}`."""
    content = read_json(path, "split file")
    if not isinstance(content, dict) or not all(isinstance(content.get(part) or [], list) for part in _PARTS):
        raise ReprogramError(f"split file {str(path)!r} has no lists 'train' and 'test'; download it again")
    parts: dict[str, list[tuple[str, int, str]]] = {}
    for part in _PARTS:
        for row in content.get(part) or []:
            if not isinstance(row, list) or len(row) != 3 or list(map(type, row)) != [str, int, str] or row[1] < 0:
                raise ReprogramError(
                    f"split file {str(path)!r} has the entry {str(row)[:80]} in {part!r}, but [path, label, name] is "
                    "expected; download it again"
                )
            if row[1] > MOST_CLASSES:  # it would fill the memory with names
                raise ReprogramError(
                    f"split file {str(path)!r} has the label {str(row[1])[:40]}, which no data set has; download it again"
                )
            parts.setdefault(part, []).append((_inside(row[0], path), row[1], row[2]))
    for part in ("train", "test"):
        if part not in parts:
            raise ReprogramError(f"split file {str(path)!r} lists no image in {part!r}; download it again")
    return parts


def _class_names(path: Path, parts: Mapping[str, Sequence[tuple[str, int, str]]]) -> tuple[str, ...]:
    """The names by label, over all splits; a number that no image has keeps its place."""
    names: dict[int, str] = {}
    for rows in parts.values():
        for _, label, name in rows:
            if names.setdefault(label, name) != name:
                raise ReprogramError(
                    f"split file {str(path)!r} calls class {label} both {names[label]!r} and {name!r}; download it again"
                )
    return tuple(names.get(label, f"class {label}") for label in range(max(names) + 1))
