"""Image data sets of the `datasets` library: a folder that it saved, or a name on the Hugging Face Hub."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from reprogram.child import tried_in_child
from reprogram.data.dataset import DataSet, Split
from reprogram.data.fingerprints import content_hash, file_fingerprint, file_key
from reprogram.data.splits import drawn_test, sorted_classes, split_of
from reprogram.errors import ReprogramError, first_line
from reprogram.files import read_json
from reprogram.images.pictures import Interpolation, read_image
from reprogram.sources.network import HubAccess

_LABEL_NAMES = ("label", "labels", "fine_label", "target", "class", "category")


def load_hub(name: str, split_seed: int | None = 0, group: str | None = None) -> DataSet:
    """Load a data set through the `datasets` library.

    Args:
        name: a folder written by `save_to_disk`, which is read without any network; or a name on the Hub, with
            `:configuration` behind it where the data set has several.
        split_seed: of the test split where the data set brings none.
        group: the column that names the groups, whose images stay together.

    Raises:
        ReprogramError: it cannot be loaded, or has no column of images or none of labels.
    """
    tables = _load(name)
    splits: dict[str, Any] = {}
    for word, table in tables.items():
        key = split_of(word)
        if key and key not in splits:
            splits[key] = table
    if "train" not in splits:
        if len(tables) != 1:
            raise ReprogramError(
                f"data 'hf:{name}' has the splits {', '.join(tables)}, but train and perhaps validation and test are "
                "expected; rename them and save the data set with save_to_disk"
            )
        splits = {"train": next(iter(tables.values()))}  # one table under any name is all the data there is
    image, label = _columns(name, splits["train"].features)
    classes, numbers = _labels(name, splits, label)
    parts: dict[str, Split] = {
        key: HubSplit(table.select_columns([image]), image, numbers[key], [f"{key}/{row}" for row in range(len(table))])
        for key, table in splits.items()
    }
    source = f"data 'hf:{name}'"
    if group is not None:
        for key, table in splits.items():
            parts[key].with_groups(_groups(name, key, table, group))
    if "test" not in parts:
        everything = parts["train"]
        parts |= everything.divided(drawn_test(everything.labels, split_seed, source, everything.group_numbers()))
    return DataSet.of_parts(Path(name).name, classes, parts, source=source)


class HubSplit(Split):
    """Rows of a table of the `datasets` library, decoded by us so that every source treats an image alike."""

    def __init__(
        self, table: Any, column: str, labels: Tensor, names: Sequence[str], rows: Sequence[int] | None = None
    ) -> None:
        super().__init__(labels, names)
        from datasets import Image

        self.column, self.rows = column, list(range(len(labels)) if rows is None else rows)
        self.table = table.cast_column(column, Image(decode=False))

    @override
    def read(self, index: int, size: int | None = None, interpolation: Interpolation = "bilinear") -> Tensor:
        cell = self._cell(index)
        if cell.get("bytes") is not None:
            return read_image(io.BytesIO(cell["bytes"]), size, interpolation, name=self.names[index])
        return read_image(cell["path"], size, interpolation)

    @override
    def content_key(self, index: int) -> str:
        try:
            cell = self._cell(index)
        except ReprogramError as error:  # a bad image has a key too: it is reported when it is decoded
            return str(error)
        return file_key(Path(cell["path"])) if cell.get("bytes") is None else content_hash(cell["bytes"])

    @override
    def fingerprint(self, index: int) -> str:
        try:
            cell = self._cell(index)
        except ReprogramError:
            return ""
        return file_fingerprint(Path(cell["path"])) if cell.get("bytes") is None else content_hash(cell["bytes"])

    @override
    def subset(self, indices: Tensor) -> Self:
        places = indices.tolist()
        names, rows = [self.names[i] for i in places], [self.rows[i] for i in places]
        return type(self)(self.table, self.column, self.labels[indices], names, rows).grouped_as(self, indices)

    def _cell(self, index: int) -> Mapping[str, Any]:
        cell = self.table[self.rows[index]][self.column]
        if not cell or (cell.get("bytes") is None and not cell.get("path")):
            raise ReprogramError(f"image {self.names[index]!r} is empty in its table; fill it in or remove its row")
        return dict(cell)


def _load(name: str) -> dict[str, Any]:
    try:
        import datasets
    except ModuleNotFoundError:
        raise ReprogramError(
            f"data 'hf:{name}' needs the datasets library, which is not installed; run: pip install 'reprogram[data]'"
        ) from None
    folder = Path(name).expanduser()
    if folder.exists():
        if not ((folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()):
            raise ReprogramError(
                f"data 'hf:{name}' is a path, but no folder written by save_to_disk; save it so, "
                "or give an image folder or a table without hf:"
            )
        _check_folder(folder, name)
        try:
            loaded: Any = datasets.load_from_disk(str(folder))
        except Exception as error:  # a damaged folder fails in many ways, all meaning the same to the caller
            raise ReprogramError(
                f"data 'hf:{name}' cannot be read ({first_line(error)}); save it with save_to_disk again"
            ) from None
    else:
        if name.startswith(("/", ".", "~")):  # meant as a path: no name on the Hub begins like this
            raise ReprogramError(f"data 'hf:{name}' does not exist; check the path")
        repository, _, configuration = name.partition(":")
        try:
            with HubAccess(fetching=True):  # one short try, instead of the package's many
                loaded = datasets.load_dataset(repository, configuration or None)
        except Exception as error:  # no network, no such name, no access, a choice of configurations: its words say which
            raise ReprogramError(
                f"data 'hf:{name}' is no local folder and cannot be loaded from the Hub ({first_line(error)}); check the "
                "name and the network, or give a folder written by save_to_disk"
            ) from None
    return dict(loaded) if isinstance(loaded, Mapping) else {"train": loaded}


def _check_folder(folder: Path, name: str) -> None:
    """See that a folder names no table outside of it, and that a child process can read those in it.

    Arrow's reader follows what a damaged table says to anywhere in the memory.
    """
    for state in sorted(folder.rglob("state.json")):
        content = read_json(state, f"data 'hf:{name}':")
        files = content.get("_data_files") if isinstance(content, dict) else None
        indices = (content.get("_indices_data_files") or []) if isinstance(content, dict) else []
        for file in [*files, *indices] if isinstance(files, list) and isinstance(indices, list) else [None]:
            named = file.get("filename") if isinstance(file, dict) else None
            if not isinstance(named, str) or Path(named).name != named or not named.endswith(".arrow"):
                raise ReprogramError(
                    f"data 'hf:{name}' cannot be read ({state.name} names no table beside it); save it with "
                    "save_to_disk again"
                )
    tried_in_child("reprogram.data.walks:walk_arrow", folder, "data", "save it with save_to_disk again")


def _columns(name: str, features: Mapping[str, Any]) -> tuple[str, str]:
    """The columns that hold the image and its label."""
    from datasets import ClassLabel, Image, Value

    kinds = ", ".join(f"{key} ({type(feature).__name__})" for key, feature in features.items())
    images = [key for key, feature in features.items() if isinstance(feature, Image)]
    if len(images) > 1:
        images = [key for key in images if key in ("image", "img")]
    if len(images) != 1:
        raise ReprogramError(
            f"data 'hf:{name}' has the columns {kinds}, but one column of type Image is expected; "
            "cast_column it to datasets.Image() and save it again"
        )
    labels = [key for key, feature in features.items() if isinstance(feature, ClassLabel)]
    if not labels:
        labels = [
            key
            for key, feature in features.items()
            if isinstance(feature, Value)
            and feature.dtype.removeprefix("large_").startswith(("string", "int", "uint", "bool"))
        ]
    if len(labels) > 1:
        labels = [key for key in _LABEL_NAMES if key in labels][:1]
    if len(labels) != 1:
        raise ReprogramError(
            f"data 'hf:{name}' has the columns {kinds}, but one column of labels is expected; rename it to label"
        )
    return images[0], labels[0]


def _groups(name: str, part: str, table: Any, column: str) -> list[str]:
    """The groups of the images of a split."""
    if column not in table.features:
        raise ReprogramError(
            f"data 'hf:{name}' has no column {column!r:.80} in its split {part}, but --group names it; it has "
            f"{', '.join(table.features)[:200]}"
        )
    values = table.with_format(None)[column][:]
    if any(value is None or isinstance(value, (list, dict, bytes)) for value in values):
        raise ReprogramError(
            f"data 'hf:{name}' has images without a plain group in column {column!r:.80} of its split {part}; fill them in"
        )
    return [str(value) for value in values]


def _labels(name: str, splits: Mapping[str, Any], column: str) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    from datasets import ClassLabel

    for key, table in splits.items():
        if column not in table.features:
            raise ReprogramError(f"data 'hf:{name}' has no column {column!r} in its split {key}; add it there")
    values = {key: table.with_format(None)[column][:] for key, table in splits.items()}
    for key, column_values in values.items():
        if None in column_values or (column_values and min(column_values) == -1):
            raise ReprogramError(
                f"data 'hf:{name}' has images without a label in its split {key}; remove them, or remove the split"
            )
    feature = splits["train"].features[column]
    if isinstance(feature, ClassLabel):
        if not isinstance(feature.names, list) or not all(isinstance(word, str) for word in feature.names):
            raise ReprogramError(f"data 'hf:{name}' has classes that are no names; save it with save_to_disk again")
        return tuple(feature.names), {
            key: torch.from_numpy(np.asarray(column_values, dtype=np.int64)) for key, column_values in values.items()
        }
    classes = sorted_classes(str(value) for column_values in values.values() for value in column_values)
    numbers = {text: number for number, text in enumerate(classes)}
    return classes, {
        key: torch.tensor([numbers[str(value)] for value in column_values], dtype=torch.int64)
        for key, column_values in values.items()
    }
