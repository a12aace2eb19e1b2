"""Tables for other programs: rows as CSV, JSON lines or Parquet, one after the other, whatever their number."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reprogram.errors import ReprogramError, extra_missing
from reprogram.text import csv_cell, csv_line, json_text

Kind = Literal["text", "number", "count", "flag", "texts", "records"]
TableForm = Literal["csv", "jsonl", "parquet"]
Row = dict[str, Any]
_FORMS: dict[str, TableForm] = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
_ROW_GROUP = 8192


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its name.
        kind: what stands in it; a list of texts or of records is one cell in CSV.
        parts: of records, their own columns.
        cell: how an item of a list is written in that cell; the items have bars between them.
    """

    name: str
    kind: Kind = "text"
    parts: tuple["Column", ...] = ()
    cell: Callable[[Any], str] = str


def form_of(path: Path) -> TableForm:
    """The format that the suffix of a file names.

    >>> form_of(Path("rows.CSV"))
    'csv'
    """
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise ReprogramError(f"--out {str(path)!r} is none of {', '.join(_FORMS)}; name it so")
    return form


def check_form(form: TableForm) -> None:
    """Raise now, and not after hours, if what writes this format is not installed."""
    if form == "parquet":
        _parquet()


def table_head(form: TableForm, columns: Sequence[Column]) -> str:
    """What a text of this format begins with."""
    return csv_line(column.name for column in columns) if form == "csv" else ""


def table_line(
    form: TableForm,
    columns: Sequence[Column],
    row: Row,
    clean: Callable[[str], str] | None = None,
    *,
    ascii_only: bool = False,
) -> str:
    """One row as a line: of CSV, where texts that a spreadsheet program would take for formulas are guarded, or of JSON.

    Args:
        form: csv, or else JSON lines: also what a Parquet file is made of.
        columns: of the table.
        row: a value for each of them; None is an empty cell.
        clean: makes texts in CSV fit for where they go, such as a terminal.
        ascii_only: whether JSON escapes every other letter.
    """
    if form != "csv":
        return json_text(row, ascii_only=ascii_only) + "\n"
    return csv_line(_cell(column, row[column.name], clean) for column in columns)


def _cell(column: Column, value: Any, clean: Callable[[str], str] | None) -> str:
    if value is None:
        return ""
    if column.kind in ("texts", "records"):
        value = "|".join(map(column.cell, value))
    if not isinstance(value, str):
        return str(value)
    return csv_cell(value if clean is None else clean(value))


def write_parquet(path: Path, columns: Sequence[Column], blocks: Iterable[Iterable[Row]]) -> None:
    """Fill a Parquet file, a group of rows for each block."""
    pyarrow, parquet = _parquet()
    schema = pyarrow.schema([(column.name, _arrow(pyarrow, column)) for column in columns])
    with parquet.ParquetWriter(path, schema) as writer:
        for block in blocks:
            writer.write_table(pyarrow.Table.from_pylist([_encodable(row) for row in block], schema=schema))


def parquet_of_lines(lines: Path, path: Path, columns: Sequence[Column]) -> None:
    """Fill a Parquet file with the rows of a file of JSON lines that `table_line` wrote."""
    with lines.open(encoding="utf-8") as file:
        write_parquet(path, columns, _in_groups(json.loads(line) for line in file))


def _in_groups(rows: Iterator[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    for row in rows:
        group.append(row)
        if len(group) == _ROW_GROUP:
            yield group
            group = []
    if group:
        yield group


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise extra_missing("pyarrow", "data", "a .parquet file") from None
    return pyarrow, pyarrow.parquet


def _arrow(pyarrow: Any, column: Column) -> Any:
    plain = {"text": pyarrow.string, "number": pyarrow.float64, "count": pyarrow.int64, "flag": pyarrow.bool_}
    if column.kind == "texts":
        return pyarrow.list_(pyarrow.string())
    if column.kind == "records":
        return pyarrow.list_(pyarrow.struct([(part.name, _arrow(pyarrow, part)) for part in column.parts]))
    return plain[column.kind]()


def _encodable(value: Any) -> Any:
    """Parquet holds UTF-8 alone, so a byte of a file name that is no text is written as Python shows it."""
    if isinstance(value, dict):
        return {name: _encodable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_encodable(part) for part in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
