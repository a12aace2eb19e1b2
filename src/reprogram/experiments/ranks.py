"""Ranks of methods over blocks: their averages, Friedman's test, and the critical difference of Nemenyi."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reprogram.experiments.distributions import chi_square_tail, range_quantile
from reprogram.experiments.means import Labels, mean_of
from reprogram.experiments.outcomes import DATA, Measure, Outcome, levels_of, measured
from reprogram.experiments.pairs import runs_by_level


@dataclass(frozen=True)
class Ranks:
    """How k methods stand in N blocks; a block is one combination of the other labels, such as a data set and a program.

    Attributes:
        axis: what the methods are levels of.
        levels: k of them.
        blocks: N blocks in which all k have runs, each as its labels.
        ranks: (N, k) 1 is the best in a block; equal ones share the mean of their ranks.
        average: (k,) mean ranks; empty without a block.
        left_out: how many blocks lack a method and do not count.
        sets: how many different data sets the blocks are of; blocks of the same one are not independent.
        statistic: Friedman's, corrected for ties; None of one method, of no block, or where all are equal everywhere.
        chance: its probability if no method were better than another, by χ² with k − 1 degrees of freedom: rough for few
            blocks.
        critical: Nemenyi's critical difference at 5 %: q(k)/√2 · √(k(k+1)/(6N)); average ranks closer than this cannot be
            told apart. None of fewer than two blocks.
    """

    axis: str
    levels: tuple[str, ...]
    blocks: tuple[dict[str, str], ...]
    ranks: tuple[tuple[float, ...], ...]
    average: tuple[float, ...]
    left_out: int
    sets: int
    statistic: float | None
    chance: float | None
    critical: float | None

    def groups(self) -> list[tuple[str, ...]]:
        """The largest groups of methods, the best first, that the critical difference does not tell apart."""
        if self.critical is None:
            return []
        order = sorted(range(len(self.levels)), key=lambda place: self.average[place])
        found: list[tuple[str, ...]] = []
        reached = 0
        for start in range(len(order)):
            end = start
            while end < len(order) and self.average[order[end]] - self.average[order[start]] < self.critical:
                end += 1
            if end > reached and end - start > 1:
                found.append(tuple(self.levels[place] for place in order[start:end]))
            reached = max(reached, end)
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "axis": self.axis,
            "levels": list(self.levels),
            "average_rank": list(self.average),
            "blocks": [{"labels": labels, "ranks": list(row)} for labels, row in zip(self.blocks, self.ranks, strict=True)],
            "blocks_left_out": self.left_out,
            "data_sets": self.sets,
            "friedman": self.statistic,
            "p": self.chance,
            "critical_difference": self.critical,
            "not_told_apart": [list(group) for group in self.groups()],
        }


def rank(
    outcomes: Sequence[Outcome],
    axis: str,
    *,
    measure: Measure = "selected",
    unit: str = DATA,
    order: Sequence[str] = (),
) -> Ranks:
    """Rank the levels of an axis in each block, by their mean over the seeds that all of them have there.

    Args:
        outcomes: finished runs.
        axis: such as "mapping".
        measure: which accuracy.
        unit: the axis of data sets.
        order: levels that come first.

    Raises:
        ReprogramError: there is no such axis, or labels and seeds do not tell the runs apart.
    """
    runs = runs_by_level(outcomes, axis, measure)
    levels = levels_of(outcomes, axis, order)
    every = sorted({labels for found in runs.values() for labels, _ in found})
    rows: list[tuple[float, ...]] = []
    blocks: list[dict[str, str]] = []
    for labels in every:
        seeds = [{seed for other, seed in runs[level] if other == labels} for level in levels]
        common = sorted(set.intersection(*seeds))
        if common:
            rows.append(ranked([mean_of(_values(runs[level], labels, common, measure)) for level in levels]))
            blocks.append(dict(labels))
    average = tuple(mean_of(column) for column in zip(*rows, strict=True))
    statistic = friedman(rows) if rows else None
    return Ranks(
        axis,
        tuple(levels),
        tuple(blocks),
        tuple(rows),
        average,
        len(every) - len(blocks),
        len({block.get(unit) for block in blocks}),
        statistic,
        None if statistic is None else chi_square_tail(statistic, len(levels) - 1),
        critical_difference(len(levels), len(rows)) if len(rows) > 1 and len(levels) > 1 else None,
    )


def _values(runs: dict[tuple[Labels, int], Outcome], labels: Labels, seeds: list[int], measure: Measure) -> list[float]:
    found = [measured(runs[labels, seed], measure) for seed in seeds]
    return [value for value in found if value is not None]


def ranked(values: Sequence[float]) -> tuple[float, ...]:
    """The rank of each value: 1 for the largest, equal ones (but for rounding) the mean of their ranks.

    >>> ranked([0.5, 0.9, 0.5, 0.1])
    (2.5, 1.0, 2.5, 4.0)
    """
    near = [round(value, 12) for value in values]
    above = [sum(other > value for other in near) for value in near]
    alike = [sum(other == value for other in near) for value in near]
    return tuple(more + (equal + 1) / 2 for more, equal in zip(above, alike, strict=True))


def friedman(ranks: Sequence[Sequence[float]]) -> float | None:
    """Friedman's statistic of N rows of k ranks, corrected for ties; None if all are tied in every row, or k is 1.

    >>> friedman([[1, 2, 3], [1, 2, 3]])
    4.0
    """
    n, k = len(ranks), len(ranks[0])
    sums = [math.fsum(column) for column in zip(*ranks, strict=True)]
    between = math.fsum((total - n * (k + 1) / 2) ** 2 for total in sums)
    within = math.fsum((value - (k + 1) / 2) ** 2 for row in ranks for value in row)
    return (k - 1) * between / within if within > 0 else None


def critical_difference(methods: int, blocks: int) -> float:
    """Nemenyi's critical difference of average ranks at 5 %.

    >>> round(critical_difference(5, 12), 3)
    1.761
    """
    return range_quantile(methods) / math.sqrt(2) * math.sqrt(methods * (methods + 1) / (6 * blocks))
