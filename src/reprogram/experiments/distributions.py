"""What tests are judged by: tails of χ², the studentised range, flips of signs. Student's t stands in `reprogram.scores`."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
#: Up to so many units all flips of signs are tried; of more, some that are drawn.
MOST_EXACT = 20
_DRAWS = 100_000
_SEED = 20_240_615  # of the drawn flips: the same on every machine
_STEP, _REACH = 0.04, 9.0  # of the trapezoid rule, whose error falls exponentially for such integrands


def chi_square_tail(value: float, freedom: int) -> float:
    """P(χ² ≥ value) with a whole number of degrees of freedom, by its finite series.

    >>> round(chi_square_tail(5.991, 2), 4), round(chi_square_tail(3.841, 1), 4)
    (0.05, 0.05)
    """
    half = max(value, 0.0) / 2
    if half == 0:
        return 1.0
    odd = freedom % 2
    total = math.erfc(math.sqrt(half)) if odd else 0.0
    for place in range(freedom // 2):
        power = place + odd / 2
        total += math.exp(power * math.log(half) - half - math.lgamma(power + 1))
    return min(total, 1.0)


def range_below(width: float, count: int) -> float:
    """P(max − min ≤ width) of so many independent standard normal numbers: the studentised range, its spread known.

    It is k ∫ φ(z) [Φ(z + width) − Φ(z)]^(k−1) dz, where z is the least of the k numbers.

    >>> round(range_below(3.314493, 3), 4)
    0.95
    """
    if width <= 0:
        return 0.0
    z = np.arange(-_REACH, _REACH, _STEP)
    between = _normal_below(z + width) - _normal_below(z)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return min(float(count * np.sum(density * between ** (count - 1)) * _STEP), 1.0)


@lru_cache(maxsize=256)
def range_quantile(count: int, level: float = 0.95) -> float:
    """The width that the range of so many standard normal numbers stays below with this probability.

    >>> round(range_quantile(2), 4), round(range_quantile(10), 4)
    (2.7718, 4.4741)
    """
    low, high = 0.0, 2.0
    while range_below(high, count) < level:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if range_below(middle, count) < level else (low, middle)
    return (low + high) / 2


def _normal_below(z: Values) -> Values:
    return np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in z.tolist()])


def sign_flip(differences: Sequence[float]) -> float:
    """The probability of a sum at least as far from zero if the sign of each difference were chance: two-sided.

    Up to 20 differences all flips are counted; of more 100,000 are drawn, always the same ones.

    >>> sign_flip([0.1, 0.2, 0.3]), sign_flip([0.1, -0.1]), sign_flip([0.0, 0.0])
    (0.25, 1.0, 1.0)
    """
    sizes = np.sort(np.abs(np.asarray(differences, dtype=np.float64)))  # so that their order does not matter
    found = abs(math.fsum(differences))
    enough = found - 1e-12 * max(float(sizes.sum()), 1e-300)  # rounding makes no difference
    if len(sizes) <= MOST_EXACT:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums - size, sums + size])
        return float(np.mean(np.abs(sums) >= enough))
    generator = np.random.default_rng(_SEED)
    hits = 0
    for _ in range(100):
        signs: Any = generator.integers(0, 2, (_DRAWS // 100, len(sizes))) * 2 - 1
        hits += int(np.count_nonzero(np.abs(signs @ sizes) >= enough))
    return (hits + 1) / (_DRAWS + 1)


def binomial_flip(first: int, second: int) -> float:
    """The same for differences that are +1 (`first` of them) or −1: the exact test of McNemar.

    >>> round(binomial_flip(8, 1), 4), binomial_flip(3, 3)
    (0.0391, 1.0)
    """
    n, less = first + second, min(first, second)
    if first == second:
        return 1.0
    whole = math.lgamma(n + 1) - n * math.log(2)
    return min(1.0, 2 * math.fsum(math.exp(whole - math.lgamma(i + 1) - math.lgamma(n - i + 1)) for i in range(less + 1)))


def holm(chances: Sequence[float]) -> list[float]:
    """Probabilities after Holm's correction: each holds although so many were looked at.

    >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    found = [0.0] * len(chances)
    worst = 0.0
    for done, place in enumerate(sorted(range(len(chances)), key=lambda place: chances[place])):
        worst = max(worst, min(1.0, (len(chances) - done) * chances[place]))
        found[place] = worst
    return found
