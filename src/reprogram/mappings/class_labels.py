"""Labels of any type that numpy has, as the class names and numbers that a mapping knows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.settings import Settings

Labels = NDArray[Any]


class SavedLabels(Settings):
    """What an artefact says about the labels of the `LabelMapper` that it was.

    Attributes:
        labels: the classes as they were given, in the order of the mapping's.
        dtype: numpy's name for their type.
        features: the names of the columns, where a table was given.
        passes: over the data, of a learned method.
    """

    labels: list[bool | int | float | str]
    dtype: str | None = None
    features: list[str] | None = None
    passes: int = 1

    def classes(self) -> Labels:
        """The labels in their type; whatever numpy raises if that cannot be."""
        return np.asarray(self.labels, dtype=self.dtype)


def check_labels(labels: Any) -> None:
    """Raise for labels that are bytes: which text they mean is not ours to guess, and predictions would not equal them."""
    table = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
    if table.dtype.kind == "S" or (table.dtype == object and any(isinstance(label, bytes) for label in table.flat)):
        found = next(label for label in table.flat if isinstance(label, bytes))
        raise ReprogramError(
            f"label {bytes(found)!r} is bytes, but text or numbers are expected; decode the labels: "
            "numpy.char.decode(labels, 'utf-8')"
        )


def check_label_sets(source_labels: Sequence[str], classes: Sequence[str]) -> None:
    """Raise unless these are the names of source labels and of classes, the latter all different."""
    for which, labels in (("source_labels", source_labels), ("classes", classes)):
        if isinstance(labels, str):
            raise ReprogramError(f"{which} = {labels!r} was given, but a list of names is expected; write [{labels!r}]")
        for label in labels:
            if not isinstance(label, str):
                name = label.decode(errors="replace") if isinstance(label, bytes) else str(label)
                raise ReprogramError(f"{label!r} stands among the {which}, but these are names; write {name!r}")
    if not len(classes) or not len(source_labels):
        raise ReprogramError(
            f"{len(source_labels)} source labels and {len(classes)} classes were given; both need at least one"
        )
    if len(set(classes)) < len(classes):
        twice = next(name for place, name in enumerate(classes) if name in classes[:place])
        raise ReprogramError(f"the classes name {twice!r} more than once; give each a name of its own")


def check_seed(seed: int) -> None:
    """Raise unless torch takes this seed."""
    if not -(2**63) <= seed < 2**64:
        raise ReprogramError("a seed of more than 64 bits was given, but torch takes at most so many; give a smaller one")


def class_names(classes: Labels) -> list[str]:
    """What the mapping calls them."""
    return [str(label) for label in classes.tolist()]


def class_numbers(classes: Labels, y: Labels) -> Tensor:
    """Labels (n,) as indices of the classes, which may stand in any order."""
    order = np.argsort(classes)
    places = order[np.searchsorted(classes, y, sorter=order).clip(0, len(classes) - 1)]
    strange = classes[places] != y
    if strange.any():
        known = ", ".join(class_names(classes[:5])) + (" ..." if len(classes) > 5 else "")
        raise ReprogramError(
            f"label {y[strange].tolist()[0]!r} was given, but the classes are {known}; add it with add_class"
        )
    return torch.from_numpy(places)


def class_place(classes: Labels, label: Any) -> int | None:
    """The number of a class, or None if there is no such."""
    check_labels(label)
    if not _alike(classes, label):
        return None
    places = np.flatnonzero(classes == np.asarray(label))
    return int(places[0]) if len(places) else None


def with_label(classes: Labels, label: Any) -> Labels:
    """The classes and one more, sorted; in their own type if it holds the new one, else in a wider one.

    >>> with_label(np.array([1, 9], np.uint8), 7).dtype, with_label(np.array([1, 9], np.uint8), -7).dtype
    (dtype('uint8'), dtype('int16'))
    """
    check_labels(label)
    kind = np.result_type(classes.dtype, np.min_scalar_type(label)) if _alike(classes, label) else None
    if kind is None or kind.kind == "f" != classes.dtype.kind:  # no whole numbers hold uint64 and -1
        raise ReprogramError(
            f"class {label!r} was given, but the classes are of type {classes.dtype}; give a label of that type"
        )
    if class_place(classes, label) is not None:
        raise ReprogramError(f"class {label!r} is already known; add samples to it with partial_fit")
    return np.unique(np.append(classes.astype(kind), np.asarray([label], dtype=kind)))


def _alike(classes: Labels, label: Any) -> bool:
    """Whether this is a single label of the classes' kind: a text, a truth value, a whole number or another one."""
    found = np.asarray(label)
    kinds = {found.dtype.kind, classes.dtype.kind}
    return found.ndim == 0 and (len(kinds) == 1 or kinds == {"i", "u"})
