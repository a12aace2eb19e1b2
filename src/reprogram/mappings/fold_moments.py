"""Means and deviations of logits, of all samples and without those of a fold."""

import torch
from torch import Tensor

from reprogram.mappings.grouping import FOLDS
from reprogram.statistics import moments as m
from reprogram.statistics.base import LARGEST_LOGIT, check_finite


class Moments:
    """Means and deviations of the logits over all samples, and over all but those of a fold."""

    def __init__(self, k_source: int) -> None:
        self._n = torch.zeros(FOLDS, dtype=torch.float64)
        self._sums, self._spread = torch.zeros(2, FOLDS, k_source, dtype=torch.float64)

    @property
    def n(self) -> int:
        """How many samples there were."""
        return int(self._n.sum())

    def add(self, logits: Tensor, folds: Tensor) -> None:
        """Take in a block."""
        check_finite(logits, LARGEST_LOGIT)
        self._n, self._sums, self._spread = (part.to(logits.device) for part in (self._n, self._sums, self._spread))
        n, sums, spread = m.of_groups(logits.double(), folds.to(logits.device), FOLDS)
        self._spread += spread + m.between(self._n, self._sums, n, sums)
        self._n, self._sums = self._n + n, self._sums + sums

    def of_all(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation, both (k_S,)."""
        return m.overall(self._n, self._sums, self._spread)

    def without_each_fold(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation without the samples of each fold, both (FOLDS, k_S)."""
        kept = [torch.arange(FOLDS) != fold for fold in range(FOLDS)]
        found = [m.overall(self._n[others], self._sums[others], self._spread[others]) for others in kept]
        return torch.stack([mean for mean, _ in found]), torch.stack([deviation for _, deviation in found])
