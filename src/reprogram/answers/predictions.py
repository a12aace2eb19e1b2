"""Files of predictions: one row for each classified answer, as CSV, JSON lines or Parquet."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from reprogram.answers.mapping import ClassifiedBlock
from reprogram.files import write_file
from reprogram.files.tables import Column, form_of, table_head, table_line, write_parquet
from reprogram.mappings.asked import Asked

COLUMNS = (
    Column("image"),
    Column("label"),
    Column("predicted"),
    Column("share", "number"),
    Column("by_frequency", "flag"),
    Column("unseen_labels", "count"),
)
#: Further columns, each only where it is asked for: the classes that may be true, and how typical a row is.
FURTHER = {
    Column("set", "texts"): "coverage",
    Column("p_typical", "number"): "unlike",
    Column("none_of_these", "flag"): "unlike",
}


def further_columns(asked: Asked | None) -> tuple[Column, ...]:
    """The columns for what is asked beside the class."""
    return tuple(column for column, wish in FURTHER.items() if asked is not None and getattr(asked, wish) is not None)


def columns_of(asked: Asked | None) -> tuple[Column, ...]:
    """The columns of a file for what is asked."""
    return (*COLUMNS, *further_columns(asked))


def write_predictions(path: Path, blocks: Iterable[ClassifiedBlock], asked: Asked | None = None) -> None:
    """Write one file in one step, in the format that its suffix names; what was asked decides on its columns."""
    form, columns = form_of(path), columns_of(asked)
    if form == "parquet":
        write_file(path, lambda temporary: write_parquet(temporary, columns, map(_rows, blocks)))
        return

    def fill(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            if form == "csv":
                write_csv(file, blocks, asked=asked)
            else:
                file.writelines(table_line(form, columns, row) for block in blocks for row in _rows(block))

    write_file(path, fill)


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
            file.write(table_head("csv", columns))
        begun = True
        for row in _rows(block):
            file.write(table_line("csv", columns, row, clean))  # an outlet minds each write
    if not begun:
        file.write(table_head("csv", columns))


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
