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
from reprogram.mappings.leave_one_out import bayes_without
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.scorers import LEAVE_ONE_OUT, GaussianScorer
from reprogram.statistics.base import Statistics
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics

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
        return affine(rows.logits.to(affine.omega.device))

    @override
    def contributions(self, rows: Rows, suggested: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        assert rows.logits is not None
        affine = self.mapping.affine.to(torch.float32)
        inputs = affine.normalised(rows.logits.to(affine.omega.device))
        columns = affine.omega.T
        amounts = ((columns[suggested] - columns[given]) * inputs).cpu()
        return torch.arange(amounts.shape[1]).expand_as(amounts), amounts


class OfAnswers(View):
    """Of top-K answers: by exact leave-one-out where weights are Bayes' rule on J, on folds for other mappings."""

    def __init__(self, mapping: Mapping, **options: Any) -> None:
        super().__init__(mapping, **options)
        self._by_formula = isinstance(mapping.statistics, JointStatistics) and mapping.name in ("blm", "blm+")
        self.how = LEAVE_ONE_OUT if self._by_formula else f"{FOLDS} folds"

    @override
    def tune(self, start: Pass, statistics: Statistics) -> None:
        return

    @override
    def count(self, statistics: Statistics, rows: Rows) -> None:
        count: Any = statistics  # every mapping that takes answers has statistics that do
        count.update_top_k(rows.indices, rows.probabilities, rows.targets)

    @override
    def left_out(self, start: Pass, statistics: Statistics) -> Iterator[Tensor]:
        if self._by_formula:
            assert isinstance(statistics, JointStatistics)
            yield from (self._without(rows, statistics) for rows in start())
        else:
            yield from self._on_folds(start, statistics)

    @override
    def scores(self, rows: Rows) -> Tensor:
        return self._scores_by(self.mapping, rows)

    @override
    def contributions(self, rows: Rows, suggested: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        assert rows.indices is not None
        assert rows.probabilities is not None
        weights, labels = self.mapping.weights.cpu(), rows.indices.clamp_min(0)
        apart = weights[labels, suggested[:, None]] - weights[labels, given[:, None]]
        return rows.indices, (apart * rows.probabilities).masked_fill(rows.indices < 0, 0).float()

    def _without(self, rows: Rows, statistics: JointStatistics) -> Tensor:
        """Shares by Bayes' rule on J without each answer."""
        assert rows.indices is not None
        assert rows.probabilities is not None
        labels, scores = _best(rows.indices, rows.probabilities, statistics.top_k)
        added = torch.ones_like(scores) if statistics.kind == "counts" else scores
        evidence = labels.clamp_min(0), added.masked_fill(labels < 0, 0)
        said = torch.zeros(len(rows), statistics.k_source, dtype=torch.float64)
        present = rows.probabilities.masked_fill(rows.indices < 0, 0)
        said.scatter_add_(1, rows.indices.clamp_min(0), present)
        smoothing: float = getattr(self.mapping.settings, "smoothing")  # noqa: B009  # of these two families
        (found,) = bayes_without(statistics, evidence, rows.targets, smoothing, [said])
        return _as_logits(found)

    def _on_folds(self, start: Pass, statistics: Statistics) -> Iterator[Tensor]:
        """Each by the mapping without its fold, whose statistics are taken out of those of all."""
        parts = [statistics.empty() for _ in range(FOLDS)]
        for rows, folds in _folded(start, self.mapping.k_target):
            for fold, part in enumerate(parts):
                if bool((folds == fold).any()):
                    self.count(part, rows.where(folds == fold))
        others = []
        for part in parts:
            other = self.mapping.with_classes(self.mapping.classes)
            other.estimate(statistics.copy().subtract(part))
            others.append(other)
        for rows, folds in _folded(start, self.mapping.k_target):
            found = torch.stack([self._scores_by(other, rows) for other in others])
            yield found[folds, torch.arange(len(rows))]

    @staticmethod
    def _scores_by(mapping: Mapping, rows: Rows) -> Tensor:
        assert rows.indices is not None
        assert rows.probabilities is not None
        return _as_logits(mapping.predict_answers(rows.indices, rows.probabilities).probabilities)


def _as_logits(shares: Tensor) -> Tensor:
    """The logarithms of shares (N, k_T) that are not scaled, of which none is 0."""
    total = shares.sum(1, keepdim=True)
    even = torch.full_like(shares, 1 / shares.shape[1])
    return torch.where(total > 0, shares / total.where(total > 0, 1), even).clamp_min(_LEAST_SHARE).log()


def _best(indices: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best labels of each answer, as `JointStatistics.update_top_k` counts them: by score, among equals the first."""
    order = scores.masked_fill(indices < 0, -1.0).sort(dim=1, descending=True, stable=True).indices[:, :count]
    return indices.gather(1, order), scores.gather(1, order)


def _folded(start: Pass, k_target: int) -> Iterator[tuple[Rows, Tensor]]:
    """Rows with the fold of each: its number within its class, so that classes spread evenly."""
    seen = torch.zeros(k_target, dtype=torch.int64)
    for rows in start():
        folds = torch.empty_like(rows.targets)
        for label in rows.targets.unique().tolist():
            members = (rows.targets == label).nonzero().flatten()
            folds[members] = (seen[label] + torch.arange(len(members))) % FOLDS
            seen[label] += len(members)
        yield rows, folds
