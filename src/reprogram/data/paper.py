"""The twelve data sets of the paper: how each is found, loaded and checked."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from reprogram.data import paper_layouts
from reprogram.data.dataset import DataSet, Split
from reprogram.data.paper_layouts import Layout
from reprogram.data.paper_sets import PAPER, PaperSet, paper_missing, paper_set
from reprogram.errors import ReprogramError
from reprogram.names import plain_name
from reprogram.progress import Progress

__all__ = ["PAPER", "check_paper", "find_paper", "load_paper"]


def find_paper(name: str, root: Path) -> Path | None:
    """The file or folder under the root that the data set is loaded from, or None where it is not there."""
    found = _find(paper_set(name), root)
    return found[1] if found else None


def load_paper(name: str, root: Path) -> DataSet:
    """Load one of the twelve; its notes tell in words each point in which it is not what the paper used."""
    entry = paper_set(name)
    data, remarks = _load(entry, root)
    return replace(data, notes=(*remarks, *_differences(entry, data), *_other_archive(entry, data)))


def check_paper(name: str, root: Path, progress: Progress | None = None) -> list[str]:
    """Count the images of one of the twelve and decode each; return what is wrong in words, nothing where all is fine."""
    entry = paper_set(name)
    data, remarks = _load(entry, root)
    findings = [*remarks, *_differences(entry, data)]
    parts = {"training": data.train, "validation": data.val, "test": data.test}
    for part, split in parts.items():
        if split is not None:
            findings += _undecodable(split, progress or Progress(), f"decoding the {part} images of {entry.title}")
    return findings


def _find(entry: PaperSet, root: Path) -> tuple[Layout, Path] | None:
    for kind, arguments in entry.layouts:
        layout: Layout = getattr(paper_layouts, kind)(**arguments)
        place = layout.find(root)
        if place is not None:
            return layout, place
    return None


def _load(entry: PaperSet, root: Path) -> tuple[DataSet, list[str]]:
    found = _find(entry, root)
    if found is None:
        raise paper_missing(entry, root)
    layout, place = found
    contents = layout.load(place)
    data = DataSet(
        entry.name,
        tuple(plain_name(name) for name in contents.classes),
        train=contents.splits["train"],
        test=contents.splits["test"],
        val=contents.splits.get("val"),
        image_size=entry.image_size,
        batch_size=entry.batch_size,
        flip_safe=entry.flip_safe,
    )
    return data, contents.remarks


def _differences(entry: PaperSet, data: DataSet) -> list[str]:
    words = []
    if data.k_target != entry.classes:
        words.append(f"{entry.title} has {data.k_target:,} classes here, but {entry.classes:,} in the paper")
    parts = {"training": (data.train, entry.train), "validation": (data.val, entry.val), "test": (data.test, entry.test)}
    for part, (split, expected) in parts.items():
        if expected is None or split is None:  # LMDB files and official splits bring no validation images
            continue
        accepted = {expected, *(entry.archives if part == "training" else ())}
        if len(split) not in accepted:
            choice = f"{expected:,} in the paper"
            if part == "training" and entry.archives:
                choice = " or ".join(f"{count:,} ({archive})" for count, archive in entry.archives.items())
            words.append(f"{entry.title} has {len(split):,} {part} images here, but {choice}")
    return words


def _other_archive(entry: PaperSet, data: DataSet) -> list[str]:
    count = len(data.train)
    if count == entry.train or count not in entry.archives:
        return []
    return [
        f"{entry.title} has the {count:,} training images of {entry.archives[count]}; "
        f"the paper's are the {entry.train:,} of {entry.archives[entry.train]}"
    ]


def _undecodable(split: Split, progress: Progress, what: str) -> list[str]:
    def fault(index: int) -> str | None:
        try:
            split.read(index, None, "bilinear")
        except ReprogramError as error:
            return str(error)
        return None

    pool = ThreadPoolExecutor()
    try:
        futures = [pool.submit(fault, index) for index in range(len(split))]
        faults = [future.result() for future in progress.track(futures, what)]
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the images that are still queued
    return [words for words in faults if words is not None]
