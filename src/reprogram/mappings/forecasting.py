"""How many more labels? The accuracy that more samples would bring, forecast from those that are there."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.mappings.base import Mapping
from reprogram.mappings.class_gains import ClassGain, class_gains
from reprogram.mappings.class_labels import check_labels, class_names, class_numbers
from reprogram.mappings.learning_curve import Learner, LogitLearner, Measured, measure, weighted_accuracy
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import AUTO
from reprogram.mappings.scorers import Candidate
from reprogram.mappings.selection import Blocks, select
from reprogram.mappings.spool import Spool
from reprogram.mappings.tail import Tail
from reprogram.statistics.answers import TopK
from reprogram.text import shortened

LEVEL = 0.9
_WIDE = 0.2  # an interval of more than so much says little
_TOLD = 0.9  # so sure it has to be which class gains most
_WORDS = {2.0: "twice", 3.0: "three times", 4.0: "four times"}


@dataclass(frozen=True)
class Point:
    """An accuracy at some number of samples.

    Attributes:
        size: how many samples the mapping is estimated from.
        accuracy: of samples that it does not know.
        low: where its interval begins.
        high: where it ends.
        how: what it was measured on, or that it is a forecast.
    """

    size: float
    accuracy: float
    low: float
    high: float
    how: str


@dataclass(frozen=True)
class ForecastPoint(Point):
    """An accuracy that is not measured but expected.

    Attributes:
        factor: how many times the samples at hand.
        gain: accuracy above that of the samples at hand; surer than the accuracy itself, as both share their error.
        gain_low: where its interval begins.
        gain_high: where it ends.
    """

    factor: float
    gain: float
    gain_low: float
    gain_high: float


@dataclass(frozen=True)
class Forecast:
    """What more samples would bring.

    Attributes:
        candidate: the mapping and its settings.
        samples: how many there are.
        measured: the learning curve so far, the smallest size first.
        points: the accuracy with the samples at hand, and with more.
        gains: of each class with at least two samples, the largest gain first.
        level: how often the intervals are to hold the truth.
        law: the mean of the power laws: "error" e, "reducible" r and "speed" c of e · (1 − r + r · (m / n)^(−c)).
        notes: what a reader should know.
    """

    candidate: Candidate
    samples: int
    measured: tuple[Point, ...]
    points: tuple[ForecastPoint, ...]
    gains: tuple[ClassGain, ...]
    level: float
    law: dict[str, float]
    notes: tuple[str, ...] = ()

    @property
    def most(self) -> ClassGain | None:
        """The class that gains most, or None where that cannot be told."""
        best = max(self.gains, key=lambda gain: gain.first, default=None)
        told = best is not None and len(self.gains) > 1 and best.first >= _TOLD and not self.vague
        return best if told else None

    @property
    def vague(self) -> bool:
        """Whether the intervals are so wide that they say little."""
        return any(point.high - point.low > _WIDE for point in self.points)

    def __str__(self) -> str:
        """The forecast in one sentence."""
        now, *later = self.points
        start = f"{self.samples} labelled samples give {_said(now)}"
        parts = [f"with {_times(point.factor)} as many expect {_said(point)}" for point in later]
        text = "; ".join([start, ", ".join(parts), self._gaining()])
        return f"{text}; these are too few samples for more than a guess" if self.vague else text

    def _gaining(self) -> str:
        if self.most is not None:
            return f"`{shortened(self.most.name)}` would gain most"
        likely = sorted(self.gains, key=lambda gain: -gain.first)[:2]
        names = " or ".join(f"`{shortened(gain.name)}`" for gain in likely)
        return f"which class gains most cannot be told (perhaps {names})" if names else "no class can be told apart"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "mapping": self.candidate.to_json(),
            "samples": self.samples,
            "level": self.level,
            "forecast": [asdict(point) for point in self.points],
            "measured": [asdict(point) for point in self.measured],
            "gains_most": None if self.most is None else self.most.name,
            "classes": [asdict(gain) for gain in self.gains],
            "law": self.law,
            "notes": list(self.notes),
            "sentence": str(self),
        }


def _said(point: Point) -> str:
    return f"{100 * point.accuracy:.0f} % ({100 * point.low:.0f} to {100 * point.high:.0f})"


def _times(factor: float) -> str:
    return _WORDS.get(factor, f"{factor:g} times")


def forecast(
    samples: Blocks | tuple[Any, Any],
    mapping: Mapping | str = "gaussian",
    *,
    classes: Sequence[str] | None = None,
    factors: Sequence[float] = (2, 4),
    level: float = LEVEL,
    draws: int | None = None,
    seed: int = 0,
    log_probabilities: bool = False,
    **settings: Any,
) -> Forecast:
    """Forecast the accuracy of a mapping with more samples than there are, and which class gains most.

    The mapping is estimated from nested parts of the samples and measured on the others; the power laws that agree with
    this curve are followed beyond its end. Memory does not grow with the number of samples where these come in blocks.

    Args:
        samples: logits (n, k_S) and labels (n,), of any kind; or, for more than fits into memory, a function that starts a
            pass over such pairs with class numbers as labels, for a mapping that is given or with `classes`.
        mapping: any that is estimated from statistics, by name or as an object, whose own samples do not count; or `auto`.
        classes: their names, where the labels are numbers of them.
        factors: how many times the samples to look at.
        level: how often an interval is to hold the truth.
        draws: how many sequences of nested parts; by default as many as are cheap.
        seed: of these.
        log_probabilities: whether the logits are logarithms of probabilities (see `Statistics.update`).
        settings: of a mapping that is named.

    >>> draw = np.random.default_rng(0)
    >>> labels = np.array(["cat", "dog"])[np.arange(200) % 2]
    >>> logits = draw.normal(size=(200, 30)) + 2 * np.eye(30)[np.arange(200) % 2]
    >>> found = forecast((logits, labels), "gaussian")
    >>> [point.size for point in found.points], found.points[1].accuracy > found.points[0].accuracy
    ([200, 400, 800], True)
    """
    with Spool() as spool:
        logits, targets, names = _arrays(samples, spool, classes, mapping)
        if isinstance(mapping, str):
            mapping = _made(mapping, logits, targets, names, log_probabilities, settings)
        elif settings:
            raise ReprogramError(
                f"{sorted(settings)[0]} was given beside a mapping that has its settings already; leave it out"
            )
        learner = LogitLearner(mapping, logits, targets, log_probabilities=log_probabilities)
        return forecast_by(learner, mapping, factors=factors, level=level, draws=draws, seed=seed)


def forecast_by(
    learner: Learner,
    mapping: Mapping,
    *,
    factors: Sequence[float] = (2, 4),
    level: float = LEVEL,
    draws: int | None = None,
    seed: int = 0,
) -> Forecast:
    """The same by a learner, which need not know logits; `mapping` is what it estimates."""
    _check(factors, level, draws)
    targets, k_target = learner.targets, learner.k_target
    counts = torch.bincount(targets, minlength=k_target)
    n = int(counts.sum())
    if int((counts > 0).sum()) < 2:
        raise ReprogramError(f"{n} samples of {int((counts > 0).sum())} class were given, but a forecast needs at least 2")
    if not bool((counts > 1).any()):
        raise ReprogramError(
            f"{n} samples were given, one of each class, so that nothing can be measured and forecast; label a second one"
        )
    curve = measure(learner, seed=seed, draws=draws)
    scales = torch.tensor([part.size / n for part in curve], dtype=torch.float64)
    accuracies = [weighted_accuracy(part.hits, part.tests, targets, k_target) for part in curve]
    errors = 1 - torch.tensor(accuracies, dtype=torch.float64)
    covariance = _covariance(curve, targets, k_target)
    tail = Tail.of(scales, errors, covariance)
    low, high = (1 - level) / 2, (1 + level) / 2
    points = [_expected(tail, float(factor), n, low, high) for factor in (1, *factors)]
    gains = class_gains(curve, targets, mapping.classes, tail, scales, covariance, float(factors[0]), level, seed)
    law = {"error": tail.errors, "reducible": tail.reducible, "speed": tail.speeds}
    settings = {name: getattr(mapping.settings, name) for name in mapping.settings.without_training()}
    return Forecast(
        Candidate(mapping.name, {name: value for name, value in settings.items() if value is not None}),
        n,
        tuple(_measured(*known, level) for known in zip(curve, accuracies, covariance.diagonal().tolist(), strict=True)),
        tuple(points),
        tuple(gains),
        level,
        {name: tail.mean(values) for name, values in law.items()},
        tuple(_notes(counts, mapping.classes)),
    )


def _arrays(
    samples: Blocks | tuple[Any, Any], spool: Spool, classes: Sequence[str] | None, mapping: Mapping | str
) -> tuple[Tensor, Tensor, Sequence[str]]:
    """Logits, class numbers and class names; samples that come in blocks go to disk."""
    names = mapping.classes if isinstance(mapping, Mapping) else classes
    if callable(samples):
        if names is None:
            raise ReprogramError("samples in blocks have class numbers for labels; name the classes, classes=[...]")
        for logits, targets, *_ in samples():
            if isinstance(logits, TopK):
                raise ReprogramError("top-K answers were given, but logits are expected; use forecast_files")
            spool.add("logits", logits)
            spool.add("targets", targets)
        return spool.tensor("logits"), spool.tensor("targets"), names
    logits, labels = samples
    found = logits if isinstance(logits, Tensor) else torch.from_numpy(np.ascontiguousarray(logits))
    if found.ndim != 2 or not found.is_floating_point():
        raise ReprogramError(f"logits are {found.dtype} of shape {tuple(found.shape)}, but floating (n, k_S) is expected")
    targets, names = _numbered(labels, names)
    if len(targets) != len(found):
        raise ReprogramError(f"{len(found)} rows of logits and {len(targets)} labels were given; give one label for each")
    return found, targets, names


def _numbered(labels: ArrayLike | Tensor, names: Sequence[str] | None) -> tuple[Tensor, Sequence[str]]:
    """Labels as class numbers: they are such already, or texts or numbers that name the classes."""
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    check_labels(array)
    if names is None:
        found = np.unique(array)
        return class_numbers(found, array), class_names(found)
    if array.dtype.kind in "iu":
        return torch.from_numpy(array.astype(np.int64)), names
    known = np.asarray(names)
    return class_numbers(known, array.astype(known.dtype.kind)), names


def _made(
    name: str, logits: Tensor, targets: Tensor, classes: Sequence[str], log_probabilities: bool, settings: dict[str, Any]
) -> Mapping:
    """A mapping by its name, or the best one."""
    settings = {key: value for key, value in settings.items() if value is not None}
    if name == AUTO:
        if settings:
            raise ReprogramError(f"mapping 'auto' chooses {sorted(settings)[0]} by itself; leave it out, or name a mapping")
        choice = select((logits, targets), len(classes), log_probabilities=log_probabilities).choice
        name, settings = choice.mapping, choice.settings
    sources = [f"label {number}" for number in range(logits.shape[1])]
    return make_mapping(name, sources, list(classes), **settings)


def _check(factors: Sequence[float], level: float, draws: int | None) -> None:
    if not factors or not all(1 < factor <= 64 for factor in factors):
        raise ReprogramError(f"factors {list(factors)} were given, but numbers above 1 and up to 64 are expected")
    if not 0.5 <= level < 1:
        raise ReprogramError(f"level = {level:g} was given, but a share from 0.5 to below 1 is expected; 0.9 is usual")
    if draws is not None and not 1 <= draws <= 1000:
        raise ReprogramError(f"draws = {draws} was given, but 1 to 1000 are expected; leave it out to have it chosen")


def _covariance(curve: Sequence[Measured], targets: Tensor, k_target: int) -> Tensor:
    """Of the accuracies along the curve, (J, J): they are measured on the same samples, and on few drawn parts."""
    counts = torch.bincount(targets, minlength=k_target).double()
    total = counts[counts > 1].sum()
    influences = []
    for part in curve:
        tested = part.tests > 0
        rates = part.hits / part.tests.where(tested, 1)
        members = torch.bincount(targets[tested], minlength=k_target).double()
        means = torch.bincount(targets, rates * tested, minlength=k_target) / members.clamp_min(1)
        weights = counts / total / (members * (members - 1)).clamp_min(1).sqrt()
        influences.append((rates - means[targets]) * tested * weights[targets])
    table = torch.stack(influences)
    drawn = torch.tensor([_variance_of_mean(part.draws) for part in curve], dtype=torch.float64)
    # where all answers are right, or all wrong, nothing varies: as if half a sample more were otherwise
    return table @ table.T + torch.diag(drawn) + (1 / (total + 1)).square()


def _variance_of_mean(values: Sequence[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).var()) / len(values) if len(values) > 1 else 0.0


def _expected(tail: Tail, factor: float, n: int, low: float, high: float) -> ForecastPoint:
    now, then = tail.at(1.0), tail.at(factor)
    error_low, error, error_high = tail.quantiles(then, low, 0.5, high)
    gain_low, gain, gain_high = tail.quantiles(now - then, low, 0.5, high)
    size = factor * n
    how = "forecast" if factor > 1 else "fitted"
    return ForecastPoint(
        round(size) if size == round(size) else size,
        1 - error,
        1 - error_high,
        1 - error_low,
        how,
        factor,
        gain,
        gain_low,
        gain_high,
    )


def _measured(part: Measured, accuracy: float, variance: float, level: float) -> Point:
    reach = NormalDist().inv_cdf((1 + level) / 2) * variance**0.5
    return Point(round(part.size, 1), accuracy, max(accuracy - reach, 0.0), min(accuracy + reach, 1.0), part.how)


def _notes(counts: Tensor, classes: Sequence[str]) -> list[str]:
    alone = [name for name, count in zip(classes, counts.tolist(), strict=True) if count < 2]
    if not alone:
        return []
    named = ", ".join(alone[:3]) + (" ..." if len(alone) > 3 else "")
    return [f"{len(alone)} classes with fewer than two samples are not in these numbers: {named}"]
