"""Words and tables for people."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from reprogram.text import printable, shortened

_CELL = 48  # places: no name takes more of a table


def show(line: str) -> None:
    """Print one line on standard output, whatever the names in it are."""
    print(printable(line))


def show_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Sequence[str]]],
    *,
    numbers: Iterable[str] = (),
    longest: int = _CELL,
) -> None:
    """Print a table; the columns of `numbers` are set flush right.

    A long name is shortened, so that the table stays one. A cell of several texts has commas between them, and each of them
    is shortened by itself. `longest` is what a text may take: more where the texts are our own, and are read to the end.
    """
    console = _console()
    with console.capture() as drawn:
        console.print(_table(headings, rows, numbers, longest))
    print(drawn.get(), end="")  # not by the console, which ends the process itself where a pipe is closed


def fits(headings: Sequence[str], rows: Iterable[Sequence[str | Sequence[str]]]) -> bool:
    """Whether a table needs no folding where `show_table` prints it."""
    console = _console()
    wide = console.options.update(max_width=10_000)
    return Measurement.get(console, wide, _table(headings, rows, (), _CELL)).maximum <= console.width


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def _table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Sequence[str]]], numbers: Iterable[str], longest: int
) -> Table:
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    right = set(numbers)
    for heading in headings:
        lines = "\n".join(map(printable, heading.split("\n")))
        table.add_column(Text(lines), justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell, longest)) for cell in row))
    return table


def _cell(content: str | Sequence[str], longest: int) -> str:
    parts = (content,) if isinstance(content, str) else content
    return ", ".join(shortened(printable(part), longest) for part in parts)


def show_pairs(rows: dict[str, str]) -> None:
    """Print names with their meanings, in two columns."""
    width = max(map(len, rows))
    for name, value in rows.items():
        show(f"{name:<{width}}  {value}")


def percent(share: float | None) -> str:
    """A share for a reader.

    >>> percent(0.5), percent(None)
    ('50.0 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def pasted(path: str | Path) -> str:
    """A path as it can be pasted into a shell.

    >>> pasted("runs/my birds")
    "'runs/my birds'"
    """
    return shlex.quote(str(path))
