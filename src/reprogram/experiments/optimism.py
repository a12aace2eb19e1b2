"""How optimistic "best on test" is: what choosing the epoch by the test images adds to an honest accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from reprogram.experiments.means import key_of
from reprogram.experiments.outcomes import DATA, Outcome, check_axis, check_outcomes, levels_of
from reprogram.experiments.units import Estimate, estimate

Honest = Literal["selected", "last"]


@dataclass(frozen=True)
class Optimism:
    """What best on test is above an honest number, for one method.

    Attributes:
        axis: what the method is a level of.
        level: the method.
        above: the honest number: `selected` or `last`.
        excess: best on test minus that, run by run; it cannot be below zero.
        runs: how many runs have both.
        left_out: how many have not, such as runs without validation images.
    """

    axis: str
    level: str
    above: Honest
    excess: Estimate
    runs: int
    left_out: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "axis": self.axis,
            "level": self.level,
            "above": self.above,
            "excess": self.excess.to_json(),
            "runs": self.runs,
            "left_out": self.left_out,
        }


def optimism(outcomes: Sequence[Outcome], axis: str, *, unit: str = DATA, order: Sequence[str] = ()) -> list[Optimism]:
    """For each level of an axis, what best on test is above `selected` and above `last`.

    The intervals treat data sets as units where there are several, else seeds; see `estimate`. There is no test: an excess
    that cannot be negative is no question of its sign.

    Raises:
        ReprogramError: there is no such axis, or labels and seeds do not tell the runs apart.
    """
    check_axis(axis, check_outcomes(outcomes))
    found = []
    for level in levels_of(outcomes, axis, order):
        runs = [outcome for outcome in outcomes if outcome.labels[axis] == level]
        for above in ("selected", "last"):
            values = {}
            for run in runs:
                best, honest = run.accuracy.get("best_on_test"), run.accuracy.get(above)
                if best is not None and honest is not None:
                    values[key_of(run.labels), run.seed] = best - honest
            found.append(Optimism(axis, level, above, _excess(values, unit), len(values), len(runs) - len(values)))
    return found


def _excess(values: dict[Any, float], unit: str) -> Estimate:
    found = replace(estimate(values, unit), chance=None, least=None)
    if found.interval is not None and min(values.values()) >= 0:
        found = replace(found, interval=(max(found.interval[0], 0.0), found.interval[1]))
    return found
