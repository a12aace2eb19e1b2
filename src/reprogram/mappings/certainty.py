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
from reprogram.mappings.answers_left_out import AnswersLeftOut
from reprogram.mappings.asked import Asked
from reprogram.mappings.base import Mapping
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.prediction_sets import PredictionSets, misfits, sets_of
from reprogram.mappings.predictions import Predictions
from reprogram.mappings.reliability import Reliability
from reprogram.mappings.samples import FOLDS, FoldNumbers, Samples, fold_mappings, passes
from reprogram.mappings.scorers import LEAVE_ONE_OUT
from reprogram.mappings.temperature import TemperatureSums
from reprogram.mappings.typicality import Typicality, has_densities

LARGEST_FOLDS = 64 * 2**20  # bytes of all mappings without a fold
JUDGED = 3  # samples of a class, from which on they are judged: one that is left of two is half as good as the rivals' pairs
_LARGEST_STATISTICS = 2**30  # bytes of the statistics of all folds, while they are counted
#: What is mixed into the shares of answers before their temperature, as a share of the uniform distribution: a class that
#: nothing in an answer speaks for is not impossible.
MIXED = (0.001, 0.003, 0.01, 0.03, 0.1)


@dataclass(frozen=True)
class Certainty:
    """What was measured.

    Attributes:
        temperature: T of softmax(target logits / T).
        how: by leave-one-out, on folds, or on samples that the mapping was not estimated from.
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
        """The same of shares (N, k_T) that answers give to the classes; the order of the classes stays."""
        return mixed(shares, self.answers or 0.0) / self.temperature

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
    known: bool = True,
    held_out: bool = False,
    sets: bool = True,
    log_probabilities: bool = False,
    what: str = "validation samples",
    block_size: int = 2048,
) -> Certainty:
    """Measure how sure a mapping may be; the result is also hung on the mapping, as `mapping.certainty`.

    Args:
        mapping: estimated already.
        blocks: (logits, targets) or (logits, targets, weights) of its samples, or a function that starts a pass over such;
            also over `Samples`.
        known: whether the mapping's statistics hold exactly these samples, which saves counting them again.
        held_out: whether the mapping was not estimated from these samples, so that it may judge them as it is.
        sets: whether to prepare prediction sets and "none of these", too. For a Gaussian mapping that takes ten
            eigendecompositions.
        log_probabilities: whether the logits are logarithms of probabilities (see `Statistics.update`).
        what: what held-out samples are called.
        block_size: rows at a time where whole arrays are given.

    >>> from reprogram.mappings.base import make_mapping
    >>> logits = torch.eye(3).repeat(40, 1) * 4 + torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    >>> targets = torch.tensor([0, 1, 2]).repeat(40)
    >>> mapping = make_mapping("gaussian", ["tabby", "beagle", "wren"], ["cat", "dog", "bird"])
    >>> _ = mapping.estimate(mapping.count(logits, targets))
    >>> measure_certainty(mapping, (logits, targets)).n
    120
    >>> mapping.predict(torch.tensor([[4.0, 0.0, 0.0], [2.0, 2.0, 0.0]]), coverage=0.9).sets
    [('cat',), ('cat', 'dog')]
    """
    start = passes(blocks, block_size)
    if held_out or mapping.statistics is None:
        found = _judged_as_it_is(mapping, start, sets, what if held_out else "all samples, none of which it was made from")
    else:
        found = _Measuring(mapping, start, known, log_probabilities).measure(sets)
    mapping.certainty = found
    return found


class _Scales:
    """Temperatures of target logits, or of shares with each mixture."""

    def __init__(self) -> None:
        self.answers = False
        self._sums: list[TemperatureSums] = []

    def add(self, samples: Samples, scores: Tensor, judged: Tensor) -> None:
        self.answers = samples.logits is None
        self._sums = self._sums or [TemperatureSums() for _ in (MIXED if self.answers else (0,))]
        if self.answers:
            judged = judged & (scores.sum(1) > 0)  # else nothing spoke for any class, and frequencies decide
        for uniform, sums in zip(MIXED if self.answers else (0.0,), self._sums, strict=True):
            sums.add(mixed(scores, uniform) if self.answers else scores, samples.targets, judged, samples.weights)

    def certainty(self, how: str, **more: Any) -> Certainty:
        if not self._sums:
            return Certainty(1.0, how, 0, **more)
        losses = [after.log_loss if (after := sums.after()) is not None else 0.0 for sums in self._sums]
        place = losses.index(min(losses))
        best = self._sums[place]
        answers = MIXED[place] if self.answers else None
        return Certainty(best.temperature(), how, best.n, best.before(), best.after(), answers, **more)


def _judged_as_it_is(mapping: Mapping, start: Callable[[], Iterator[Samples]], sets: bool, how: str) -> Certainty:
    """By samples that are no part of the mapping."""
    scales, values, targets = _Scales(), [], []
    affine = mapping.affine.to(torch.device("cpu")).to(torch.float64)
    for samples in start():
        with torch.no_grad():
            scores = samples.scores(mapping, affine)
        scales.add(samples, scores, torch.ones(len(samples), dtype=torch.bool))
        values.append(misfits(scores).gather(1, samples.targets[:, None]).flatten())
        targets.append(samples.targets)
    found = None
    if sets and values:
        found = PredictionSets.of((), [(torch.cat(values), torch.cat(targets))])
    return scales.certainty(how, sets=found)


class _Measuring:
    """By the samples that the mapping was estimated from."""

    def __init__(
        self, mapping: Mapping, start: Callable[[], Iterator[Samples]], known: bool, log_probabilities: bool
    ) -> None:
        self.mapping, self.start, self.known, self.log_probabilities = mapping, start, known, log_probabilities
        self.notes: list[str] = []

    def measure(self, sets: bool) -> Certainty:
        left_out = self._left_out()
        obstacle = self._too_large() if sets or left_out is None else None
        if left_out is None and obstacle is not None:
            return Certainty(1.0, f"{FOLDS} folds", 0, notes=(f"no temperature was measured, as {obstacle}",))
        if obstacle is not None:
            self.notes.append(f"prediction sets were not prepared, as {obstacle}")
        folded = None
        if (sets and obstacle is None) or left_out is None:
            folded = fold_mappings(self.mapping, self.start, known=self.known, log_probabilities=self.log_probabilities)
        scales, number = _Scales(), FoldNumbers(self.mapping.k_target)
        found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(FOLDS)]
        far: list[Tensor] = []
        for samples in self.start():
            if left_out is not None:
                scales.add(samples, left_out.scores(samples), left_out.counted[samples.targets] >= JUDGED)
                if sets and has_densities(self.mapping) and isinstance(left_out, LeftOut):
                    far.append(left_out.distances(samples))
            if folded is not None:
                affines, counted = folded
                folds = number(samples.targets)
                scores = self._by_folds(samples, folds, affines)
                if left_out is None:
                    scales.add(samples, scores, counted[folds, samples.targets] >= JUDGED - 1)
                own = misfits(scores).gather(1, samples.targets[:, None]).flatten()
                for fold in folds.unique().tolist():
                    found[fold].append((own[folds == fold], samples.targets[folds == fold]))
        prepared = None
        if sets and folded is not None:
            empty = [(torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.int64))]
            joined = [tuple(torch.cat(parts) for parts in zip(*(part or empty), strict=True)) for part in found]
            prepared = PredictionSets.of(folded[0], [(values, targets) for values, targets in joined])
        return scales.certainty(
            LEAVE_ONE_OUT if left_out is not None else f"{FOLDS} folds",
            notes=tuple(self.notes),
            sets=prepared,
            typicality=Typicality(torch.cat(far)) if far else None,
        )

    def _left_out(self) -> "LeftOut | AnswersLeftOut | None":
        """Who scores each sample without it exactly; None where there is no formula for that."""
        first = next(iter(self.start()), None)
        if first is None or first.weights is not None:
            return None
        statistics = self.mapping.statistics
        assert statistics is not None
        if first.logits is None:
            usable = AnswersLeftOut.takes(self.mapping) and self.known
            return AnswersLeftOut(self.mapping) if usable else None
        left_out = LeftOut(self.mapping, log_probabilities=self.log_probabilities)
        if left_out.how != LEAVE_ONE_OUT or not _unweighted(self.mapping):
            return None
        left_out.gather(
            lambda: ((samples.logits, samples.targets) for samples in self.start()),
            statistics.copy().cpu() if self.known else None,
        )
        return left_out

    def _by_folds(self, samples: Samples, folds: Tensor, affines: list[Any]) -> Tensor:
        scores = torch.zeros(len(samples), self.mapping.k_target, dtype=torch.float64)
        for fold in folds.unique().tolist():
            chosen = folds == fold
            scores[chosen] = samples.where(chosen).scores(self.mapping, affines[fold].to(torch.float64))
        return scores

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


def _unweighted(mapping: Mapping) -> bool:
    statistics = mapping.statistics
    assert statistics is not None
    if not torch.equal(statistics.samples.double(), statistics.counted.double()):
        return False
    squares = getattr(statistics, "squared_weights", None)
    return squares is None or torch.equal(squares.double(), statistics.counted.double())


def with_more(mapping: Mapping, said: Predictions, asked: Asked, **given: Tensor) -> Predictions:
    """Predictions with their sets, and with what is unlike all classes, as far as that is asked for.

    Args:
        mapping: whose predictions they are.
        said: without those.
        asked: what is asked for.
        given: `logits`, or `indices` and `probabilities` of top-K answers.
    """
    samples = Samples.of(Samples(said.indices, **given))
    certainty = mapping.certainty
    if asked.coverage is not None:
        if certainty is None or certainty.sets is None:
            raise ReprogramError(f"coverage = {asked.coverage:g} was given, but {_why_no_sets(certainty)}")
        if (certainty.answers is None) != (samples.logits is not None):
            kinds = ("logits", "top-K answers") if certainty.answers is None else ("top-K answers", "logits")
            raise ReprogramError(
                f"coverage = {asked.coverage:g} was given with {kinds[1]}, but the prediction sets of this mapping were "
                f"measured on {kinds[0]}; give those, or fit it to {kinds[1]}"
            )
        found = certainty.sets.p_values(mapping, samples, per_class=asked.per_class, strict=asked.strict)
        found[said.guessed] = 1.0  # an answer that says nothing rules nothing out
        said = replace(said, sets=sets_of(found, asked.coverage, mapping.classes))
    if asked.unlike is not None:
        if not has_densities(mapping) or samples.logits is None:
            raise ReprogramError(
                f"unlike = {asked.unlike:g} was given, but only mapping 'gaussian' has the densities that strangeness is "
                f"judged by, and not {mapping.name!r}; leave it out, or fit with gaussian"
            )
        if certainty is None or certainty.typicality is None:
            raise ReprogramError(f"unlike = {asked.unlike:g} was given, but {_why_no_sets(certainty)}")
        typical = certainty.typicality.p_values(mapping, samples.logits)
        said = replace(said, typicality=typical, unlike=typical < asked.unlike)
    return said


def _why_no_sets(certainty: Certainty | None) -> str:
    if certainty is not None and certainty.outdated:
        return "the mapping was changed since that was measured; fit it again to all samples"
    if certainty is not None and certainty.notes:
        return f"{certainty.notes[0]}; fit with fewer classes or source labels"
    return "nothing was measured for it; fit it again without calibration = 'none' (a LabelMapper with prediction_sets=True)"
