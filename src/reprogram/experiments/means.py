"""Means over seeds: one for each combination of labels, with its spread and what it may be believed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reprogram.experiments.outcomes import Failure, Measure, Outcome, check_outcomes, measured, stands_for
from reprogram.scores import accuracy_interval, student_t

Labels = tuple[tuple[str, str], ...]
Interval = tuple[float, float]


@dataclass(frozen=True)
class CellMean:
    """The runs that differ in nothing but their seed.

    Attributes:
        labels: axis → label.
        seeds: of the finished runs, rising.
        values: their accuracies.
        mean: of these; None where no run is finished.
        std: their standard deviation (n − 1); None of fewer than two.
        interval: the 95 % interval of the mean, see `over`; None where no run is finished.
        over: what the interval tells about: "seeds" (Student's t: how other seeds would do on these test images) where there
            are at least two and they differ; else "test images" (Wilson: how these models would do on other images).
        images: how many test images there are; of unequal numbers the least.
        fell_back: how many values are of the last epoch, because nothing could be selected.
        failed: how many runs ended without a result.
    """

    labels: dict[str, str]
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    mean: float | None
    std: float | None
    interval: Interval | None
    over: Literal["seeds", "test images"]
    images: int
    fell_back: int = 0
    failed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "labels": self.labels,
            "seeds": list(self.seeds),
            "values": list(self.values),
            "mean": self.mean,
            "std": self.std,
            "interval_95": None if self.interval is None else list(self.interval),
            "interval_over": self.over,
            "test_images": self.images,
            "last_for_selected": self.fell_back,
            "failed": self.failed,
        }


def mean_of(values: Iterable[float]) -> float:
    """Their mean: the same in any order to the last bit, and of equal values that value."""
    given = list(values)
    return min(max(math.fsum(given) / len(given), min(given)), max(given))


def std_of(values: Sequence[float]) -> float:
    """Their standard deviation about their mean, with n − 1."""
    centre = mean_of(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def t_interval(values: Sequence[float]) -> Interval:
    """The 95 % interval of the mean of at least two values, by Student's t.

    >>> [round(bound, 3) for bound in t_interval([0.70, 0.72, 0.74])]
    [0.67, 0.77]
    """
    half = student_t(len(values) - 1) * std_of(values) / math.sqrt(len(values))
    return mean_of(values) - half, mean_of(values) + half


def same(one: float, other: float) -> bool:
    """Whether two accuracies, or differences of some, are equal but for rounding."""
    return abs(one - other) < 1e-12


def key_of(labels: Mapping[str, str]) -> Labels:
    """Labels as a key: the same for the same labels."""
    return tuple(sorted(labels.items()))


def cell_means(
    outcomes: Sequence[Outcome], measure: Measure = "selected", *, failures: Sequence[Failure] = ()
) -> list[CellMean]:
    """One mean over seeds for each combination of labels, ordered by these.

    Args:
        outcomes: finished runs.
        measure: which of the three accuracies; `selected` is `last` where there were no validation images.
        failures: runs without a result, which are counted.

    Raises:
        ReprogramError: labels and seeds do not tell the runs apart.
    """
    check_outcomes([*outcomes, *failures])
    groups: dict[Labels, tuple[list[Outcome], list[Failure]]] = {}
    for outcome in outcomes:
        groups.setdefault(key_of(outcome.labels), ([], []))[0].append(outcome)
    for failure in failures:
        groups.setdefault(key_of(failure.labels), ([], []))[1].append(failure)
    return [_cell(dict(labels), *groups[labels], measure) for labels in sorted(groups)]


def _cell(labels: dict[str, str], runs: list[Outcome], failed: list[Failure], measure: Measure) -> CellMean:
    told = [(run, value) for run in runs if (value := measured(run, measure)) is not None]
    told.sort(key=lambda pair: pair[0].seed)
    values = tuple(value for _, value in told)
    if not values:
        return CellMean(labels, (), (), None, None, None, "test images", 0, 0, len(failed))
    mean, images = mean_of(values), min(run.n for run, _ in told)
    over: Literal["seeds", "test images"] = "seeds" if spread(values) else "test images"
    if over == "seeds":
        low, high = t_interval(values)
        interval = (max(low, 0.0), min(high, 1.0))
    else:
        independent = min(float(run.extra.get("effective_test_images") or run.n) for run, _ in told)
        interval = accuracy_interval(mean * independent, independent)
    return CellMean(
        labels,
        tuple(run.seed for run, _ in told),
        values,
        mean,
        None if len(values) == 1 else std_of(values) if over == "seeds" else 0.0,
        interval,
        over,
        images,
        sum(stands_for(run, measure) != measure for run, _ in told),
        len(failed),
    )


def spread(values: Sequence[float]) -> bool:
    """Whether there are two values that differ: of seeds that change nothing, nothing can be learnt about seeds."""
    return len(values) > 1 and not all(same(value, values[0]) for value in values)
