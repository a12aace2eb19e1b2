"""Exact leave-one-out scores: what each sample would get from the mapping estimated without it, for little more than a pass.

Taking a sample out of J touches only the K rows of its own source labels, and out of a covariance only one direction.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.mappings.gaussians import GaussianFit, log_priors, oas
from reprogram.mappings.settings import Normalize, Shrinkage
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
    centred = (logits.double() - mean) * (n / max(n - 1, 1))  # z less the mean of the others
    if normalize == "centre":
        return centred
    squares = n * deviation**2 - centred**2 * ((n - 1) / n)  # the others' squares about their own mean
    variance = squares / max(n - 1, 1)
    return centred / variance.where(variance > 1e-12 * (mean**2 + deviation**2), 1).sqrt()


def bayes_without(
    statistics: JointStatistics,
    spoken: tuple[Tensor, Tensor],
    targets: Tensor,
    smoothing: float,
    inputs: Sequence[Tensor],
) -> list[Tensor]:
    """BLM's or BLM+'s target logits of counted samples, each by the ω of all the other samples.

    Args:
        statistics: J of all samples, these among them.
        spoken: `statistics.evidence(logits)` of some of the samples.
        targets: (N,) their labels.
        smoothing: λ.
        inputs: their logits (N, k_S) float64, in as many variants of `normalised_without` as are to be scored.

    Returns:
        For each variant, (N, k_T) float64 target logits, equal to those of `bayes` on the statistics without the sample.
    """
    evidence = statistics.matrix.double()
    rows = evidence.sum(1)
    inverse = _inverse(rows + smoothing)
    conditional = evidence * inverse[:, None]
    labels, added = spoken[0], spoken[1].double()
    left = rows[labels] - added
    left = left.where(left > rows[labels] * 2.0**-40, 0)  # only this sample had spoken for the label
    inverse_left = _inverse(left + smoothing)
    gained = inverse_left - inverse[labels]  # the rows of the sample's labels are divided by less
    lost = added * inverse_left  # and its own class has less in them
    own = torch.arange(len(targets), device=targets.device), targets
    mass = conditional.sum(0) + _gathered(labels, gained, evidence)
    mass[own] -= lost.sum(1)
    empty = (statistics.samples <= 0).expand_as(mass).clone()
    empty[own] = statistics.samples[targets] <= 1
    scores = []
    for variant in inputs:
        speaking = variant.gather(1, labels)
        total = (variant @ conditional).add_(_gathered(labels, gained * speaking, evidence))
        total[own] -= (lost * speaking).sum(1)
        total /= mass.where(~empty, 1)
        scores.append(torch.where(empty, variant.mean(1, keepdim=True), total) if bool(empty.any()) else total)
    return scores


def gaussian_without(
    fit: GaussianFit, logits: Tensor, targets: Tensor, shrinkage: Shrinkage = "oas", *, priors: bool = False
) -> Tensor:
    """The Gaussian mapping's target logits of counted samples, each by the densities of all the other samples.

    Args:
        fit: of the statistics of all samples, these among them.
        logits: (N, k_S) of some of the samples, in the coordinates of the statistics.
        targets: (N,) their labels.
        shrinkage: ρ, or "oas", which is computed anew without each sample.
        priors: whether class frequencies count.

    Returns:
        (N, k_T) float64 target logits, equal to those of `gaussian` on the statistics without the sample.
    """
    n, size = float(fit.samples.sum()), len(fit.scatter)
    means, own = fit.means, (torch.arange(len(targets), device=targets.device), targets)
    point = (logits.double() - fit.mean) @ fit.basis
    mean_own, of_class = means.T[targets], fit.samples[targets]
    alone = of_class <= 1
    away = point - mean_own
    away[alone] = 0
    others = (of_class - 1).clamp_min(1)
    weight = torch.where(alone, 0.0, of_class / others)  # scatter without the sample = scatter − weight · away awayᵀ
    present = (fit.samples > 0).expand(len(targets), -1).clone()
    present[own] = ~alone
    freedom = (n - 1 - present.sum(1).double()).clamp_min(1.0)
    length = away.square().sum(1)
    trace = (fit.scatter.sum() - weight * length).clamp_min(0)
    flat = trace <= fit.scatter.sum() * 2.0**-40  # nothing is left that spreads within a class
    if shrinkage == "oas":
        of_square = fit.scatter.square().sum() - 2 * weight * (away.square() @ fit.scatter) + (weight * length) ** 2
        rho = oas(trace, of_square, freedom, size)
    else:
        rho = torch.full_like(trace, float(shrinkage))
    kept, floor = (1 - rho) / freedom, rho * trace / size / freedom
    kept, floor = kept.where(~flat, 0), floor.where(~flat, _spread(fit, point, mean_own, others, alone, n))
    precision = 1 / (kept[:, None] * fit.scatter + floor[:, None])

    # xᵀΣ⁻¹m and mᵀΣ⁻¹m for all classes, first with the diagonal, then with the one direction that was taken out
    towards, between = (point * precision) @ means, precision @ means.square()
    along = (away * precision) @ means
    pull = kept * weight / (1 - kept * weight * (away.square() * precision).sum(1)).clamp_min(1e-12)
    own_mean = mean_own - torch.where(alone[:, None], mean_own, away / others[:, None])
    towards[own] = (point * precision * own_mean).sum(1)
    between[own] = (precision * own_mean.square()).sum(1)
    along[own] = (away * precision * own_mean).sum(1)
    point_along = (away * precision * point).sum(1)
    towards = towards + pull[:, None] * along * point_along[:, None]
    between = between + pull[:, None] * along.square()
    lengths = (precision * point.square()).sum(1) + pull * point_along**2

    # everything is measured from the mean of the others, m' = −point / (n − 1) in these coordinates
    step = 1 / max(n - 1, 1)
    bias = -(between + 2 * step * towards + step**2 * lengths[:, None]) / 2
    scores = (1 + step) * (towards + step * lengths[:, None]) + bias
    average = (bias * present).sum(1) / present.sum(1).clamp_min(1)
    scores = scores.where(present, average[:, None])
    if priors:
        counts = fit.samples.expand_as(scores).clone()
        counts[own] -= 1
        scores = scores + torch.stack([log_priors(row) for row in counts])
    return scores


def _spread(fit: GaussianFit, point: Tensor, mean_own: Tensor, others: Tensor, alone: Tensor, n: float) -> Tensor:
    """The mean variance of the class means about the mean of all, without each sample, or 1 if there is none: (N,)."""
    about = (fit.means.square() * fit.samples).sum()
    own = mean_own - torch.where(alone[:, None], mean_own, (point - mean_own) / others[:, None])
    changed = about - (others + 1).where(~alone, 1) * mean_own.square().sum(1)
    changed = changed + torch.where(alone, 0.0, others * own.square().sum(1))
    left = max(n - 1, 1)
    spread = changed - point.square().sum(1) / left
    return torch.where(spread > 1e-12 * about, spread / left / len(fit.scatter), 1.0)


def _inverse(values: Tensor) -> Tensor:
    return torch.where(values > 0, 1 / values.where(values > 0, 1), 0)


def _gathered(labels: Tensor, factors: Tensor, table: Tensor) -> Tensor:
    """Σ_k factors[i, k] · table[labels[i, k]], (N, k_T), without a table of N × K × k_T."""
    return F.embedding_bag(labels, table, per_sample_weights=factors, mode="sum")
