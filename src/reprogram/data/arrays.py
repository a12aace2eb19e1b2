"""Images that a program holds already: numpy arrays, torch tensors, `.npz` files, and any map-style torch data set."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import override

from reprogram.data.dataset import ArraySplit, DataSet, Split
from reprogram.data.fingerprints import content_hash
from reprogram.data.splits import PARTS, drawn_test, places_by_word, sorted_classes
from reprogram.errors import ReprogramError, first_line
from reprogram.files.safe_npz import read_npz
from reprogram.images.batches import Array, Channels, channels_first
from reprogram.images.pictures import Interpolation, as_rgb, pil_to_tensor, resize

_LABEL_ATTRIBUTES = ("targets", "labels", "_labels")


def load_npz(path: Path, split_seed: int | None = 0, group: str | None = None) -> DataSet:
    """Load a `.npz` file.

    It holds `images` and `labels`, perhaps `split` (train, val or test for each image); or `train_images`,
    `train_labels`, `test_images`, `test_labels` and perhaps `val_images`, `val_labels`. `classes` may name the classes. An
    array of the name `group`, or `train_<group>` and so on, tells which group each image is of.
    """
    expected = {
        "images",
        "labels",
        "split",
        "classes",
        *(f"{part}_{what}" for part in PARTS for what in ("images", "labels")),
        *([] if group is None else [group, *(f"{part}_{group}" for part in PARTS)]),
    }
    arrays, held = read_npz(path, expected)
    for name in ("classes", "split"):
        if name in arrays and arrays[name].ndim != 1:
            raise ReprogramError(
                f"array file {str(path)!r} has {name!r} of shape {arrays[name].shape}, but a list of names is expected"
            )
    names = _texts(arrays["classes"], "classes") if "classes" in arrays else None
    if "images" in arrays and "labels" in arrays:
        split = _texts(arrays["split"], "split") if "split" in arrays else None
        groups = None if group is None else _groups(path, arrays, group, held)
        return from_arrays(
            arrays["images"], arrays["labels"], names, split=split, groups=groups, split_seed=split_seed, name=path.stem
        )
    parts = {part: (arrays.get(f"{part}_images"), arrays.get(f"{part}_labels")) for part in PARTS}
    for part, (images, labels) in parts.items():
        if (images is None or labels is None) and not (part == "val" and images is None and labels is None):
            raise ReprogramError(
                f"array file {str(path)!r} holds {', '.join(held)[:200] or 'nothing'}, but images and labels, or "
                f"train_images, train_labels, test_images and test_labels are expected; save it with np.savez and "
                "these names"
            )
    given = {part: (images, labels) for part, (images, labels) in parts.items() if images is not None and labels is not None}
    classes, numbers = _number_labels([labels for _, labels in given.values()], names)
    splits = {
        part: _array_split(images, label, [f"{part}/{index}" for index in range(len(label))])
        for (part, (images, _)), label in zip(given.items(), numbers, strict=True)
    }
    if group is not None:
        for part, numbered in splits.items():
            numbered.with_groups(_groups(path, arrays, f"{part}_{group}", held))
    return DataSet.of_parts(path.stem, classes, splits, source=f"array file {str(path)!r}")


def _groups(path: Path, arrays: Mapping[str, Any], name: str, held: Sequence[str]) -> list[str]:
    """An array of groups."""
    if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iuUTb":
        raise ReprogramError(
            f"array file {str(path)!r} holds {', '.join(held)[:200]}, but --group asks for an array {name!r:.80} of one "
            "name or number for each image; save it under that name"
        )
    return _texts(arrays[name], name)


def from_arrays(
    images: Array,
    labels: Array | Sequence[Any],
    classes: Sequence[str] | None = None,
    *,
    split: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
    split_seed: int | None = 0,
    name: str = "arrays",
    channels: Channels | None = None,
) -> DataSet:
    """Make a data set from images in memory.

    Args:
        images: (n, H, W), (n, H, W, C) or (n, C, H, W); whole numbers in 0..255 (uint16: 0..65535),
            floating point in [0, 1].
        labels: n class numbers or class names.
        classes: the names of the classes, in order. Without them, numbered labels are named by their numbers.
        split: `train`, `val` or `test` for each image; without it, a fifth is set aside for testing.
        groups: a name or number for each image, such as that of its video; groups are not divided.
        split_seed: decides which fifth.
        name: of the data set.
        channels: `first` or `last` in the three sides of an image, where the shape does not tell.

    >>> import numpy as np
    >>> data = from_arrays(np.zeros((10, 8, 8), np.uint8), ["cat", "dog"] * 5)
    >>> data.classes, len(data.train), len(data.test)
    (('cat', 'dog'), 8, 2)
    """
    names, (numbers,) = _number_labels([labels], classes)
    everything = _array_split(images, numbers, [str(index) for index in range(len(numbers))], channels)
    everything.with_groups(groups)
    source = f"data {name!r}"
    if split is None:
        places = drawn_test(numbers, split_seed, source, everything.group_numbers())
        return DataSet.of_parts(name, names, everything.divided(places))
    if len(split) != len(everything):
        raise ReprogramError(f"{len(split)} splits were given for {len(everything)} images; give one for each image")
    return DataSet.of_parts(name, names, everything.divided(places_by_word([str(word) for word in split], source)))


class DatasetSplit(Split):
    """Some items of a map-style torch data set whose items begin with (image, label).

    An image is a PIL picture, a tensor (C, H, W) or (H, W), or an array (H, W) or (H, W, C).
    """

    def __init__(
        self, dataset: "Dataset[Any]", labels: Tensor, names: Sequence[str], indices: Sequence[int] | None = None
    ) -> None:
        super().__init__(labels, names)
        self.dataset, self.indices = dataset, list(range(len(labels)) if indices is None else indices)

    @override
    def read(self, index: int, size: int | None = None, interpolation: Interpolation = "bilinear") -> Tensor:
        return self._converted(index, self._picture(index), size, interpolation)

    @override
    def read_marked(self, index: int, size: int, interpolation: Interpolation) -> tuple[Tensor, str]:
        picture = self._picture(index)
        marked = self._converted(index, picture, None, interpolation)
        return self._converted(index, picture, size, interpolation), content_hash(marked.numpy().tobytes())

    def _picture(self, index: int) -> Any:
        try:
            return self.dataset[self.indices[index]][0]
        except Exception as error:  # the data set is somebody else's code, and whatever it raises is about this item
            raise self._bad(index, error) from None

    def _converted(self, index: int, picture: Any, size: int | None, interpolation: Interpolation) -> Tensor:
        try:
            if isinstance(picture, Image.Image):
                return pil_to_tensor(picture, size, interpolation)
            if not isinstance(picture, (Tensor, np.ndarray)):
                raise ReprogramError(
                    f"image is a {type(picture).__name__}, but a PIL picture, a tensor or an array is expected"
                )
            batch = as_rgb(channels_first(picture[None], "first" if isinstance(picture, Tensor) else "last").cpu())
            batch = batch if size is None else resize(batch, size, interpolation)
            return (batch[0] * 255).round().to(torch.uint8)
        except Exception as error:  # PIL decodes only here, and raises whatever a damaged file leads it into
            raise self._bad(index, error) from None

    def _bad(self, index: int, error: Exception) -> ReprogramError:
        return ReprogramError(f"image {self.names[index]!r} cannot be decoded ({first_line(error)}); mend or remove it")

    @override
    def subset(self, indices: Tensor) -> Self:
        places = indices.tolist()
        return type(self)(
            self.dataset, self.labels[indices], [self.names[i] for i in places], [self.indices[i] for i in places]
        ).grouped_as(self, indices)

    @override
    def content_key(self, index: int) -> str:
        return self.fingerprint(index) or f"{self.names[index]} cannot be decoded"  # a bad image has a key too


def from_datasets(
    train: "Dataset[Any]",
    test: "Dataset[Any]",
    val: "Dataset[Any] | None" = None,
    classes: Sequence[str] | None = None,
    *,
    groups: Mapping[str, Sequence[Any]] | None = None,
    name: str | None = None,
) -> DataSet:
    """Make a data set from map-style torch data sets whose items are (image, label).

    `groups` has for each part a name or number of the group of each item.

    The class names are `classes`, or the attribute `classes` of the training set, or the labels themselves.
    """
    parts = {key: part for key, part in (("train", train), ("val", val), ("test", test)) if part is not None}
    labels = [_dataset_labels(part, key) for key, part in parts.items()]
    names, numbers = _number_labels(labels, classes if classes is not None else _class_names(train, labels))
    splits = {
        key: DatasetSplit(part, number, [f"{key}/{index}" for index in range(len(number))])
        for (key, part), number in zip(parts.items(), numbers, strict=True)
    }
    if groups is not None and (not isinstance(groups, Mapping) or set(groups) != set(splits)):
        raise ReprogramError(f"groups for {', '.join(splits)} are expected, as a dictionary of lists; give one for each")
    for key, names_of_groups in (groups or {}).items():
        splits[key].with_groups(names_of_groups)
    return DataSet.of_parts(name or type(train).__name__, names, splits)


def from_dataset(
    dataset: "Dataset[Any]", classes: Sequence[str] | None = None, *, split_seed: int | None = 0, name: str | None = None
) -> DataSet:
    """Make a data set from one map-style torch data set of (image, label); `split_seed` sets a fifth aside for testing."""
    labels = [_dataset_labels(dataset, "all")]
    names, (numbers,) = _number_labels(labels, classes if classes is not None else _class_names(dataset, labels))
    everything = DatasetSplit(dataset, numbers, [str(index) for index in range(len(numbers))])
    name = name or type(dataset).__name__
    return DataSet.of_parts(name, names, everything.divided(drawn_test(numbers, split_seed, f"data {name!r}")))


def _dataset_labels(dataset: Any, part: str) -> list[Any]:
    """All labels of a data set, without decoding its images where it lists them."""
    try:
        count = len(dataset)
    except TypeError:
        raise ReprogramError(
            f"the {part} data is a {type(dataset).__name__} without a length, but a map-style data set is expected; "
            "collect its items in a list first"
        ) from None
    if not count:
        raise ReprogramError(f"the {part} data set is empty; give it at least one item")

    def label(index: int) -> Any:
        try:
            item = dataset[index]
        except Exception as error:  # the data set is somebody else's code, and whatever it raises is about this item
            raise ReprogramError(
                f"item {index} of the {part} data set cannot be decoded ({first_line(error)}); mend or remove it"
            ) from None
        if not isinstance(item, (tuple, list)) or len(item) < 2:
            raise ReprogramError(
                f"item {index} of the {part} data set is a {type(item).__name__}, but a pair (image, label) is expected"
            )
        value = item[1]
        return value.item() if isinstance(value, (Tensor, np.generic, np.ndarray)) and np.size(value) == 1 else value

    for attribute in _LABEL_ATTRIBUTES:
        listed = getattr(dataset, attribute, None)
        if isinstance(listed, (list, tuple, Tensor, np.ndarray)) and len(listed) == count:
            values = listed.tolist() if isinstance(listed, (Tensor, np.ndarray)) else list(listed)
            # A list that the data set transforms on the way out is not the list of its labels.
            if all(values[index] == label(index) for index in {0, count // 2, count - 1}):
                return values
    return [label(index) for index in range(count)]


def _class_names(dataset: Any, labels: Sequence[Sequence[Any]]) -> list[str] | None:
    """The names a data set gives to its classes, if they can be meant for its labels."""
    names = getattr(dataset, "classes", None)
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return None
    top = max((value for part in labels for value in part if isinstance(value, int)), default=-1)
    return list(names) if top < len(names) else None


def _number_labels(
    parts: Sequence[Array | Sequence[Any]], classes: Sequence[str] | None
) -> tuple[tuple[str, ...], list[Tensor]]:
    """Number the labels of several splits by one list of classes, which a split need not cover."""
    arrays = [part.cpu().numpy() if isinstance(part, Tensor) else np.asarray(part) for part in parts]
    for array in arrays:
        if array.ndim != 1 or array.dtype.kind not in "iuUTb":
            raise ReprogramError(
                f"labels are {array.dtype} of shape {array.shape}, but one class number or class name for each image is "
                "expected"
            )
    if classes is not None and all(array.dtype.kind in "iu" for array in arrays):
        return tuple(str(name) for name in classes), [torch.from_numpy(array.astype(np.int64)) for array in arrays]
    texts = [_texts(array, "labels") for array in arrays]
    names = sorted_classes(text for part in texts for text in part) if classes is None else tuple(map(str, classes))
    if len(names) < 2:
        raise ReprogramError(f"labels have {len(names)} class(es) ({', '.join(names)}), but at least 2 are expected")
    numbers = {name: number for number, name in enumerate(names)}
    foreign = next((text for part in texts for text in part if text not in numbers), None)
    if foreign is not None:
        raise ReprogramError(f"label {foreign!r} is none of the classes {', '.join(names[:8])}; add it to them")
    return names, [torch.tensor([numbers[text] for text in part], dtype=torch.int64) for part in texts]


def _texts(array: "np.ndarray[Any, Any]", what: str) -> list[str]:
    """The values of an array of one dimension as texts."""
    try:
        return [str(value) for value in array.tolist()]
    except (SystemError, ValueError):  # numpy's text may hold numbers that are no characters
        raise ReprogramError(f"{what} hold text that is no Unicode; write it again") from None


def _array_split(images: Any, labels: Tensor, names: Iterable[str], channels: Channels | None = None) -> ArraySplit:
    images = images if isinstance(images, Tensor) else np.asarray(images)
    if images.ndim and len(images) != len(labels):
        raise ReprogramError(f"{len(images)} images and {len(labels)} labels were given; give one label for each image")
    return ArraySplit(channels_first(images, channels).cpu(), labels, list(names))
