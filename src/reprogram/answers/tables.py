"""Shards as tables: CSV or TSV row by row, Parquet by batches of rows."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reprogram.answers.birdnet import birdnet_places, read_windows
from reprogram.answers.block import (
    BLOCK_VALUES,
    COLUMNS,
    MOST_LABELS,
    MOST_LOGITS,
    Block,
    check_columns,
    check_once,
    make_blocks,
    too_many_labels,
    too_many_logits,
    unreadable,
)
from reprogram.errors import ReprogramError, extra_missing, short
from reprogram.files import parse_json
from reprogram.files.foreign import LARGEST_ROW, Lines, opened_text

_ROWS = 1024
_REMEDY = "save it as CSV in UTF-8"
_PEEKED = 4096  # letters of a header
_NAMED = "logits:"
_NUMBERED = "logit_"
_LONGEST = 20  # letters of a numbered column: no row has more logits than that can number


def read_csv(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read a table with the column `label` and one of three forms of answers.

    Logits stand in columns `logit_0`, `logit_1`, ... or, with their source labels, in columns `logits:<source label>`.
    Top-K answers stand in the column `topk_labels`, and perhaps `topk_scores`, each cell a JSON list (`["a", "b"]`) or
    parts joined by `|` (`a|b`), the best first. A table of BirdNET is known by its header, see `reprogram.answers.birdnet`.
    """
    try:
        with opened_text(path, "shard", _REMEDY, newline="") as file:
            lines = Lines(file, path, "shard")
            rows = csv.reader(lines, delimiter=_delimiter(path, lines))
            header = [name.strip() for name in next(rows, [])]
            lines.end_row()
            places = {
                column: header.index(alias)
                for column, aliases in COLUMNS.items()
                for alias in reversed(aliases)
                if alias in header
            }
            places.pop("logits", None)  # a single cell cannot hold them
            check_once(path, header, [header[place] for place in places.values()])
            logit_places, names = _logit_places(path, header)
            found = {**places, **({"logits": True} if logit_places else {})}
            windows = None if found.keys() & {"logits", "topk_labels"} else birdnet_places(path, header)
            if windows is not None:
                yield from read_windows(path, rows, lines, header, windows)
                return
            check_columns(path, found, header, also=f", {_NUMBERED}0 ... or {_NAMED}<source label> ...")
            yield from _csv_blocks(
                path, rows, lines, header, places, logit_places if logits else [], len(logit_places), names
            )
    except csv.Error as error:
        raise unreadable(path, error, _REMEDY) from None


def is_birdnet(path: Path) -> bool:
    """Whether a text file is a table of BirdNET, by its first line."""
    with opened_text(path, "shard", _REMEDY, newline="") as file:
        try:
            line = file.readline(_PEEKED)
        except UnicodeDecodeError:
            return False
    header = [name.strip() for name in line.split("\t" if "\t" in line else ",")]
    return birdnet_places(path, header) is not None


def _delimiter(path: Path, lines: Lines) -> str:
    """A tab, where the name of the file says so or its first line has tabs and no comma."""
    first = lines.peek()
    return "\t" if path.suffix.lower() == ".tsv" or ("\t" in first and "," not in first) else ","


def _logit_places(path: Path, header: Sequence[str]) -> tuple[list[int], tuple[str, ...] | None]:
    named = [place for place, name in enumerate(header) if name.startswith(_NAMED)]
    numbers = {
        place: int(name[len(_NUMBERED) :])
        for place, name in enumerate(header)
        if name.startswith(_NUMBERED) and len(name) < _LONGEST and name[len(_NUMBERED) :].isdecimal()
    }
    for number, count in Counter(numbers.values()).items():
        if count > 1:
            raise ReprogramError(
                f"shard {str(path)!r} has {count} columns {_NUMBERED}{number}, but one is expected; number each logit once"
            )
    numbered = {number: place for place, number in numbers.items()}
    if named and numbered:
        raise ReprogramError(
            f"shard {str(path)!r} has columns {short(header[named[0]])} and {_NUMBERED}{min(numbered)}; "
            "name or number them all"
        )
    if sorted(numbered) != list(range(len(numbered))):
        missing = next(number for number in range(len(numbered) + 1) if number not in numbered)
        raise ReprogramError(
            f"shard {str(path)!r} has no column {_NUMBERED}{missing}; number the logits from 0 without gaps"
        )
    if named:
        return named, tuple(header[place].removeprefix(_NAMED).strip() for place in named)
    return [numbered[number] for number in range(len(numbered))], None


def _csv_blocks(
    path: Path,
    rows: Iterator[list[str]],
    lines: Lines,
    header: Sequence[str],
    places: dict[str, int],
    logit_places: list[int],
    k_source: int,
    names: tuple[str, ...] | None,
) -> Iterator[Block]:
    columns = dict(places) | ({"logits": -1} if logit_places else {})
    raw: dict[str, list[Any]] = {column: [] for column in columns}
    step = max(1, min(_ROWS, BLOCK_VALUES // max(len(logit_places), 1)))
    first = count = letters = 0
    for number, row in enumerate(rows, start=1):
        letters += lines.end_row()
        if row and len(row) != len(header):
            raise ReprogramError(
                f"row {number} of {str(path)!r} has {len(row)} cells, but its header has {len(header)}; mend that row"
            )
        if row:
            first, count = first or number, count + 1
            for column, place in columns.items():
                if column == "logits":
                    raw[column].append([row[place] for place in logit_places])
                elif column.startswith("topk"):
                    raw[column].append(_cell(path, number, column, row[place]))
                else:
                    raw[column].append(row[place])
        # a block ends at an empty line, so that rows keep their numbers
        if count and (not row or count >= step or letters >= LARGEST_ROW):
            yield from make_blocks(path, first, count, raw, k_source or None, names)
            raw, first, count, letters = {column: [] for column in columns}, 0, 0, 0
    if count:
        yield from make_blocks(path, first, count, raw, k_source or None, names)


def _cell(path: Path, row: int, column: str, text: str) -> list[Any]:
    """The parts of a cell that holds a list."""
    text = text.strip()
    if not text.startswith("["):
        return [part.strip() for part in text.split("|")] if text else []
    what = f"{column} in row {row} of {str(path)!r} is no JSON list"
    parts: list[Any] = parse_json(text, what, "write one or parts joined by |", finite=False)  # it begins with a bracket
    return parts


def read_parquet(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read a table with the column `label` and a list column `logits`, or `topk_labels` and perhaps `topk_scores`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise extra_missing("pyarrow", "data", f"shard {str(path)!r}") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            header = file.schema_arrow.names
            found = {column: alias for column, aliases in COLUMNS.items() for alias in reversed(aliases) if alias in header}
            check_columns(path, found, header)
            check_once(path, header, list(found.values()))
            _check_lists(path, file.schema_arrow, found)
            k_source = _first_length(path, file, found["logits"]) if "logits" in found else None
            if not logits:
                found.pop("logits", None)
            first, step = 1, max(1, min(_ROWS, BLOCK_VALUES // max(k_source or 1, 1)))
            for whole in file.iter_batches(step, columns=sorted(found.values())):
                for batch in _slices(path, whole, found):
                    raw = {
                        column: _lists(part, k_source) if column == "logits" else part.to_pylist()
                        for column, name in found.items()
                        for part in (batch.column(name),)
                    }
                    yield from make_blocks(path, first, len(batch), raw, k_source)
                    first += len(batch)
    except ReprogramError:
        raise
    except Exception as error:  # of many kinds, all meaning that the file is not as pyarrow would have written it
        raise unreadable(path, error, "write it as Parquet again") from None


def walk_parquet(path: Path) -> None:
    """Read a shard to its end, as somebody else will do after us."""
    for _ in read_parquet(path):
        pass


def _check_lists(path: Path, schema: Any, found: dict[str, str]) -> None:
    import pyarrow

    for column in ("logits", "topk_labels", "topk_scores"):
        if column in found:
            kind = schema.field(found[column]).type
            if not (
                pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind)
            ):
                raise ReprogramError(f"column {column} of shard {str(path)!r} is {kind}, but a list column is expected")


def _slices(path: Path, batch: Any, found: dict[str, str]) -> Iterator[Any]:
    """A batch in parts whose lists are not too long together: a few bytes of Parquet can mean millions of labels."""
    import pyarrow.compute

    longest = 1
    for column in found.keys() & {"logits", "topk_labels", "topk_scores"}:
        lengths = pyarrow.compute.list_value_length(batch.column(found[column]))
        longest = max(longest, pyarrow.compute.max(lengths).as_py() or 0)
    if "logits" not in found and longest > MOST_LABELS:
        raise too_many_labels(path, longest)
    step = max(1, BLOCK_VALUES // longest)
    for start in range(0, len(batch), step):
        yield batch.slice(start, step)


def _first_length(path: Path, file: Any, column: str) -> int:
    for batch in file.iter_batches(1, columns=[column]):
        if len(batch):
            first = batch.column(column)[0]
            count = len(first) if first.is_valid else 0
            if count > MOST_LOGITS:
                raise too_many_logits(path, count)
            return count
    return 0


def _lists(column: Any, k_source: int | None) -> Any:
    """A list column as an array (rows, k_S), without going through Python numbers where all rows are of one length."""
    flat = column.flatten()
    lengths = column.value_lengths() if hasattr(column, "value_lengths") else None
    if lengths is not None and (lengths.null_count or set(np.unique(lengths.to_numpy())) != {k_source}):
        return column.to_pylist()
    if column.null_count or flat.null_count or len(flat) != len(column) * (k_source or 0):
        return column.to_pylist()
    values = flat.to_numpy(zero_copy_only=False)
    return values.reshape(len(column), k_source) if values.dtype.kind in "fiu" else column.to_pylist()
