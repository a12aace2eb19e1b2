"""Exact leave-one-out scores: what each sample would get from the mapping estimated without it, for little more than a pass.

Taking a sample out of J touches only the K rows of its own source labels, and out of a covariance only one direction. The
numbers in the comments are those of the equations in docs/leave-one-out.md, where they are derived.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.mappings.densities import GaussianFit, oas
from reprogram.mappings.gaussians import Agreement, centred_prior, log_priors
from reprogram.mappings.settings import PRIOR_WEIGHT, Normalize, Shrinkage
from reprogram.statistics import moments as m
from reprogram.statistics.answers import TopK
from reprogram.statistics.joint import JointStatistics


def normalised_without(logits: Tensor, moments: tuple[Tensor, Tensor] | None, n: int, normalize: Normalize) -> Tensor:
    """Logits (N, k_S) of counted samples, each normalised by the means and deviations of the n − 1 other samples.

    Args:
        logits: of some of the samples.
        moments: mean and deviation of each logit over all n samples, these among them.
        n: how many samples there are.
        normalize: what to do.
    """
    if normalize == "none" or moments is None:
        return logits.double()
    mean, deviation = moments
    centred = m.centred(logits.double(), mean) * (n / max(n - 1, 1))  # z less the mean of the others
    if normalize == "centre":
        return centred
    squares = n * deviation**2 - centred**2 * ((n - 1) / n)  # the others' squares about their own mean
    variance = squares / max(n - 1, 1)
    return centred / variance.where(variance > m.least_variance(mean**2 + deviation**2), 1).sqrt()


def bayes_without(
    statistics: JointStatistics,
    evidence: tuple[Tensor, Tensor],
    targets: Tensor,
    smoothing: float,
    inputs: Sequence[Tensor | TopK],
) -> list[Tensor]:
    """BLM's or BLM+'s target logits of counted samples, each by the ω of all the other samples.

    Args:
        statistics: J of all samples, these among them, without weights.
        evidence: `statistics.evidence(logits)` of some of the samples.
        targets: (N,) their labels.
        smoothing: λ.
        inputs: their logits (N, k_S) float64, in as many variants of `normalised_without` as are to be scored; or answers,
            whose probabilities are then what ω is multiplied with.

    Returns:
        For each variant, (N, k_T) float64 target logits, equal to those of `bayes` on the statistics without the sample.
    """
    joint = statistics.matrix.double()
    rows = joint.sum(1)
    inverse = inverse_or_zero(rows + smoothing)
    conditional = joint * inverse[:, None]
    labels, added = evidence[0], evidence[1].double()
    left = rows[labels] - added
    left = left.where(left > rows[labels] * 2.0**-40, 0)  # the sample was the label's only evidence
    inverse_left = inverse_or_zero(left + smoothing)
    gained = inverse_left - inverse[labels]  # (2): the rows of the sample's labels are divided by less
    lost = added * inverse_left  # (2): and its own class has less in them
    own = torch.arange(len(targets), device=targets.device), targets
    before = conditional.sum(0)
    mass = before + _gathered(labels, gained, joint)  # (3), the denominator
    mass[own] -= lost.sum(1)
    empty = (statistics.samples <= 0).expand_as(mass).clone()
    empty[own] = statistics.samples[targets] <= 1
    empty |= mass <= before * 2.0**-40  # as of a class whose other answers name no label
    scores = []
    for variant in inputs:
        whole = variant.dense() if isinstance(variant, TopK) else variant
        of_labels = whole.gather(1, labels)
        total = variant.times(conditional) if isinstance(variant, TopK) else whole @ conditional
        total += _gathered(labels, gained * of_labels, joint)  # (3), the numerator
        total[own] -= (lost * of_labels).sum(1)
        total /= mass.where(~empty, 1)
        scores.append(torch.where(empty, whole.mean(1, keepdim=True), total) if bool(empty.any()) else total)
    return scores


def gaussian_without(
    fit: GaussianFit,
    logits: "Tensor | Rest",
    targets: Tensor,
    shrinkage: Shrinkage = "oas",
    *,
    priors: bool = False,
    prior: Tensor | None = None,
    prior_weight: float = PRIOR_WEIGHT,
) -> Tensor:
    """The Gaussian mapping's target logits of counted samples, each by the densities of all the other samples.

    Args:
        fit: of the statistics of all samples, these among them, without weights.
        logits: (N, k_S) of some of the samples, in the coordinates of the statistics; or what is left without each of them,
            which several shrinkages may share.
        targets: (N,) their labels.
        shrinkage: ρ, or "oas", which is computed anew without each sample.
        priors: whether class frequencies count.
        prior: (k_S, k_T) in the coordinates of the statistics; see `gaussian`.
        prior_weight: what it is worth.

    Returns:
        (N, k_T) float64 target logits, equal to those of `gaussian` on the statistics without the sample.
    """
    rest = logits if isinstance(logits, Rest) else Rest(fit, (logits.double() - fit.mean) @ fit.basis, targets)
    scale, floor = _shrunk(rest, shrinkage)
    cross, norms, length = _forms(fit, rest, scale, floor)

    # (12): everything is measured from the mean of the others
    step = 1 / max(rest.n - 1, 1)
    bias = -(norms + 2 * step * cross + step**2 * length) / 2
    cross = (1 + step) * (cross + step * length)
    average = (bias * rest.present).sum(1) / rest.present.sum(1).clamp_min(1)
    cross, bias = cross.where(rest.present, 0), bias.where(rest.present, average[:, None])
    if prior is not None:
        about = fit.basis.T @ centred_prior(prior.to(fit.basis.device))
        towards = rest.sample @ about
        agreed = rest.with_own((fit.means * about).sum(0), (rest.own_mean * about.T[targets]).sum(1)) + step * towards
        spread = fit.scatter @ about.square() - rest.factor[:, None] * (rest.deviation @ about).square()
        spread = scale[:, None] * spread + floor[:, None] * about.square().sum(0)
        known = Agreement(agreed, spread, rest.with_own(fit.samples, rest.others), prior_weight)  # (13)
        cross, bias = known.together(cross, (1 + step) * towards), known.bias(bias)
    scores = cross + bias
    return scores + log_priors(rest.with_own(fit.samples, rest.others)) if priors else scores


def distance_without(fit: GaussianFit, logits: Tensor, targets: Tensor, shrinkage: Shrinkage = "oas") -> Tensor:
    """How far counted samples are from the nearest class, each by the densities of all the other samples.

    Args:
        fit: as for `gaussian_without`, and so are the others.
        logits: of some of the samples.
        targets: their labels.
        shrinkage: of the covariance.

    Returns:
        (N,) float64, the squared distance (x − μ'_t)ᵀΣ'⁻¹(x − μ'_t) = ℓ − 2a_t + b_t to the nearest class mean.
    """
    rest = Rest(fit, (logits.double() - fit.mean) @ fit.basis, targets)
    cross, norms, length = _forms(fit, rest, *_shrunk(rest, shrinkage))
    return (length - 2 * cross + norms).masked_fill(~rest.present, torch.inf).amin(1).clamp_min(0)


def _forms(fit: GaussianFit, rest: "Rest", scale: Tensor, floor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The forms a_t (N, k_T), b_t (N, k_T) and ℓ (N, 1) of what is left without each sample, for Σ of `_shrunk`."""
    inverse = 1 / (scale[:, None] * fit.scatter + floor[:, None])  # (10): D⁻¹, (N, k_S)

    # (11): uᵀΣ⁻¹v = uᵀD⁻¹v + gain · (uᵀD⁻¹d)(dᵀD⁻¹v), for all pairs of the sample and the class means
    along = rest.deviation * inverse
    removed = scale * rest.factor
    gain = removed / (1 - removed * (rest.deviation * along).sum(1)).clamp_min(1e-12)
    weighted = rest.sample * inverse
    sample_along = (rest.sample * along).sum(1)
    means_along = rest.with_own(along @ fit.means, (rest.own_mean * along).sum(1))
    cross = rest.with_own(weighted @ fit.means, (rest.own_mean * weighted).sum(1))  # a_t
    cross = cross + gain[:, None] * sample_along[:, None] * means_along
    norms = rest.with_own(inverse @ fit.means.square(), (inverse * rest.own_mean.square()).sum(1))  # b_t
    norms = norms + gain[:, None] * means_along.square()
    length = ((rest.sample * weighted).sum(1) + gain * sample_along**2)[:, None]  # ℓ
    return cross, norms, length


class Rest:
    """What is left of the statistics without each of N samples, in the coordinates of the fit.

    Attributes:
        n: how many samples there are, the one that is left out among them.
        sample: (N, k_S) x, the samples themselves, less the mean of all.
        others: (N,) n_y − 1, how many other samples the sample's class has.
        own_mean: (N, k_S) the mean of those (5); 0 if there are none.
        deviation: (N, k_S) d, the sample less the mean of its class, itself included; 0 if it is alone.
        factor: (N,) n_y / (n_y − 1) of (6); 0 if it is alone.
        present: (N, k_T) whether a class has any other sample.
        freedom: (N,) ν of (7).
    """

    def __init__(self, fit: GaussianFit, sample: Tensor, targets: Tensor) -> None:
        self.fit, self.sample, self.n = fit, sample, float(fit.samples.sum())
        self._own = torch.arange(len(targets), device=targets.device), targets
        mean = fit.means.T[targets]
        self.others = fit.samples[targets] - 1
        alone = self.others < 1
        left = self.others.where(~alone, 1)
        self.deviation = (sample - mean).masked_fill(alone[:, None], 0)
        self.own_mean = (mean - self.deviation / left[:, None]).masked_fill(alone[:, None], 0)  # (5)
        self.factor = torch.where(alone, 0.0, (self.others + 1) / left)
        self.present = self.with_own(fit.samples > 0, ~alone)
        self.freedom = (self.n - 1 - self.present.sum(1).double()).clamp_min(1.0)  # (7)

    def with_own(self, table: Tensor, own: Tensor) -> Tensor:
        """A table (N, k_T), or one row for all, with other values (N,) for each sample's own class."""
        result = table.expand(len(own), -1).clone()
        result[self._own] = own
        return result

    def spread_of_means(self) -> Tensor:
        """(9): the mean variance of the class means about the mean of all, or 1 if there is none, (N,)."""
        fit, left = self.fit, max(self.n - 1, 1)
        own_before = fit.means.T[self._own[1]].square().sum(1)
        about = (fit.means.square() * fit.samples).sum()
        squares = about - (self.others + 1) * own_before + self.others * self.own_mean.square().sum(1)
        spread = squares - self.sample.square().sum(1) / left
        return torch.where(spread > 1e-12 * about, spread / left / fit.size, 1.0)


def _shrunk(rest: Rest, shrinkage: Shrinkage) -> tuple[Tensor, Tensor]:
    """Σ without each sample as scale · W + floor · I, both (N,): (8), or (9) where nothing spreads within a class."""
    scatter, size = rest.fit.scatter, rest.fit.size
    squares = rest.deviation.square()
    removed = rest.factor * squares.sum(1)
    trace = (scatter.sum() - removed).clamp_min(0)
    rho = torch.full_like(trace, 1.0 if shrinkage == "oas" else float(shrinkage))
    if shrinkage == "oas":
        trace_of_square = scatter.square().sum() - 2 * rest.factor * (squares @ scatter) + removed**2
        rho = oas(trace, trace_of_square, rest.freedom, size)
    scale, floor = (1 - rho) / rest.freedom, rho * trace / size / rest.freedom
    flat = trace <= scatter.sum() * 2.0**-40
    return scale.where(~flat, 0), floor.where(~flat, rest.spread_of_means())


def inverse_or_zero(values: Tensor) -> Tensor:
    """1 / values, and 0 where a value is not above 0."""
    return torch.where(values > 0, 1 / values.where(values > 0, 1), 0)


def _gathered(labels: Tensor, factors: Tensor, table: Tensor) -> Tensor:
    """Σ_k factors[i, k] · table[labels[i, k]], (N, k_T), without a table of N × K × k_T."""
    return F.embedding_bag(labels, table, per_sample_weights=factors, mode="sum")
