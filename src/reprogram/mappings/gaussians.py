"""The Gaussian mapping: Bayes' rule with one normal density per class on the logits, all with the same covariance.

Estimated in closed form from sums alone (see `GaussianStatistics`), and affine in the logits: a gradient-free mapping
like the others, but its weights are signed and are no probabilities, and it needs the full logits.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import NonFiniteError, ReprogramError
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.evidence import warn_about
from reprogram.mappings.settings import GaussianSettings, Shrinkage
from reprogram.statistics.base import Statistics, check_deviation
from reprogram.statistics.gaussian import GaussianStatistics


@dataclass(frozen=True)
class GaussianFit:
    """The densities in coordinates where their covariance is diagonal.

    Constant logits, such as those of labels that no answer names, have no coordinate: what they say is 0.

    Attributes:
        mean: (k_S,) the mean of all samples.
        basis: (k_S, r) orthonormal columns, the eigenvectors of the scatter within classes; with 0 for constant logits.
        scatter: (r,) eigenvalues of that scatter: summed squares, not divided by anything.
        means: (r, k_T) class means less `mean`, in those coordinates; 0 for a class without samples.
        samples: (k_T,) float64. Of weighted samples, these and `scatter` are scaled to the effective number of samples
            (`GaussianStatistics.effective_size`), which ν and "oas" count: weights of 1/n or of 1 for all are the same.
        freedom: ν, by which the scatter is divided: samples less classes that have any, at least 1.
        size: p = k_S, by which a trace is divided; constant logits count.
    """

    mean: Tensor
    basis: Tensor
    scatter: Tensor
    means: Tensor
    samples: Tensor
    freedom: float
    size: int

    @classmethod
    def of(cls, statistics: GaussianStatistics) -> Self:
        """One eigendecomposition; every shrinkage is cheap after it."""
        statistics.check_size()
        weight = statistics.weight or 1.0
        size = statistics.effective_size
        present = statistics.samples > 0
        mean = statistics.sums.sum(1) / weight
        means = (statistics.sums / statistics.samples.where(present, 1) - mean[:, None]) * present
        means = means.where(means.abs() > mean.abs()[:, None] * 2.0**-44, 0)  # constant logits differ by rounding alone
        # what remains below the rounding of float32 logits is no spread: logits of rank k_T < k_S, one sample per class. A
        # large constant, as of labels that are masked, must not make the others look like rounding.
        noise = statistics.noise()
        within = statistics.within.diagonal()
        total = within + (means.square() * statistics.samples).sum(1)  # about the mean of all
        constant = total <= noise / 4
        check_deviation(float((total.where(~constant, 0).max() / weight).sqrt()))
        spread = within > noise
        # the matrix falls into the block of the logits that spread within classes, and zeros: only that block is decomposed
        block = spread.nonzero().flatten()
        found, vectors = _eigen(((statistics.within + statistics.within.T) / 2)[block][:, block])
        rest = (~spread & ~constant).nonzero().flatten()
        basis = vectors.new_zeros(len(spread), len(block) + len(rest))
        basis[block, : len(block)] = vectors
        basis[rest, torch.arange(len(block), basis.shape[1], device=rest.device)] = 1.0
        # a constant says nothing, and what is left of one by rounding must not, however large it is
        means = means.masked_fill(constant[:, None], 0)
        largest = found.max().clamp_min(0) if len(block) else 0.0
        floor = vectors.square().T @ noise[block] + largest * 2.0**-48
        scatter = torch.cat([found.where(found > floor, 0) * (size / weight), found.new_zeros(len(rest))])
        samples = statistics.samples * (size / weight)
        freedom = max(size - float(present.sum()), 1.0)
        return cls(mean, basis, scatter, basis.T @ means, samples, freedom, len(spread))

    def oas(self) -> float:
        """The oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010) towards a multiple of the identity."""
        if not len(self.scatter):
            return 1.0
        scatter = self.scatter / self.scatter.max().clamp_min(1e-300)  # its scale does not matter, but its square must exist
        return float(oas(scatter.sum(), scatter.square().sum(), self.freedom, self.size))

    def variances(self, shrinkage: float) -> Tensor:
        """The eigenvalues of Σ = (1 − ρ)·S + ρ·(tr S / p)·I, (r,)."""
        floor = float(self.scatter.sum()) / self.size
        if floor <= 0:  # no class has two different samples: every direction counts the same
            spread = float((self.means.square() * self.samples).sum()) / self.size
            return torch.full_like(self.scatter, spread / max(float(self.samples.sum()), 1e-300) or 1.0)
        return ((1 - shrinkage) * self.scatter + shrinkage * floor) / self.freedom


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a symmetric matrix."""
    try:
        return torch.linalg.eigh(matrix)  # type: ignore[no-any-return]
    except RuntimeError:  # torch's LinAlgError
        raise NonFiniteError(
            "the covariance of the logits cannot be decomposed, as its entries are too unlike; bring the logits to one scale"
        ) from None


def oas(trace: Tensor, trace_of_square: Tensor, freedom: Tensor | float, size: int) -> Tensor:
    """ρ = min(1, ((1 − 2/p)·tr S² + tr² S) / ((ν + 1 − 2/p)·(tr S² − tr² S / p))) with S = scatter / ν; 1 where S is 0."""
    above = (1 - 2 / size) * trace_of_square + trace**2
    below = (freedom + 1 - 2 / size) * (trace_of_square - trace**2 / size)
    return torch.where(below > above, above / below.where(below > 0, 1), 1)


def gaussian(
    statistics: GaussianStatistics, shrinkage: Shrinkage = "oas", *, priors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Bayes' rule for normal classes with means m_t and one covariance Σ: ω_t = Σ⁻¹(m_t − m), b_t = −½(m_t − m)ᵀω_t.

    Args:
        statistics: of the logits; any rank, any number of samples.
        shrinkage: ρ above 0 and up to 1, how far Σ goes from the empirical covariance to a multiple of the identity; "oas"
            computes it.
        priors: add the logarithm of each class's share of the samples, or of their weights, as Bayes' rule has it; without,
            all classes weigh the same, as in the paper's mappings.

    Returns:
        ω (k_S, k_T), m (k_S,) and b (k_T,), all float64: target logits are (z − m)·ω + b. A class without samples gets a
        zero column and the mean of the other classes' b.

    >>> statistics = GaussianStatistics(k_source=2, k_target=2)
    >>> logits = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    >>> omega, mean, bias = gaussian(statistics.update(logits, torch.tensor([0, 0, 1, 1])), shrinkage=1.0)
    >>> omega.tolist(), mean.tolist(), bias.tolist()
    ([[1.0, -1.0], [-1.0, 1.0]], [1.0, 1.0], [-1.0, -1.0])
    """
    check_shrinkage(shrinkage)
    return gaussian_of(GaussianFit.of(statistics), shrinkage, priors=priors)


def gaussian_of(fit: GaussianFit, shrinkage: Shrinkage = "oas", *, priors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """As `gaussian`, of densities that are known already."""
    precise = fit.means / fit.variances(fit.oas() if shrinkage == "oas" else shrinkage)[:, None]
    bias = -(fit.means * precise).sum(0) / 2
    present = fit.samples > 0
    bias = bias.where(present, bias[present].mean() if bool(present.any()) else 0.0)
    if priors:
        bias = bias + log_priors(fit.samples)
    return fit.basis @ precise, fit.mean, bias


def log_priors(samples: Tensor) -> Tensor:
    """The logarithm of each class's share of the samples, with half a sample for a class that has none: (..., k_T).

    Args:
        samples: how many there are of each class. Weights must be scaled so that a sample has a weight of about 1, as
            `GaussianFit.samples` are: else half a sample would be more than all others that weigh 1/n.

    >>> log_priors(torch.tensor([3.0, 1.0])).exp().tolist(), log_priors(torch.tensor([1.5, 0.0])).exp().tolist()
    ([0.75, 0.25], [0.75, 0.25])
    """
    shares = samples.where(samples > 0, 0.5)
    return (shares / shares.sum(-1, keepdim=True)).log()


def check_shrinkage(shrinkage: Shrinkage) -> None:
    """Raise unless this is "oas" or a number above 0 and up to 1; at 0 the covariance of few samples has no inverse."""
    if shrinkage != "oas" and (not isinstance(shrinkage, (int, float)) or not 0 < shrinkage <= 1):
        raise ReprogramError(f"shrinkage {shrinkage!r} was given, but a number above 0 and up to 1, or 'oas', is expected")


class GaussianMapping(Mapping):
    """The mapping of those densities; in the coordinates of `span` where the logits lie in one."""

    general = True
    settings: GaussianSettings

    @override
    def empty_statistics(self) -> Statistics:
        coordinates = self.k_source if self.span is None else self.span.shape[1]
        return GaussianStatistics(coordinates, self.k_target, span=self.span)

    @override
    def start(self) -> Affine:
        uniform = torch.full((self.k_source, self.k_target), 1 / self.k_source)
        return Affine(uniform, torch.zeros(self.k_source), None, torch.zeros(self.k_target))

    @override
    def solve(self, statistics: Statistics) -> Affine:
        assert isinstance(statistics, GaussianStatistics)
        absent = statistics.samples <= 0
        warn_about(absent, self.classes, "there is no evidence for target {}: it is left at the average")
        omega, mean, bias = gaussian(statistics, self.settings.shrinkage, priors=self.settings.priors)
        if statistics.span is not None:
            omega, mean = statistics.span @ omega, statistics.span @ mean
        return Affine(omega.float(), mean.float(), None, bias.float())
