"""Shards as one JSON document, as tools and services write them; their lists of images are read one image after another."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reprogram.answers.block import MOST_LABELS, Block, too_many_labels
from reprogram.answers.megadetector import Categories
from reprogram.answers.rows import RowBlocks
from reprogram.answers.services import LISTS, Row, is_row, is_speciesnet, row_of
from reprogram.errors import ReprogramError
from reprogram.files.foreign import LARGEST_ROW, MIB, opened_text
from reprogram.files.streams import JsonStream

_REMEDY = "give a whole file as the tool wrote it, in UTF-8"
_PEEKED = 64 * 1024
#: The members of an object that list images: SpeciesNet, MegaDetector, Cloud Vision.
_IMAGES = ("predictions", "images", "responses")
_BESIDE = {"detection_categories", "classification_categories", "info"}
_KEYS = re.compile(
    rf'"({"|".join((*LISTS, *_IMAGES, "classifications", "topk_labels", "logits", "score"))})"\s*:', re.IGNORECASE
)
Made = Callable[[int, Any], tuple[Row, bool]]


def read_document(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read a file of SpeciesNet, MegaDetector, Rekognition, Cloud Vision or a Hugging Face pipeline, known by its content.

    One answer alone is called by the name of its file, without `.json`. Objects and lists may also follow one another, as in
    JSON lines, or stand in a list.
    """
    rows, number, alone = RowBlocks(path, logits=logits), 0, True
    with _opened(path) as stream:
        while stream.peek():
            single = None
            for values, percent in _answers(path, stream, number, alone):
                number += 1
                if number == 1 and not stream.peek():
                    single = values, percent
                    break
                yield from rows.add(number, values, stream.letters, percent=percent)
            if single is not None:
                values, percent = single
                yield from rows.add(1, {"image": path.name.removesuffix(path.suffix), **values}, percent=percent)
            alone = False
        yield from rows.rest()


def is_document(path: Path) -> bool:
    """Whether the beginning of a file has a key of those that hold answers; beside shards, there may be other JSON files."""
    with opened_text(path, "shard", _REMEDY) as file:
        try:
            return _KEYS.search(file.read(_PEEKED)) is not None
        except UnicodeDecodeError:
            return False


@contextmanager
def _opened(path: Path) -> Iterator[JsonStream]:
    with opened_text(path, "shard", _REMEDY) as file:
        yield JsonStream(file, path, "shard", _REMEDY)


def _answers(path: Path, stream: JsonStream, before: int, alone: bool) -> Iterator[tuple[Row, bool]]:
    """The answers of the next value of a document.

    Args:
        path: the file.
        stream: stands before the value.
        before: how many rows came before it.
        alone: whether no other value did.
    """
    first = stream.peek()
    if first == "[":
        yield from _listed(path, stream, before)
    elif first == "{":
        yield from _members(path, stream, before, alone)
    else:
        yield row_of(path, before + 1, stream.value())


def _listed(path: Path, stream: JsonStream, before: int) -> Iterator[tuple[Row, bool]]:
    """A list of answers, or a list of labels, which is one answer."""
    labels: list[Any] = []
    for place, item in enumerate(stream.items(), start=1):
        if labels or not is_row(item):
            labels = _longer(path, labels, item, place)
        else:
            yield row_of(path, before + place, item)
    if labels:
        yield row_of(path, before + 1, labels)


def _members(path: Path, stream: JsonStream, before: int, alone: bool) -> Iterator[tuple[Row, bool]]:
    """An object: a list of images with what is said about all of them, or one answer."""
    members: dict[str, Any] = {}
    letters, listed = 0, ""
    for key in stream.members():
        if key in _IMAGES and stream.peek() == "[":
            if listed:
                raise ReprogramError(
                    f"shard {str(path)!r} has {listed} and {key}, but one list of images is expected; {_REMEDY}"
                )
            labels: list[Any] = []
            make: Made | None = None
            for place, item in enumerate(stream.items(), start=1):
                if place == 1:
                    make = _maker(path, key, item, members, alone)
                if make is None:
                    labels = _longer(path, labels, item, place)
                else:
                    yield make(before + place, item)
            if make is None:
                members[key] = labels
            if make is not None or key != "predictions":
                listed = key
        else:
            members[key] = stream.value()
            letters += stream.letters + len(key)
            if letters > LARGEST_ROW:
                raise ReprogramError(
                    f"shard {str(path)!r} holds more than {LARGEST_ROW // MIB} MiB beside its answers; {_REMEDY}"
                )
    if not listed:
        yield row_of(path, before + 1, members)


def _maker(path: Path, key: str, first: Any, members: dict[str, Any], alone: bool) -> Made | None:
    """What makes rows of the items of a list, by the first of them; None where they are the labels of one answer."""
    if key == "images":
        if alone and not members.keys() >= _BESIDE:
            members = _beside(path)  # they may stand behind the images
        categories = Categories.read(path, members)
        return lambda number, item: (categories.row(path, number, item), False)
    if key == "responses":  # an image without any label has no list
        return lambda number, item: row_of(
            path, number, {"labelAnnotations": [], **item} if isinstance(item, dict) else item
        )
    if isinstance(first, dict) and is_speciesnet(first):
        return lambda number, item: row_of(path, number, item)
    return None


def _beside(path: Path) -> dict[str, Any]:
    """The members of an object but for its images."""
    found: dict[str, Any] = {}
    with _opened(path) as stream:
        for key in stream.members():
            if key == "images" and stream.peek() == "[":
                for _ in stream.items():
                    pass
            elif key in _BESIDE:
                found[key] = stream.value()
            else:
                stream.value()
    return found


def _longer(path: Path, labels: list[Any], label: Any, place: int) -> list[Any]:
    if place > MOST_LABELS:
        raise too_many_labels(path, place)
    labels.append(label)
    return labels
