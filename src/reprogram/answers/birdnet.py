"""The tables of BirdNET: a row for each species that was heard in a window of a recording, one answer per window."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprogram.answers.block import MOST_LABELS, Block, check_once, too_many_labels
from reprogram.answers.rows import RowBlocks
from reprogram.answers.services import Row, ranked
from reprogram.errors import ReprogramError, shown
from reprogram.files.foreign import Lines

#: What the columns are called in its tables: CSV, selection tables of Raven, and tables for R and for Kaleidoscope.
_LABEL = ("common name", "common_name", "scientific name", "scientific_name")
_SCORE = ("confidence",)
_BEGIN = ("start (s)", "begin time (s)", "start", "offset")
_END = ("end (s)", "end time (s)", "end")
_DURATION = ("duration",)
_FILE = ("file", "begin path", "begin file", "filepath", "in file")
_FOLDERS = ("indir", "folder")
_NOTHING = "nocall"  # the species of the one row in a selection table of a recording in which nothing was heard


@dataclass(frozen=True)
class Places:
    """Where the columns of a table of BirdNET stand.

    Attributes:
        label: the species.
        score: how sure it is.
        begin: of the window, in seconds.
        end: of the window; or its length, where `is_length`.
        file: the recording; None where the table does not tell.
        folders: the folders that it lies in, from the outside.
        is_length: see `end`.
    """

    label: int
    score: int
    begin: int
    end: int
    file: int | None
    folders: tuple[int, ...] = ()
    is_length: bool = False


def birdnet_places(path: Path, header: Sequence[str]) -> Places | None:
    """Where the columns stand, or None if this is no header of BirdNET."""
    lowered = [name.lower() for name in header]

    def find(names: Sequence[str]) -> int | None:
        return next((lowered.index(name) for name in names if name in lowered), None)

    label, score, begin, end, length = map(find, (_LABEL, _SCORE, _BEGIN, _END, _DURATION))
    last = length if end is None else end
    if label is None or score is None or begin is None or last is None:
        return None
    check_once(path, header, [header[place] for place in (label, score, begin, last)])
    folders = tuple(lowered.index(name) for name in _FOLDERS if name in lowered)
    return Places(label, score, begin, last, find(_FILE), folders, end is None)


def read_windows(
    path: Path, rows: Iterator[list[str]], lines: Lines, header: Sequence[str], places: Places
) -> Iterator[Block]:
    """One answer for each window of each recording, called `recording.wav#0-3`; rows of a window stand together.

    Args:
        path: the file.
        rows: those after the header.
        lines: what the rows are made of.
        header: the names of the columns.
        places: where the columns stand.
    """
    gathered = RowBlocks(path)
    window: tuple[str, float, float] | None = None
    found: list[tuple[str, float]] = []
    seen: set[int] = set()
    number = letters = 0
    for row_number, row in enumerate(rows, start=1):
        letters += lines.end_row()
        if not row:
            continue
        if len(row) != len(header):
            raise ReprogramError(
                f"row {row_number} of {str(path)!r} has {len(row)} cells, but its header has {len(header)}; mend that row"
            )
        here = _window(path, row_number, row, places)
        if here != window:
            if window is not None:
                number += 1
                yield from gathered.add(number, _answer(window, found), letters)
                letters = 0
            if hash(here) in seen:
                raise ReprogramError(
                    f"row {row_number} of {str(path)!r} goes back to the window {_name(here)}, but its rows are expected "
                    "together; sort the table by recording and time"
                )
            seen.add(hash(here))
            window, found = here, []
        if row[places.label].strip() != _NOTHING:
            found.append((row[places.label].strip(), _number(path, row_number, "confidence", row[places.score])))
        if len(found) > MOST_LABELS:
            raise too_many_labels(path, len(found))
    if window is not None:
        yield from gathered.add(number + 1, _answer(window, found), letters)
    yield from gathered.rest()


def _window(path: Path, number: int, row: list[str], places: Places) -> tuple[str, float, float]:
    begin, end = (_number(path, number, "time", row[place]) for place in (places.begin, places.end))
    if places.file is None or not row[places.file].strip():
        recording = path.name
        for ending in (path.suffix, ".BirdNET.results", ".BirdNET.selection.table"):
            recording = recording.removesuffix(ending)
    else:
        recording = row[places.file].strip()
        parts = [row[place].strip() for place in places.folders]
        recording = "/".join([part for part in parts if part] + [recording])
    return recording, begin, begin + end if places.is_length else end


def _answer(window: tuple[str, float, float], found: list[tuple[str, float]]) -> Row:
    labels, scores = ranked([label for label, _ in found], [score for _, score in found])
    return {"image": _name(window), "topk_labels": labels, "topk_scores": scores}


def _name(window: tuple[str, float, float]) -> str:
    recording, begin, end = window
    return f"{recording}#{begin:.10g}-{end:.10g}"


def _number(path: Path, number: int, what: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ReprogramError(
            f"row {number} of {str(path)!r} has the {what} {shown(text)}, but a number is expected; mend that row"
        )
    return value
