"""How sure a mapping may be: the temperature of its probabilities, its prediction sets, and what is none of its classes.

All of it is measured on the samples that the mapping was estimated from, each judged by the mapping without it, or on
samples that it was not estimated from. Nothing has to be trained, and no sample has to be set aside.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.mappings.asked import Asked
from reprogram.mappings.base import Mapping
from reprogram.mappings.certainty_folds import FOLDS, FoldMappings, FoldNumbers, Samples, passes, scores_by
from reprogram.mappings.gaussians import DensityMapping
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.prediction_sets import PredictionSets, misfits, sets_of
from reprogram.mappings.predictions import Predictions
from reprogram.mappings.reliability import Reliability
from reprogram.mappings.shares import frequencies_without, log_shares
from reprogram.mappings.temperature import TemperatureSums
from reprogram.mappings.typicality import Typicality, has_densities
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import checked_targets

LARGEST_FOLDS = 64 * 2**20  # bytes of all mappings without a fold
JUDGED = 3  # samples of a class, from which on they are judged: one that is left of two is half as good as the rivals' pairs
_LARGEST_STATISTICS = 2**30  # bytes of the statistics of all folds, while they are counted
#: What is mixed into the shares of answers before their temperature, as a share of the uniform distribution: a class that
#: nothing in an answer speaks for is not impossible. Shares that are a softmax, as of gaussian+, need no such mixture.
MIXED = (0.001, 0.003, 0.01, 0.03, 0.1)


@dataclass(frozen=True)
class Certainty:
    """What was measured.

    Attributes:
        temperature: T of softmax(target logits / T).
        how: by leave-one-out, by leave-one-group-out, on folds, or on samples that the mapping was not estimated from.
        n: how many samples were judged.
        before: how good the plain softmax was on them; None if none could be judged.
        after: how good it is at the temperature.
        answers: whether they were top-K answers, whose shares are mixed with the uniform distribution first; it then holds
            how much of that there is, else None.
        outdated: whether the mapping was changed since.
        notes: what could not be measured, and why.
        sets: what prediction sets are made from; None if there is nothing.
        typicality: what "none of these" is judged by; None if there is nothing.
    """

    temperature: float
    how: str
    n: int
    before: Reliability | None = None
    after: Reliability | None = None
    answers: float | None = None
    outdated: bool = False
    notes: tuple[str, ...] = ()
    sets: PredictionSets | None = None
    typicality: Typicality | None = None

    def __str__(self) -> str:
        """`probabilities: temperature 7.2 by leave-one-out on 1,000 samples; log-loss 0.912 -> 0.271 ...`."""
        if self.before is None or self.after is None:
            return f"probabilities: temperature {self.temperature:.3g}, a default, as no class has {JUDGED} samples to judge"
        pairs = (
            ("log-loss", self.before.log_loss, self.after.log_loss),
            ("Brier", self.before.brier, self.after.brier),
            ("calibration error", self.before.calibration_error, self.after.calibration_error),
        )
        changes = ", ".join(f"{name} {old:.3f} -> {new:.3f}" for name, old, new in pairs)
        return f"probabilities: temperature {self.temperature:.3g} by {self.how} ({self.n:,} samples): {changes}"

    def calibrated(self, scores: Tensor) -> Tensor:
        """Target logits (N, k_T) whose softmax is honest; as they are where answers were measured on, not logits."""
        return scores / self.temperature if self.answers is None else scores

    def calibrated_shares(self, shares: Tensor) -> Tensor:
        """Shares (N, k_T) of answers to the power of 1/T, of sum 1; as they are where logits were measured on."""
        return shares if self.answers is None else (mixed(shares, self.answers) / self.temperature).softmax(1)

    def aged(self) -> "Certainty":
        """What is left of it when the mapping changes: the temperature."""
        return replace(self, outdated=True, sets=None, typicality=None)


def mixed(shares: Tensor, uniform: float) -> Tensor:
    """Logarithms of shares with so much of the uniform distribution among them."""
    return ((1 - uniform) * shares + uniform / shares.shape[1]).clamp_min(1e-300).log()


def measure_certainty(
    mapping: Mapping,
    blocks: Any,
    *,
    held_out: bool = False,
    sets: bool = True,
    log_probabilities: bool = False,
    what: str = "validation samples",
    block_size: int = 2048,
) -> Certainty:
    """Measure how sure a mapping may be; the result is also hung on the mapping, as `mapping.certainty`.

    Args:
        mapping: estimated already.
        blocks: the samples that it was estimated from, as `LeftOut` takes them: logits (n, k_S) or `TopK` answers, targets
            (n,) and perhaps groups (n,), whose samples are left out together; or a function that starts a pass over such
            blocks. Weights (n,) may be a fourth part, with groups or None as the third. There are two passes, and more where
            large groups are scattered.
        held_out: whether the mapping was not estimated from these samples, so that it may judge them as it is.
        sets: whether to prepare prediction sets and "none of these", too. For a Gaussian mapping that takes ten
            eigendecompositions.
        log_probabilities: whether the logits are logarithms of probabilities (see `Statistics.update`).
        what: what held-out samples are called.
        block_size: rows at a time where whole arrays are given.

    >>> from reprogram.mappings.making import make_mapping
    >>> logits = torch.eye(3).repeat(40, 1) * 4 + torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    >>> targets = torch.tensor([0, 1, 2]).repeat(40)
    >>> mapping = make_mapping("gaussian", ["tabby", "beagle", "wren"], ["cat", "dog", "bird"])
    >>> _ = mapping.estimate(mapping.count(logits, targets))
    >>> measure_certainty(mapping, (logits, targets)).n
    120
    >>> mapping.predict(torch.tensor([[4.0, 0.0, 0.0], [2.0, 2.0, 0.0]]), coverage=0.9).sets
    [('cat',), ()]
    """
    start = passes(blocks, block_size)
    if held_out or mapping.statistics is None:
        found = _judged_as_it_is(mapping, start, sets, what if held_out else "all samples, none of which it was made from")
    else:
        found = _Measuring(mapping, start, log_probabilities).measure(sets)
    mapping.certainty = found
    return found


class _Scales:
    """Temperatures of target logits, or of shares with each mixture."""

    def __init__(self, mapping: Mapping, *, answers: bool) -> None:
        self._mixtures: tuple[float | None, ...] = (None,)
        if answers:
            self._mixtures = (0.0,) if isinstance(mapping, DensityMapping) else MIXED
        self._sums = [TemperatureSums() for _ in self._mixtures]

    def add(self, scores: Tensor, targets: Tensor, judged: Tensor, weights: Tensor | None = None) -> None:
        for uniform, sums in zip(self._mixtures, self._sums, strict=True):
            sums.add(scores if uniform is None else mixed(scores.softmax(1), uniform), targets, judged, weights)

    def certainty(self, how: str, **more: Any) -> Certainty:
        losses = [after.log_loss if (after := sums.after()) is not None else 0.0 for sums in self._sums]
        place = losses.index(min(losses))
        best = self._sums[place]
        return Certainty(best.temperature(), how, best.n, best.before(), best.after(), self._mixtures[place], **more)


def _judged_as_it_is(mapping: Mapping, start: Callable[[], Iterator[Samples]], sets: bool, how: str) -> Certainty:
    """By samples that are no part of the mapping."""
    first = next(iter(start()), None)
    scales, values, targets = _Scales(mapping, answers=first is not None and first.answers), [], []
    for samples in start():
        with torch.no_grad():
            scores, silent = scores_by(mapping, mapping.affine, samples.inputs)
        scales.add(scores, samples.targets, ~silent, samples.weights)
        values.append(misfits(scores).gather(1, samples.targets[:, None]).flatten())
        targets.append(samples.targets)
    found = None
    if sets and values:
        found = PredictionSets.of((), [(torch.cat(values), torch.cat(targets))])
    return scales.certainty(how, sets=found)


class _Measuring:
    """By the samples that the mapping was estimated from.

    What `LeftOut` needs and what folds need is gathered in the same passes.
    """

    def __init__(self, mapping: Mapping, start: Callable[[], Iterator[Samples]], log_probabilities: bool) -> None:
        self.mapping, self.start, self.log_probabilities = mapping, start, log_probabilities
        first = next(iter(start()), None)
        self.answers = first is not None and first.answers
        self.scales = _Scales(mapping, answers=self.answers)
        self.left_out = self._left_out(first)
        self.folded: FoldMappings | None = None
        self.typical = False
        self.units = torch.zeros(FOLDS, mapping.k_target, dtype=torch.int64)
        self.passes = 0
        self.found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(FOLDS)]
        self.far: list[Tensor] = []

    def measure(self, sets: bool) -> Certainty:
        notes = []
        obstacle = self._too_large() if sets or self.left_out is None else None
        if self.left_out is None and obstacle is not None:
            return Certainty(1.0, f"{FOLDS} folds", 0, notes=(f"no temperature was measured, as {obstacle}",))
        if obstacle is not None:
            notes.append(f"prediction sets were not prepared, as {obstacle}")
        if (sets and obstacle is None) or self.left_out is None:
            self.folded = FoldMappings(self.mapping, log_probabilities=self.log_probabilities)
        self.typical = sets and has_densities(self.mapping)
        how = f"{FOLDS} folds"
        if self.left_out is None:
            for _ in range(2):
                for _ in self._blocks():
                    pass
        else:
            for scores, targets in self.left_out(self._blocks):
                counted = self.units.sum(0)
                judged = counted[targets] >= JUDGED
                if self.answers:  # where nothing speaks for any class, frequencies decide, at no temperature
                    silent = log_shares(torch.zeros_like(scores), frequencies_without(counted, targets))
                    judged &= ~torch.isclose(scores, silent, rtol=0, atol=1e-12).all(1)
                self.scales.add(scores, targets, judged)
            how = self.left_out.how
        prepared = None
        if sets and self.folded is not None and self.passes:
            empty = [(torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.int64))]
            joined = [tuple(torch.cat(parts) for parts in zip(*(part or empty), strict=True)) for part in self.found]
            prepared = PredictionSets.of(self.folded.affines, [(values, targets) for values, targets in joined])
        typicality = Typicality(torch.cat(self.far)) if self.far else None
        return self.scales.certainty(how, notes=tuple(notes), sets=prepared, typicality=typicality)

    def _blocks(self) -> Iterator[Any]:
        """A pass, as `LeftOut` takes it: on its way the first counts folds, and the second judges by them."""
        self.passes += 1
        this, number = self.passes, FoldNumbers(self.mapping.k_target)
        for samples in self.start():
            targets = checked_targets(samples.targets, len(samples.inputs), self.mapping.k_target)
            if this < 3 and len(samples):
                folds = number(targets, samples.groups)
                if this == 1 and self.folded is not None:
                    self.folded.count(samples, folds)
                if this == 2:
                    self._judge(samples, folds)
            yield samples.block
        if this == 1:
            self.units = number.units

    def _judge(self, samples: Samples, folds: Tensor) -> None:
        """What the second pass makes of some samples."""
        if self.typical and self.left_out is not None:
            self.far.append(self.left_out.distances(samples.inputs, samples.targets))
        if self.folded is None:
            return
        scores, silent = self.folded.scores(samples, folds)
        if self.left_out is None:
            others = (self.units.sum(0) - self.units)[folds, samples.targets]
            self.scales.add(scores, samples.targets, (others >= JUDGED - 1) & ~silent, samples.weights)
        own = misfits(scores).gather(1, samples.targets[:, None]).flatten()
        for fold in folds.unique().tolist():
            self.found[fold].append((own[folds == fold], samples.targets[folds == fold]))

    def _left_out(self, first: Samples | None) -> LeftOut | None:
        """Who scores each sample, or each group, without it exactly; None where there is no formula for that."""
        if first is None or first.weights is not None:
            return None
        left_out = LeftOut(self.mapping, log_probabilities=self.log_probabilities)
        return left_out if left_out.by_formula(answers=first.answers, groups=first.groups is not None) else None

    def _too_large(self) -> str | None:
        statistics = self.mapping.statistics
        assert statistics is not None
        size = FOLDS * self.mapping.weights.nbytes
        counted = (FOLDS + 2) * sum(part.nbytes for part in statistics.buffers())
        if size > LARGEST_FOLDS:
            return (
                f"the {FOLDS} mappings for them would take {size / 2**20:,.0f} MB and at most {LARGEST_FOLDS >> 20} are kept"
            )
        if counted > _LARGEST_STATISTICS:
            return f"the statistics of {FOLDS} folds would take {counted / 2**30:,.1f} GB"
        return None


def with_more(mapping: Mapping, said: Predictions, asked: Asked, inputs: Tensor | TopK) -> Predictions:
    """Predictions with their sets, and with what is unlike all classes, as far as that is asked for.

    Args:
        mapping: whose predictions they are.
        said: without those.
        asked: what is asked for.
        inputs: the logits or the answers that they are about.
    """
    answers = isinstance(inputs, TopK)
    certainty = mapping.certainty
    if asked.coverage is not None:
        if certainty is None or certainty.sets is None:
            raise ReprogramError(f"coverage = {asked.coverage:g} was given, but {_why_no_sets(certainty)}")
        if (certainty.answers is None) == answers:
            kinds = ("logits", "top-K answers") if certainty.answers is None else ("top-K answers", "logits")
            raise ReprogramError(
                f"coverage = {asked.coverage:g} was given with {kinds[1]}, but the prediction sets of this mapping were "
                f"measured on {kinds[0]}; give those, or fit it to {kinds[1]}"
            )
        found = certainty.sets.p_values(mapping, inputs, per_class=asked.per_class, strict=asked.strict)
        found[said.guessed] = 1.0  # an answer that says nothing rules nothing out
        said = replace(said, sets=sets_of(found, asked.coverage, mapping.classes))
    if asked.unlike is not None:
        if not has_densities(mapping) or isinstance(inputs, TopK):
            raise ReprogramError(
                f"unlike = {asked.unlike:g} was given, but only mapping 'gaussian' has the densities that strangeness is "
                f"judged by, and not {mapping.name!r}; leave it out, or fit with gaussian"
            )
        if certainty is None or certainty.typicality is None:
            raise ReprogramError(f"unlike = {asked.unlike:g} was given, but {_why_no_sets(certainty)}")
        typical = certainty.typicality.p_values(mapping, inputs)
        said = replace(said, typicality=typical, unlike=typical < asked.unlike)
    return said


def _why_no_sets(certainty: Certainty | None) -> str:
    if certainty is not None and certainty.outdated:
        return "the mapping was changed since that was measured; fit it again to all samples"
    if certainty is not None and certainty.notes:
        return f"{certainty.notes[0]}; fit with fewer classes or source labels"
    return "nothing was measured for it; fit it again without calibration = 'none' (a LabelMapper with prediction_sets=True)"
