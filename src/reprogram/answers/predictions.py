"""Files of predictions: one row for each classified answer, as CSV, JSON lines or Parquet."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from reprogram.answers.mapping import ClassifiedBlock
from reprogram.errors import ReprogramError, extra_missing
from reprogram.files import write_file
from reprogram.mappings.asked import Asked
from reprogram.text import csv_cell, csv_line, json_text

COLUMNS = ("image", "label", "predicted", "share", "by_frequency", "unseen_labels")
#: Further columns, each only where it is asked for: the classes that may be true, and how typical a row is.
FURTHER = {"set": "coverage", "p_typical": "unlike", "none_of_these": "unlike"}
SUFFIXES = (".csv", ".jsonl", ".parquet")


def columns_of(asked: Asked | None) -> tuple[str, ...]:
    """The columns of a file for what is asked."""
    return (*COLUMNS, *(name for name, wish in FURTHER.items() if asked is not None and getattr(asked, wish) is not None))


def write_predictions(path: Path, blocks: Iterable[ClassifiedBlock], asked: Asked | None = None) -> None:
    """Write one file in one step, in the format that its suffix names; what was asked decides on its columns."""
    check_suffix(path)
    if path.suffix.lower() == ".parquet":
        write_file(path, lambda temporary: _write_parquet(temporary, blocks, columns_of(asked)))
        return

    def fill(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            if path.suffix.lower() == ".csv":
                write_csv(file, blocks, asked=asked)
            else:
                file.writelines(json_text(row) + "\n" for block in blocks for row in _rows(block))

    write_file(path, fill)


def check_suffix(path: Path) -> None:
    """Raise unless predictions can be written to a file of this name."""
    if path.suffix.lower() not in SUFFIXES:
        raise ReprogramError(f"--out {str(path)!r} is none of {', '.join(SUFFIXES)}; name it so")


def write_csv(
    file: IO[str],
    blocks: Iterable[ClassifiedBlock],
    clean: Callable[[str], str] | None = None,
    asked: Asked | None = None,
) -> None:
    """Write CSV with a header into an open file, and nothing where the first block cannot be had.

    Texts that a spreadsheet program would take for formulas are guarded, see `reprogram.text.csv_cell`. The classes of a set
    stand in one cell, with bars between them.

    Args:
        file: where to.
        blocks: what was classified.
        clean: makes the texts fit for where they go, such as a terminal.
        asked: what was asked for beside the class.
    """
    begun, columns = False, columns_of(asked)
    for block in blocks:
        if not begun:
            file.write(csv_line(columns))
        begun = True
        for row in _rows(block):
            row = {**row, "set": "|".join(row["set"])} if "set" in row else row
            cells = (row[name] if clean is None or not isinstance(row[name], str) else clean(row[name]) for name in columns)
            file.write(csv_line([csv_cell(cell) if isinstance(cell, str) else str(cell) for cell in cells]))
    if not begun:
        file.write(csv_line(columns))


def _write_parquet(path: Path, blocks: Iterable[ClassifiedBlock], columns: tuple[str, ...]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise extra_missing("pyarrow", "data", "a .parquet file") from None
    kinds = [pyarrow.string()] * 3 + [pyarrow.float64(), pyarrow.bool_(), pyarrow.int64()]
    further = {"set": pyarrow.list_(pyarrow.string()), "p_typical": pyarrow.float64(), "none_of_these": pyarrow.bool_()}
    schema = pyarrow.schema(zip(columns, [*kinds, *(further[name] for name in columns[len(COLUMNS) :])], strict=True))
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for block in blocks:
            writer.write_table(pyarrow.Table.from_pylist([_encodable(row) for row in _rows(block)], schema=schema))


def _encodable(row: dict[str, Any]) -> dict[str, Any]:
    """Parquet holds UTF-8 alone, so a byte of a file name that is no text is written as Python shows it."""
    return {name: [*map(_utf8, value)] if isinstance(value, list) else _utf8(value) for name, value in row.items()}


def _utf8(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _rows(classified: ClassifiedBlock) -> Iterator[dict[str, Any]]:
    """One dictionary for each row; a row without a name is called by its file and number."""
    said, block = classified.predictions, classified.block
    shares = said.confidence.tolist()
    for row, predicted in enumerate(said.labels):
        facts = {
            "image": block.image(row),
            "label": block.labels[row] if block.labels else "",
            "predicted": predicted,
            "share": round(shares[row], 6),
            "by_frequency": bool(said.guessed[row]),
            "unseen_labels": int(classified.unseen[row]),
        }
        if said.sets is not None:
            facts["set"] = list(said.sets[row])
        if said.typicality is not None and said.unlike is not None:
            facts |= {"p_typical": round(float(said.typicality[row]), 6), "none_of_these": bool(said.unlike[row])}
        yield facts
