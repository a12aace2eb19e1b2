"""The Gaussian mapping on top-K answers: `gaussian+`.

Bayes' rule with one normal density per class, as `gaussian` has it, on what is left of the logits where a model names only
its best labels: a vector over the source labels, with a function of the probability for each label that is named.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import NonFiniteError
from reprogram.mappings.affine import Affine
from reprogram.mappings.densities import GaussianFit
from reprogram.mappings.gaussians import DensityMapping
from reprogram.mappings.leave_group_out import gaussian_without_groups
from reprogram.mappings.leave_one_out import Rest, gaussian_without
from reprogram.mappings.scorers import Scorer, count
from reprogram.mappings.settings import TopKGaussianSettings
from reprogram.mappings.shares import SMALLEST_SHARE, frequencies_without
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import Statistics
from reprogram.statistics.gaussian import LARGEST_COVARIANCE
from reprogram.statistics.top_k import TopKGaussianStatistics, answer_values, logit_vectors

_MOST_FOR_ALL = 2048  # source labels


class TopKGaussianMapping(DensityMapping):
    """The mapping of those densities; full logits are taken as the answers that their softmax gives."""

    settings: TopKGaussianSettings

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "span": None})  # the vectors lie in no span of the logits

    @override
    def empty_statistics(self) -> Statistics:
        return TopKGaussianStatistics(
            self.k_source, self.k_target, top_k=self.settings.top_k, weighting=self.settings.weighting
        )

    @property
    @override
    def takes_answers(self) -> bool:
        return True

    @override
    def inputs(self, logits: Tensor) -> Tensor:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return logit_vectors(wide, self.settings.top_k, self.settings.weighting)

    @override
    def answer_values(self, answers: TopK) -> Tensor:
        return answer_values(answers, self.settings.weighting)

    @override
    def answer_shares(self, affine: Affine, answers: TopK) -> tuple[Tensor, Tensor]:
        affine = affine.to(torch.float64)
        answers = answers.to(affine.omega.device).best(self.settings.top_k)
        values = answer_values(answers, self.settings.weighting)
        scores = answers.times(affine.omega, values)
        if affine.shift is not None and affine.bias is not None:
            scores = scores + (affine.bias - affine.shift @ affine.omega)
        if not bool(scores.isfinite().all()):
            raise NonFiniteError("the weights or the answers hold NaN or infinity, but finite numbers are expected")
        speaks = (affine.omega != 0).any(1)
        return scores.softmax(1), ~((values > 0) & speaks[answers.labels]).any(1)


class TopKGaussianScorer(Scorer):
    """Of gaussian+, by exact leave-one-out."""

    judges = ("weighting", "top_k", "priors", "shrinkage")
    takes_answers = True
    one_shot = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._statistics = [] if self.obstacle else [
            TopKGaussianStatistics(self.k_source, self.k_target, top_k=top_k, weighting=weighting)
            for weighting, top_k in product(self._values("weighting"), self._values("top_k"))
        ]  # fmt: skip
        self._fits: list[GaussianFit] = []

    @override
    def _worth_trying(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        # each weighting takes a covariance: of full logits, where gaussian is ahead, and of very many labels one is tried
        declared = tuple(values) == self.family.settings.grid().get(name)
        few = self.answers and self.k_source <= _MOST_FOR_ALL
        return tuple(values) if name != "weighting" or few or not declared else tuple(values)[:1]

    @override
    def _obstacle(self) -> str | None:
        too_many = self.k_source > LARGEST_COVARIANCE
        return f"its covariance of {self.k_source} source labels is too large" if too_many else None

    @override
    def gather(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> None:
        for statistics in self._statistics:
            count(statistics.to(logits.device), logits, targets)

    @override
    def scores(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> Iterator[Tensor]:
        if not self._fits:
            self._fits = [GaussianFit.of(statistics) for statistics in self._statistics]
        for statistics, fit in zip(self._statistics, self._fits, strict=True):
            frequencies = frequencies_without(statistics.samples, targets)
            guessed = None
            if isinstance(logits, TopK):
                answers = logits.best(statistics.top_k)
                values = answer_values(answers, statistics.weighting)
                rest = Rest(fit, answers.times(fit.basis, values) - fit.mean @ fit.basis, targets)
                guessed = ~_speaks_without(statistics, answers, values).any(1) | ((frequencies > 0).sum(1) < 2)
            else:
                vectors = logit_vectors(logits.double(), statistics.top_k, statistics.weighting)
                rest = Rest(fit, (vectors - fit.mean) @ fit.basis, targets)
            shares = frequencies / frequencies.sum(1, keepdim=True).clamp_min(1)
            by_frequency = shares.clamp_min(SMALLEST_SHARE).log()
            for priors, shrinkage in product(self._values("priors"), self._values("shrinkage")):
                found = gaussian_without(fit, rest, targets, shrinkage, priors=priors)
                yield found if guessed is None else torch.where(guessed[:, None], by_frequency, found)

    @override
    def scores_by_group(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor, groups: Tensor) -> Iterator[Tensor]:
        if not self._fits:
            self._fits = [GaussianFit.of(statistics) for statistics in self._statistics]
        for statistics, fit in zip(self._statistics, self._fits, strict=True):
            guessed, by_frequency = None, torch.zeros(())
            if isinstance(logits, TopK):
                answers = logits.best(statistics.top_k)
                vectors = answers.dense(answer_values(answers, statistics.weighting))
                guessed, by_frequency = _silent_without(statistics, vectors, targets, groups)
            else:
                vectors = logit_vectors(logits.double(), statistics.top_k, statistics.weighting)
            for priors, shrinkage in product(self._values("priors"), self._values("shrinkage")):
                found = gaussian_without_groups(fit, vectors, targets, groups, shrinkage, priors=priors)
                yield found if guessed is None else torch.where(guessed[:, None], by_frequency, found)


def _silent_without(
    statistics: TopKGaussianStatistics, vectors: Tensor, targets: Tensor, groups: Tensor
) -> tuple[Tensor, Tensor]:
    """Which answers (N,) say nothing by the samples outside of their group, and what frequencies say there, (N, k_T)."""
    _, index = groups.unique(return_inverse=True)
    size = int(index.max()) + 1
    sums = vectors.new_zeros(size, vectors.shape[1]).index_add_(0, index, vectors)
    whole = statistics.sums.sum(1)
    named_outside = whole - sums[index] > whole * 2.0**-40
    counts = vectors.new_zeros(size, statistics.k_target).index_put_((index, targets), vectors.new_ones(()), accumulate=True)
    left = (statistics.samples.double() - counts[index]).clamp_min(0)
    silent = ~((vectors > 0) & named_outside).any(1) | ((left > 0).sum(1) < 2)
    return silent, (left / left.sum(1, keepdim=True).clamp_min(1)).clamp_min(SMALLEST_SHARE).log()


def _speaks_without(statistics: TopKGaussianStatistics, answers: TopK, values: Tensor) -> Tensor:
    """Which labels of each answer (N, K) are not the same in all other samples, so that a mapping of those has weights."""
    n = statistics.weight
    mean = statistics.sums.sum(1) / n
    squares = statistics.mean_square() * n
    spread = squares - n * mean.square()
    whole = answers.dense(values).gather(1, answers.labels)
    left = spread[answers.labels] - n / max(n - 1, 1) * (whole - mean[answers.labels]).square()
    return (values > 0) & (left > squares[answers.labels] * 2.0**-40)
