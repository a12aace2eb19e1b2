"""What a number that each run has says about others: a mean over independent units, with an interval and a test.

Runs on the same data set are not independent: a method that suits a data set suits it with every seed, and with other
programs. So where there are several data sets, these are the units, and everything of one is averaged first. On a single
data set the seeds are the units, and what is found holds for that data set alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from reprogram.experiments.distributions import MOST_EXACT, binomial_flip, sign_flip
from reprogram.experiments.means import Interval, Labels, mean_of, same, spread, t_interval
from reprogram.experiments.outcomes import DATA
from reprogram.report.names import counted

#: A value for each run: by its other labels, and its seed.
Matched = Mapping[tuple[Labels, int], float]
SEEDS, IMAGES, NOTHING = "seeds", "test images", "nothing"


@dataclass(frozen=True)
class Estimate:
    """A mean over units.

    Attributes:
        mean: over units; None where there is no run.
        interval: the 95 % interval of the mean: Student's t over units, and over test images that of Bonett and Price;
            None where there is nothing to judge by.
        over: what the units are: an axis, such as "data"; "seeds"; "test images"; or "nothing", if a single run tells, or
            runs that do not differ.
        units: how many there are.
        values: the value of each, by its name; empty of test images.
        ahead: how many are above zero.
        level: how many are zero.
        behind: how many are below.
        chance: the probability of so much if the sign of each unit were chance (two-sided, by flips of signs); None where
            there is nothing to judge by.
        least: the smallest probability that so many units can give at all.
    """

    mean: float | None
    interval: Interval | None
    over: str
    units: int
    values: dict[str, float]
    ahead: int
    level: int
    behind: int
    chance: float | None
    least: float | None

    @property
    def exact(self) -> bool:
        """Whether all flips of signs were counted, and not some of them drawn."""
        return self.over == IMAGES or self.units <= MOST_EXACT

    @property
    def words(self) -> str:
        """Its units, counted: "over 4 data sets"."""
        names = {DATA: "data set", SEEDS: "seed", IMAGES: "test image", NOTHING: "run"}
        return f"over {counted(self.units, names.get(self.over, f'level of {self.over}'), _plural(self.over))}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "mean": self.mean,
            "interval_95": None if self.interval is None else list(self.interval),
            "over": self.over,
            "units": self.units,
            "values": self.values,
            "ahead": self.ahead,
            "level": self.level,
            "behind": self.behind,
            "p": self.chance,
            "least_p": self.least,
            "exact": self.exact,
        }


def _plural(over: str) -> str | None:
    return None if over in (DATA, SEEDS, IMAGES, NOTHING) else f"levels of {over}"


def estimate(values: Matched, unit: str = DATA) -> Estimate:
    """The mean of what runs have, over independent units.

    Args:
        values: a number of each run, by its labels and its seed.
        unit: the axis whose levels are independent, if it has several; else seeds are.
    """
    blocks: dict[Labels, list[float]] = {}
    seeds: dict[int, list[float]] = {}
    for (labels, seed), value in values.items():
        blocks.setdefault(labels, []).append(value)
        seeds.setdefault(seed, []).append(value)
    levels: dict[str, list[float]] = {}
    for labels, found in blocks.items():
        level = dict(labels).get(unit)
        if level is not None:
            levels.setdefault(level, []).append(mean_of(found))
    if len(levels) > 1:
        return _over(unit, {level: mean_of(found) for level, found in sorted(levels.items())})
    by_seed = {str(seed): mean_of(found) for seed, found in sorted(seeds.items())}
    if spread(list(by_seed.values())):
        return _over(SEEDS, by_seed)
    mean = mean_of(values.values()) if values else None
    return Estimate(mean, None, NOTHING, len(values), by_seed, *_counts(list(by_seed.values())), None, None)


def _over(what: str, units: dict[str, float]) -> Estimate:
    values = list(units.values())
    moving = sum(not same(value, 0.0) for value in values)
    least = min(1.0, 2.0 ** (1 - moving))
    return Estimate(
        mean_of(values),
        t_interval(values),
        what,
        len(values),
        units,
        *_counts(values),
        sign_flip(values),
        least,
    )


def _counts(values: Sequence[float]) -> tuple[int, int, int]:
    level = sum(same(value, 0.0) for value in values)
    ahead = sum(value > 0 and not same(value, 0.0) for value in values)
    return ahead, level, len(values) - level - ahead


def over_images(first: Sequence[int], second: Sequence[int]) -> Estimate:
    """How much oftener the first of two models is right on the same n images.

    The interval is that of Bonett and Price (2012): of differences to which one +1 and one −1 were added.

    Args:
        first: n zeros and ones.
        second: n of the other.
    """
    pairs = list(zip(first, second, strict=True))
    n = len(pairs)
    ahead, behind = (sum(one > other for one, other in group) for group in (pairs, [(b, a) for a, b in pairs]))
    centre = (ahead - behind) / (n + 2)
    half = NormalDist().inv_cdf(0.975) * math.sqrt(((ahead + behind + 2) / (n + 2) - centre**2) / (n + 2))
    return Estimate(
        (ahead - behind) / n,
        (max(centre - half, -1.0), min(centre + half, 1.0)),
        IMAGES,
        n,
        {},
        ahead,
        n - ahead - behind,
        behind,
        binomial_flip(ahead, behind),
        min(1.0, 2.0 ** (1 - ahead - behind)),
    )
