"""How `auto` judges mappings: for each family a scorer, which scores samples by mappings that were not estimated from them.

A scorer sees all samples twice. In the first pass it gathers what its candidates are made of, in the second it scores each
sample by every candidate as that would be without the sample (leave-one-out), or without the sample's fold. It keeps sums,
never samples. To let `auto` choose a mapping of your own, write a subclass of `Scorer` and name it when you register the
mapping.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ignore_evidence_warnings
from reprogram.mappings.assignment import one_to_one
from reprogram.mappings.densities import GaussianFit
from reprogram.mappings.fold_moments import Moments
from reprogram.mappings.grouping import FOLDS, Part
from reprogram.mappings.leave_group_out import bayes_without_groups, gaussian_without_groups, normalised_without_groups
from reprogram.mappings.leave_one_out import Rest, bayes_without, distance_without, gaussian_without, normalised_without
from reprogram.mappings.registry import MAPPINGS, Family
from reprogram.mappings.shares import frequencies_without, log_shares
from reprogram.statistics import moments as m
from reprogram.statistics.answers import TopK, distinct
from reprogram.statistics.base import Statistics
from reprogram.statistics.gaussian import LARGEST_COVARIANCE, GaussianStatistics
from reprogram.statistics.joint import JointStatistics, top_count

LEAVE_ONE_OUT = "leave-one-out"
LEAVE_ONE_GROUP_OUT = "leave-one-group-out"


@dataclass(frozen=True)
class Candidate:
    """A mapping that could be chosen, by the name and the settings that `make_mapping` takes."""

    mapping: str
    settings: dict[str, Any]

    def __str__(self) -> str:
        """`blm+ (smoothing 1, top_ratio 0.15)`."""
        described = ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in self.settings.items()
        )
        return f"{self.mapping} ({described})" if described else self.mapping

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"mapping": self.mapping, **self.settings}


class Scorer(ABC):
    """Judges the candidates of one family: one for each combination of the values in the grid.

    Args:
        family: the mapping and its settings.
        k_source: the number of source labels.
        k_target: the number of classes, also of absent ones.
        grid: the values to try of each setting in `judges`; those that are left out stay at their defaults.
        span: (k_S, r) orthonormal columns that span the logits, where the source model knows them.
        log_probabilities: whether the logits are logarithms of probabilities (see `Statistics.update`).
        answers: whether `TopK` answers come instead of logits.

    Attributes:
        judges: the settings that it can vary, the outermost first: among equal candidates the one tried first is chosen.
        how: what its scores are, in words.
        takes_answers: whether it can judge by top-K answers; their scores are logarithms of what `predict_answers` says.
        one_shot: whether one sample per class makes a mapping worth having; it is taken where nothing can be judged.
        candidates: what is tried, in this order.
        obstacle: why nothing can be tried here, in words, or None.
    """

    judges: ClassVar[tuple[str, ...]]
    how: ClassVar[str] = LEAVE_ONE_OUT
    takes_answers: ClassVar[bool] = False
    one_shot: ClassVar[bool] = False

    def __init__(
        self,
        family: Family,
        k_source: int,
        k_target: int,
        grid: Mapping[str, Sequence[Any]],
        *,
        span: Tensor | None = None,
        log_probabilities: bool = False,
        answers: bool = False,
    ) -> None:
        self.family, self.k_source, self.k_target = family, k_source, k_target
        self.span, self.log_probabilities, self.answers = span, log_probabilities, answers
        self.grid = {name: self._worth_trying(name, grid[name]) for name in self.judges if name in grid}
        self.obstacle = self._obstacle()
        combinations = [] if self.obstacle else itertools.product(*self.grid.values())
        self.candidates = [Candidate(family.name, dict(zip(self.grid, values, strict=True))) for values in combinations]

    @abstractmethod
    def gather(self, logits: Any, targets: Tensor, folds: Tensor) -> None:
        """First pass: take in a block of logits (N, k_S), int64 targets (N,) and folds (N,) from 0 to `FOLDS` − 1.

        Where the scorer takes answers, `TopK` may stand for logits.
        """

    @abstractmethod
    def scores(self, logits: Any, targets: Tensor, folds: Tensor) -> Iterator[Tensor]:
        """Second pass: for each candidate in turn, the target logits (N, k_T) of a block of samples it does not know."""

    def scores_by_group(self, logits: Tensor, targets: Tensor, folds: Tensor, groups: Tensor) -> Iterator[Tensor]:
        """The same for a block of whole groups (N,): each sample is scored by a candidate that knows nothing of its group.

        A group is in one fold, so what scores on folds needs nothing else. By leave-one-out, it has to be written beside
        `scores`; a scorer that has none is not used where samples have groups, and its candidates are judged on folds.
        """
        return self.scores(logits, targets, folds)

    def scores_of(self, part: Part) -> Iterator[Tensor]:
        """Second pass: whichever of the two is right."""
        if part.groups is None:
            return self.scores(part.logits, part.targets, part.folds)
        return self.scores_by_group(part.logits, part.targets, part.folds, part.groups)

    @property
    def knows_groups(self) -> bool:
        """Whether `scores_by_group` is right, which it is not where a subclass has changed `scores` alone."""
        classes = type(self).__mro__
        single, by_group = (
            next(place for place, kind in enumerate(classes) if name in vars(kind)) for name in ("scores", "scores_by_group")
        )
        return self.how != LEAVE_ONE_OUT or (by_group <= single and self._counts_by_group)

    @property
    def _counts_by_group(self) -> bool:
        """Whether the formulas for groups hold for what is given."""
        return True

    def take(self, statistics: Statistics) -> bool:
        """Have the first pass spared, given what a mapping has counted of all samples; False where that is not enough."""
        return False

    def default(self) -> Candidate:
        """The candidate nearest to the family's own defaults, for when nothing can be judged."""
        own = MAPPINGS.read(self.family.name, {})
        settings = {
            name: getattr(own, name) if getattr(own, name) in values else values[0] for name, values in self.grid.items()
        }
        return Candidate(self.family.name, settings)

    def _worth_trying(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """The values of a setting without those that make the same mapping as one before."""
        return tuple(values)

    def _obstacle(self) -> str | None:
        return None

    def _values(self, name: str) -> tuple[Any, ...]:
        """What is tried of a setting: what the grid says, or its default alone."""
        return self.grid.get(name, (getattr(MAPPINGS.read(self.family.name, {}), name),))


class BayesScorer(Scorer):
    """Of blm, by exact leave-one-out."""

    judges: ClassVar[tuple[str, ...]] = ("smoothing", "normalize")
    takes_answers = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._moments = Moments(self.k_source) if set(self._values("normalize")) - {"none"} else None
        self._joint = [] if self.obstacle else self._statistics()

    def _statistics(self) -> list[JointStatistics]:
        return [JointStatistics.counts(self.k_source, self.k_target)]

    @override
    def take(self, statistics: Statistics) -> bool:
        if self._moments is not None or [statistics.config()] != [part.config() for part in self._joint]:
            return False
        assert isinstance(statistics, JointStatistics)
        self._joint = [statistics]
        return True

    @override
    def gather(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> None:
        if self._moments is not None and not isinstance(logits, TopK):
            self._moments.add(logits, folds)
        for statistics in self._joint:
            count(statistics.to(logits.device), logits, targets, log_probabilities=self.log_probabilities)

    @override
    def scores(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> Iterator[Tensor]:
        if isinstance(logits, TopK):
            yield from self._answer_scores(logits, targets)
            return
        moments, n = (None, 0) if self._moments is None else (self._moments.of_all(), self._moments.n)
        inputs = [normalised_without(logits, moments, n, normalize) for normalize in self._values("normalize")]
        for statistics in self._joint:
            evidence = statistics.evidence(logits, log_probabilities=self.log_probabilities)
            for smoothing in self._values("smoothing"):
                yield from bayes_without(statistics, evidence, targets, smoothing, inputs)

    def _answer_scores(self, answers: TopK, targets: Tensor) -> Iterator[Tensor]:
        for statistics in self._joint:
            labels, added = statistics.ranked_evidence(answers)
            evidence = distinct(labels.clamp_min(0), added.where(labels >= 0, 0))
            for smoothing in self._values("smoothing"):
                (scores,) = bayes_without(statistics, evidence, targets, smoothing, [answers])
                yield log_shares(scores, frequencies_without(statistics.samples, targets))

    @override
    def _worth_trying(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        return _of_answers(name, values) if self.answers else tuple(values)

    @property
    @override
    def _counts_by_group(self) -> bool:
        return not self.answers

    @override
    def scores_by_group(self, logits: Tensor, targets: Tensor, folds: Tensor, groups: Tensor) -> Iterator[Tensor]:
        moments, n = (None, 0) if self._moments is None else (self._moments.of_all(), self._moments.n)
        inputs = [
            normalised_without_groups(logits, groups, moments, n, normalize) for normalize in self._values("normalize")
        ]
        for statistics in self._joint:
            evidence = statistics.evidence(logits, log_probabilities=self.log_probabilities)
            for smoothing in self._values("smoothing"):
                yield from bayes_without_groups(statistics, evidence, targets, groups, smoothing, inputs)


class TopKBayesScorer(BayesScorer):
    """Of blm+, by exact leave-one-out."""

    judges = ("top_ratio", "top_k", "smoothing", "normalize")

    @override
    def _statistics(self) -> list[JointStatistics]:
        counts = [
            top_count(ratio, self.k_target, self.k_source) if given is None else min(given, self.k_source)
            for ratio, given in itertools.product(self._values("top_ratio"), self._values("top_k"))
        ]
        return [JointStatistics.probabilities(self.k_source, self.k_target, top_k) for top_k in counts]

    @override
    def _worth_trying(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        if name != "top_ratio":
            return super()._worth_trying(name, values)
        first: dict[int, Any] = {}  # ratios with the same K are the same mapping
        for ratio in [*values, "all"] if self.answers and "all" not in values else values:
            first.setdefault(top_count(ratio, self.k_target, self.k_source), ratio)
        return tuple(first.values())


class GaussianScorer(Scorer):
    """Of gaussian, by exact leave-one-out."""

    judges = ("priors", "shrinkage")
    one_shot = True
    #: What is known before any sample, in the coordinates of the statistics: `prior` and `prior_weight` of `gaussian`.
    beliefs: dict[str, Any] | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.obstacle is None:
            self._statistics = GaussianStatistics(self._coordinates(), self.k_target, span=self.span)
        self._fit: GaussianFit | None = None

    @override
    def take(self, statistics: Statistics) -> bool:
        assert isinstance(statistics, GaussianStatistics)
        self._statistics, self._fit = statistics, None
        return True

    def _coordinates(self) -> int:
        return self.k_source if self.span is None else self.span.shape[1]

    @override
    def _obstacle(self) -> str | None:
        too_many = self._coordinates() > LARGEST_COVARIANCE
        return f"its covariance of {self.k_source} source labels is too large" if too_many else None

    @override
    def gather(self, logits: Tensor, targets: Tensor, folds: Tensor) -> None:
        self._statistics.to(logits.device).update(logits, targets)

    @override
    def scores(self, logits: Tensor, targets: Tensor, folds: Tensor) -> Iterator[Tensor]:
        fit, inside = self._fitted(logits)
        rest = Rest(fit, (inside - fit.mean) @ fit.basis, targets)
        for priors, shrinkage in itertools.product(self._values("priors"), self._values("shrinkage")):
            yield gaussian_without(fit, rest, targets, shrinkage, priors=priors, **(self.beliefs or {}))

    def distances(self, logits: Tensor, targets: Tensor) -> Tensor:
        """How far samples are from the nearest class without them, (N,), by the first shrinkage; see `distance_without`."""
        fit, inside = self._fitted(logits)
        return distance_without(fit, inside, targets, self._values("shrinkage")[0])

    @override
    def scores_by_group(self, logits: Tensor, targets: Tensor, folds: Tensor, groups: Tensor) -> Iterator[Tensor]:
        fit, inside = self._fitted(logits)
        for priors, shrinkage in itertools.product(self._values("priors"), self._values("shrinkage")):
            yield gaussian_without_groups(fit, inside, targets, groups, shrinkage, priors=priors)

    @property
    @override
    def _counts_by_group(self) -> bool:
        return not self.beliefs

    def _fitted(self, logits: Tensor) -> tuple[GaussianFit, Tensor]:
        """The densities of all samples, and these logits in their coordinates."""
        self._fit = self._fit or GaussianFit.of(self._statistics)
        span = self._statistics.span
        return self._fit, logits.double() if span is None else logits.double() @ span


class OneToOneScorer(Scorer):
    """Of flm, on folds: an assignment without one sample cannot be had for less than a new assignment."""

    judges = ("optimal", "normalize")
    how = f"{FOLDS} folds"
    takes_answers = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._moments = Moments(self.k_source) if set(self._values("normalize")) - {"none"} else None
        shape = (0 if self.obstacle else FOLDS, self.k_source, self.k_target)
        self._counts = torch.zeros(shape, dtype=torch.int32)  # of the best source label and the class, for each fold
        self._labels: dict[bool, Tensor] = {}
        self._samples = torch.zeros(FOLDS, self.k_target, dtype=torch.float64)

    @override
    def _worth_trying(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        return _of_answers(name, values) if self.answers else tuple(values)

    @override
    def _obstacle(self) -> str | None:
        if self.k_target <= self.k_source:
            return None
        return f"{self.k_target} classes do not find a label each among {self.k_source}"

    @override
    def gather(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> None:
        if self._moments is not None and not isinstance(logits, TopK):
            self._moments.add(logits, folds)
        best = logits.best(1).indices[:, 0] if isinstance(logits, TopK) else logits.argmax(1)
        named = (best >= 0).cpu()  # an answer may name nothing
        places = (folds.cpu()[named], best.cpu()[named], targets.cpu()[named])
        self._counts.index_put_(places, torch.ones(1, dtype=torch.int32), accumulate=True)
        self._samples.index_put_((folds.cpu(), targets.cpu()), torch.ones(1, dtype=torch.float64), accumulate=True)

    @override
    def scores(self, logits: Tensor | TopK, targets: Tensor, folds: Tensor) -> Iterator[Tensor]:
        folds = folds.to(logits.device)
        for optimal in self._values("optimal"):
            if optimal not in self._labels:
                self._labels[optimal] = self._assigned(optimal)
            chosen = self._labels[optimal].to(logits.device)[folds]  # (N, k_T) source labels
            if isinstance(logits, TopK):
                yield log_shares(logits.dense().gather(1, chosen), (self._samples.sum(0) - self._samples)[folds])
                continue
            inputs = logits.double().gather(1, chosen)
            for normalize in self._values("normalize"):
                yield self._normalised(inputs, chosen, folds, normalize)

    def _normalised(self, inputs: Tensor, chosen: Tensor, folds: Tensor, normalize: str) -> Tensor:
        if normalize == "none" or self._moments is None:
            return inputs
        mean, deviation = (table[folds].gather(1, chosen) for table in self._moments.without_each_fold())
        centred = m.centred(inputs, mean)
        return centred / deviation.where(deviation > 0, 1) if normalize == "standardise" else centred

    def _assigned(self, optimal: bool) -> Tensor:
        """The source label of each class without each fold, (FOLDS, k_T)."""
        whole = self._counts.sum(0)
        with ignore_evidence_warnings():
            omegas = [one_to_one(whole - counts, optimal=optimal) for counts in self._counts]
        return torch.stack([omega.argmax(0) for omega in omegas])


def count(statistics: Statistics, logits: Tensor | TopK, targets: Tensor, *, log_probabilities: bool = False) -> None:
    """Count a block of logits or of answers."""
    if isinstance(logits, TopK):
        statistics.update_top_k(logits.indices, logits.probabilities, targets)
    else:
        statistics.update(logits, targets, log_probabilities=log_probabilities)


def _of_answers(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """What can be tried of a setting where there are no logits to normalise."""
    return ("none",) if name == "normalize" else tuple(values)
