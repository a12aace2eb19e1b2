"""How right a mapping is with fewer samples: estimated from nested parts of what is there, measured on the rest.

Statistics add up, so a larger part is an update of a smaller one. Every class is cut to the same share. No sample is ever
scored by a mapping that knows it: those outside the part are scored by the mapping of the part, and all of them by
leave-one-out, or on folds, where nothing else is left to measure on.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ignore_evidence_warnings
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.densities import GaussianFit
from reprogram.mappings.gaussians import GaussianMapping, gaussian_of
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.scorers import LEAVE_ONE_OUT
from reprogram.mappings.selection import leads
from reprogram.randomness import generator
from reprogram.statistics.gaussian import GaussianStatistics

HELD_OUT = "samples outside"
_BLOCK = 2048
_SMALLEST = 2  # samples per class, on average, of the smallest part
_PARTS = 9  # at most so many sizes below the whole, each half of the next but one
_EFFORT = 8_000  # samples that are learned, over all draws of a size
_DRAWS = (2, 12)
_MOST_TESTED = 20_000  # samples that a part is measured on; their error is a quarter of a point
_ENOUGH = 20  # samples per class from which on one of them, left out, leaves its class as strong as the others
_FOLDS = 10


class Learner(ABC):
    """A mapping with the samples that it can be estimated from; it starts with none of them.

    Attributes:
        targets: (n,) int64, the classes of all samples.
        k_target: the number of classes.
    """

    targets: Tensor
    k_target: int

    @abstractmethod
    def start(self) -> None:
        """Forget all samples."""

    @abstractmethod
    def learn(self, rows: Tensor) -> None:
        """Add samples, by their numbers."""

    @abstractmethod
    def right(self, rows: Tensor) -> Tensor:
        """Whether other samples are classified rightly by the mapping of those learned so far: (rows,) bool."""

    def left_out(self) -> Tensor | None:
        """Whether each sample is classified rightly by the mapping of all others, (n,); None without a formula for it."""
        return None


@dataclass(frozen=True)
class Measured:
    """One size of the curve.

    Attributes:
        share: of each class, that the mapping was estimated from.
        size: how many samples these are.
        hits: (n,) how often each sample was classified rightly, by mappings that did not know it.
        tests: (n,) how often each was scored.
        draws: the accuracy in each draw.
        how: what the samples were scored by, in words.
    """

    share: float
    size: float
    hits: Tensor
    tests: Tensor
    draws: tuple[float, ...]
    how: str


def measure(learner: Learner, *, seed: int = 0, draws: int | None = None) -> list[Measured]:
    """The accuracy at growing sizes, the whole (or nearly so, on folds) last.

    Args:
        learner: the mapping and its samples.
        seed: of the draws.
        draws: how many nested sequences; by default as many as are cheap.
    """
    counts = torch.bincount(learner.targets, minlength=learner.k_target)
    judged = counts > 1
    n = int(counts.sum())
    if draws is None:
        draws = min(max(_EFFORT // max(n, 1), _DRAWS[0]), _DRAWS[1])
    shares = _shares(float(counts[judged].double().mean())) if bool(judged.any()) else []
    found = [_Tally(learner, share) for share in shares]
    for draw in range(draws):
        places = _places(learner.targets, counts, seed, draw)
        learner.start()
        known = torch.zeros(n, dtype=torch.bool)
        for tally in found:
            part = places < _part_sizes(counts, tally.share)[learner.targets]
            learner.learn((part & ~known).nonzero().flatten())
            known = part
            tally.add(_tested(places, part, counts, learner.targets))
    curve = [tally.measured(counts) for tally in found]
    return [*curve, *_whole(learner, counts, seed)]


class _Tally:
    """The hits at one size, summed up over draws."""

    def __init__(self, learner: Learner, share: float, how: str = HELD_OUT) -> None:
        self.learner, self.share, self.how = learner, share, how
        self.hits, self.tests = torch.zeros(2, len(learner.targets), dtype=torch.float64)
        self.draws: list[float] = []

    def add(self, rows: Tensor) -> None:
        right = self.learner.right(rows).double().cpu()
        self.hits[rows] += right
        self.tests[rows] += 1
        here, tests = torch.zeros(2, len(self.hits), dtype=torch.float64)
        here[rows], tests[rows] = right, 1
        self.draws.append(weighted_accuracy(here, tests, self.learner.targets, self.learner.k_target))

    def measured(self, counts: Tensor, size: float | None = None) -> Measured:
        size = float(_part_sizes(counts, self.share).sum()) if size is None else size
        return Measured(self.share, size, self.hits, self.tests, tuple(self.draws), self.how)


def weighted_accuracy(hits: Tensor, tests: Tensor, targets: Tensor, k_target: int) -> float:
    """The accuracy where each class weighs as many samples as it has, however many of them were tested."""
    counts = torch.bincount(targets, minlength=k_target).double()
    tested = torch.bincount(targets, tests, minlength=k_target)
    shares = torch.bincount(targets, hits, minlength=k_target) / tested.where(tested > 0, 1)
    weights = counts.where(tested > 0, 0)
    return float((shares * weights).sum() / weights.sum().clamp_min(1))


def _whole(learner: Learner, counts: Tensor, seed: int) -> list[Measured]:
    """All samples: by leave-one-out where a class does not miss one of them, else on folds of all classes alike."""
    judged = counts > 1
    if not bool(judged.any()):
        return []
    typical = float(counts[judged].double().median())
    alone = (~judged)[learner.targets]
    right = learner.left_out() if typical >= _ENOUGH else None
    if right is not None:
        tests = (~alone).double()
        hits = right.double().cpu() * tests
        accuracy = weighted_accuracy(hits, tests, learner.targets, learner.k_target)
        return [Measured(1.0, float(counts.sum()), hits, tests, (accuracy,), LEAVE_ONE_OUT)]
    folds = min(max(round(typical), 2), _FOLDS)
    places = _places(learner.targets, counts, seed, -1)
    tally = _Tally(learner, 1 - 1 / folds, f"{folds} folds")
    size = 0
    for fold in range(folds):
        held = (places % folds == fold) & ~alone
        if bool(held.any()):
            learner.start()
            learner.learn((~held).nonzero().flatten())
            size += int((~held).sum())
            tally.add(held.nonzero().flatten())
    return [tally.measured(counts, size / max(len(tally.draws), 1))]


def _shares(typical: float) -> list[float]:
    """The shares of the parts, the smallest first, for so many samples per class."""
    found = [2.0 ** (-step / 2) for step in range(2, 2 + _PARTS)]
    kept = [share for share in found if share * typical >= _SMALLEST] or [share for share in found[:1] if typical >= 2]
    return kept[::-1]


def _part_sizes(counts: Tensor, share: float) -> Tensor:
    """How many samples of each class are in a part, (k_T,): at least one of each that has any."""
    return (counts * share).round().long().clamp_min(1).minimum(counts)


def _places(targets: Tensor, counts: Tensor, seed: int, draw: int) -> Tensor:
    """A random number of each sample within its class, (n,), from 0."""
    keys = torch.rand(len(targets), generator=generator(seed, "learning curve", draw), dtype=torch.float64)
    order = keys.argsort()
    order = order[targets[order].argsort(stable=True)]
    starts = (counts.cumsum(0) - counts)[targets[order]]
    return torch.empty_like(order).index_put_((order,), torch.arange(len(order)) - starts)


def _tested(places: Tensor, part: Tensor, counts: Tensor, targets: Tensor) -> Tensor:
    """The samples outside a part, or as large a share of each class of them as is enough."""
    share = min(1.0, _MOST_TESTED / max(len(targets), 1))
    last = (counts * (1 - share)).long()[targets]
    return (~part & (places >= last)).nonzero().flatten()


class LogitLearner(Learner):
    """Any mapping that is estimated from statistics, on logits that lie in memory or are mapped into it.

    Args:
        mapping: its name, settings, labels and span count, not what it holds.
        logits: (n, k_S).
        targets: (n,) class numbers.
        log_probabilities: whether the logits are logarithms of probabilities (see `Statistics.update`).
    """

    def __init__(self, mapping: Mapping, logits: Tensor, targets: Tensor, *, log_probabilities: bool = False) -> None:
        self.mapping, self.logits, self.targets = copy.deepcopy(mapping), logits, targets.long().cpu()
        self.k_target, self.log_probabilities = mapping.k_target, log_probabilities
        self._left_out = LeftOut(mapping, log_probabilities=log_probabilities)
        self.start()

    @override
    def start(self) -> None:
        self._statistics = self.mapping.new_statistics()
        self._waiting: list[Tensor] = []
        self._scores: Callable[[Tensor], Tensor] | None = None

    @override
    def learn(self, rows: Tensor) -> None:
        self._waiting.append(rows)
        self._scores = None

    @torch.no_grad()
    @override
    def right(self, rows: Tensor) -> Tensor:
        if self._scores is None:
            self._scores = self._solved()
        found = []
        for part in rows.split(_BLOCK):
            scores = self._scores(self.logits[part].to(self.mapping.weights.device))
            found.append(leads(scores, self.targets[part].to(scores.device)).cpu())
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.bool)

    @override
    def left_out(self) -> Tensor | None:
        if self._left_out.how != LEAVE_ONE_OUT:
            return None
        blocks = self._left_out((self.logits, self.targets), _BLOCK)
        return torch.cat([leads(scores, targets.to(scores.device)).cpu() for scores, targets in blocks])

    def _solved(self) -> Callable[[Tensor], Tensor]:
        """What scores logits by the mapping of what was learned.

        Few samples of a Gaussian mapping are cheaper to take anew than to add.
        """
        rows = torch.cat(self._waiting) if self._waiting else torch.zeros(0, dtype=torch.int64)
        if not self._statistics.n and type(self.mapping) is GaussianMapping and 2 <= len(rows) < 0.8 * self.mapping.k_source:
            narrow = narrow_gaussian(self.mapping, self.logits[rows], self.targets[rows])
            if narrow is not None:
                return narrow
        for part in rows.split(_BLOCK):
            self._statistics.update(self.logits[part], self.targets[part], log_probabilities=self.log_probabilities)
        self._waiting = []
        with ignore_evidence_warnings():
            self.mapping.estimate(self._statistics)
        return self.mapping


def narrow_gaussian(mapping: GaussianMapping, logits: Tensor, targets: Tensor) -> Affine | None:
    """The Gaussian mapping of fewer samples than logits, in the span of those samples: the same, for less.

    Beyond that span nothing scatters and no class mean lies, so an eigendecomposition of as many coordinates as samples is
    enough. What it is shrunk by still counts all coordinates. None where rounding of a large common offset could matter.
    """
    if mapping.span is not None or mapping.prior is not None:
        return None
    values = logits.to(mapping.weights.device).double()
    mean = values.mean(0)
    centred = values - mean
    if float(values.abs().max()) > 1e6 * float(centred.square().mean().sqrt()):
        return None
    span = torch.linalg.qr(centred.T).Q  # (k_S, n)
    statistics = GaussianStatistics(span.shape[1], mapping.k_target).to(values.device)
    fit = GaussianFit.of(statistics.update(centred @ span, targets.to(values.device)))
    fit = replace(fit, size=mapping.k_source)
    omega, shift, bias = gaussian_of(fit, mapping.settings.shrinkage, priors=mapping.settings.priors)
    return Affine(span @ omega, mean + span @ shift, None, bias)
