"""Normal densities of the logits, one for each class, all with the same covariance: what `gaussians` makes a mapping of.

Two ways to the same numbers. An eigendecomposition (`GaussianFit`) serves every shrinkage, and what leaves samples out.
Where one shrinkage is wanted and the covariance is far from singular, as in training, a Cholesky factor gives the same for
about a fifth of the time.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from reprogram.errors import NonFiniteError
from reprogram.mappings.settings import Shrinkage
from reprogram.statistics.base import check_deviation
from reprogram.statistics.gaussian import GaussianStatistics

_SINGULAR = 1e6  # a covariance whose largest eigenvalue is so many times its smallest is left to the eigendecomposition
_UNSEEN = 1e-9  # of the smallest eigenvalue: what rounding may add to it, as float32, in which ω is kept, does not show it


@dataclass(frozen=True)
class _Moments:
    """What the densities are made of, cleaned of what is rounding alone.

    Attributes:
        mean: (k_S,) the mean of all samples.
        means: (k_S, k_T) class means less `mean`; 0 for a class without samples, and for constant logits.
        block: (b,) the logits that spread within classes.
        rest: (r − b,) those that differ between classes alone; all others are constant.
        within: (b, b) the summed products of the first, about the class means.
        noise: (b,) below so much, their summed squares are rounding.
        scale: what `within` and samples are multiplied by, to count effective samples.
        samples: (k_T,) so scaled.
        freedom: ν, see `GaussianFit`.
        size: p, see `GaussianFit`.
    """

    mean: Tensor
    means: Tensor
    block: Tensor
    rest: Tensor
    within: Tensor
    noise: Tensor
    scale: float
    samples: Tensor
    freedom: float
    size: int

    @classmethod
    def of(cls, statistics: GaussianStatistics) -> Self:
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
        block, rest = spread.nonzero().flatten(), (~spread & ~constant).nonzero().flatten()
        inside = statistics.within if len(block) == len(spread) else statistics.within[block][:, block]
        # a constant says nothing, and what is left of one by rounding must not, however large it is
        means = means.masked_fill(constant[:, None], 0)
        scale, freedom = size / weight, max(size - float(present.sum()), 1.0)
        inside = (inside + inside.T) / 2
        return cls(mean, means, block, rest, inside, noise[block], scale, statistics.samples * scale, freedom, len(spread))


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
        found = _Moments.of(statistics)
        values, vectors = _eigen(found.within)
        block, rest = found.block, found.rest
        basis = vectors.new_zeros(found.size, len(block) + len(rest))
        basis[block, : len(block)] = vectors
        basis[rest, torch.arange(len(block), basis.shape[1], device=rest.device)] = 1.0
        largest = values.max().clamp_min(0) if len(block) else 0.0
        floor = vectors.square().T @ found.noise + largest * 2.0**-48
        scatter = torch.cat([values.where(values > floor, 0) * found.scale, values.new_zeros(len(rest))])
        return cls(found.mean, basis, scatter, basis.T @ found.means, found.samples, found.freedom, found.size)

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


class Solved(NamedTuple):
    """The densities for one shrinkage, in some coordinates of the logits.

    Attributes:
        means: (r, k_T) class means less the mean of all.
        precise: (r, k_T) Σ⁻¹ times these.
        samples: (k_T,) of each class.
        about: (r, k_T) the columns of which aᵀΣa was wanted, with 0 for constant logits; None where it was not.
        spread: (k_T,) that.
    """

    means: Tensor
    precise: Tensor
    samples: Tensor
    about: Tensor | None
    spread: Tensor | None


def by_eigenvectors(fit: GaussianFit, shrinkage: Shrinkage, about: Tensor | None = None) -> Solved:
    """The densities for one shrinkage, in the coordinates of the fit.

    Args:
        fit: the densities.
        shrinkage: ρ, or "oas".
        about: (k_S, k_T) columns of which aᵀΣa is wanted.
    """
    variances = fit.variances(fit.oas() if shrinkage == "oas" else shrinkage)
    about = None if about is None else fit.basis.T @ about
    spread = None if about is None else variances @ about.square()
    return Solved(fit.means, fit.means / variances[:, None], fit.samples, about, spread)


def by_factor(
    statistics: GaussianStatistics, shrinkage: Shrinkage, about: Tensor | None = None
) -> tuple[Tensor, Solved] | None:
    """The mean of all samples and the densities for one shrinkage, in the coordinates of the logits, by a Cholesky factor.

    What is wanted is as in `by_eigenvectors`. None where Σ is so near to a singular matrix that eigenvalues which are
    rounding alone would show; elsewhere it is the same up to a billionth.
    """
    found = _Moments.of(statistics)
    within, block, rest = found.within * found.scale, found.block, found.rest
    trace, square = within.trace(), within.square().sum()
    rho = oas(trace, square, found.freedom, found.size) if shrinkage == "oas" else torch.full_like(trace, shrinkage)
    floor, largest = rho * trace / found.size, square.sqrt()  # the norm is at least the largest eigenvalue
    rounding = found.noise.max() * found.scale + largest * 2.0**-48 if len(block) else largest
    usable = (floor > 0) & (largest <= _SINGULAR * floor) & (rounding <= _UNSEEN * floor) & square.isfinite()
    if not bool(usable):
        return None
    sigma = within.mul_(1 - rho)
    sigma.diagonal().add_(floor)
    factor, failed = torch.linalg.cholesky_ex(sigma)
    if int(failed):
        return None
    precise = torch.zeros_like(found.means)
    precise[block] = torch.cholesky_solve(found.means[block], factor) * found.freedom
    precise[rest] = found.means[rest] * (found.freedom / floor)
    spread = None
    if about is not None:
        inside, beside = about[block], about[rest]
        spread = ((inside * (sigma @ inside)).sum(0) + floor * beside.square().sum(0)) / found.freedom
        known = torch.zeros_like(about)
        known[block], known[rest] = inside, beside
        about = known
    return found.mean, Solved(found.means, precise, found.samples, about, spread)
