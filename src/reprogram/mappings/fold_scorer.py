"""Scorers on folds, for mappings that cannot be had without one sample, or without one group, by a formula."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ignore_evidence_warnings
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.grouping import FOLDS
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.scorers import Scorer, count
from reprogram.mappings.shares import log_shares
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import Statistics


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
    def gather(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> None:
        logits, targets = logits.to(self._mapping.weights.device), targets.to(self._mapping.weights.device)
        for fold, part in enumerate(self._parts):
            chosen = (folds == fold).to(logits.device)
            if bool(chosen.any()):
                count(part, logits[chosen], targets[chosen], log_probabilities=self.log_probabilities)

    @override
    def scores(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> Iterator[Tensor]:
        if not self._without:
            self._without = list(self._solved())
        if isinstance(logits, TopK):
            found = torch.stack([self._answered(logits, part) for part in range(FOLDS)])
        else:
            inputs = self._mapping.inputs(logits.to(self._mapping.weights.device).double())
            found = torch.stack([part(inputs) for part in self._without])
        yield found[folds.to(found.device), torch.arange(len(logits), device=found.device)]

    def _answered(self, answers: TopK, fold: int) -> Tensor:
        """The logarithms of the shares (N, k_T) that the mapping without a fold gives the classes."""
        shares, guessed = self._mapping.answer_shares(self._without[fold], answers)
        others = torch.stack([part.samples.double() for number, part in enumerate(self._parts) if number != fold]).sum(0)
        return log_shares(shares.masked_fill(guessed[:, None], 0), others.expand_as(shares))

    def _solved(self) -> Iterator[Affine]:
        total = self._mapping.new_statistics()
        for part in self._parts:
            total.merge(part)
        with ignore_evidence_warnings():
            for part in self._parts:
                yield self._mapping.solve(total.copy().subtract(part)).to(torch.float64)


class CandidatesOnFolds(Scorer):
    """The candidates of another scorer, which knows no groups, on folds of whole groups."""

    judges = ()
    how = f"{FOLDS} folds"

    def __init__(self, other: Scorer) -> None:
        options: dict[str, Any] = {
            "log_probabilities": other.log_probabilities,
            "answers": other.answers,
        }
        super().__init__(other.family, other.k_source, other.k_target, {}, span=other.span, **options)
        self._other, self.candidates, self.obstacle = other, other.candidates, other.obstacle
        self._scorers = [
            FoldScorer(self._made(each.settings), log_probabilities=self.log_probabilities) for each in self.candidates
        ]

    @override
    def gather(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> None:
        for scorer in self._scorers:
            scorer.gather(logits, targets, folds)

    @override
    def scores(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> Iterator[Tensor]:
        for scorer in self._scorers:
            yield from scorer.scores(logits, targets, folds)

    @override
    def default(self) -> Any:
        return self._other.default()

    def _made(self, settings: dict[str, Any]) -> Mapping:
        sources, classes = ([f"{number}" for number in range(count)] for count in (self.k_source, self.k_target))
        return make_mapping(self.family.name, sources, classes, span=self.span, **settings)
