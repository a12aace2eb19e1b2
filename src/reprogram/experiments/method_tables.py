"""Tables over methods: their ranks, their differences, and how optimistic best on test is."""

from reprogram.experiments.analysis import Analysis, points, probability
from reprogram.experiments.layout import MISSING, Entry, Row, Table
from reprogram.experiments.means import same
from reprogram.experiments.units import Estimate
from reprogram.report.names import counted


def ranks_table(analysis: Analysis) -> Table:
    """The average rank of each method, the best first."""
    ranks = analysis.ranks
    order = sorted(range(len(ranks.levels)), key=lambda place: (ranks.average[place], place))
    least = min(ranks.average)
    rows = []
    for place in order:
        average = ranks.average[place]
        first = sum(row[place] == min(row) for row in ranks.ranks)
        near = ranks.critical is not None and average - least < ranks.critical
        rows.append(
            Row(
                (ranks.levels[place],),
                (
                    Entry(f"{average:.2f}", {"average rank": average}, same(average, least)),
                    Entry(f"{first} of {len(ranks.blocks)}", {"first": first, "blocks": len(ranks.blocks)}),
                    Entry(MISSING if ranks.critical is None else "no" if near else "yes"),
                ),
            )
        )
    columns = ("average rank", "first in", "told apart from the best")
    notes = list(analysis.rank_notes)
    if ranks.critical is not None and ranks.chance is not None and ranks.statistic is not None:
        chance = f"Friedman's test: χ² = {ranks.statistic:.2f}, p {probability(ranks.chance)}."
        notes.insert(0, f"{chance} Critical difference of average ranks (Nemenyi, 5 %): {ranks.critical:.2f}.")
    return Table(
        f"Average ranks over {counted(len(ranks.blocks), 'block')}", (analysis.axis,), columns, tuple(rows), (), tuple(notes)
    )


def pairs_table(analysis: Analysis) -> Table:
    """The difference of every two methods on what both were run on."""
    rows = [
        Row(
            (pair.first, pair.second),
            (
                *_estimated(pair.difference),
                Entry(
                    f"{pair.difference.ahead} / {pair.difference.level} / {pair.difference.behind}"
                    if pair.matched
                    else MISSING
                ),
                _chance("p", pair.difference.chance),
                _chance("p_holm", pair.adjusted),
                Entry(str(pair.matched), {"matched": pair.matched}),
            ),
        )
        for pair in analysis.pairs
    ]
    columns = ("difference", "95 % interval", "+ / = / −", "p", "p (Holm)", "runs")
    notes = list(analysis.pair_notes)
    inexact = any(pair.difference.chance is not None and not pair.difference.exact for pair in analysis.pairs)
    how = "by 100,000 random" if inexact else "by all"
    notes.insert(
        0,
        "First minus second, in points; + = −: on how many units the first is ahead, equal, behind; "
        f"p: two-sided, {how} flips of signs; Holm: for all pairs here.",
    )
    return Table("Differences of methods", ("first", "second"), columns, tuple(rows), (), tuple(notes))


def optimism_table(analysis: Analysis) -> Table:
    """What best on test is above the selected and above the last epoch, for each method."""
    rows = []
    for selected, last in zip(analysis.optimism[::2], analysis.optimism[1::2], strict=True):
        runs = sorted({selected.runs, last.runs})
        counts = {"runs_selected": selected.runs, "runs_last": last.runs}
        told = Entry(" or ".join(map(str, runs)), counts)
        rows.append(Row((selected.level,), (*_estimated(selected.excess), *_estimated(last.excess), told)))
    columns = ("above selected", "95 % (selected)", "above last", "95 % (last)", "runs")
    words = sorted({one.excess.words for one in analysis.optimism if one.excess.interval is not None})
    over = f" Intervals are {' or '.join(words)}." if words else ""
    note = f"In points: what choosing the epoch by the test images adds; it cannot be below zero.{over}"
    return Table("How optimistic is best on test?", (analysis.axis,), columns, tuple(rows), (), (note,))


def _estimated(found: Estimate) -> tuple[Entry, Entry]:
    if found.mean is None:
        return Entry(MISSING), Entry(MISSING)
    mean = Entry(points(found.mean), {"mean": found.mean})
    if found.interval is None:
        return mean, Entry(MISSING)
    low, high = found.interval
    return mean, Entry(f"{points(low)} to {points(high)}", {"low": low, "high": high})


def _chance(name: str, value: float | None) -> Entry:
    return Entry(MISSING if value is None else "< 0.001" if value < 0.001 else f"{value:.3g}", {name: value})
