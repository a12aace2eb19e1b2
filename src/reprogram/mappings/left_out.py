"""The target logits of a mapping's own samples, each by the mapping as it would be without that sample.

They are what honest probabilities, suspicious labels and forecasts are read off: no sample is ever judged by a mapping that
knows it, and no sample has to be set aside for that.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError, ignore_evidence_warnings
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.scorers import FOLDS, LEAVE_ONE_OUT, GaussianScorer, Scorer
from reprogram.mappings.selection import Block, Blocks, in_blocks, with_folds
from reprogram.registry import imported
from reprogram.statistics.base import Statistics


class LeftOut:
    """Scores the samples that a mapping was, or will be, estimated from.

    Args:
        mapping: any that is estimated from statistics; its name, settings, labels and span count, not what it holds.
        log_probabilities: whether the logits are logarithms of probabilities (see `Statistics.update`).

    Attributes:
        how: by leave-one-out, or on folds.
        counted: (k_T,) how many samples of each class were gathered.

    >>> from reprogram.mappings.base import make_mapping
    >>> logits, targets = torch.eye(2)[[0, 0, 1, 1]] * 4, torch.tensor([1, 1, 0, 0])
    >>> left_out = LeftOut(make_mapping("gaussian", ["tabby", "beagle"], ["dog", "cat"]))
    >>> [scores.argmax(1).tolist() for scores, _ in left_out((logits, targets))], left_out.how
    ([[1, 1, 0, 0]], 'leave-one-out')
    """

    def __init__(self, mapping: Mapping, *, log_probabilities: bool = False) -> None:
        self._scorer = _scorer_of(mapping, log_probabilities)
        self.how, self.k_target = self._scorer.how, mapping.k_target
        self.counted = torch.zeros(mapping.k_target, dtype=torch.int64)

    def __call__(self, blocks: Blocks | Block, block_size: int = 2048) -> Iterator[tuple[Tensor, Tensor]]:
        """For each block its target logits (N, k_T) float64 and its targets (N,); a class's only sample is among them.

        Args:
            blocks: logits (n, k_S) and targets (n,), or a function that starts a pass over such pairs; there are two passes.
            block_size: rows at a time where whole arrays are given.
        """
        start = blocks if callable(blocks) else in_blocks(*blocks, block_size)
        self.gather(start)
        for logits, targets, folds in with_folds(start(), self.k_target):
            (scores,) = self._scorer.scores(logits, targets, folds)
            yield scores, targets

    def gather(self, start: Callable[[], Iterable[Any]], counted: Statistics | None = None) -> None:
        """The first pass alone, for `scores` and `distances`.

        Args:
            start: starts a pass over (logits, targets).
            counted: the statistics of these very samples, which save the pass where nothing else is needed; without weights.
        """
        if counted is not None and self._scorer.adopt(counted):
            self.counted = counted.counted
            return
        seen = torch.zeros(self.k_target, dtype=torch.int64)
        for logits, targets, folds in with_folds(start(), self.k_target):
            self._scorer.gather(logits, targets, folds)
            seen += torch.bincount(targets.cpu(), minlength=self.k_target)
        self.counted = seen

    def scores(self, samples: Any) -> Tensor:
        """The target logits (N, k_T) of some of the samples that were gathered, by leave-one-out."""
        (scores,) = self._scorer.scores(samples.logits, samples.targets, torch.zeros_like(samples.targets))
        return scores

    def distances(self, samples: Any) -> Tensor:
        """How far some of the samples are from the nearest class, (N,), of the Gaussian mapping."""
        assert isinstance(self._scorer, GaussianScorer)
        return self._scorer.distances(samples.logits, samples.targets)


def _scorer_of(mapping: Mapping, log_probabilities: bool) -> Scorer:
    """The scorer of the mapping's family with its settings as the only candidate; folds for a family that has none."""
    if mapping.learned or mapping.statistics is None:
        raise ReprogramError(
            f"mapping {mapping.name!r} is not estimated from statistics, so no sample can be left out; choose another one"
        )
    family = MAPPINGS[mapping.name]
    if family.scorer is None or imported(family.scorer).how != LEAVE_ONE_OUT:
        return FoldScorer(mapping, log_probabilities=log_probabilities)
    judge = imported(family.scorer)
    settings = mapping.fixed_settings()
    grid = {name: (getattr(settings, name),) for name in judge.judges}
    scorer: Scorer = judge(
        family, mapping.k_source, mapping.k_target, grid, span=mapping.span, log_probabilities=log_probabilities
    )
    if scorer.obstacle:
        raise ReprogramError(f"mapping {mapping.name!r} cannot be estimated: {scorer.obstacle}; choose another one")
    return scorer


class FoldScorer(Scorer):
    """Of any mapping that is estimated from statistics, on folds: each is scored by the mapping of the other folds."""

    judges = ()
    how = f"{FOLDS} folds"

    def __init__(self, mapping: Mapping, **options: Any) -> None:
        super().__init__(MAPPINGS[mapping.name], mapping.k_source, mapping.k_target, {}, span=mapping.span, **options)
        self._mapping = mapping
        self._parts: list[Statistics] = [mapping.new_statistics() for _ in range(FOLDS)]
        self._without: list[Affine] = []

    @override
    def gather(self, logits: Tensor, targets: Tensor, folds: Tensor) -> None:
        logits, targets = logits.to(self._mapping.weights.device), targets.to(self._mapping.weights.device)
        for fold, part in enumerate(self._parts):
            chosen = (folds == fold).to(logits.device)
            if bool(chosen.any()):
                part.update(logits[chosen], targets[chosen], log_probabilities=self.log_probabilities)

    @override
    def scores(self, logits: Tensor, targets: Tensor, folds: Tensor) -> Iterator[Tensor]:
        if not self._without:
            self._without = list(self._solved())
        found = torch.stack([part(logits.to(part.omega.device).double()) for part in self._without])
        yield found[folds.to(found.device), torch.arange(len(logits), device=found.device)]

    def _solved(self) -> Iterator[Affine]:
        total = self._mapping.new_statistics()
        for part in self._parts:
            total.merge(part)
        with ignore_evidence_warnings():
            for part in self._parts:
                yield self._mapping.solve(total.copy().subtract(part)).to(torch.float64)
