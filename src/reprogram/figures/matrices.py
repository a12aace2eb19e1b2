"""ω and J as heat maps: all of it with alike classes together, the paper's corner of several, and what J counts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from reprogram.errors import ReprogramError
from reprogram.figures.clusters import alike_order, diagonal_order
from reprogram.figures.drawing import Drawing, Plot, Rows, panels
from reprogram.figures.style import SIZE, Look, name_ticks, named
from reprogram.run.record import RunRecord

_MOST_ROWS, _MOST_COLUMNS = 110, 120
_CORNER = 10
_FEW = 14  # rows and columns up to which numbers stand in the cells


def _strongest_rows(weights: "np.ndarray[Any, Any]", most: int) -> list[int]:
    """Source labels that matter: the strongest of each class, then the second and third of each, while there is room."""
    strength = np.abs(weights)
    ranked = np.argsort(-strength, axis=0, kind="stable")
    room = min(most, max(24, weights.shape[1] + 10))
    chosen: dict[int, None] = {}
    for rank in range(min(3, len(weights))):
        order = np.argsort(-np.take_along_axis(strength, ranked[rank : rank + 1], 0)[0], kind="stable")
        for row in ranked[rank][order].tolist():
            if len(chosen) < room and strength[row].max() > 0:
                chosen.setdefault(row)
    return list(chosen)


def _heat(ax: Axes, look: Look, values: "np.ndarray[Any, Any]", what: str, *, bar: bool = True) -> None:
    """A heat map; signed values have two hues, and nothing has the colour of the ground."""
    most = float(np.abs(values).max(initial=0)) or 1.0
    signed = bool((values < 0).any())
    image = ax.imshow(
        values,
        cmap=look.signed if signed else look.amounts,
        vmin=-most if signed else 0,
        vmax=most,
        aspect="auto",
        interpolation="nearest",
    )
    for spine in ax.spines.values():
        spine.set_visible(True)
        spine.set_color(look.faint)
    if bar:
        figure = ax.get_figure(root=False)
        assert figure is not None
        made = figure.colorbar(image, ax=ax, fraction=0.04, pad=0.015, aspect=30)
        made.set_label(what)
        made.outline.set_visible(False)


def _numbers(ax: Axes, look: Look, values: "np.ndarray[Any, Any]", form: str, size: float) -> None:
    """The values in the cells, where there are few."""
    most = float(np.abs(values).max(initial=0)) or 1.0
    signed = bool((values < 0).any())
    for row, line in enumerate(values):
        for column, value in enumerate(line.tolist()):
            share = (value / most + 1) / 2 if signed else value / most
            red, green, blue, _ = (look.signed if signed else look.amounts)(share)
            colour = "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"
            written = format(value, form)
            if float(written):
                ax.text(column, row, written, ha="center", va="center", fontsize=size, color=colour)


def _side(count: int, each: float, least: float, most: float) -> float:
    return min(max(count * each, least), most)


def _tick_size(inches: float, count: int) -> float:
    """Points of a name, so that those below one another do not touch."""
    return min(SIZE - 0.5, 72 * inches / max(count, 1) * 0.8)


def _table(
    record: RunRecord, values: "np.ndarray[Any, Any]", rows: list[int], columns: list[int], title: str, what: str, form: str
) -> Drawing:
    """Source labels by classes, in this order."""
    part = values[np.ix_(rows, columns)]
    labels, classes = record.source_labels, record.classes
    data: Rows = [
        {"source_label": labels[row], "class": classes[column], what.replace(" ", "_"): float(values[row, column])}
        for row in rows
        for column in columns
    ]
    wide = len(columns)
    height, width = (
        _side(len(rows), 0.155 if len(rows) <= 60 else 0.1, 1.8, 11),
        _side(wide, 0.42 if wide <= _FEW else 0.14, 2.4, 11),
    )

    def paint(ax: Axes, look: Look) -> None:
        _heat(ax, look, part, what)
        name_ticks(ax, "y", [named(labels[row], 32) for row in rows], _tick_size(height, len(rows)))
        size = _tick_size(width, wide)
        name_ticks(ax, "x", [named(classes[column], 20) for column in columns], size, rotation=90)
        ax.set_ylabel("source label (of the frozen model)")
        ax.set_xlabel("class")
        if wide <= _FEW and len(rows) <= 3 * _FEW:
            _numbers(ax, look, part, form, 5.5)

    return Drawing(title, data, (width + 3.4, height + 1.9), paint)


def _chosen_columns(weights: "np.ndarray[Any, Any]") -> tuple[list[int], str]:
    """All classes, or so many evenly spread ones as there is room for."""
    count = weights.shape[1]
    if count <= _MOST_COLUMNS:
        return list(range(count)), ""
    places = np.linspace(0, count - 1, _MOST_COLUMNS).round().astype(int).tolist()
    return places, f", {_MOST_COLUMNS} of {count} classes"


@Plot
def mapping(record: RunRecord) -> Drawing:
    """ω, its strongest source labels by all classes; classes that rest on the same labels are neighbours."""
    weights = record.omega.astype(np.float64)
    columns, fewer = _chosen_columns(weights)
    rows = _strongest_rows(weights[:, columns], _MOST_ROWS)
    if not rows:
        raise ReprogramError(f"all weights of the mapping in {str(record.folder)!r} are 0, so there is nothing to show")
    ordered = [columns[place] for place in alike_order(weights[:, columns])]
    lines = [rows[place] for place in diagonal_order(weights[np.ix_(rows, ordered)])]
    title = (
        f"Mapping {record.mapping.name} of {named(record.name, 30)}: the {len(lines)} strongest of "
        f"{len(weights)} source labels{fewer}"
    )
    return _table(record, weights, lines, ordered, title, "weight", ".2f")


@Plot
def joint(record: RunRecord) -> Drawing:
    """J: in how many images of each class the model saw which of its labels (for BLM+ the summed probabilities).

    The paper's Figure 1b: where two classes are seen as one label, a one-to-one mapping must give it to one of them.
    """
    counts = record.joint
    assert counts is not None
    columns, fewer = _chosen_columns(counts)
    room = min(_MOST_ROWS, max(24, len(columns) + 10))
    rows = [int(row) for row in np.argsort(-counts.sum(1), kind="stable")[:room] if counts[row].sum() > 0]
    if not rows:
        raise ReprogramError(f"nothing was counted for the mapping in {str(record.folder)!r}, so there is nothing to show")
    ordered = [columns[place] for place in alike_order(counts[:, columns].astype(np.float64))]
    lines = [rows[place] for place in diagonal_order(counts[np.ix_(rows, ordered)].astype(np.float64))]
    hard = getattr(record.mapping.statistics, "kind", "counts") == "counts"
    covered = counts[rows].sum() / max(float(counts.sum()), 1e-30)
    what = "images" if hard else "summed probability"
    title = f"What the model sees in each class: {len(lines)} labels, {100 * covered:.0f} % of all that it sees{fewer}"
    return _table(record, counts.astype(np.float64), lines, ordered, title, what, ".0f" if hard else ".1f")


@Plot
def mappings(records: Sequence[RunRecord]) -> Drawing:
    """The first ten source labels by the first ten classes of several mappings, as in the paper, and the ten strongest.

    Those of the paper that are computed have few weights, which can be read; those that are learned have many, of both
    signs.
    """
    strongest = _common_rows(records)
    parts = [(list(range(min(_CORNER, len(records[0].source_labels)))), "first"), (strongest, "strongest")]
    rows: Rows = [
        {
            "run": record.name,
            "mapping": record.mapping.name,
            "part": part,
            "source_label": record.source_labels[line],
            "class": record.classes[column],
            "weight": float(record.omega[line, column]),
        }
        for lines, part in parts
        for record in records
        for line in lines
        for column in range(min(_CORNER, len(record.classes)))
    ]

    def paint(ax: Axes, look: Look) -> None:
        grid = panels(ax, 2, len(records))
        for line, (chosen, part) in enumerate(parts):
            for place, record in enumerate(records):
                one, corner = grid[line, place], record.omega[chosen, :_CORNER].astype(np.float64)
                _heat(one, look, corner, "weight" if place + 1 == len(records) else "")
                if not corner.any():
                    one.text(0.5, 0.5, "all weights are 0", transform=one.transAxes, ha="center", va="center", fontsize=7.5)
                if line == 0:
                    words = f"{named(record.mapping.name, 14)} ({named(record.name, 18)})"
                    one.set_title(words, fontweight="normal", fontsize=8)
                labels = [named(record.source_labels[row], 22) for row in chosen]
                name_ticks(one, "y", labels if place == 0 else [""] * len(chosen), 7)
                classes = [named(name, 16) for name in record.classes[: corner.shape[1]]]
                name_ticks(one, "x", classes if line == 1 else [""] * len(classes), 7, rotation=90)
                if place == 0:
                    one.set_ylabel(f"the {part} {len(chosen)} source labels", fontsize=7.5)

    which = "one mapping" if len(records) == 1 else f"{len(records)} mappings"
    title = f"Weights of {which} for the first {min(_CORNER, len(records[0].classes))} classes"
    return Drawing(title, rows, (max(2.0 + 2.2 * len(records), 4.6), 5.4), paint, panels=True)


def _common_rows(records: Sequence[RunRecord]) -> list[int]:
    """The source labels that are strongest over all mappings, each measured by its own largest weight."""
    for record in records[1:]:
        if record.source_labels != records[0].source_labels:
            raise ReprogramError(
                f"{str(records[0].folder)!r} and {str(record.folder)!r} have different source labels, so their weights "
                "cannot be compared; give mappings of one frozen model"
            )
    total = np.zeros(len(records[0].source_labels))
    for record in records:
        corner = np.abs(record.omega[:, :_CORNER].astype(np.float64))
        total += corner.max(1) / (corner.max(initial=0) or 1.0)
    return sorted(int(row) for row in np.argsort(-total, kind="stable")[:_CORNER])
