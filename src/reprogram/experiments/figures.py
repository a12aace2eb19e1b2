"""Figures over runs: how methods stand, with intervals and ranks; and accuracy against a number that varies.

They have the look of the figures of a run (`reprogram.figures`), and need matplotlib as these do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from reprogram.errors import ReprogramError, shown
from reprogram.experiments.means import Interval, cell_means, key_of, mean_of, spread, t_interval
from reprogram.experiments.outcomes import (
    DATA,
    Measure,
    Outcome,
    check_axis,
    check_level,
    check_outcomes,
    levels_of,
    measured,
    number_of,
)
from reprogram.experiments.pairs import compare_pair, runs_by_level
from reprogram.experiments.ranks import Ranks, rank
from reprogram.experiments.units import Estimate
from reprogram.figures.drawing import Drawing, Rows, panels
from reprogram.figures.style import Look, name_ticks, named

_MEASURED = {"selected": "selected on validation", "last": "last epoch", "best_on_test": "best on test: too good"}
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
_MOST_LINES, _MOST_PANELS, _ACROSS = 10, 24, 4
_WIDE = 30  # from this ratio of largest to least on, numbers stand on a logarithmic scale
_MOST_TICKS = 9


def methods_drawing(
    outcomes: Sequence[Outcome],
    axis: str,
    *,
    measure: Measure = "selected",
    unit: str = DATA,
    reference: str | None = None,
) -> Drawing:
    """How the levels of an axis stand: their average ranks, and their differences to one of them with 95 % intervals.

    The band in the ranks is as wide as the critical difference: what is inside cannot be told from the best. Small dots are
    units, such as data sets. Ranks are shown where there are at least two blocks.

    Args:
        outcomes: finished runs.
        axis: such as "mapping".
        measure: which accuracy.
        unit: the axis of data sets.
        reference: the level to which others are compared; by default the best by average rank.

    Raises:
        ReprogramError: fewer than two levels, or no such axis or level.
    """
    ranks = rank(outcomes, axis, measure=measure, unit=unit)
    if len(ranks.levels) < 2:
        raise ReprogramError(f"axis {axis!r} has a single level, but at least two are needed to compare; give more runs")
    if reference is not None:
        check_level(reference, axis, ranks.levels)
    order = _order(outcomes, ranks, axis, measure)
    base = order[0] if reference is None else reference
    found = {
        level: compare_pair(outcomes, axis, level, base, measure=measure, unit=unit).difference
        for level in order
        if level != base
    }
    average = dict(zip(ranks.levels, ranks.average, strict=False))
    rows: Rows = []
    for level in order:
        difference = found.get(level)
        rows.append(_method_row(level, base, "all", average.get(level), ranks.critical, difference))
        for name, value in sorted((difference.values if difference else {}).items()):
            rows.append({**_method_row(level, base, name, None, None, None), "difference": value})
    shows_ranks = len(ranks.blocks) > 1

    def paint(ax: Axes, look: Look) -> None:
        parts = panels(ax, 1, 2 if shows_ranks else 1, **({"width_ratios": [1, 1.5]} if shows_ranks else {}))[0]
        if shows_ranks:
            _paint_ranks(parts[0], look, order, average, ranks)
        _paint_differences(parts[-1], look, order, base, found)
        name_ticks(parts[0], "y", [named(level, 28) for level in order])
        if shows_ranks:
            parts[1].set_yticks([])
        for one in parts:
            one.set_ylim(len(order) - 0.4, -0.6)
            one.grid(axis="x")

    words = next((one.words for one in found.values() if one.interval is not None), "")
    bars = f"; bars: 95 % intervals {words}" if words else ""
    title = f"{named(axis, 30)}: how methods stand ({_MEASURED[measure]}){bars}; orange: all below zero, blue: all above"
    size = (7.6 if shows_ranks else 5.6, 0.3 * len(order) + 1.5)
    return Drawing(title, rows, size, paint, panels=True)


def _order(outcomes: Sequence[Outcome], ranks: Ranks, axis: str, measure: Measure) -> list[str]:
    """The best first: by average rank, or, where there is no block with all of them, by mean accuracy."""
    if ranks.average:
        places = sorted(range(len(ranks.levels)), key=lambda place: (ranks.average[place], place))
        return [ranks.levels[place] for place in places]
    runs = runs_by_level(outcomes, axis, measure)
    means = {
        level: mean_of(measured(run, measure) or 0.0 for run in found.values()) for level, found in runs.items() if found
    }
    return sorted(ranks.levels, key=lambda level: -means.get(level, -1.0))


def _method_row(
    level: str, base: str, what: str, average: float | None, critical: float | None, difference: Estimate | None
) -> dict[str, Any]:
    low, high = (None, None) if difference is None or difference.interval is None else difference.interval
    return {
        "method": level,
        "unit": what,
        "average_rank": average,
        "critical_difference": critical,
        "against": base,
        "difference": None if difference is None else difference.mean,
        "interval_low": low,
        "interval_high": high,
        "over": None if difference is None else difference.over,
        "units": None if difference is None else difference.units,
    }


def _paint_ranks(ax: Axes, look: Look, order: list[str], average: dict[str, float], ranks: Ranks) -> None:
    best = min(average.values())
    if ranks.critical is not None:
        ax.axvspan(best, best + ranks.critical, color=look.good, alpha=0.13, linewidth=0)
    for line, level in enumerate(order):
        ax.plot([average[level]], [line], "o", color=look.good, markersize=5.5)
        ax.annotate(f"{average[level]:.1f}", (average[level], line), xytext=(5, 4), textcoords="offset points", fontsize=7)
    ax.set_xlim(0.6, len(order) + 0.5)
    blocks = f"{len(ranks.blocks)} blocks"
    told = "" if ranks.critical is None else f"\nband: not told from the best (within {ranks.critical:.1f})"
    ax.set_xlabel(f"average rank over {blocks}, 1 is best{told}")


def _paint_differences(ax: Axes, look: Look, order: list[str], base: str, found: dict[str, Estimate]) -> None:
    ax.axvline(0, color=look.ink, linewidth=0.8, linestyle=(0, (4, 3)))
    for line, level in enumerate(order):
        difference = found.get(level)
        if difference is None:
            ax.plot([0], [line], "D", color=look.ink, markersize=5)
            continue
        if difference.mean is None:
            ax.text(0, line, " nothing in common", va="center", fontsize=7, style="italic")
            continue
        colour = look.ink
        if difference.interval is not None:
            low, high = difference.interval
            colour = look.bad if high < 0 else look.good if low > 0 else look.ink
            ax.plot([100 * low, 100 * high], [line, line], color=colour, linewidth=2.2, alpha=0.5, solid_capstyle="butt")
        units = [100 * value for value in difference.values.values()]
        ax.plot(units, [line + 0.22] * len(units), "|", color=colour, markersize=5, alpha=0.6)
        ax.plot([100 * difference.mean], [line], "o", color=colour, markersize=5)
    ax.set_xlabel(f"points of accuracy against {named(base, 30)}\nticks: single units")
    ax.margins(x=0.08)


@dataclass(frozen=True)
class _Point:
    """A mean at a number: in which panel, on which line, where, with its interval and number of seeds."""

    panel: str
    line: str
    place: float
    data: str
    mean: float
    interval: Interval | None
    seeds: int


def numeric_drawing(
    outcomes: Sequence[Outcome],
    axis: str,
    *,
    lines: str | None = None,
    apart: str | None = None,
    baseline: str | None = None,
    measure: Measure = "selected",
) -> Drawing:
    """Accuracy against a number that varies, such as λ, α, the size of the training set, or how many classes there are.

    Args:
        outcomes: finished runs.
        axis: an axis whose labels are numbers; or a key of `extra`, such as "classes", that each data set has one of: then
            every data set is a point.
        lines: the axis whose levels are curves, such as "mapping".
        apart: the axis whose levels are panels, such as "data".
        baseline: a level of `lines`: then the others' differences to it are shown, of the same seeds.
        measure: which accuracy.

    Raises:
        ReprogramError: there is no such axis, its labels are no numbers, or another axis varies, which would be mixed.
    """
    axes = check_outcomes(outcomes)
    for name in (lines, apart):
        if name is not None:
            check_axis(name, axes)
    by_label = axis in axes
    if not by_label and not any(axis in outcome.extra for outcome in outcomes):
        check_axis(axis, [*axes, *sorted({name for outcome in outcomes for name in outcome.extra})])
    kept = {axis, lines, apart, *(() if by_label else (DATA,))}
    for name in axes:
        if name not in kept and len(levels_of(outcomes, name)) > 1:
            raise ReprogramError(
                f"axis {name!r} varies, too, and would be mixed; give it for lines or panels, or runs of one of its levels"
            )
    if baseline is not None:
        if lines is None:
            raise ReprogramError(f"baseline {shown(baseline)} was given, but no axis that it is a level of; give lines")
        check_level(baseline, lines, levels_of(outcomes, lines))
    points = _points(outcomes, axis, by_label, lines, apart, baseline, measure)
    curves = [name for name in (levels_of(outcomes, lines) if lines else [""]) if name != baseline]
    parts = levels_of(outcomes, apart) if apart else [""]
    if len(curves) > _MOST_LINES or len(parts) > _MOST_PANELS:
        raise ReprogramError(
            f"{len(curves)} lines in {len(parts)} panels were asked for, but a figure has room for {_MOST_LINES} in "
            f"{_MOST_PANELS}; give fewer runs"
        )
    rows: Rows = [
        {
            "panel": point.panel,
            "line": point.line,
            axis: point.place,
            "data": point.data,
            "mean": point.mean,
            "interval_low": None if point.interval is None else point.interval[0],
            "interval_high": None if point.interval is None else point.interval[1],
            "seeds": point.seeds,
            "against": baseline,
        }
        for point in points
    ]
    across = min(len(parts), _ACROSS)
    down = math.ceil(len(parts) / max(across, 1))
    what = "Accuracy" if baseline is None else f"Points ahead of {named(baseline, 24)}"

    def paint(ax: Axes, look: Look) -> None:
        grid = panels(ax, down, across)
        for place, one in enumerate(grid.flat):
            if place >= len(parts):
                one.set_axis_off()
                continue
            own = [point for point in points if point.panel == parts[place]]
            _paint_curves(one, look, own, curves, by_label, baseline is not None)
            one.set_xlabel(named(axis, 30))
            if place % across == 0:
                one.set_ylabel("points" if baseline is not None else "accuracy on test images, %")
            if parts[place]:
                one.set_title(named(parts[place], 28), fontweight="normal")
            if place == 0 and lines is not None and len(curves) > 0:
                one.legend(loc="best", handlelength=1.6)

    title = f"{what} by {named(axis, 30)} ({_MEASURED[measure]}); bars: 95 % intervals"
    return Drawing(title, rows, (max(2.5 * across + 0.6, 4.8), 2.4 * down + 0.7), paint, panels=True)


def _points(
    outcomes: Sequence[Outcome],
    axis: str,
    by_label: bool,
    lines: str | None,
    apart: str | None,
    baseline: str | None,
    measure: Measure,
) -> list[_Point]:
    places: dict[Any, list[float]] = {}
    for outcome in outcomes:
        given = outcome.labels[axis] if by_label else outcome.extra.get(axis)
        number = number_of(given)
        if number is None:
            raise ReprogramError(f"{axis} {shown(given)} of run {shown(outcome.name)} is no number; give an axis of numbers")
        places.setdefault(key_of(outcome.labels), []).append(number)
    found: list[tuple[dict[str, str], float, Interval | None, int]] = []
    if baseline is None or lines is None:
        for cell in cell_means(outcomes, measure):
            if cell.mean is not None:
                found.append((cell.labels, cell.mean, cell.interval, len(cell.values)))
    else:
        found = _ahead(outcomes, lines, baseline, measure)
    points = [
        _Point(
            labels[apart] if apart else "",
            labels[lines] if lines else "",
            mean_of(places[key_of(labels)]),
            labels.get(DATA, ""),
            mean,
            interval,
            seeds,
        )
        for labels, mean, interval, seeds in found
    ]
    return sorted(points, key=lambda point: (point.panel, point.line, point.place, point.data))


def _ahead(
    outcomes: Sequence[Outcome], lines: str, baseline: str, measure: Measure
) -> list[tuple[dict[str, str], float, Interval | None, int]]:
    """The mean difference to the baseline in every cell, of seeds that both have."""
    runs = runs_by_level(outcomes, lines, measure)
    found = []
    for level, own in runs.items():
        if level == baseline:
            continue
        cells: dict[Any, list[float]] = {}
        for key, run in sorted(own.items(), key=lambda item: item[0]):
            other = runs[baseline].get(key)
            if other is not None:
                cells.setdefault(key[0], []).append((measured(run, measure) or 0.0) - (measured(other, measure) or 0.0))
        for labels, values in cells.items():
            interval = t_interval(values) if spread(values) else None
            found.append(({**dict(labels), lines: level}, mean_of(values), interval, len(values)))
    return found


def _paint_curves(ax: Axes, look: Look, points: list[_Point], curves: list[str], joined: bool, signed: bool) -> None:
    colours = (look.good, look.bad, *look.others)
    places = sorted({point.place for point in points})
    wide = bool(places) and places[0] > 0 and places[-1] / places[0] >= _WIDE
    if wide:
        ax.set_xscale("log")
    reach = 0.0 if len(places) < 2 else math.log(places[-1] / places[0]) if wide else places[-1] - places[0]
    for number, curve in enumerate(curves):
        own = [point for point in points if point.line == curve]
        if not own:
            continue
        aside = 0.008 * reach * (number - (len(curves) - 1) / 2)  # so that bars do not hide each other
        x = np.array([point.place * math.exp(aside) if wide else point.place + aside for point in own])
        y = np.array([100 * point.mean for point in own])
        colour, style = colours[number % len(colours)], "-" if number < len(colours) else (0, (5, 2))
        label, mark = named(curve, 24), _MARKS[number % len(_MARKS)]
        for at, point in zip(x, own, strict=True):
            if point.interval is not None:
                ax.plot([at, at], [100 * bound for bound in point.interval], color=colour, linewidth=1.4, alpha=0.45)
        if joined:
            ax.plot(x, y, marker=mark, markersize=4, color=colour, linestyle=style, linewidth=1.4, label=label)
        else:
            ax.plot(x, y, marker=mark, markersize=4.5, color=colour, linestyle="none", label=label)
    if not joined:
        for at in places:
            own = [point for point in points if point.place == at]
            top = max(100 * (point.mean if point.interval is None else point.interval[1]) for point in own)
            names = "\n".join(sorted({named(point.data, 16) for point in own}))
            ax.annotate(names, (at, top), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=6.5)
    if signed:
        ax.axhline(0, color=look.ink, linewidth=0.8, linestyle=(0, (4, 3)))
    if joined and len(places) <= _MOST_TICKS:
        ax.set_xticks(places, labels=[f"{place:g}" for place in places])
        ax.minorticks_off()
    ax.grid(axis="y")
    ax.margins(x=0.06, y=0.14)
