"""Whether a sample is like any training sample at all: its distance to the nearest class, ranked among theirs."""

import torch
from torch import Tensor

from reprogram.mappings.base import Mapping
from reprogram.mappings.densities import GaussianFit
from reprogram.mappings.gaussians import GaussianMapping
from reprogram.statistics.gaussian import GaussianStatistics


class Typicality:
    """p-values of strangeness under the densities of a Gaussian mapping.

    Args:
        distances: (n,) squared distances of the training samples to the nearest class mean, each by the densities without
            that sample.

    Attributes:
        distances: the same, ascending.
    """

    def __init__(self, distances: Tensor) -> None:
        self.distances = distances.double().sort().values
        self._densities: tuple[Tensor, Tensor, Tensor] | None = None

    def p_values(self, mapping: Mapping, logits: Tensor) -> Tensor:
        """(N,) the share of training samples that lie as far from all classes as these logits (N, k_S), or farther.

        A new sample of one of the classes has p ≤ q with a probability of q; one that is unlike them all has a small p.
        """
        if self._densities is None:
            self._densities = _whitened(mapping)
        whiten, mean, means = self._densities
        statistics = mapping.statistics
        assert isinstance(statistics, GaussianStatistics)
        inside = logits.cpu().double()
        inside = inside if statistics.span is None else inside @ statistics.span.cpu()
        white = (inside - mean) @ whiten
        squares = white.square().sum(1, keepdim=True) - 2 * white @ means + means.square().sum(0)
        nearest = squares.amin(1).clamp_min(0)
        n = len(self.distances)
        return (1 + n - torch.searchsorted(self.distances, nearest)).double() / (n + 1)


def has_densities(mapping: Mapping) -> bool:
    """Whether a mapping has densities of logits that a distance can be read off."""
    return type(mapping) is GaussianMapping


def _whitened(mapping: Mapping) -> tuple[Tensor, Tensor, Tensor]:
    """What makes the shared covariance the identity (k_S, k_S), the mean (k_S,), and the classes' means (k_S, classes)."""
    assert isinstance(mapping, GaussianMapping)
    assert isinstance(mapping.statistics, GaussianStatistics)
    fit, shrinkage = GaussianFit.of(mapping.statistics.copy().cpu()), mapping.settings.shrinkage
    deviations = fit.variances(fit.oas() if shrinkage == "oas" else shrinkage).sqrt()
    present = fit.samples > 0
    return fit.basis / deviations, fit.mean, (fit.means / deviations[:, None])[:, present]
