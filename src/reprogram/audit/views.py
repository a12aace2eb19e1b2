"""How a mapping takes rows: as full logits, or as answers that name only their best labels."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.answers.labels import Rows
from reprogram.audit.certainty import fitted_certainty
from reprogram.mappings.base import Mapping
from reprogram.mappings.grouping import FOLDS
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.scorers import LEAVE_ONE_OUT, GaussianScorer, count
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import Statistics
from reprogram.statistics.gaussian import GaussianStatistics

Pass = Callable[[], Iterator[Rows]]
_LEAST_SHARE = 1e-6  # of a class for which nothing in an answer speaks


class View(ABC):
    """What an audit does with a mapping and rows of one kind.

    Args:
        mapping: whose weights are those of the statistics that were counted last.
        log_probabilities: whether logits are logarithms of probabilities.
        tuned: whether the shrinkage of a Gaussian mapping is chosen, by the likelihood of the given labels: wrong labels
            blur the classes, and what is best without them shrinks too little.

    Attributes:
        how: how rows are judged that the mapping was estimated from.
    """

    how: str

    def __init__(self, mapping: Mapping, *, log_probabilities: bool = False, tuned: bool = False) -> None:
        self.mapping, self.log_probabilities, self.tuned = mapping, log_probabilities, tuned

    @abstractmethod
    def tune(self, start: Pass, statistics: Statistics) -> None:
        """Choose the settings that were left open, by some of the rows that the statistics are of."""

    @abstractmethod
    def count(self, statistics: Statistics, rows: Rows) -> None:
        """Add rows to statistics."""

    @abstractmethod
    def left_out(self, start: Pass, statistics: Statistics) -> Iterator[Tensor]:
        """Target logits (N, k_T) of the rows of a pass, each by the mapping without it; the statistics are those of all."""

    @abstractmethod
    def scores(self, rows: Rows) -> Tensor:
        """Target logits (N, k_T) of rows that the mapping does not know."""

    @abstractmethod
    def contributions(self, rows: Rows, suggested: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """By how much each source label speaks for one class rather than another: source labels (N, m), amounts (N, m).

        A source label of −1 is none.
        """


class OfLogits(View):
    """Of full logits."""

    def __init__(self, mapping: Mapping, **options: Any) -> None:
        super().__init__(mapping, **options)
        self.how = LeftOut(mapping, log_probabilities=self.log_probabilities).how

    @override
    def tune(self, start: Pass, statistics: Statistics) -> None:
        if not self.tuned or not isinstance(statistics, GaussianStatistics):
            return
        mapping, family = self.mapping, MAPPINGS[self.mapping.name]
        values = family.settings.grid()["shrinkage"]
        grid = {"shrinkage": values, "priors": (getattr(mapping.settings, "priors", False),)}
        scorer = GaussianScorer(family, mapping.k_source, mapping.k_target, grid, span=mapping.span)
        scorer.take(statistics)
        parts: list[list[Tensor]] = [[] for _ in values]
        labels = []
        for rows in start():
            assert rows.logits is not None
            labels.append(rows.targets)
            for part, scores in zip(parts, scorer.scores(rows.logits, rows.targets, rows.targets), strict=True):
                part.append(scores.cpu())
        found = [fitted_certainty(torch.cat(part), torch.cat(labels)).likelihood for part in parts]
        mapping.settings = mapping.settings.model_copy(update={"shrinkage": values[found.index(max(found))]})

    @override
    def count(self, statistics: Statistics, rows: Rows) -> None:
        assert rows.logits is not None
        statistics.update(rows.logits, rows.targets, log_probabilities=self.log_probabilities)

    @override
    def left_out(self, start: Pass, statistics: Statistics) -> Iterator[Tensor]:
        def blocks() -> Iterator[tuple[Tensor, Tensor]]:
            for rows in start():
                assert rows.logits is not None
                yield rows.logits, rows.targets

        judge = LeftOut(self.mapping, log_probabilities=self.log_probabilities)
        for scores, _ in judge(blocks, statistics=statistics):
            yield scores

    @override
    def scores(self, rows: Rows) -> Tensor:
        assert rows.logits is not None
        affine = self.mapping.affine.to(torch.float64)
        return affine(self.mapping.inputs(rows.logits.to(affine.omega.device).double()))

    @override
    def contributions(self, rows: Rows, suggested: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        assert rows.logits is not None
        affine = self.mapping.affine.to(torch.float32)
        inputs = affine.normalised(self.mapping.inputs(rows.logits.to(affine.omega.device)))
        columns = affine.omega.T
        amounts = ((columns[suggested] - columns[given]) * inputs).cpu()
        return torch.arange(amounts.shape[1]).expand_as(amounts), amounts


class OfAnswers(View):
    """Of top-K answers."""

    def __init__(self, mapping: Mapping, **options: Any) -> None:
        super().__init__(mapping, **options)
        self.how = LEAVE_ONE_OUT if LeftOut(mapping).by_formula(answers=True) else f"{FOLDS} folds"

    @override
    def tune(self, start: Pass, statistics: Statistics) -> None:
        return

    @override
    def count(self, statistics: Statistics, rows: Rows) -> None:
        count(statistics, self._answers(rows), rows.targets)

    @override
    def left_out(self, start: Pass, statistics: Statistics) -> Iterator[Tensor]:
        def blocks() -> Iterator[tuple[TopK, Tensor]]:
            for rows in start():
                yield self._answers(rows), rows.targets

        for scores, _ in LeftOut(self.mapping)(blocks, statistics=statistics):
            yield scores

    @override
    def scores(self, rows: Rows) -> Tensor:
        answers = self._answers(rows)
        return _as_logits(self.mapping.predict_answers(answers.indices, answers.probabilities).probabilities)

    @override
    def contributions(self, rows: Rows, suggested: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        answers = self._answers(rows)
        weights = self.mapping.weights.cpu()
        apart = weights[answers.labels, suggested[:, None]] - weights[answers.labels, given[:, None]]
        return answers.indices, (apart * self.mapping.answer_values(answers)).masked_fill(answers.indices < 0, 0).float()

    def _answers(self, rows: Rows) -> TopK:
        assert rows.indices is not None
        return TopK.of(rows.indices, rows.probabilities, self.mapping.k_source)


def _as_logits(shares: Tensor) -> Tensor:
    """The logarithms of shares (N, k_T) that are not scaled, of which none is 0."""
    total = shares.sum(1, keepdim=True)
    even = torch.full_like(shares, 1 / shares.shape[1])
    return torch.where(total > 0, shares / total.where(total > 0, 1), even).clamp_min(_LEAST_SHARE).log()
