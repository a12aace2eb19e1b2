"""How many of how many were right, and what that says: an accuracy is never told without its uncertainty."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from reprogram.errors import ReprogramError

_Z = 1.959963984540054  # 97.5 % of a normal distribution lie below


def accuracy_interval(correct: float, n: float) -> tuple[float, float]:
    """The 95 % Wilson score interval of an accuracy: honest for small n and near 0 or 1.

    >>> [round(bound, 3) for bound in accuracy_interval(90, 100)]
    [0.826, 0.945]
    """
    if n == 0:
        return 0.0, 1.0
    z = _Z
    share = correct / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(max(share * (1 - share), 0.0) / n + z * z / (4 * n * n))
    return 0.0 if correct == 0 else max(0.0, centre - half), 1.0 if correct == n else min(1.0, centre + half)


@dataclass(frozen=True)
class Score:
    """A count of right answers.

    Args:
        correct: how many answers were right.
        n: how many there were.
        groups: how many groups they were in, such as videos; None if each stands for itself.
        effective: how many independent answers tell as much as these, where there are groups; see `GroupSums`.

    >>> print(Score(90, 100))
    90.0 % (95 % interval 82.6 to 94.5 %, 90 of 100)
    >>> print(Score(90, 100, groups=20, effective=25.0))
    90.0 % (95 % interval 72.5 to 96.8 %, 90 of 100 in 20 groups that tell as much as 25 single ones)
    """

    correct: int
    n: int
    groups: int | None = None
    effective: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.n < 2**63:
            small = max(abs(self.correct), abs(self.n)) < 2**63
            given = f"{self.correct} of {self.n}" if small else "more than 2^63"
            raise ReprogramError(f"{given} answers cannot be right; give counts with 0 ≤ correct ≤ n")

    @property
    def accuracy(self) -> float:
        """The share of right answers; 0 if there were none at all."""
        return self.correct / max(self.n, 1)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the accuracy, of as many answers as are independent."""
        if self.effective is None:
            return accuracy_interval(self.correct, self.n)
        return accuracy_interval(self.accuracy * self.effective, self.effective)

    def __str__(self) -> str:
        low, high = (100 * bound for bound in self.interval)
        inside = ""
        if self.groups is not None and self.effective is not None:
            inside = f" in {self.groups} groups that tell as much as {self.effective:.0f} single ones"
        return f"{100 * self.accuracy:.1f} % (95 % interval {low:.1f} to {high:.1f} %, {self.correct} of {self.n}{inside})"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; accuracy and interval are there for readers.

        >>> Score(1, 2).to_json()["accuracy"], Score.from_json(Score(1, 2).to_json())
        (0.5, Score(correct=1, n=2, groups=None, effective=None))
        """
        told = {"accuracy": self.accuracy, "interval_95": list(self.interval), "correct": self.correct, "n": self.n}
        return told if self.groups is None else {**told, "groups": self.groups, "effective_n": self.effective}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Read what `to_json` gave: its counts decide."""
        try:
            correct, n = values["correct"], values["n"]
            groups, effective = values.get("groups"), values.get("effective_n")
        except (TypeError, KeyError, AttributeError):
            correct = n = groups = effective = None
        if type(correct) is not int or type(n) is not int:
            raise ReprogramError(f"{values!r} was given, but a score with the whole numbers 'correct' and 'n' is expected")
        if groups is None and effective is None:
            return cls(correct, n)
        if type(groups) is not int or type(effective) not in (int, float) or not 0 <= effective <= n or groups < 0:
            raise ReprogramError(f"{values!r} was given, but 'groups' and 'effective_n' from 0 to 'n' are expected")
        return cls(correct, n, groups, float(effective))


class GroupSums:
    """Sums over groups of answers, by which it is known how much groups as a whole are right or wrong.

    The accuracy p = Σh / Σm of groups with h right answers of m has, over draws of groups, the variance
    v = G / (G − 1) · Σ(h − p·m)² / n². As many independent answers as have that variance, p(1 − p) / v but at most n, are
    the effective number (the design effect of surveys); it is lowered by (z / t)² with Student's t of G − 1 degrees of
    freedom (Korn and Graubard 1998), as v itself is estimated from G groups alone. If all answers are right, or all wrong, v
    says nothing, and groups are taken to be right or wrong as a whole: n² / Σm². Groups of one answer each are no groups.

    >>> sums = GroupSums()
    >>> sums.add([5, 5, 0, 5], [5, 5, 5, 5])
    >>> sums.score().groups, round(sums.score().effective, 2)
    (4, 1.14)
    """

    def __init__(self) -> None:
        self.n = self.correct = self.groups = 0
        self._hits = self._both = self._sizes = 0

    def add(self, hits: Iterable[int], sizes: Iterable[int]) -> None:
        """Take in whole groups: how many answers were right, and how many there were; empty ones do not count."""
        for right, size in zip(hits, sizes, strict=True):
            if size:
                self.n, self.correct, self.groups = self.n + size, self.correct + right, self.groups + 1
                self._hits, self._both = self._hits + right * right, self._both + right * size
                self._sizes += size * size

    def score(self) -> Score:
        """What they say together."""
        if self.groups == self.n:
            return Score(self.correct, self.n)
        return Score(self.correct, self.n, self.groups, self._effective())

    def _effective(self) -> float:
        if self.groups < 2:
            return 0.0  # of one group nothing is known about others
        share = self.correct / self.n
        found = self.n**2 / self._sizes
        spread = self._hits - 2 * share * self._both + share**2 * self._sizes
        if 0 < self.correct < self.n:
            variance = self.groups / (self.groups - 1) * max(spread, 0.0) / self.n**2
            found = share * (1 - share) / variance if variance > 0 else float(self.n)
        return min(found, float(self.n)) * (_Z / student_t(self.groups - 1)) ** 2


def grouped_score(right: Sequence[bool], groups: Sequence[Any]) -> Score:
    """The score of answers that are right or not, one by one, in groups.

    >>> grouped_score([True, True, False, False], ["a", "a", "b", "b"]).groups
    2
    """
    counts: dict[Any, list[int]] = {}
    for hit, group in zip(right, groups, strict=True):
        found = counts.setdefault(group, [0, 0])
        found[0], found[1] = found[0] + bool(hit), found[1] + 1
    sums = GroupSums()
    sums.add((hits for hits, _ in counts.values()), (size for _, size in counts.values()))
    return sums.score()


def student_t(freedom: int) -> float:
    """Below what 97.5 % of Student's t distribution lie.

    >>> [round(student_t(freedom), 3) for freedom in (1, 2, 10, 1000)]
    [12.706, 4.303, 2.228, 1.962]
    """
    if freedom > 200:  # the first terms of its expansion in 1 / freedom
        z = _Z
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        return z + first / freedom + second / freedom**2
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _between(middle, freedom) < 0.95 else (low, middle)
    return high


def _between(t: float, freedom: int) -> float:
    """P(|T| < t) of Student's distribution with a whole number of degrees of freedom, by its finite series."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    total, term = 0.0, cosine if odd else 1.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * power / (power + 1)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
