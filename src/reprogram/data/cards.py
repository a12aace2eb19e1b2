"""Data as cards: how many images each split and each class has."""

from collections import Counter
from typing import TYPE_CHECKING

import torch

from reprogram.cards import Bar, Listing, card, named

if TYPE_CHECKING:
    from reprogram.data.dataset import DataSet, Split

_CLASSES = 12


def data_card(data: "DataSet") -> str:
    """Classes and splits; no image is read for it."""
    splits = data.splits
    facts = {
        "classes": f"{data.k_target:,}",
        "images": ", ".join(f"{name} {len(split):,}" for name, split in splits.items()),
        "groups": ", ".join(
            f"{name} {len(set(split.groups)):,}" for name, split in splits.items() if split.groups is not None
        ),
        "sizes": _sizes(list(splits.values())),
        "published": _published(data),
    }
    counts = {name: torch.bincount(split.labels, minlength=data.k_target).tolist() for name, split in splits.items()}
    order = _fewest(counts["train"])
    rows: list[list[str | int | Bar]] = [
        [data.classes[place], *(count[place] for count in counts.values())] for place in order
    ]
    left = data.k_target - len(rows)
    which = "classes with the fewest training images" if left else "class"
    listing = Listing((which, *counts), rows, f"and {left:,} classes with more" if left else "")
    return card("DataSet", data.name, facts, listings=[listing], notes=data.notes)


def split_card(split: "Split") -> str:
    """Some labelled images."""
    classes = split.classes
    facts = {
        "images": f"{len(split):,}",
        "classes": "" if classes is None else f"{len(classes):,}",
        "groups": "" if split.groups is None else f"{len(set(split.groups)):,}",
        "sizes": _sizes([split]),
        "names": named(split.names, 2, 56),
    }
    counts = Counter(split.labels.tolist())
    known = range(len(classes)) if classes is not None else sorted(counts)
    order = _fewest([counts[label] for label in known])
    labels = [known[place] for place in order]
    most = max(counts.values(), default=1)
    rows: list[list[str | int | Bar]] = [
        [str(label) if classes is None else classes[label], Bar(counts[label] / most, f"{counts[label]:,}")]
        for label in labels
    ]
    left = len(known) - len(rows)
    which = "classes with the fewest images" if left else "class"
    return card(
        type(split).__name__,
        "",
        facts,
        listings=[Listing((which, "images"), rows, f"and {left:,} with more" if left else "")],
    )


def _fewest(counts: list[int]) -> list[int]:
    """The places of all classes in their order if they are few, else of those with the fewest images."""
    places = list(range(len(counts)))
    return places if len(places) <= _CLASSES else sorted(places, key=lambda place: counts[place])[:_CLASSES]


def _sizes(splits: "list[Split]") -> str:
    """Of images that are in memory; files are not opened to look at them."""
    found = {tuple(images.shape[-2:]) for split in splits if (images := getattr(split, "images", None)) is not None}
    return ", ".join(f"{width} x {height} px" for height, width in sorted(found))


def _published(data: "DataSet") -> str:
    parts = []
    if data.image_size is not None:
        parts.append(f"image size {data.image_size} on a canvas of 224")
    if data.batch_size is not None:
        parts.append(f"batch size {data.batch_size}")
    if data.flip_safe is not None:
        parts.append("mirrored images keep their class" if data.flip_safe else "mirrored images change their class")
    return ", ".join(parts)
