"""The Gaussian mapping: Bayes' rule with one normal density per class on the logits, all with the same covariance.

Estimated in closed form from sums alone (see `GaussianStatistics`), and affine in the logits: a gradient-free mapping
like the others, but its weights are signed and are no probabilities, and it needs the full logits.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.densities import GaussianFit, Solved, by_eigenvectors, by_factor
from reprogram.mappings.evidence import warn_about
from reprogram.mappings.prior import prior_matrix, read_prior
from reprogram.mappings.settings import (
    PRIOR_WEIGHT,
    PRIORS,
    DensitySettings,
    GaussianSettings,
    MappingSettings,
    PriorMatrix,
    Shrinkage,
)
from reprogram.statistics.base import Statistics
from reprogram.statistics.gaussian import GaussianStatistics


def gaussian(
    statistics: GaussianStatistics,
    shrinkage: Shrinkage = "oas",
    *,
    priors: bool = False,
    prior: Tensor | None = None,
    prior_weight: float = PRIOR_WEIGHT,
) -> tuple[Tensor, Tensor, Tensor]:
    """Bayes' rule for normal classes with means m_t and one covariance Σ: ω_t = Σ⁻¹(m_t − m), b_t = −½(m_t − m)ᵀω_t.

    Args:
        statistics: of the logits; any rank, any number of samples.
        shrinkage: ρ above 0 and up to 1, how far Σ goes from the empirical covariance to a multiple of the identity; "oas"
            computes it.
        priors: add the logarithm of each class's share of the samples, or of their weights, as Bayes' rule has it; without,
            all classes weigh the same, as in the paper's mappings.
        prior: (k_S, k_T) in the coordinates of the statistics; see `Agreement`.
        prior_weight: κ, how many samples a prior on one class is worth; one on k classes is worth √k times as many.

    Returns:
        ω (k_S, k_T), m (k_S,) and b (k_T,), all float64: target logits are (z − m)·ω + b. A class without samples gets a
        zero column and the mean of the other classes' b, and beside these what the prior says. Without any sample, ω is the
        prior as it was given.

    >>> statistics = GaussianStatistics(k_source=2, k_target=2)
    >>> logits = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    >>> omega, mean, bias = gaussian(statistics.update(logits, torch.tensor([0, 0, 1, 1])), shrinkage=1.0)
    >>> omega.round(decimals=9).tolist(), mean.tolist(), bias.round(decimals=9).tolist()
    ([[1.0, -1.0], [-1.0, 1.0]], [1.0, 1.0], [-1.0, -1.0])
    """
    check_shrinkage(shrinkage)
    if prior is not None and not statistics.n:
        return prior.double(), prior.new_zeros(len(prior)).double(), prior.new_zeros(prior.shape[1]).double()
    about = None if prior is None else centred_prior(prior)
    quick = by_factor(statistics, shrinkage, about)
    if quick is None:
        fit = GaussianFit.of(statistics)
        return gaussian_of(fit, shrinkage, priors=priors, prior=prior, prior_weight=prior_weight)
    mean, form = quick
    omega, bias = _bayes(form, priors=priors, prior_weight=prior_weight)
    return omega, mean, bias


def gaussian_of(
    fit: GaussianFit,
    shrinkage: Shrinkage = "oas",
    *,
    priors: bool = False,
    prior: Tensor | None = None,
    prior_weight: float = PRIOR_WEIGHT,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `gaussian` makes of samples whose densities are known already."""
    form = by_eigenvectors(fit, shrinkage, None if prior is None else centred_prior(prior))
    precise, bias = _bayes(form, priors=priors, prior_weight=prior_weight)
    return fit.basis @ precise, fit.mean, bias


def _bayes(form: Solved, *, priors: bool, prior_weight: float) -> tuple[Tensor, Tensor]:
    """ω (r, k_T) in the coordinates of the densities, and b (k_T,)."""
    precise, present = form.precise, form.samples > 0
    bias = -(form.means * precise).sum(0) / 2
    bias = bias.where(present, bias[present].mean() if bool(present.any()) else 0.0)
    if form.about is not None and form.spread is not None:
        known = Agreement((form.means * form.about).sum(0), form.spread, form.samples, prior_weight)
        precise, bias = known.together(precise, form.about), known.bias(bias)
    return precise, bias + log_priors(form.samples) if priors else bias


def centred_prior(prior: Tensor) -> Tensor:
    """A prior (k_S, k_T) less the mean of its columns, which speaks for all classes alike."""
    prior = prior.double()
    return prior - prior.mean(1, keepdim=True)


class Agreement:
    """How far samples bear out a prior P, and how much each of the two counts then.

    If the prior were right, the mean of class t would differ from that of all by a multiple of Σ·P_t. The multiple c that
    fits the class means best, in least squares by Σ⁻¹, is a / Σ_t P_tᵀΣP_t with a = Σ_t d_t·P_t. Noise alone would give a
    the variance v = Σ_t P_tᵀΣP_t / n_t; with a − 4v/a in its place, c is 0 where a is within two deviations of nothing. By
    these means, Bayes' rule gives the target logits c·(z − m)·P_t − ½c²·P_tᵀΣP_t. They count κ/√k times, and those by the
    class means n/k times, where k classes have n samples: with few samples the prior decides, with many it is forgotten.

    Args:
        agreed: (..., k_T) d_t·P_t, with the class means d_t less the mean of all.
        spread: (..., k_T) P_tᵀΣP_t.
        samples: (..., k_T) n_t.
        weight: κ.

    Attributes:
        scale: (..., 1) c.
        share: (..., 1) of the class means, n/k / (n/k + κ/√k); 1 where c is 0.
    """

    def __init__(self, agreed: Tensor, spread: Tensor, samples: Tensor, weight: float) -> None:
        present = samples > 0
        size = spread.where(present, 0).sum(-1, keepdim=True)
        found = agreed.where(present, 0).sum(-1, keepdim=True)
        noise = 4 * (spread / samples.where(present, 1)).where(present, 0).sum(-1, keepdim=True)
        known = (found > 0) & (found.square() > noise) & (size > 0)
        self.scale = torch.where(known, (found - noise / found.where(known, 1)) / size.where(known, 1), 0)
        classes = present.sum(-1, keepdim=True).clamp_min(1)
        total, worth = samples.sum(-1, keepdim=True), weight * classes.double().sqrt()
        self.share = torch.where(self.scale > 0, total / (total + worth), 1.0)
        self._spread = spread

    def together(self, own: Tensor, prior: Tensor) -> Tensor:
        """What is linear in the logits: of the class means, and of the prior."""
        return self.share * own + (1 - self.share) * self.scale * prior

    def bias(self, own: Tensor) -> Tensor:
        """What is added to that, of which `own` is by the class means: (..., k_T)."""
        return self.share * own - (1 - self.share) * self.scale.square() * self._spread / 2


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


class DensityMapping(Mapping):
    """A mapping of those densities, whatever they are densities of."""

    general = True
    settings: DensitySettings

    @override
    def start(self) -> Affine:
        uniform = torch.full((self.k_source, self.k_target), 1 / self.k_source)
        return Affine(uniform, torch.zeros(self.k_source), None, torch.zeros(self.k_target))

    @override
    def solve(self, statistics: Statistics) -> Affine:
        assert isinstance(statistics, GaussianStatistics)
        beliefs = self.beliefs(statistics.span)
        if not beliefs:
            absent = statistics.samples <= 0
            warn_about(absent, self.classes, "there is no evidence for target {}: it is left at the average")
        omega, mean, bias = gaussian(statistics, self.settings.shrinkage, priors=self.settings.priors, **beliefs)
        if statistics.span is not None:
            omega, mean = statistics.span @ omega, statistics.span @ mean
        return Affine(omega.float(), mean.float(), None, bias.float())

    def beliefs(self, span: Tensor | None) -> dict[str, Any]:
        """The prior, in the coordinates of a span, and its weight, as `gaussian` takes them; nothing if there is none."""
        return {}


class GaussianMapping(DensityMapping):
    """The mapping of the densities of the logits; in the coordinates of `span` where they lie in one."""

    settings: GaussianSettings
    prior: Tensor | None

    def __init__(self, name: str, settings: GaussianSettings, *labels: Sequence[str], **options: Any) -> None:
        prior = prior_matrix(settings.prior, *labels)
        if isinstance(settings.prior, str) and settings.prior not in PRIORS:  # the file may be gone when it is needed again
            settings = settings.model_copy(update={"prior": read_prior(settings.prior)})
        super().__init__(name, settings, *labels, **options)
        self.register_buffer("prior", prior)

    @override
    def empty_statistics(self) -> Statistics:
        coordinates = self.k_source if self.span is None else self.span.shape[1]
        return GaussianStatistics(coordinates, self.k_target, span=self.span)

    @override
    def start(self) -> Affine:
        prior, begun = prior_matrix(self.settings.prior, self.source_labels, self.classes), super().start()
        return begun if prior is None else replace(begun, omega=prior)

    @override
    def beliefs(self, span: Tensor | None) -> dict[str, Any]:
        if self.prior is None:
            return {}
        prior = self.prior.double() if span is None else span.T @ self.prior.to(span.device).double()
        return {"prior": prior, "prior_weight": self.settings.prior_weight}

    @override
    def fixed_settings(self) -> MappingSettings:
        """The settings, with a prior that was handed over in full: other classes look for their columns in it."""
        given = self.settings.prior
        named = isinstance(given, PriorMatrix) and given.classes is not None
        if self.prior is None or named or given in ("names", "texts"):
            return self.settings
        whole = PriorMatrix(self.prior.detach().cpu(), None, self.classes)
        return self.settings.model_copy(update={"prior": whole})
