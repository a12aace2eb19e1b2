"""How many of how many were right, and what that says: an accuracy is never told without its uncertainty."""

import math
from dataclasses import dataclass
from typing import Any, Self

from reprogram.errors import ReprogramError


def accuracy_interval(correct: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of an accuracy: honest for small n and near 0 or 1.

    >>> [round(bound, 3) for bound in accuracy_interval(90, 100)]
    [0.826, 0.945]
    """
    if n == 0:
        return 0.0, 1.0
    z = 1.959963984540054
    share = correct / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return 0.0 if correct == 0 else max(0.0, centre - half), 1.0 if correct == n else min(1.0, centre + half)


@dataclass(frozen=True)
class Score:
    """A count of right answers.

    Args:
        correct: how many answers were right.
        n: how many there were.

    >>> print(Score(90, 100))
    90.0 % (95 % interval 82.6 to 94.5 %, 90 of 100)
    """

    correct: int
    n: int

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
        """The 95 % Wilson interval of the accuracy."""
        return accuracy_interval(self.correct, self.n)

    def __str__(self) -> str:
        low, high = (100 * bound for bound in self.interval)
        return f"{100 * self.accuracy:.1f} % (95 % interval {low:.1f} to {high:.1f} %, {self.correct} of {self.n})"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; accuracy and interval are there for readers.

        >>> Score(1, 2).to_json()["accuracy"], Score.from_json(Score(1, 2).to_json())
        (0.5, Score(correct=1, n=2))
        """
        return {"accuracy": self.accuracy, "interval_95": list(self.interval), "correct": self.correct, "n": self.n}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Read what `to_json` gave: its counts decide."""
        try:
            correct, n = values["correct"], values["n"]
        except (TypeError, KeyError):
            correct = n = None
        if type(correct) is not int or type(n) is not int:
            raise ReprogramError(f"{values!r} was given, but a score with the whole numbers 'correct' and 'n' is expected")
        return cls(correct, n)
