"""What the Gaussian mapping on top-K answers is estimated from: the sums of `GaussianStatistics` over sparse vectors.

Each answer is a vector over the source labels: a function of the probability for each label that it names, and 0 for the
others. Full logits are brought to the same form by their softmax.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError, unknown
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import rearranged
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.ranking import stable_top_k

_FLOOR = math.log(1e-3)


def _by_rank(logs: Tensor) -> Tensor:
    """1 / √rank, the most probable label of each row first, and the first among equals."""
    order = logs.detach().argsort(dim=1, descending=True, stable=True)
    return (order.argsort(1) + 1).to(logs.dtype).rsqrt()


#: What becomes of log p, by the name of the weighting: (N, K) → (N, K).
WEIGHTINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": lambda logs: (logs / 2).exp(),
    "log": lambda logs: (1 - logs / _FLOOR).clamp_min(0),
    "rank": _by_rank,
    "presence": torch.ones_like,
}


def answer_values(answers: TopK, weighting: str) -> Tensor:
    """The values (N, K) float64 of the labels that answers name; 0 in empty places and where the probability is 0."""
    values = WEIGHTINGS[weighting](answers.probabilities.log())
    return values.where(answers.probabilities > 0, 0)


def logit_vectors(logits: Tensor, top_k: int | None, weighting: str) -> Tensor:
    """The vectors (N, k_S) of full logits, by the `top_k` best labels of their softmax or by all; it has a gradient.

    A logit that is not finite makes NaN: no weighting hides it.
    """
    logs = logits.log_softmax(1)
    if top_k is None or top_k >= logits.shape[1]:
        vectors = WEIGHTINGS[weighting](logs)
    else:
        _, labels = stable_top_k(logits.detach(), top_k)
        vectors = torch.zeros_like(logs).scatter(1, labels, WEIGHTINGS[weighting](logs.gather(1, labels)))
    return vectors.where(logits.isfinite(), math.nan)


class TopKGaussianStatistics(GaussianStatistics):
    """`GaussianStatistics` of the vectors of answers, or of full logits as answers.

    Args:
        k_source: the number of source labels.
        k_target: the number of target classes, also of absent ones.
        top_k: how many labels of an answer count; None for all that it names.
        weighting: what becomes of a probability; see `WEIGHTINGS`.

    >>> statistics = TopKGaussianStatistics(k_source=3, k_target=2, weighting="sqrt")
    >>> answers, scores = torch.tensor([[2, 0], [1, -1]]), torch.tensor([[0.25, 0.0625], [1.0, 0.0]])
    >>> statistics.update_top_k(answers, scores, torch.tensor([0, 1])).sums.T.tolist()
    [[0.25, 0.0, 0.5], [0.0, 1.0, 0.0]]
    """

    header: ClassVar[str] = "top_k_gaussian_statistics"

    def __init__(self, k_source: int, k_target: int, *, top_k: int | None = None, weighting: str = "log") -> None:
        super().__init__(k_source, k_target)
        if weighting not in WEIGHTINGS:
            raise unknown("weighting", weighting, WEIGHTINGS)
        if top_k is not None and top_k < 1:
            raise ReprogramError(f"top_k = {top_k} was given, but at least 1 is expected; leave it out to count all labels")
        self.top_k, self.weighting = top_k, weighting

    @override
    def config(self) -> dict[str, Any]:
        return {
            "k_source": self.k_source,
            "k_target": self.k_target,
            "top_k": self.top_k,
            "weighting": self.weighting,
        }

    @torch.no_grad()
    @override
    def update(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None, *, log_probabilities: bool = False
    ) -> Self:
        """As in `Statistics`; the softmax is taken of log-probabilities, too, as it is when a mapping is applied."""
        logits = self._checked_logits(logits)
        return super().update(logit_vectors(logits.double(), self.top_k, self.weighting), targets, weights)

    @torch.no_grad()
    @override
    def update_top_k(
        self, indices: Tensor, probabilities: Tensor | None, targets: Tensor, weights: Tensor | None = None
    ) -> Self:
        answers = TopK.of(indices, probabilities, self.k_source).to(self.samples.device).best(self.top_k)
        values = answer_values(answers, self.weighting)
        if answers.indices.shape[1] ** 2 > self.k_source:  # then whole rows are as cheap as pairs of labels
            return super().update(answers.dense(values), targets, weights)
        targets = self._checked_targets(targets, len(answers))
        weights = self._checked_weights(weights, len(answers), weighted=True)
        batch, labels = self.empty(), answers.labels
        heavy = values if weights is None else values * weights[:, None]
        batch.sums.index_put_((labels, targets[:, None].expand_as(labels)), heavy, accumulate=True)
        batch._count(targets, weights)
        squares = None if weights is None else weights.square()
        batch.squared_weights += torch.bincount(targets, squares, minlength=self.k_target)
        pairs = labels[:, :, None].expand(-1, -1, labels.shape[1])
        products = heavy[:, :, None] * values[:, None, :]
        batch.within.index_put_((pairs, pairs.transpose(1, 2)), products, accumulate=True)
        present = batch.samples > 0
        sums = batch.sums[:, present]
        batch.within.addmm_(sums / batch.samples[present], sums.T, alpha=-1)
        return self.merge(batch)

    @override
    def with_sources(self, kept: Sequence[int | None]) -> Self:
        fresh = type(self)(**{**self.config(), "k_source": len(kept)}).to(self.samples.device)
        for name, part in self.named_buffers():
            if name in ("sums", "within", "removed"):
                part = rearranged(part, kept, 0)
            fresh.get_buffer(name).copy_(rearranged(part, kept, 1) if name == "within" else part)
        return fresh

    @override
    def _empty(self, k_target: int) -> Self:
        return type(self)(**{**self.config(), "k_target": k_target}).to(self.samples.device)
