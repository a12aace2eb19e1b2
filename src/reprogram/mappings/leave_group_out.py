"""Exact leave-one-group-out scores: what each sample would get from the mapping estimated without its whole group.

Frames of one video are no evidence about each other: whoever leaves one of them out has to leave all of them out. The
numbers in the comments are those of the equations in docs/leave-one-out.md, where they are derived. A group of one sample
is left to `reprogram.mappings.leave_one_out`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reprogram.mappings.densities import GaussianFit, oas
from reprogram.mappings.gaussians import log_priors
from reprogram.mappings.leave_one_out import bayes_without, gaussian_without, inverse_or_zero, normalised_without
from reprogram.mappings.settings import Normalize, Shrinkage
from reprogram.statistics import moments as m
from reprogram.statistics.joint import JointStatistics

_VALUES = 1 << 22  # numbers in the largest table of a step


def normalised_without_groups(
    logits: Tensor, groups: Tensor, moments: tuple[Tensor, Tensor] | None, n: int, normalize: Normalize
) -> Tensor:
    """Logits (N, k_S) of whole groups (N,), each normalised by the means and deviations of all samples but its group's.

    The other arguments are those of `normalised_without`.
    """
    index, alone = _indexed(groups)
    if normalize == "none" or moments is None or bool(alone.all()):
        return normalised_without(logits, moments, n, normalize)
    mean, deviation = moments
    apart = m.centred(logits.double(), mean)
    sizes = torch.bincount(index).double()
    left = (n - sizes).clamp_min(1)[:, None]
    sums = apart.new_zeros(len(sizes), apart.shape[1]).index_add_(0, index, apart)
    centred = apart + (sums / left)[index]  # (13): less the mean of the others
    if normalize == "standardise":
        squares = n * deviation**2 - torch.zeros_like(sums).index_add_(0, index, apart**2) - sums**2 / left
        variance = squares / left  # (13): of the others about their own mean
        centred /= variance.where(variance > m.least_variance(mean**2 + deviation**2), 1).sqrt()[index]
    if bool(alone.any()):
        centred[alone] = normalised_without(logits[alone], moments, n, normalize)
    return centred


def bayes_without_groups(
    statistics: JointStatistics,
    evidence: tuple[Tensor, Tensor],
    targets: Tensor,
    groups: Tensor,
    smoothing: float,
    inputs: Sequence[Tensor],
) -> list[Tensor]:
    """BLM's or BLM+'s target logits of counted samples, each by the ω of all samples that are not of its group.

    Args:
        statistics: J of all samples, these among them, without weights.
        evidence: `statistics.evidence(logits)` of some of the samples: all of each group.
        targets: (N,) their labels.
        groups: (N,) their groups, any whole numbers.
        smoothing: λ.
        inputs: their logits (N, k_S) float64, in as many variants of `normalised_without_groups` as are to be scored.

    Returns:
        For each variant, (N, k_T) float64 target logits, equal to those of `bayes` on the statistics without the group.
    """
    joint = statistics.matrix.double()
    rows = joint.sum(1)
    inverse = inverse_or_zero(rows + smoothing)
    conditional = joint * inverse[:, None]
    labels, added = evidence[0], evidence[1].double()
    index, alone = _indexed(groups)
    scores = [variant @ conditional for variant in inputs]
    if bool(alone.any()):
        chosen = [variant[alone] for variant in inputs]
        single = bayes_without(statistics, (labels[alone], evidence[1][alone]), targets[alone], smoothing, chosen)
        for table, found in zip(scores, single, strict=True):
            table[alone] = found
    for part in _batches(index, ~alone, labels.shape[1] * joint.shape[1]):
        members, own = part.members, part.group
        pairs, place = (own[:, None] * len(rows) + labels[members]).unique(return_inverse=True)
        pair_group, pair_label = pairs // len(rows), pairs % len(rows)  # the group's labels, each once
        slot = torch.arange(len(pairs), device=pairs.device) - torch.searchsorted(pair_group, pair_group)
        taken = torch.zeros_like(pairs, dtype=torch.float64).index_add_(0, place.flatten(), added[members].flatten())
        left = rows[pair_label] - taken
        left = left.where(left > rows[pair_label] * 2.0**-40, 0)  # the group was the label's only evidence
        inverse_left = inverse_or_zero(left + smoothing)
        change = joint.new_zeros(part.count, int(slot.max()) + 1, joint.shape[1])  # (14): P' − P in the group's rows
        change[pair_group, slot] = joint[pair_label] * (inverse_left - inverse[pair_label])[:, None]
        lost = -(added[members] * inverse_left[place])
        columns = targets[members][:, None].expand_as(place)
        change.index_put_((pair_group[place], slot[place], columns), lost, accumulate=True)
        mass = conditional.sum(0) + change.sum(1)  # (3), the denominator
        counts = torch.zeros_like(mass).index_put_((own, targets[members]), mass.new_ones(()), accumulate=True)
        empty = statistics.samples - counts < 0.5
        mass = mass.where(~empty, 1)
        named = torch.zeros(change.shape[:2], dtype=torch.int64, device=pairs.device)
        named[pair_group, slot] = pair_label
        for table, variant in zip(scores, inputs, strict=True):
            of_labels = part.padded(variant[members].gather(1, named[own]))
            total = (table[members] + part.flat(of_labels @ change)) / mass[own]  # (3), the numerator
            table[members] = torch.where(empty[own], variant[members].mean(1, keepdim=True), total)
    return scores


def gaussian_without_groups(
    fit: GaussianFit,
    logits: Tensor,
    targets: Tensor,
    groups: Tensor,
    shrinkage: Shrinkage = "oas",
    *,
    priors: bool = False,
) -> Tensor:
    """The Gaussian mapping's target logits of counted samples, each by the densities of all samples not of its group.

    Args:
        fit: of the statistics of all samples, these among them, without weights.
        logits: (N, k_S) of some of the samples, all of each group, in the coordinates of the statistics.
        targets: (N,) their labels.
        groups: (N,) their groups, any whole numbers.
        shrinkage: ρ, or "oas", which is computed anew without each group.
        priors: whether class frequencies count.

    Returns:
        (N, k_T) float64 target logits, equal to those of `gaussian` on the statistics without the group.
    """
    index, alone = _indexed(groups)
    scores = fit.means.new_empty(len(logits), fit.means.shape[1])
    if bool(alone.any()):
        scores[alone] = gaussian_without(fit, logits[alone], targets[alone], shrinkage, priors=priors)
    for part in _batches(index, ~alone, 2 * (len(fit.scatter) + fit.means.shape[1])):
        sample = (logits[part.members].double() - fit.mean) @ fit.basis
        scores[part.members] = _Rest(fit, sample, targets[part.members], part).scores(shrinkage, priors)
    return scores


class _Rest:
    """What is left of the statistics without each of B groups of up to m samples, in the coordinates of the fit.

    A pair is a group and a class of which it has samples.

    Args:
        fit: of all samples.
        sample: (M, k_S) x, the samples of the groups, less the mean of all.
        targets: (M,) their labels.
        part: which group each is of.

    Attributes:
        left: (B,) how many samples there are outside of each group.
        others: (P,) n'_c, how many samples of its class are outside of the pair's group.
        own_mean: (P, k_S) the mean of those (15); 0 if there are none.
        removed: (B, m, k_S) E of (16): Eᵀ E is what the scatter loses.
        shift: (B, k_S) q: the mean of the others is at −q.
        present: (B, k_T) whether a class has a sample outside of the group.
        freedom: (B,) ν of (7).
    """

    def __init__(self, fit: GaussianFit, sample: Tensor, targets: Tensor, part: "_Batch") -> None:
        self.fit, self.sample, self.part = fit, sample, part
        k_target = fit.means.shape[1]
        pairs, pair, sizes = (part.group * k_target + targets).unique(return_inverse=True, return_counts=True)
        self.group, self.label = pairs // k_target, pairs % k_target
        mean = fit.means.T[self.label]
        away = sample - mean[pair]
        sums = torch.zeros_like(mean).index_add_(0, pair, away)
        self.others = fit.samples[self.label] - sizes
        gone = self.others < 0.5
        rest = self.others.where(~gone, 1)
        self.others = self.others.masked_fill(gone, 0)
        self.own_mean = (mean - sums / rest[:, None]).masked_fill(gone[:, None], 0)  # (15)
        share = (((1 + sizes / rest).sqrt() - 1) / sizes).masked_fill(gone, 0)  # (16)
        self.removed = part.padded(away + (share[:, None] * sums)[pair])
        count = torch.bincount(part.group, minlength=part.count)
        self.left = (fit.samples.sum() - count).clamp_min(1)
        self.shift = sample.new_zeros(part.count, sample.shape[1]).index_add_(0, part.group, sample) / self.left[:, None]
        self.present = self.with_own((fit.samples > 0)[None], ~gone)
        self.freedom = (self.left - self.present.sum(1)).clamp_min(1.0)  # (7), for n − m samples

    def with_own(self, table: Tensor, own: Tensor) -> Tensor:
        """A table (1, k_T) or (B, k_T) with other values (P,) for each pair."""
        result = table.expand(self.part.count, -1).clone()
        result[self.group, self.label] = own
        return result

    def scores(self, shrinkage: Shrinkage, priors: bool) -> Tensor:
        """The target logits of the samples, (M, k_T)."""
        fit, part = self.fit, self.part
        scale, floor = self._shrunk(shrinkage)
        inverse, factor = self._inverse(scale, floor)
        # uᵀΣ⁻¹v = uᵀ diag(inverse) v + (F u)·(F v): (18), or with `inverse` 0 that of the matrix itself
        moved = part.padded(self.sample) + self.shift[:, None]  # the samples, seen from the mean of the others
        ends = torch.cat([moved, self.shift[:, None]], 1)
        weighted = torch.cat([ends * inverse[:, None], factor], 1)
        along = weighted @ fit.means
        along[self.group, :, self.label] = (weighted[self.group] @ self.own_mean[:, :, None])[..., 0]
        size = ends.shape[1]
        means_along = along[:, size:]
        cross = along[:, :size] + ends @ factor.transpose(1, 2) @ means_along  # of the samples, and of q, with each mean
        with_shift = ((ends * inverse[:, None]) @ self.shift[:, :, None])[..., 0]
        with_shift = with_shift + (ends @ factor.transpose(1, 2) @ (factor @ self.shift[:, :, None]))[..., 0]
        own_norms = (inverse[self.group] * self.own_mean.square()).sum(1)
        norms = self.with_own(inverse @ fit.means.square(), own_norms) + means_along.square().sum(1)
        # (19): everything is measured from the mean of the others
        bias = -(norms + 2 * cross[:, -1] + with_shift[:, -1:]) / 2
        scores = cross[:, :-1] + with_shift[:, :-1, None] + bias[:, None]
        average = (bias * self.present).sum(1) / self.present.sum(1).clamp_min(1)
        scores = part.flat(scores.where(self.present[:, None], average[:, None, None]))
        return scores + log_priors(self.with_own(fit.samples[None], self.others))[part.group] if priors else scores

    def _inverse(self, scale: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
        """Σ⁻¹ of each group as diag(inverse) + Fᵀ F: (B, k_S) and (B, r, k_S)."""
        scatter, removed = self.fit.scatter, self.removed
        diagonal = scale[:, None] * scatter + floor[:, None]
        if removed.shape[1] < removed.shape[2]:
            inverse = 1 / diagonal
            weighted = removed * inverse[:, None]
            inner = torch.eye(removed.shape[1], dtype=torch.float64, device=removed.device)
            inner = inner - scale[:, None, None] * (weighted @ removed.transpose(1, 2))
            root, failed = torch.linalg.cholesky_ex(inner)  # (17)
            if not bool(failed.any()):
                return inverse, torch.linalg.solve_triangular(root, weighted * scale.sqrt()[:, None, None], upper=False)
        # a group of more samples than coordinates: its scatter is subtracted, and what is left is decomposed
        left = torch.diag_embed(diagonal) - scale[:, None, None] * (removed.transpose(1, 2) @ removed)
        values, vectors = torch.linalg.eigh(left)
        values = values.clamp_min(0).maximum(floor[:, None])  # Σ' is at least f·I, but for rounding
        return torch.zeros_like(diagonal), vectors.transpose(1, 2) / values.sqrt()[:, :, None]

    def _shrunk(self, shrinkage: Shrinkage) -> tuple[Tensor, Tensor]:
        """Σ without each group as scale · W' + floor · I, both (B,): (8), or (9) where nothing spreads within a class."""
        scatter, size = self.fit.scatter, len(self.fit.scatter)
        squares = self.removed.square().sum(1)
        taken = squares.sum(1)
        trace = (scatter.sum() - taken).clamp_min(0)
        rho = torch.full_like(trace, 1.0 if shrinkage == "oas" else float(shrinkage))
        if shrinkage == "oas":
            turned = self.removed.transpose(1, 2)
            gram = self.removed @ turned if self.removed.shape[1] <= size else turned @ self.removed
            trace_of_square = scatter.square().sum() - 2 * (squares @ scatter) + gram.square().sum((1, 2))
            rho = oas(trace, trace_of_square, self.freedom, size)
        scale, floor = (1 - rho) / self.freedom, rho * trace / size / self.freedom
        flat = trace <= scatter.sum() * 2.0**-40
        return scale.where(~flat, 0), floor.where(~flat, self._spread_of_means())

    def _spread_of_means(self) -> Tensor:
        """(9): the mean variance of the class means about the mean of all, or 1 if there is none, (B,)."""
        fit = self.fit
        about = (fit.means.square() * fit.samples).sum()
        before = fit.samples[self.label] * fit.means.T[self.label].square().sum(1)
        change = self.others * self.own_mean.square().sum(1) - before
        squares = torch.zeros_like(self.left).index_add_(0, self.group, change) + about
        spread = squares - self.left * self.shift.square().sum(1)
        return torch.where(spread > 1e-12 * about, spread / self.left / len(fit.scatter), 1.0)


@dataclass(frozen=True)
class _Batch:
    """Some groups of similar size, to be treated at once.

    Attributes:
        count: B, how many groups.
        members: (M,) the places of their samples.
        group: (M,) which of the groups each is of, ascending.
        slot: (M,) its number within its group.
        most: m, the size of the largest of them.
    """

    count: int
    members: Tensor
    group: Tensor
    slot: Tensor
    most: int

    def padded(self, values: Tensor) -> Tensor:
        """Values (M, k) as (B, m, k), with zeros behind those of smaller groups."""
        table = values.new_zeros(self.count, self.most, values.shape[1])
        table[self.group, self.slot] = values
        return table

    def flat(self, table: Tensor) -> Tensor:
        """The opposite of `padded`."""
        return table[self.group, self.slot]


def _batches(index: Tensor, wanted: Tensor, width: int) -> Iterator[_Batch]:
    """The groups (N,) at the wanted places, those of similar size together, so that B · m · width stays small."""
    places = wanted.nonzero().flatten()
    if not len(places):
        return
    places = places[index[places].argsort(stable=True)]
    _, sizes = index[places].unique_consecutive(return_counts=True)
    starts = sizes.cumsum(0) - sizes
    order = sizes.argsort(stable=True)
    ordered: list[int] = sizes[order].tolist()
    first = 0
    while first < len(ordered):
        last = first + 1
        while last < len(ordered) and ordered[last] <= 2 * ordered[first]:
            if (last + 1 - first) * ordered[last] * width > _VALUES:
                break
            last += 1
        chosen, most = order[first:last], ordered[last - 1]
        slot = torch.arange(most, device=index.device).expand(len(chosen), -1)
        real = slot < sizes[chosen, None]
        own = torch.arange(len(chosen), device=index.device)[:, None].expand_as(slot)
        yield _Batch(len(chosen), places[(starts[chosen, None] + slot)[real]], own[real], slot[real], most)
        first = last


def _indexed(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Groups (N,) numbered from 0, and which samples are alone in theirs."""
    _, index, sizes = groups.unique(return_inverse=True, return_counts=True)
    return index, sizes[index] == 1
