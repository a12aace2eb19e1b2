"""Two methods on what both were run on: the difference of matched runs, and what it may be believed."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reprogram.experiments.distributions import holm
from reprogram.experiments.means import Labels, key_of, mean_of, same
from reprogram.experiments.outcomes import (
    DATA,
    Measure,
    Outcome,
    check_axis,
    check_level,
    check_outcomes,
    levels_of,
    measured,
)
from reprogram.experiments.units import NOTHING, Estimate, Matched, estimate, over_images

Runs = Mapping[tuple[Labels, int], Outcome]


@dataclass(frozen=True)
class Pair:
    """One method against another.

    Attributes:
        axis: what the methods are levels of.
        first: a level.
        second: another one.
        difference: accuracy of the first minus that of the second, over matched runs: the same other labels, the same seed.
        matched: how many pairs of runs there are.
        only_first: how many runs of the first have no partner.
        only_second: how many of the second have none.
        adjusted: the probability after Holm's correction for all pairs that were looked at together; None where there is
            none.
    """

    axis: str
    first: str
    second: str
    difference: Estimate
    matched: int
    only_first: int
    only_second: int
    adjusted: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "axis": self.axis,
            "first": self.first,
            "second": self.second,
            "difference": self.difference.to_json(),
            "matched": self.matched,
            "only_first": self.only_first,
            "only_second": self.only_second,
            "p_holm": self.adjusted,
        }


def runs_by_level(outcomes: Sequence[Outcome], axis: str, measure: Measure) -> dict[str, dict[tuple[Labels, int], Outcome]]:
    """The runs of each level of an axis that have this accuracy, by their other labels and seed."""
    check_axis(axis, check_outcomes(outcomes))
    found: dict[str, dict[tuple[Labels, int], Outcome]] = {level: {} for level in levels_of(outcomes, axis)}
    for outcome in outcomes:
        if measured(outcome, measure) is not None:
            rest = {name: label for name, label in outcome.labels.items() if name != axis}
            found[outcome.labels[axis]][key_of(rest), outcome.seed] = outcome
    return found


def compare_pair(
    outcomes: Sequence[Outcome],
    axis: str,
    first: str,
    second: str,
    *,
    measure: Measure = "selected",
    unit: str = DATA,
) -> Pair:
    """Compare two levels of an axis on all that both were run on.

    Args:
        outcomes: finished runs.
        axis: such as "mapping".
        first: a level of it.
        second: another one.
        measure: which accuracy.
        unit: the axis whose levels are the units, if the matched runs have several; else seeds are, and where a single pair
            of runs tells, or seeds change nothing, their test images.

    Raises:
        ReprogramError: there is no such axis, or labels and seeds do not tell the runs apart.
    """
    runs = runs_by_level(outcomes, axis, measure)
    for level in (first, second):
        check_level(level, axis, runs)
    return _pair(axis, first, second, runs[first], runs[second], measure, unit)


def compare_pairs(
    outcomes: Sequence[Outcome],
    axis: str,
    *,
    measure: Measure = "selected",
    unit: str = DATA,
    order: Sequence[str] = (),
) -> list[Pair]:
    """Compare all levels of an axis with each other, with Holm's correction for their number; see `compare_pair`.

    `order` names levels that come first in pairs.
    """
    runs = runs_by_level(outcomes, axis, measure)
    levels = levels_of(outcomes, axis, order)
    pairs = [_pair(axis, a, b, runs[a], runs[b], measure, unit) for a, b in itertools.combinations(levels, 2)]
    judged = [place for place, pair in enumerate(pairs) if pair.difference.chance is not None]
    chances = [pairs[place].difference.chance or 0.0 for place in judged]
    for place, adjusted in zip(judged, holm(chances), strict=True):
        pairs[place] = replace(pairs[place], adjusted=adjusted)
    return pairs


def _pair(axis: str, first: str, second: str, one: Runs, other: Runs, measure: Measure, unit: str) -> Pair:
    both = sorted(set(one) & set(other))
    differences: Matched = {key: _value(one[key], measure) - _value(other[key], measure) for key in both}
    found = estimate(differences, unit)
    if found.over == NOTHING and both:
        found = _on_images([(one[key], other[key]) for key in both], measure, found)
    return Pair(axis, first, second, found, len(both), len(one) - len(both), len(other) - len(both))


def _value(outcome: Outcome, measure: Measure) -> float:
    value = measured(outcome, measure)
    assert value is not None  # others were left out
    return value


def _on_images(pairs: Sequence[tuple[Outcome, Outcome]], measure: Measure, found: Estimate) -> Estimate:
    """The difference over the test images of one pair of runs, or of several that are all the same."""
    one, other = pairs[0]
    if any(a.right != one.right or b.right != other.right for a, b in pairs) or one.right is None or other.right is None:
        return found
    grouped = "effective_test_images"  # such images are no units: those of a group are right or wrong together
    if len(one.right) != len(other.right) or not one.right or one.extra.get(grouped) or other.extra.get(grouped):
        return found
    for run in (one, other):  # what was read is of the saved model, and the accuracy may be of another epoch
        if not same(mean_of(run.right or ()), _value(run, measure)):
            return found
    return over_images(one.right, other.right)
