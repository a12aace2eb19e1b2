"""Files of predictions: one row for each classified answer, as CSV, JSON lines or Parquet."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from reprogram.answers.mapping import ClassifiedBlock
from reprogram.errors import ReprogramError, extra_missing
from reprogram.files import write_file
from reprogram.text import csv_cell, csv_line, json_text

COLUMNS = ("image", "label", "predicted", "share", "by_frequency", "unseen_labels")
SUFFIXES = (".csv", ".jsonl", ".parquet")


def write_predictions(path: Path, blocks: Iterable[ClassifiedBlock]) -> None:
    """Write one file in one step, in the format that its suffix names."""
    check_suffix(path)
    if path.suffix.lower() == ".parquet":
        write_file(path, lambda temporary: _write_parquet(temporary, blocks))
        return
    write = write_csv if path.suffix.lower() == ".csv" else _write_json_lines

    def fill(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            write(file, blocks)

    write_file(path, fill)


def check_suffix(path: Path) -> None:
    """Raise unless predictions can be written to a file of this name."""
    if path.suffix.lower() not in SUFFIXES:
        raise ReprogramError(f"--out {str(path)!r} is none of {', '.join(SUFFIXES)}; name it so")


def write_csv(file: IO[str], blocks: Iterable[ClassifiedBlock], clean: Callable[[str], str] | None = None) -> None:
    """Write CSV with a header into an open file, and nothing where the first block cannot be had.

    Texts that a spreadsheet program would take for formulas are guarded, see `reprogram.text.csv_cell`.

    Args:
        file: where to.
        blocks: what was classified.
        clean: makes the texts fit for where they go, such as a terminal.
    """
    begun = False
    for block in blocks:
        if not begun:
            file.write(csv_line(COLUMNS))
        begun = True
        for row in _rows(block):
            texts = [row[name] if clean is None else clean(row[name]) for name in COLUMNS[:3]]
            file.write(csv_line([*map(csv_cell, texts), *(str(row[name]) for name in COLUMNS[3:])]))
    if not begun:
        file.write(csv_line(COLUMNS))


def _write_json_lines(file: IO[str], blocks: Iterable[ClassifiedBlock]) -> None:
    for block in blocks:
        file.writelines(json_text(row) + "\n" for row in _rows(block))


def _write_parquet(path: Path, blocks: Iterable[ClassifiedBlock]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise extra_missing("pyarrow", "data", "a .parquet file") from None
    kinds = [pyarrow.string()] * 3 + [pyarrow.float64(), pyarrow.bool_(), pyarrow.int64()]
    schema = pyarrow.schema(zip(COLUMNS, kinds, strict=True))
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for block in blocks:
            writer.write_table(pyarrow.Table.from_pylist([_encodable(row) for row in _rows(block)], schema=schema))


def _encodable(row: dict[str, Any]) -> dict[str, Any]:
    """Parquet holds UTF-8 alone, so a byte of a file name that is no text is written as Python shows it."""
    return {
        name: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for name, value in row.items()
    }


def _rows(classified: ClassifiedBlock) -> Iterator[dict[str, Any]]:
    """One dictionary for each row; a row without a name is called by its file and number."""
    said, block = classified.predictions, classified.block
    shares = said.confidence.tolist()
    for row, predicted in enumerate(said.labels):
        yield {
            "image": block.image(row),
            "label": block.labels[row] if block.labels else "",
            "predicted": predicted,
            "share": round(shares[row], 6),
            "by_frequency": bool(said.guessed[row]),
            "unseen_labels": int(classified.unseen[row]),
        }
