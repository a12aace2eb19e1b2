"""All that finished runs say about methods, as one object: means, pairs, ranks, optimism; and sentences, with doubts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprogram.errors import ReprogramError
from reprogram.experiments.means import CellMean, cell_means, same
from reprogram.experiments.optimism import Optimism, optimism
from reprogram.experiments.outcomes import DATA, Failure, Measure, Outcome, check_axis, check_outcomes, levels_of
from reprogram.experiments.pairs import Pair, compare_pairs
from reprogram.experiments.ranks import Ranks, rank
from reprogram.experiments.units import NOTHING, SEEDS, Estimate
from reprogram.report.names import counted, listed, shown
from reprogram.scores import student_t

#: What is called significant.
LEVEL = 0.05
_NAMED = 40  # letters of a name in a sentence


@dataclass(frozen=True)
class Analysis:
    """What runs say about the levels of an axis, the methods.

    Attributes:
        axis: what is compared, such as "mapping".
        unit: the axis of data sets.
        measure: which accuracy.
        methods: the levels of the axis, in the order of tables.
        cells: means over seeds, one for each combination of labels.
        pairs: every two methods; none of a single method.
        ranks: of the methods.
        optimism: of best on test, for each method.
        cell_notes: what a reader should know of the means, in plain words.
        pair_notes: of the pairs.
        rank_notes: of the ranks.
    """

    axis: str
    unit: str
    measure: Measure
    methods: tuple[str, ...]
    cells: tuple[CellMean, ...]
    pairs: tuple[Pair, ...]
    ranks: Ranks
    optimism: tuple[Optimism, ...]
    cell_notes: tuple[str, ...]
    pair_notes: tuple[str, ...]
    rank_notes: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """All that a reader should know."""
        return (*self.cell_notes, *self.pair_notes, *self.rank_notes)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values: accuracies are shares, from 0 to 1."""
        return {
            "measure": self.measure,
            "axis": self.axis,
            "unit": self.unit,
            "methods": list(self.methods),
            "cells": [cell.to_json() for cell in self.cells],
            "pairs": [pair.to_json() for pair in self.pairs],
            "ranks": self.ranks.to_json(),
            "optimism": [one.to_json() for one in self.optimism],
            "notes": list(self.notes),
        }


def analyse(
    outcomes: Sequence[Outcome],
    axis: str,
    *,
    measure: Measure = "selected",
    unit: str = DATA,
    failures: Sequence[Failure] = (),
    order: Mapping[str, Sequence[str]] | None = None,
) -> Analysis:
    """Compare the levels of an axis on finished runs.

    Args:
        outcomes: finished runs, in any order.
        axis: what is compared, such as "mapping".
        measure: which of the three accuracies; `selected` is `last` where there were no validation images.
        unit: the axis whose levels are independent of each other, such as data sets.
        failures: runs that ended without a result.
        order: for an axis, levels that come first; others follow by size or alphabet.

    Raises:
        ReprogramError: no run is finished, there is no such axis, or labels and seeds do not tell the runs apart.
    """
    if not outcomes:
        raise ReprogramError("no run is finished, so there is nothing to compare; finish at least one")
    check_axis(axis, check_outcomes([*outcomes, *failures]))
    first = (order or {}).get(axis, ())
    cells = cell_means(outcomes, measure, failures=failures)
    pairs = compare_pairs(outcomes, axis, measure=measure, unit=unit, order=first)
    ranks = rank(outcomes, axis, measure=measure, unit=unit, order=first)
    methods = tuple(levels_of(outcomes, axis, first))
    told = tuple(optimism(outcomes, axis, unit=unit, order=first))
    return Analysis(
        axis,
        unit,
        measure,
        methods,
        tuple(cells),
        tuple(pairs),
        ranks,
        told,
        tuple(notes_on_cells(cells, measure, failures)),
        tuple(_notes_on_pairs(pairs)),
        tuple(_notes_on_ranks(ranks, unit)),
    )


def notes_on_cells(cells: Sequence[CellMean], measure: Measure, failures: Sequence[Failure] = ()) -> list[str]:
    """What the means are means of, and what they lack."""
    finished = [cell for cell in cells if cell.values]
    runs, fell_back = sum(len(cell.values) for cell in finished), sum(cell.fell_back for cell in finished)
    named = {"selected": "the epoch that was best on validation", "last": "the last epoch"}
    notes = [f"Accuracy on test images, in percent, of {named.get(measure, 'the epoch that was best on test: too good')}."]
    if fell_back:
        which = "all runs" if fell_back == runs else f"{fell_back} of {runs} runs"
        notes.append(f"In {which} there were no validation images to select by: that is the last epoch (marked ‡).")
    seeds = sorted({len(cell.values) for cell in finished})
    if seeds and seeds[-1] > 1:
        number = f"{seeds[-1]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
        wide = student_t(seeds[-1] - 1)
        notes.append(
            f"± is the standard deviation over {number}; a 95 % interval of the mean reaches {wide:.1f} standard errors to "
            "each side, as so few seeds say little about their spread."
            if seeds[-1] < 10
            else f"± is the standard deviation over {number}."
        )
    if seeds and seeds[0] == 1:
        some = "There is one seed" if seeds[-1] == 1 else "Where there is one seed"
        notes.append(f"{some}, so intervals tell of test images alone, and nothing of how another seed would do.")
    still = sum(len(cell.values) > 1 and cell.over != SEEDS for cell in finished)
    if still:
        notes.append(
            f"In {counted(still, 'cell')} all seeds gave the same accuracy: intervals there tell of images, not of seeds."
        )
    if failures:
        notes.append(f"{counted(len(failures), 'run')} failed, without any number (marked †).")
    return notes


def _notes_on_pairs(pairs: Sequence[Pair]) -> list[str]:
    notes = []
    lonely = sum(pair.only_first + pair.only_second for pair in pairs)
    if lonely:
        notes.append(
            f"Pairs count only what both were run on (same labels, same seed): {counted(lonely, 'run')} in these "
            "comparisons had no partner."
        )
    none = [pair for pair in pairs if not pair.matched]
    if none:
        notes.append(f"{counted(len(none), 'pair')} of methods have nothing in common that both were run on.")
    judged = [pair.difference for pair in pairs if pair.difference.least is not None]
    if judged:
        notes.append(_unit_note(judged[0]))
        if all((one.least or 0.0) > LEVEL for one in judged):
            least = min(one.least or 1.0 for one in judged)
            notes.append(
                f"So few units cannot give a probability below {least:.3g}, however large the difference is: no pair can be "
                f"called significant at {LEVEL:g}, and that none is says nothing. Look at the intervals."
            )
    if any(pair.matched and pair.difference.over == NOTHING for pair in pairs):
        notes.append(
            "Where a single run of each method tells, or seeds that change nothing, there is no interval and no test: more "
            "seeds, or more data sets, are needed."
        )
    return notes


def _unit_note(difference: Estimate) -> str:
    what = {
        SEEDS: "Differences are judged over seeds, on one data set: what is found holds for this data set, not for others.",
        "test images": "Differences are judged over test images: what is found holds for these two trained models, not for "
        "the methods with other seeds or data.",
    }
    return what.get(
        difference.over,
        f"Differences are judged {difference.words}, each the mean of its seeds: seeds of one are not independent, and do "
        "not count as more evidence.",
    )


def _notes_on_ranks(ranks: Ranks, unit: str) -> list[str]:
    notes: list[str] = []
    if len(ranks.levels) < 2:
        return notes
    if ranks.left_out:
        notes.append(
            f"Ranks leave out {counted(ranks.left_out, 'block')} of {ranks.left_out + len(ranks.blocks)} in which a method "
            "has no run."
        )
    if 1 < len(ranks.blocks) < 10:
        notes.append(
            f"Friedman's probability rests on {counted(len(ranks.blocks), 'block')}; its approximation by χ² is rough below "
            "ten."
        )
    if 0 < ranks.sets < len(ranks.blocks) and any(unit in block for block in ranks.blocks):
        notes.append(
            f"The {len(ranks.blocks)} blocks of the ranks are of {counted(ranks.sets, 'data set')} only and so not "
            "independent: Friedman's probability and the critical difference are too small."
        )
    return notes


def findings(analysis: Analysis, most: int = 8) -> list[str]:
    """What was found, in sentences: the order of the methods, their differences, and how optimistic best on test is."""
    ranks = analysis.ranks
    found = []
    if ranks.average and len(ranks.levels) > 1:
        order = sorted(range(len(ranks.levels)), key=lambda place: (ranks.average[place], place))
        ordered = [f"{_named(ranks.levels[place])} ({ranks.average[place]:.2f})" for place in order]
        found.append(f"By average rank over {counted(len(ranks.blocks), 'block')}: {listed(ordered, 20)}.")
        if ranks.chance is not None and ranks.statistic is not None and ranks.critical is not None:
            found.append(
                f"Friedman's test: χ² = {ranks.statistic:.2f}, p {probability(ranks.chance)}; average ranks closer than "
                f"{ranks.critical:.2f} (Nemenyi, 5 %) are not told apart."
            )
        best = ranks.levels[order[0]]
        place = {ranks.levels[number]: position for position, number in enumerate(order)}
        own = [pair for pair in analysis.pairs if best in (pair.first, pair.second)]
        own.sort(key=lambda pair: place[pair.first] + place[pair.second])  # one of the two is at 0
        found += [pair_sentence(pair) for pair in own[:most]]
    if analysis.pairs:
        found.append(_all_pairs(analysis.pairs))
    return found + [sentence for above in ("selected", "last") if (sentence := _optimism_sentence(analysis, above))]


def _all_pairs(pairs: Sequence[Pair]) -> str:
    judged = [(pair, pair.difference.interval) for pair in pairs if pair.difference.interval is not None]
    clear = sum(low * high > 0 for _, (low, high) in judged)
    sure = sum(pair.adjusted is not None and pair.adjusted < LEVEL for pair, _ in judged)
    return (
        f"Of {counted(len(pairs), 'pair')}, {len(judged)} can be judged: {clear} with a 95 % interval on one side of zero "
        f"(1 in 20 would be by chance alone), and {sure} with a probability below {LEVEL:g} after Holm's correction."
    )


def pair_sentence(pair: Pair) -> str:
    """One comparison, with all that makes it more or less believable."""
    difference, first, second = pair.difference, _named(pair.first), _named(pair.second)
    mean = difference.mean
    if mean is None:
        return f"{first} and {second} were run on nothing in common."
    ahead, behind = difference.ahead, difference.behind
    if mean < 0:
        first, second, ahead, behind = second, first, behind, ahead
    text = f"{first} is {100 * abs(mean):.1f} points ahead of {second}"
    if difference.interval is None or difference.chance is None:
        return f"{text} {difference.words}; there is nothing to judge chance by."
    low, high = difference.interval if mean >= 0 else (-difference.interval[1], -difference.interval[0])
    equal = f", equal on {difference.level}" if difference.level else ""
    text += (
        f" (95 % interval {points(low)} to {points(high)} {difference.words}; ahead on {ahead}, behind on {behind}{equal}; "
        f"p {probability(difference.chance)}"
    )
    if pair.adjusted is not None:
        text += f", after Holm {probability(pair.adjusted)}"
    return f"{text})."


def _optimism_sentence(analysis: Analysis, above: str) -> str:
    means = {one.level: one.excess.mean for one in analysis.optimism if one.above == above and one.excess.mean is not None}
    if not means:
        return ""
    low, high = min(means, key=lambda level: means[level]), max(means, key=lambda level: means[level])
    if same(means[low], means[high]):
        return f"Best on test is {points(means[low])} points above {above}."
    reach = f"{points(means[low])} ({_named(low)}) to {points(means[high])} points ({_named(high)})"
    return f"Best on test is {reach} above {above}."


def points(share: float) -> str:
    """A difference of shares in points, with its sign.

    >>> points(0.0123), points(-0.5), points(0.0)
    ('+1.2', '−50.0', '0.0')
    """
    text = f"{100 * share:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def probability(chance: float) -> str:
    """A probability with its sign.

    >>> probability(0.0312), probability(0.00001), probability(1.0)
    ('= 0.0312', '< 0.001', '= 1')
    """
    return "< 0.001" if chance < 0.001 else f"= {chance:.3g}"


def _named(name: str) -> str:
    return shown(name, _NAMED)
