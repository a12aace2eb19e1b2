"""What an audit says about classes: which the model cannot tell apart, and which have too few examples."""

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from reprogram.scores import Score

FEW = 10
_RARE = 5  # times fewer than the median class
_NOTABLE = 0.05  # of a class that is taken for another, at least, whatever chance has done


@dataclass(frozen=True)
class Confusion:
    """Two classes that the model takes for each other.

    Attributes:
        first: the class that is more often taken for the other.
        second: the other.
        forth: how many rows of the first were given the second, of all that were judged.
        back: how many rows of the second were given the first.
    """

    first: str
    second: str
    forth: Score
    back: Score


@dataclass(frozen=True)
class ClassSize:
    """How many examples a class has, and what they are good for.

    Attributes:
        name: the class.
        examples: how many of them are in train.
        score: how many of the rows that could be judged were given their own label.
    """

    name: str
    examples: int
    score: Score


def confusions(classes: tuple[str, ...], given: Tensor, suggested: Tensor) -> list[Confusion]:
    """Pairs of which, beyond what chance explains, more than 5 % of the one are taken for the other; the worst first.

    Args:
        classes: the class names.
        given: (N,) labels of rows that were judged.
        suggested: (N,) what they were given.

    >>> given = torch.tensor([0] * 20 + [1] * 20)
    >>> found = confusions(("cat", "lynx"), given, torch.tensor([0] * 10 + [1] * 30))
    >>> [(one.first, one.second, str(one.forth), one.back.correct) for one in found]
    [('cat', 'lynx', '50.0 % (95 % interval 29.9 to 70.1 %, 10 of 20)', 0)]
    """
    samples = torch.bincount(given, minlength=len(classes)).tolist()
    astray = given != suggested
    pairs, counts = torch.stack([given[astray], suggested[astray]]).unique(dim=1, return_counts=True)
    taken = dict(zip(map(tuple, pairs.T.tolist()), counts.tolist(), strict=True))
    found = []
    for one, other in {(min(pair), max(pair)) for pair in taken}:
        ways = [(a, b, Score(taken.get((a, b), 0), samples[a])) for a, b in ((one, other), (other, one))]
        (a, b, forth), (_, _, back) = sorted(ways, key=lambda way: (-_least(way[2]), way[0]))
        if _least(forth) > _NOTABLE:
            found.append(Confusion(classes[a], classes[b], forth, back))
    return sorted(found, key=lambda pair: (-_least(pair.forth), -_least(pair.back), pair.first, pair.second))


def _least(score: Score) -> float:
    return score.interval[0] if score.n else 0.0


def small_classes(classes: tuple[str, ...], examples: Tensor, given: Tensor, suggested: Tensor) -> list[ClassSize]:
    """Classes with fewer than ten examples, or than a fifth of the median class; the smallest first.

    Args:
        classes: the class names.
        examples: (k_T,) how many each has in train.
        given: (N,) labels of rows that were judged.
        suggested: (N,) what they were given.

    >>> found = small_classes(("ant", "bee"), torch.tensor([12, 2]), torch.tensor([1, 1]), torch.tensor([1, 0]))
    >>> [(one.name, one.examples, one.score.accuracy) for one in found]
    [('bee', 2, 0.5)]
    """
    limit = max(FEW, statistics.median(examples.tolist()) / _RARE)
    samples = torch.bincount(given, minlength=len(classes)).tolist()
    right = torch.bincount(given[given == suggested], minlength=len(classes)).tolist()
    found = [
        ClassSize(name, count, Score(hits, n))
        for name, count, hits, n in zip(classes, examples.tolist(), right, samples, strict=True)
        if count < limit
    ]
    return sorted(found, key=lambda one: one.examples)
