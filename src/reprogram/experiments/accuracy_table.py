"""The table of accuracies: mean ± standard deviation over seeds, rows × columns of axes, the best of each row marked."""

from collections.abc import Mapping, Sequence

from reprogram.errors import ReprogramError
from reprogram.experiments.analysis import notes_on_cells
from reprogram.experiments.layout import MISSING, Entry, Number, Row, Table
from reprogram.experiments.means import CellMean, cell_means, mean_of, same
from reprogram.experiments.outcomes import DATA, Failure, Measure, Outcome, check_axis, check_outcomes, levels_of
from reprogram.report.names import counted

#: For an axis, levels that come first.
Order = Mapping[str, Sequence[str]]
#: One axis, or several.
Axes = str | Sequence[str]


def results_table(
    outcomes: Sequence[Outcome],
    *,
    rows: Axes = DATA,
    columns: Axes = "mapping",
    measure: Measure = "selected",
    failures: Sequence[Failure] = (),
    order: Order | None = None,
    title: str = "",
) -> Table:
    """Accuracies, mean ± standard deviation over seeds, the best of each row marked; see `write_tables`."""
    axes = check_outcomes([*outcomes, *failures])
    across, down = chosen_axes(columns, axes), chosen_axes(rows, axes)
    if both := sorted({*across} & {*down}):
        raise ReprogramError(f"axis {both[0]!r} is given for rows and for columns; give another one for one of them")
    every: list[Outcome | Failure] = [*outcomes, *failures]
    levels = {axis: levels_of(every, axis, (order or {}).get(axis, ())) for axis in axes}
    rest = [axis for axis in sorted(axes) if axis not in (*across, *down)]
    down += [axis for axis in rest if len(levels[axis]) > 1]
    cells = cell_means(outcomes, measure, failures=failures)
    by_place = {(_place(cell, down), _place(cell, across)): cell for cell in cells}

    def sorted_places(chosen: list[str], found: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return sorted(found, key=lambda place: [levels[a].index(label) for a, label in zip(chosen, place, strict=True)])

    lines = sorted_places(down, {place for place, _ in by_place})
    heads = sorted_places(across, {place for _, place in by_place})
    marks = _Marks(cells)
    body = tuple(Row(line, _marked([_entry(by_place.get((line, head)), marks) for head in heads])) for line in lines)
    constant = [f"{axis} {levels[axis][0]}" for axis in rest if len(levels[axis]) == 1 and levels[axis][0]]
    told = title or f"Accuracy by {' and '.join(down) or 'run'} and {' and '.join(across)}"
    notes = notes_on_cells(cells, measure, failures)
    notes += [f"In all runs: {', '.join(constant)}."] if constant else []
    notes += [marks.note] if marks.note else []
    summary, more = _average(body, len(down))
    return Table(told, tuple(down), tuple(" / ".join(head) for head in heads), body, summary, (*notes, *more))


def chosen_axes(given: Axes, axes: Sequence[str]) -> list[str]:
    """The axes that are meant, if they are there."""
    names = [given] if isinstance(given, str) else list(dict.fromkeys(given))
    for name in names:
        check_axis(name, axes)
    return names


def _place(cell: CellMean, axes: list[str]) -> tuple[str, ...]:
    return tuple(cell.labels[axis] for axis in axes)


class _Marks:
    """What stands behind the numbers of single cells: what all have alike is said once, in a note."""

    def __init__(self, cells: Sequence[CellMean]) -> None:
        counts = [len(cell.values) for cell in cells if cell.values]
        self.usual = max(sorted(set(counts), reverse=True), key=counts.count) if counts else 0
        self.note = "(n): of n seeds." if any(count != self.usual for count in counts) else ""

    def of(self, cell: CellMean) -> str:
        fewer = f" ({len(cell.values)})" if len(cell.values) != self.usual else ""
        return f"{fewer}{' ‡' if cell.fell_back else ''}{' †' if cell.failed else ''}"


def _entry(cell: CellMean | None, marks: _Marks) -> Entry:
    if cell is None:
        return Entry(MISSING)
    numbers: dict[str, Number] = {
        "mean": cell.mean,
        "std": cell.std,
        "low": None if cell.interval is None else cell.interval[0],
        "high": None if cell.interval is None else cell.interval[1],
        "seeds": len(cell.values),
        "failed": cell.failed,
    }
    if cell.mean is None:
        return Entry("failed †" if cell.failed else MISSING, numbers)
    spread = "" if cell.std is None else f" ± {100 * cell.std:.1f}"
    return Entry(f"{100 * cell.mean:.1f}{spread}{marks.of(cell)}", numbers)


def _marked(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The same cells, the best of them marked, and whatever is as good; a single one is not the best of anything."""
    means = [_mean(entry) for entry in entries]
    known = [mean for mean in means if mean is not None]
    if len(known) < 2:
        return tuple(entries)
    return tuple(
        Entry(entry.text, entry.numbers, mean is not None and same(mean, max(known)))
        for entry, mean in zip(entries, means, strict=True)
    )


def _mean(entry: Entry) -> float | None:
    value = entry.numbers.get("mean")
    return value if isinstance(value, float) else None


def _average(rows: Sequence[Row], names: int) -> tuple[tuple[Row, ...], list[str]]:
    """The mean of each column over the rows in which none is missing."""
    whole = [row for row in rows if all(_mean(entry) is not None for entry in row.cells)]
    if len(rows) < 2 or not whole or not names:
        return (), []
    means = [mean_of(_mean(row.cells[place]) or 0.0 for row in whole) for place in range(len(rows[0].cells))]
    entries = [Entry(f"{100 * mean:.1f}", {"mean": mean}) for mean in means]
    lacking = len(rows) - len(whole)
    note = f"The average leaves out {counted(lacking, 'row')} in which a cell is missing." if lacking else ""
    return (Row(("average", *[""] * (names - 1)), _marked(entries)),), [note] if note else []
