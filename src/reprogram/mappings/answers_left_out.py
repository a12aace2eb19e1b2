"""The shares that top-K answers give to the classes, each by the mapping as it would be without that answer."""

import torch
from torch import Tensor

from reprogram.mappings.base import Mapping
from reprogram.mappings.bayesian import BayesMapping
from reprogram.mappings.leave_one_out import bayes_without
from reprogram.mappings.samples import Samples
from reprogram.statistics.joint import JointStatistics

_VALUES = 2_000_000  # of answers as full rows, at a time


class AnswersLeftOut:
    """Scores the answers that a Bayesian mapping was estimated from.

    An answer of K labels is a row of k_S numbers with K of them above 0, so the formulas for logits hold as they are.

    Args:
        mapping: blm or blm+; its statistics hold the answers.

    Attributes:
        counted: (k_T,) how many answers of each class it knows.
    """

    def __init__(self, mapping: Mapping) -> None:
        assert isinstance(mapping, BayesMapping)
        assert isinstance(mapping.statistics, JointStatistics)
        self._statistics, self._smoothing = mapping.statistics.copy().cpu(), mapping.settings.smoothing
        self.counted = self._statistics.counted

    @staticmethod
    def takes(mapping: Mapping) -> bool:
        """Whether there is a formula for answers of this mapping."""
        return isinstance(mapping, BayesMapping) and mapping.takes_answers and not mapping.weighted

    def scores(self, samples: Samples) -> Tensor:
        """(N, k_T) float64 shares, 0 where nothing in an answer speaks for any class."""
        rows = max(1, _VALUES // self._statistics.k_source)
        parts = torch.arange(len(samples)).split(rows)
        return torch.cat([self._scores(samples.where(part)) for part in parts])

    def _scores(self, samples: Samples) -> Tensor:
        assert samples.indices is not None
        assert samples.probabilities is not None
        there = samples.indices >= 0
        labels, values = samples.indices.clamp_min(0), samples.probabilities.double() * there
        inputs = torch.zeros(len(samples), self._statistics.k_source, dtype=torch.float64)
        inputs.scatter_add_(1, labels, values)
        best = values.masked_fill(~there, -1).sort(dim=1, descending=True, stable=True).indices
        best = best[:, : self._statistics.top_k]
        counts, present = self._statistics.kind == "counts", there.gather(1, best).double()
        chosen, added = labels.gather(1, best), present if counts else values.gather(1, best)
        # a label that an answer names twice has added both scores to one row of J
        places = torch.arange(chosen.shape[1]).expand_as(chosen)
        whole = torch.zeros_like(inputs).scatter_add_(1, chosen, added).gather(1, chosen)
        first = torch.full(inputs.shape, chosen.shape[1]).scatter_reduce_(1, chosen, places, "amin").gather(1, chosen)
        evidence = chosen, whole * (first == places)
        (scores,) = bayes_without(self._statistics, evidence, samples.targets, self._smoothing, [inputs])
        total = scores.sum(1, keepdim=True)
        return torch.where(total > 0, scores / total.where(total > 0, 1), 0)
