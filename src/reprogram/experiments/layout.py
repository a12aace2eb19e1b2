"""A table for readers: rows of named cells, written as CSV, JSON, Markdown and LaTeX, or shown in a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprogram.experiments.markup import latex_text, markdown_text
from reprogram.text import csv_cell, csv_line, printable

Number = float | int | str | None
#: What stands where nothing was run.
MISSING = "–"
_BEST = "◂"  # in a terminal, which may have no bold letters


@dataclass(frozen=True)
class Entry:
    """A cell of a table.

    Attributes:
        text: what a reader sees.
        numbers: what other programs read, by their names, in full precision.
        best: whether it is the best of its row, or as good as that.
    """

    text: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    best: bool = False


@dataclass(frozen=True)
class Row:
    """A row: what it is called, one text for each of the table's `names`, and its cells, one for each of its `columns`."""

    names: tuple[str, ...]
    cells: tuple[Entry, ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: what is seen.
        names: headings of the columns that name the rows.
        columns: headings of the cells.
        rows: the rows.
        summary: rows that sum up the others, under a line.
        notes: what a reader should know, in sentences.
    """

    title: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    summary: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()

    def csv(self) -> str:
        """Numbers in full precision, a column for each: "blm mean", "blm std"; texts are guarded against formulas."""
        parts = [self._parts(place) for place in range(len(self.columns))]
        head = [*self.names]
        for column, names in zip(self.columns, parts, strict=True):
            head += [f"{column} {name}" for name in names] or [column]
        lines = [csv_line(map(csv_cell, head))]
        for row in (*self.rows, *self.summary):
            cells = list(map(csv_cell, row.names))
            for entry, names in zip(row.cells, parts, strict=True):
                cells += [csv_number(entry.numbers.get(name)) for name in names] or [csv_cell(entry.text)]
            lines.append(csv_line(cells))
        return "".join(lines)

    def _parts(self, place: int) -> list[str]:
        found: dict[str, None] = {}
        for row in (*self.rows, *self.summary):
            found |= dict.fromkeys(row.cells[place].numbers)
        return list(found)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "title": self.title,
            "names": list(self.names),
            "columns": list(self.columns),
            "rows": [_row_json(row) for row in self.rows],
            "summary": [_row_json(row) for row in self.summary],
            "notes": list(self.notes),
        }

    def markdown(self) -> str:
        """A heading, a table in the form of GitHub, the best of each row in bold letters, and the notes."""
        head = [*self.names, *self.columns]
        lines = [f"### {markdown_text(self.title)}", "", _markdown_line([markdown_text(text) for text in head])]
        lines.append(_markdown_line(["---"] * len(self.names) + ["---:"] * len(self.columns)))
        for row in (*self.rows, *self.summary):
            lines.append(_markdown_line([*map(markdown_text, row.names), *map(_markdown_entry, row.cells)]))
        lines += ["", " ".join(map(markdown_text, self.notes)), ""] if self.notes else [""]
        return "\n".join(lines)

    def latex(self) -> str:
        """A `table` for the package booktabs, the best of each row in bold letters, title and notes in its caption."""
        caption = " ".join(map(latex_text, (f"{self.title}.", *self.notes)))
        lines = [
            "% needs \\usepackage{booktabs}",
            "\\begin{table}[t]",
            "\\centering",
            f"\\caption{{{caption}}}",
            f"\\begin{{tabular}}{{{'l' * len(self.names)}{'r' * len(self.columns)}}}",
            "\\toprule",
            _latex_line([latex_text(text) for text in (*self.names, *self.columns)]),
            "\\midrule",
            *(_latex_line([*map(latex_text, row.names), *map(_latex_entry, row.cells)]) for row in self.rows),
        ]
        if self.summary:
            lines.append("\\midrule")
            lines += [_latex_line([*map(latex_text, row.names), *map(_latex_entry, row.cells)]) for row in self.summary]
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])

    def for_terminal(self) -> tuple[list[str], list[list[str]], list[str]]:
        """Headings, rows, and the headings of what is set flush right: what `show_table` takes.

        The best of a row has a mark, as a terminal may have no bold letters.
        """
        columns = [printable(text) for text in self.columns]
        lines = (*self.rows, *self.summary)
        marked = [any(row.cells[place].best for row in lines) for place in range(len(columns))]
        rows = [[*row.names, *map(_terminal_entry, row.cells, marked)] for row in lines]
        return [*map(printable, self.names), *columns], rows, columns


def csv_number(value: Number) -> str:
    """A number so that it can be read again exactly, a guarded text, or nothing.

    >>> csv_number(0.1), csv_number(None), csv_number("=1")
    ('0.1', '', "'=1")
    """
    if value is None or value != value:
        return ""
    return csv_cell(value) if isinstance(value, str) else repr(value)


def _row_json(row: Row) -> dict[str, Any]:
    cells = [{"text": entry.text, **entry.numbers, "best": entry.best} for entry in row.cells]
    return {"names": list(row.names), "cells": cells}


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_entry(entry: Entry) -> str:
    text = markdown_text(entry.text)
    return f"**{text}**" if entry.best else text


def _latex_line(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _latex_entry(entry: Entry) -> str:
    text = latex_text(entry.text)
    return f"\\textbf{{{text}}}" if entry.best else text


def _terminal_entry(entry: Entry, marked: bool) -> str:
    """A cell, with room for the mark where its column has one; ± without blanks, so that many columns fit."""
    return f"{entry.text.replace(' ± ', '±')}{_BEST if entry.best else ' ' if marked else ''}"
