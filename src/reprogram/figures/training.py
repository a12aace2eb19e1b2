"""How a run went: loss, accuracies and the change of the mapping, epoch by epoch."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from reprogram.figures.drawing import Drawing, Plot, Rows, panels
from reprogram.figures.style import Look, named
from reprogram.run.record import RunRecord

_SPLITS = {"train": "training", "val": "validation", "test": "test"}


@Plot
def epochs(record: RunRecord) -> Drawing:
    """Loss, accuracy on each split and change of ω after every epoch; epoch 0 is the answer without a program."""
    rows: Rows = [
        {
            "epoch": one["epoch"],
            "loss": one["loss"],
            **{f"{split}_accuracy": one["accuracy"][split] for split in _SPLITS},
            "mapping_change": one["mapping_change"],
            "seconds": one["seconds"],
        }
        for one in record.epochs
    ]
    chosen = None if record.result is None else record.result["selected_epoch"]
    parts = [part for part in ("loss", "accuracy", "change") if part == "accuracy" or _points(rows, _COLUMNS[part])]

    def paint(ax: Axes, look: Look) -> None:
        shown = panels(ax, 1, len(parts))[0]
        last = max(row["epoch"] for row in rows)
        first = min(row["epoch"] for row in rows)
        for part, one in zip(parts, shown, strict=True):
            if part == "loss":
                _curve(one, _points(rows, "loss"), look.good, "loss")
                one.set_title("loss in training", fontweight="normal")
            elif part == "change":
                _curve(one, _points(rows, "mapping_change"), look.others[2], "change")
                one.set_title("change of the mapping", fontweight="normal")
                one.set_ylim(bottom=0)
            else:
                colours = (look.others[0], look.good, look.bad)
                for (split, label), colour, mark in zip(_SPLITS.items(), colours, ("s", "o", "^"), strict=True):
                    _curve(one, _points(rows, f"{split}_accuracy"), colour, label, mark)
                if record.result is not None:
                    one.axhline(record.result["chance"], color=look.faint, linestyle=":", label="chance")
                one.set_title("accuracy", fontweight="normal")
                one.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
                one.legend(loc="best", handlelength=1.6)
            if chosen is not None and last > first:
                one.axvline(chosen, color=look.ink, linewidth=0.8, linestyle=(0, (4, 3)))
            one.set_xlabel("epoch")
            one.set_xlim(first - 0.3 - 0.02 * last, last + 0.3 + 0.02 * last)
            one.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
            one.grid(axis="y")
            one.margins(y=0.12)

    kept = "" if chosen is None or len(rows) < 2 else f"; dashed: epoch {chosen}, which was kept"
    return Drawing(
        f"{named(record.name, 30)}, epoch by epoch{kept}", rows, (1.0 + 2.5 * len(parts), 2.7), paint, panels=True
    )


_COLUMNS = {"loss": "loss", "change": "mapping_change"}


def _points(rows: Rows, column: str) -> list[tuple[int, float]]:
    return [(row["epoch"], row[column]) for row in rows if row[column] is not None]


def _curve(ax: Axes, points: list[tuple[int, float]], colour: str, label: str, mark: str = "o") -> None:
    """A line through the points; marks where they are few."""
    if points:
        style: dict[str, Any] = {"marker": mark, "markersize": 4} if len(points) <= 30 else {}
        ax.plot(*zip(*points, strict=True), color=colour, label=label, **style)
