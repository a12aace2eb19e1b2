"""Tables over runs: accuracies with their best marked, pairs, ranks, optimism, and one row for every run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprogram.errors import ReprogramError
from reprogram.experiments.accuracy_table import Axes, Order, chosen_axes, results_table
from reprogram.experiments.analysis import Analysis, analyse, findings
from reprogram.experiments.layout import Number, Table, csv_number
from reprogram.experiments.markup import markdown_text
from reprogram.experiments.method_tables import optimism_table, pairs_table, ranks_table
from reprogram.experiments.outcomes import DATA, MEASURES, Failure, Measure, Outcome, check_outcomes, merged_axes
from reprogram.files import write_sealed, write_text
from reprogram.files.foreign import expanded
from reprogram.text import csv_cell, csv_line, finite

#: What `write_tables` writes: every run; all statistics; the table for a reader, and for a paper.
FILES = ("results.csv", "results.json", "table.md", "table.tex")


def write_tables(
    outcomes: Sequence[Outcome],
    folder: str | Path,
    *,
    rows: Axes = DATA,
    columns: Axes = "mapping",
    measure: Measure = "selected",
    failures: Sequence[Failure] = (),
    order: Order | None = None,
    title: str = "",
) -> "Results":
    """Write all that finished runs say: `results.csv`, `results.json`, `table.md` and `table.tex`.

    Args:
        outcomes: finished runs, in any order: the same runs give the same bytes.
        folder: where; what is there of these names is replaced.
        rows: the axis, or axes, of the rows; others that vary join them, so that no cell mixes what differs in more than the
            seed.
        columns: the axis, or axes, of the columns: the methods that are compared.
        measure: which of the three accuracies the table shows.
        failures: runs that ended without a result.
        order: for an axis, levels that come first; others follow by size or alphabet.
        title: what the tables are about.

    Returns:
        What was written, as tables and statistics.

    Raises:
        ReprogramError: no run is finished, an axis is not there, or labels and seeds do not tell the runs apart.
    """
    found = results(outcomes, rows=rows, columns=columns, measure=measure, failures=failures, order=order, title=title)
    place = expanded(folder)
    every, page, paper = long_csv(outcomes), found.markdown(), found.table.latex()
    write_text(place / FILES[0], every)
    write_sealed(place / FILES[1], found.to_json())
    write_text(place / FILES[2], page)
    write_text(place / FILES[3], paper)
    return found


@dataclass(frozen=True)
class Results:
    """All that is told about a grid.

    Attributes:
        table: accuracies, rows × columns.
        analysis: the statistics behind it.
        ranks: the ranks of the methods as a table; None of a single method, or without a block that has all.
        pairs: differences of methods as a table; None of a single method.
        optimism: what best on test is above honest numbers, as a table.
        failures: runs that ended without a result.
    """

    table: Table
    analysis: Analysis
    ranks: Table | None
    pairs: Table | None
    optimism: Table
    failures: tuple[Failure, ...] = ()

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, the accuracies first."""
        return tuple(table for table in (self.table, self.ranks, self.pairs, self.optimism) if table is not None)

    def markdown(self) -> str:
        """All tables and what they say, as one page."""
        parts = [table.markdown() for table in self.tables]
        said = findings(self.analysis)
        if said:
            parts.append("\n".join(["### In words", "", *(f"- {markdown_text(text)}" for text in said), ""]))
        if self.failures:
            lines = [
                f"- {markdown_text(f'{one.name}: {one.error}')}" for one in sorted(self.failures, key=lambda one: one.name)
            ]
            parts.append("\n".join(["### Failed runs", "", *lines, ""]))
        return "\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, finite ones only."""
        content = {
            "table": self.table.to_json(),
            "statistics": self.analysis.to_json(),
            "findings": findings(self.analysis),
            "failures": [
                {"name": one.name, "labels": one.labels, "seed": one.seed, "error": one.error}
                for one in sorted(self.failures, key=lambda one: one.name)
            ],
        }
        known: dict[str, Any] = finite(content)
        return known


def results(
    outcomes: Sequence[Outcome],
    *,
    rows: Axes = DATA,
    columns: Axes = "mapping",
    measure: Measure = "selected",
    failures: Sequence[Failure] = (),
    order: Order | None = None,
    title: str = "",
) -> Results:
    """Tables and statistics of finished runs; see `write_tables`."""
    if not outcomes:
        raise ReprogramError("no run is finished, so there is no table; finish at least one")
    axes = check_outcomes([*outcomes, *failures])
    across = chosen_axes(columns, axes)
    table = results_table(outcomes, rows=rows, columns=columns, measure=measure, failures=failures, order=order, title=title)
    axis, runs = merged_axes(outcomes, across)
    _, failed = merged_axes(failures, across)
    levels = {**(order or {}), axis: table.columns}
    analysis = analyse(runs, axis, measure=measure, failures=failed, order=levels)
    several = len(analysis.methods) > 1
    return Results(
        table,
        analysis,
        ranks_table(analysis) if several and analysis.ranks.average else None,
        pairs_table(analysis) if several else None,
        optimism_table(analysis),
        tuple(failures),
    )


def long_csv(outcomes: Sequence[Outcome]) -> str:
    """One row for every run with all that is known of it, ordered by labels and seed: raw data for others.

    Texts are guarded against formulas (`reprogram.text.read_csv` undoes that), numbers are in full precision. What was right
    image by image stands in `predictions.csv` of each run.
    """
    axes = sorted(check_outcomes(outcomes))
    extras = sorted({name for outcome in outcomes for name in outcome.extra})
    fixed = ["run", "seed", *MEASURES, "test_images", "right", "seconds"]
    taken = set(fixed)
    head = ["run", *_distinct(axes, taken), *fixed[1:], *_distinct(extras, taken)]
    lines = [csv_line(map(csv_cell, head))]
    for outcome in sorted(outcomes, key=lambda one: ([one.labels[axis] for axis in axes], one.seed)):
        values: list[Number] = [
            outcome.seed,
            *(outcome.accuracy.get(name) for name in MEASURES),
            outcome.n,
            None if outcome.right is None else sum(outcome.right),
            outcome.seconds,
            *(outcome.extra.get(name) for name in extras),
        ]
        names = [csv_cell(text) for text in (outcome.name, *(outcome.labels[axis] for axis in axes))]
        lines.append(csv_line([*names, *map(csv_number, values)]))
    return "".join(lines)


def _distinct(names: Sequence[str], taken: set[str]) -> list[str]:
    """The names, each with apostrophes behind it as long as a column before it is called the same."""
    found = []
    for name in names:
        while name in taken:
            name += "'"
        taken.add(name)
        found.append(name)
    return found
