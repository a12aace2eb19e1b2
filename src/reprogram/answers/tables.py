"""Shards as tables: CSV or TSV row by row, Parquet by batches of rows."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reprogram.answers.block import COLUMNS, Block, check_columns, make_block, parse_json, unreadable
from reprogram.errors import ReprogramError, extra_missing

_ROWS = 1024
_NAMED = "logits:"
_NUMBERED = "logit_"


def read_csv(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read a table with the column `label` and one of three forms of answers.

    Logits stand in columns `logit_0`, `logit_1`, ... or, with their source labels, in columns `logits:<source label>`.
    Top-K answers stand in the column `topk_labels`, and perhaps `topk_scores`, each cell a JSON list (`["a", "b"]`) or
    parts joined by `|` (`a|b`), the best first.
    """
    try:
        # utf-8-sig, because a spreadsheet program begins its file with a byte order mark
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            header = [name.strip() for name in next(rows, [])]
            places = {
                column: header.index(alias)
                for column, aliases in COLUMNS.items()
                for alias in reversed(aliases)
                if alias in header
            }
            places.pop("logits", None)  # a single cell cannot hold them
            logit_places, names = _logit_places(path, header)
            found = {**places, **({"logits": True} if logit_places else {})}
            check_columns(path, found, header, also=f", {_NUMBERED}0 ... or {_NAMED}<source label> ...")
            yield from _csv_blocks(path, rows, header, places, logit_places, names, logits)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(path, error, "save it as CSV in UTF-8") from None


def _logit_places(path: Path, header: Sequence[str]) -> tuple[list[int], tuple[str, ...] | None]:
    named = [place for place, name in enumerate(header) if name.startswith(_NAMED)]
    numbered = {
        int(name[len(_NUMBERED) :]): place
        for place, name in enumerate(header)
        if name.startswith(_NUMBERED) and name[len(_NUMBERED) :].isdecimal()
    }
    if named and numbered:
        raise ReprogramError(
            f"shard {str(path)!r} has columns {header[named[0]]} and {_NUMBERED}{min(numbered)}; name or number them all"
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
    header: Sequence[str],
    places: dict[str, int],
    logit_places: list[int],
    names: tuple[str, ...] | None,
    with_logits: bool,
) -> Iterator[Block]:
    columns = dict(places) | ({"logits": -1} if logit_places and with_logits else {})
    raw: dict[str, list[Any]] = {column: [] for column in columns}
    step = max(1, min(_ROWS, 2_000_000 // max(len(logit_places), 1)))
    first = count = 0
    for number, row in enumerate(rows, start=1):
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
        if count and (not row or count >= step):  # a block ends at an empty line, so that rows keep their numbers
            yield make_block(path, first, count, raw, len(logit_places) or None, names)
            raw, first, count = {column: [] for column in columns}, 0, 0
    if count:
        yield make_block(path, first, count, raw, len(logit_places) or None, names)


def _cell(path: Path, row: int, column: str, text: str) -> list[Any]:
    """The parts of a cell that holds a list."""
    text = text.strip()
    if not text.startswith("["):
        return [part.strip() for part in text.split("|")] if text else []
    what = f"{column} in row {row} of {str(path)!r} is no JSON list"
    parts: list[Any] = parse_json(text, what, "write one or parts joined by |")  # it begins with a bracket
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
            _check_lists(path, file.schema_arrow, found)
            k_source = _first_length(file, found["logits"]) if "logits" in found else None
            if not logits:
                found.pop("logits", None)
            first, step = 1, max(1, min(_ROWS, 2_000_000 // max(k_source or 1, 1)))
            for batch in file.iter_batches(step, columns=sorted(found.values())):
                raw = {
                    column: _lists(batch.column(name), k_source) if column == "logits" else batch.column(name).to_pylist()
                    for column, name in found.items()
                }
                yield make_block(path, first, len(batch), raw, k_source)
                first += len(batch)
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(path, error, "write it as Parquet again") from None


def _check_lists(path: Path, schema: Any, found: dict[str, str]) -> None:
    import pyarrow

    for column in ("logits", "topk_labels", "topk_scores"):
        if column in found:
            kind = schema.field(found[column]).type
            if not (
                pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind)
            ):
                raise ReprogramError(f"column {column} of shard {str(path)!r} is {kind}, but a list column is expected")


def _first_length(file: Any, column: str) -> int:
    for batch in file.iter_batches(1, columns=[column]):
        if len(batch):
            return len(batch.column(column)[0].as_py() or [])
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
