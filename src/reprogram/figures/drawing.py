"""What a figure is: rows of data, a size, and how they are painted; drawn alone, into axes of others, or into a file."""

import io
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, GridSpecFromSubplotSpec

from reprogram.errors import ReprogramError
from reprogram.figures.registry import FIGURES, FigureKind, Need, check_count, check_suffix, find_figure
from reprogram.figures.style import Look, look, styled
from reprogram.files import write_file, write_text
from reprogram.registry import imported
from reprogram.run.examples import Examples, gather_examples
from reprogram.run.record import RunRecord
from reprogram.text import csv_cell, csv_line

Rows = list[dict[str, Any]]
_DPI = 160
_LETTERS = 10.8  # of a title to an inch
#: What a file tells beside the picture: nothing that changes from one day to the next.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": "reprogram"},
    ".pdf": {"CreationDate": None, "Creator": "reprogram", "Producer": None},
}


@dataclass(frozen=True)
class Drawing:
    """A figure that can be painted.

    Attributes:
        title: what is seen.
        rows: the data, one dictionary with the same keys for each row.
        size: width and height in inches where it stands alone.
        paint: paints it into axes.
        panels: whether it divides the axes into several, so that a title stands above all of them.
    """

    title: str
    rows: Rows
    size: tuple[float, float]
    paint: Callable[[Axes, Look], object]
    panels: bool = False


Prepare = Callable[..., Drawing]


class Plot:
    """A figure as a function: `confusion(record)`, `labels(record, examples, ax=ax, dark=True)`.

    `rows` gives the data that it draws.

    Args:
        prepare: from a record (of a comparison, a list of them), and examples where it shows images, to a `Drawing`.
    """

    def __init__(self, prepare: Prepare) -> None:
        self.prepare = prepare
        self.__doc__ = prepare.__doc__
        self.__name__ = prepare.__name__

    @property
    def kind(self) -> FigureKind:
        """Its record in the registry."""
        return FIGURES[self.__name__.replace("_", "-")]

    def __call__(
        self,
        record: RunRecord | Sequence[RunRecord],
        examples: Examples | None = None,
        *,
        ax: Axes | None = None,
        dark: bool = False,
        **options: Any,
    ) -> Figure:
        """Draw it.

        Args:
            record: of `read_run`; of a comparison, several.
            examples: of `gather_examples`, for figures that show images.
            ax: where to draw, by default a figure of its own. A figure of several panels divides it.
            dark: colours for a dark ground.
            options: `classes`, the names of those to show, where a figure shows some of many.

        Returns:
            The matplotlib figure.
        """
        return painted(self.drawing(record, examples, **options), ax, dark=dark)

    def rows(self, record: RunRecord | Sequence[RunRecord], examples: Examples | None = None, **options: Any) -> Rows:
        """The data of the figure, one dictionary for each row."""
        return self.drawing(record, examples, **options).rows

    def drawing(self, record: RunRecord | Sequence[RunRecord], examples: Examples | None, **options: Any) -> Drawing:
        """What is to be painted, if the records have what it needs."""
        kind = self.kind
        records = [record] if isinstance(record, RunRecord) else list(record)
        check_count(kind, records)
        for one in records:
            if reason := lacking(kind, one):
                raise ReprogramError(reason)
        given: Any = records if kind.several else records[0]
        return self.prepare(given, examples, **options) if kind.examples else self.prepare(given, **options)


def painted(drawing: Drawing, ax: Axes | None = None, *, dark: bool = False) -> Figure:
    """Paint it: into axes of others, or into a figure of its own, with its title above."""
    colours = look(dark)
    with styled(colours):
        if ax is not None:
            if not drawing.panels:
                ax.set_title(drawing.title)
            drawing.paint(ax, colours)
            return ax.get_figure(root=True)  # type: ignore[return-value]
        figure = Figure(figsize=drawing.size, layout="constrained")
        ax = figure.add_subplot()
        wide = int(_LETTERS * drawing.size[0])
        figure.suptitle("\n".join(textwrap.wrap(drawing.title, wide)), x=0.01, ha="left")
        drawing.paint(ax, colours)
    return figure


def lacking(kind: FigureKind, record: RunRecord) -> str | None:
    """Why a record has not what a figure needs; None if it has."""
    for need in kind.needs:
        if not _HAS[need][0](record):
            return f"{str(record.folder)!r} has no figure {kind.name!r}: {_HAS[need][1]}"
    return None


_HAS: dict[Need, tuple[Callable[[RunRecord], bool], str]] = {
    "program": (
        lambda record: record.program is not None and record.program.free_parameters > 0,
        "its model has no trained program; fit one with --program padding or watermark",
    ),
    "history": (
        lambda record: record.history is not None,
        "no program was trained in it, or by an older version, which kept no pictures of it",
    ),
    "epochs": (lambda record: len(record.epochs) > 0, "it tells of no epochs; give a run folder of reprogram fit"),
    "mapping": (
        lambda record: record.own_mapping is not None,
        "it is a reference, which has no mapping; give a run of reprogram fit",
    ),
    "joint": (
        lambda record: record.joint is not None,
        "its mapping was not made of counts; fit one of ilm, flm, blm and blm+",
    ),
    "test": (
        lambda record: record.test is not None and len(record.test) > 0,
        "it tells of no test images; give a run folder of reprogram fit that is finished",
    ),
    "images": (lambda record: record.kind == "run", "it names no images; give a run folder of reprogram fit"),
}


def plot_of(name: str) -> Plot:
    """The figure of this name as a function."""
    found: Plot = imported(find_figure(name).implementation)
    return found


def draw_figure(
    name: str,
    runs: RunRecord | Sequence[RunRecord],
    out: str | Path,
    *,
    examples: Examples | None = None,
    dark: bool = False,
    **options: Any,
) -> tuple[Path, tuple[str, ...]]:
    """Write a figure, or its data.

    Args:
        name: a key of `FIGURES`.
        runs: what `read_run` gave; of a comparison, several.
        out: a file that ends with .png, .svg, .pdf or .csv; what stands there is replaced. The same runs give the same
            bytes.
        examples: images, where they were gathered already; else they are gathered where the figure shows some.
        dark: colours for a dark ground.
        options: see `Plot`.

    Returns:
        The file, and what could not be had.
    """
    path, plot = Path(out).expanduser(), plot_of(name)
    check_suffix(path.suffix, f"{str(path)!r}")  # before images are gathered
    records = [runs] if isinstance(runs, RunRecord) else list(runs)
    given: Any = records if plot.kind.several else records[0] if len(records) == 1 else records
    for record in records:
        if reason := lacking(plot.kind, record):
            raise ReprogramError(reason)
    if plot.kind.examples and examples is None and len(records) == 1:
        examples = gather_examples(records[0])
    notes = () if examples is None else examples.notes
    return write_drawing(plot.drawing(given, examples, **options), path, dark=dark), notes


def write_drawing(drawing: Drawing, out: str | Path, *, dark: bool = False) -> Path:
    """Write a figure, or its data, as the end of the file's name says: .png, .svg, .pdf or .csv."""
    path = Path(out).expanduser()
    suffix = path.suffix.lower()
    check_suffix(suffix, f"{str(path)!r}")
    if suffix == ".csv":
        write_text(path, as_csv(drawing.rows))
        return path
    content = rendered(painted(drawing, dark=dark), suffix, dark=dark)
    write_file(path, lambda place: place.write_bytes(content))
    return path


def rendered(figure: Figure, suffix: str, *, dark: bool = False, dpi: int = _DPI) -> bytes:
    """A figure as the bytes of a file."""
    target = io.BytesIO()
    with styled(look(dark)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")  # a box is shown for it
        figure.savefig(target, format=suffix.removeprefix("."), dpi=dpi, metadata=_METADATA[suffix])
    return target.getvalue()


def as_csv(rows: Rows) -> str:
    """Rows as a table whose cells no spreadsheet program takes for formulas."""
    names = list(rows[0]) if rows else []
    return csv_line(names) + "".join(csv_line([_cell(row[name]) for name in names]) for row in rows)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    return csv_cell(value) if isinstance(value, str) else str(value)


def panels(ax: Axes, rows: int, columns: int, **ratios: Any) -> "np.ndarray[Any, Any]":
    """Divide axes into a grid of others, (rows, columns); the axes themselves become invisible."""
    figure, spec = ax.get_figure(root=False), ax.get_subplotspec()
    assert figure is not None
    grid: GridSpec | GridSpecFromSubplotSpec
    if spec is None:
        box = ax.get_position()
        place = {"left": box.x0, "right": box.x1, "bottom": box.y0, "top": box.y1}
        grid = GridSpec(rows, columns, figure=figure, **place, **ratios)  # type: ignore[arg-type]
    else:
        grid = spec.subgridspec(rows, columns, **ratios)
    ax.set_axis_off()
    found = np.empty((rows, columns), dtype=object)
    for row in range(rows):
        for column in range(columns):
            found[row, column] = figure.add_subplot(grid[row, column])
    return found
