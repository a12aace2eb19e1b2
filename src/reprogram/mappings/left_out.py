"""The target logits of a mapping's own samples, each by the mapping as it would be without that sample.

They are what honest probabilities, suspicious labels and forecasts are read off: no sample is ever judged by a mapping that
knows it, and no sample has to be set aside for that.
"""

from collections.abc import Iterator

from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.mappings.base import Mapping
from reprogram.mappings.fold_scorer import FoldScorer
from reprogram.mappings.gaussians import GaussianMapping
from reprogram.mappings.grouping import Block, Blocks, Passes, in_blocks
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.scorers import LEAVE_ONE_GROUP_OUT, LEAVE_ONE_OUT, GaussianScorer, Scorer
from reprogram.registry import imported
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import Statistics


class LeftOut:
    """Scores the samples that a mapping was, or will be, estimated from.

    Args:
        mapping: any that is estimated from statistics; its name, settings, labels and span count, not what it holds.
        log_probabilities: whether the logits are logarithms of probabilities (see `Statistics.update`).

    Attributes:
        how: by leave-one-out, or on folds; after a call with groups, by leave-one-group-out, or on folds of whole groups.

    >>> import torch
    >>> from reprogram.mappings.making import make_mapping
    >>> logits, targets = torch.eye(2)[[0, 0, 1, 1]] * 4, torch.tensor([1, 1, 0, 0])
    >>> left_out = LeftOut(make_mapping("gaussian", ["tabby", "beagle"], ["dog", "cat"]))
    >>> [scores.argmax(1).tolist() for scores, _ in left_out((logits, targets))], left_out.how
    ([[1, 1, 0, 0]], 'leave-one-out')
    """

    def __init__(self, mapping: Mapping, *, log_probabilities: bool = False) -> None:
        self._mapping, self._log_probabilities = mapping, log_probabilities
        self._scorer = _scorer_of(mapping, log_probabilities)
        self.how, self.k_target = self._scorer.how, mapping.k_target

    def by_formula(self, *, answers: bool = False, groups: bool = False) -> bool:
        """Whether samples, or groups of them, are left out one by one; else they are scored on folds."""
        return _fitting(self._scorer, answers, groups) and self._scorer.how == LEAVE_ONE_OUT

    def __call__(
        self, blocks: Blocks | Block, block_size: int = 2048, *, statistics: Statistics | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """For each block its target logits (N, k_T) float64 and its targets (N,); a class's only sample is among them.

        With groups, each sample is scored by the mapping without its whole group. Where a group is scattered over the
        blocks, target logits of those in between are kept until it is complete.

        Args:
            blocks: logits (n, k_S), targets (n,) and perhaps groups (n,), any whole numbers; or a function that starts a
                pass over such blocks. There are two passes, and more where large groups are scattered. `TopK` answers may
                stand for logits: then the scores are logarithms of what `predict_answers` says.
            block_size: rows at a time where whole arrays are given.
            statistics: what the mapping has counted of just these samples; where a formula needs no more, it spares
                counting them again.
        """
        passes = Passes(blocks if callable(blocks) else in_blocks(blocks, block_size), self.k_target)
        scorer = _scorer_of(self._mapping, self._log_probabilities)
        counted = statistics is not None and scorer.take(statistics)
        if counted:
            self._scorer = scorer
            for part in passes.alone():
                (scores,) = scorer.scores_of(part)
                yield scores, part.targets
            if not passes.given:
                return
        for number, (logits, targets, folds) in enumerate(passes.first()):
            if not number and not _fitting(scorer, isinstance(logits, TopK), passes.given):
                scorer, counted = FoldScorer(self._mapping, log_probabilities=self._log_probabilities), False
            if not counted:
                scorer.gather(logits, targets, folds)
        self.how = LEAVE_ONE_GROUP_OUT if passes.groups is not None and scorer.how == LEAVE_ONE_OUT else scorer.how
        self._scorer = scorer
        yield from passes.in_order(_scored(scorer, passes))

    def distances(self, logits: Tensor, targets: Tensor) -> Tensor:
        """How far samples of a Gaussian mapping are from the nearest class, (N,), once the first pass of a call is over.

        Each is left out by itself, also where samples have groups.
        """
        assert isinstance(self._scorer, GaussianScorer)
        return self._scorer.distances(logits, targets)


def _scored(scorer: Scorer, passes: Passes) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for part in passes.second():
        (scores,) = scorer.scores_of(part)
        yield part.places, scores, part.targets


def _fitting(scorer: Scorer, answers: bool, groups: bool) -> bool:
    """Whether a scorer is right for what is given."""
    scorer.answers = answers
    return not groups or scorer.knows_groups


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
    if isinstance(mapping, GaussianMapping):
        assert isinstance(scorer, GaussianScorer)
        scorer.beliefs = mapping.beliefs(mapping.span)
    if scorer.obstacle:
        raise ReprogramError(f"mapping {mapping.name!r} cannot be estimated: {scorer.obstacle}; choose another one")
    return scorer
