"""Labelled samples as certainty is measured on them: logits or top-K answers, with or without weights, and their folds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.errors import ReprogramError, ignore_evidence_warnings
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.statistics.base import Statistics
from reprogram.statistics.joint import JointStatistics

FOLDS = 10


@dataclass(frozen=True)
class Samples:
    """Some labelled samples.

    Attributes:
        targets: (N,) class numbers.
        logits: (N, k_S); None for top-K answers.
        weights: (N,) or None.
        indices: (N, K) source labels of top-K answers, −1 for none.
        probabilities: (N, K) their scores.
    """

    targets: Tensor
    logits: Tensor | None = None
    weights: Tensor | None = None
    indices: Tensor | None = None
    probabilities: Tensor | None = None

    @classmethod
    def of(cls, block: Any) -> "Samples":
        """Samples as they are, or (logits, targets) or (logits, targets, weights); on the CPU."""
        found = block if isinstance(block, Samples) else cls(block[1], block[0], *block[2:])
        parts: list[Any] = [getattr(found, field.name) for field in fields(cls)]
        moved: list[Any] = [None if part is None else part.cpu() for part in parts]
        return cls(*moved)

    def __len__(self) -> int:
        return len(self.targets)

    def where(self, mask: Tensor) -> "Samples":
        """Those at which the mask is true."""
        parts: list[Any] = [getattr(self, field.name) for field in fields(self)]
        chosen: list[Any] = [None if part is None else part[mask] for part in parts]
        return Samples(*chosen)

    def count(self, statistics: Statistics, log_probabilities: bool) -> None:
        """Add them to statistics."""
        if self.logits is not None:
            statistics.update(self.logits, self.targets, self.weights, log_probabilities=log_probabilities)
            return
        if not isinstance(statistics, JointStatistics) or self.indices is None:
            raise ReprogramError("top-K answers were given, but this mapping needs all logits; give logits")
        statistics.update_top_k(self.indices, self.probabilities, self.targets, self.weights)

    def scores(self, mapping: Mapping, affine: Affine) -> Tensor:
        """What a mapping of this family with these weights says: target logits, or shares of answers; (N, k_T) float64."""
        if self.logits is not None:
            return affine(self.logits.double())
        assert self.indices is not None
        assert self.probabilities is not None
        return mapping.answer_scores(self.indices, self.probabilities, affine.omega)


#: A function that starts a pass over the samples.
Passes = Callable[[], Iterable[Any]]


def passes(blocks: Any, block_size: int) -> Callable[[], Iterator[Samples]]:
    """A function that starts a pass over `Samples`, whatever was given."""
    if callable(blocks):
        return lambda: (Samples.of(block) for block in blocks())
    whole = Samples.of(blocks)
    order = torch.arange(len(whole))
    return lambda: (whole.where(part) for part in order.split(block_size))


class FoldNumbers:
    """The fold of each sample of a pass.

    A tenth goes to fold 0 by lot, a hash of its place in the pass, which depends on nothing that the samples are: they are
    exchangeable with new ones. The others go round the other folds class by class, so that no fold takes all of a small
    class away.
    """

    def __init__(self, k_target: int, count: int = FOLDS) -> None:
        self._count, self._seen, self._within = count, 0, torch.zeros(k_target, dtype=torch.int64)

    def __call__(self, targets: Tensor) -> Tensor:
        """The folds (N,) of the next samples."""
        lots = torch.from_numpy(_lots(self._seen, len(targets)) % self._count)
        self._seen += len(targets)
        dealt = lots != 0
        for number in targets[dealt].unique().tolist():
            chosen = dealt & (targets == number)
            order = torch.arange(int(chosen.sum())) + self._within[number]
            lots[chosen] = order % (self._count - 1) + 1
            self._within[number] += len(order)
        return lots


def _lots(first: int, count: int) -> Any:
    """Numbers that look drawn, of places from `first` on (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(33)).astype(np.int64)


def fold_mappings(
    mapping: Mapping, start: Callable[[], Iterator[Samples]], *, known: bool, log_probabilities: bool = False
) -> tuple[list[Affine], Tensor]:
    """The mappings without each fold, by exact subtraction, and how many samples of each class each knows, (FOLDS, k_T).

    Args:
        mapping: whose family, settings and statistics count.
        start: starts a pass over the samples.
        known: whether the mapping's own statistics hold these samples; else all are counted.
        log_probabilities: see `Statistics.update`.
    """
    parts = [mapping.new_statistics().cpu() for _ in range(FOLDS)]
    number = FoldNumbers(mapping.k_target)
    for samples in start():
        folds = number(samples.targets)
        for fold, part in enumerate(parts):
            chosen = folds == fold
            if bool(chosen.any()):
                with ignore_evidence_warnings():
                    samples.where(chosen).count(part, log_probabilities)
    assert mapping.statistics is not None
    total = (mapping.statistics if known else mapping.statistics.empty()).copy().cpu()
    for part in parts if not known else ():
        total.merge(part)
    affines, counted = [], []
    with ignore_evidence_warnings():
        for part in parts:
            rest = total.copy().subtract(part)
            affines.append(mapping.solve(rest).checked(mapping.name).to(torch.device("cpu")))
            counted.append(rest.counted)
    return affines, torch.stack(counted)
