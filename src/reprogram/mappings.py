"""f_out: J → ω. Each rule is a pure function of the statistics; the table `METHODS` names the published combinations.

To add a mapping, write a function from J (k_S × k_T) to ω of the same shape and give it a row in `METHODS`.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from reprogram.errors import EvidenceWarning, ReprogramError, unknown
from reprogram.statistics import JointStatistics, Kind

Refresh = Literal["never", "fresh", "reuse"]
REFRESHES: tuple[Refresh, ...] = ("never", "fresh", "reuse")
TopRatio = float | Literal["all"]
Evidence = JointStatistics | Tensor


def top_count(ratio: TopRatio, k_target: int, k_source: int) -> int:
    """K = floor(α · k_T), at least 1 and at most k_S, with α read as the decimal number that was written.

    >>> top_count(0.15, 100, 1000), top_count(0.29, 100, 1000), top_count(0.15, 2, 1000), top_count("all", 10, 1000)
    (15, 29, 1, 1000)
    """
    if ratio == "all":
        return k_source
    if isinstance(ratio, str) or not (math.isfinite(ratio) and ratio > 0):
        raise ReprogramError(
            f"top ratio {ratio!r} was given, but a positive number or 'all' is expected (the paper has 0.15)"
        )
    return min(max(int(Fraction(repr(float(ratio))) * k_target), 1), k_source)


def random(k_source: int, k_target: int, generator: torch.Generator | None = None) -> Tensor:
    """RLM, Algorithm 3: a random choice of k_T distinct source labels, one for each target class.

    >>> random(5, 3, torch.Generator().manual_seed(0)).sum(0).tolist()
    [1.0, 1.0, 1.0]
    """
    _check_one_to_one(k_source, k_target)
    chosen = torch.randperm(k_source, generator=generator)[:k_target]
    return _selection(chosen, k_source)


def one_to_one(evidence: Evidence, *, optimal: bool = False, classes: Sequence[str] | None = None) -> Tensor:
    """FLM and ILM, Algorithm 5: give each target class a source label of its own, the strongest pairs first.

    Args:
        evidence: J, (k_S, k_T). It is not changed.
        optimal: take the assignment with the largest total evidence instead of the greedy one as published (needs scipy).
        classes: target class names for the warning about classes without evidence.

    Returns:
        ω (k_S, k_T) float32 with a single 1 in each column, in distinct rows. Of equal entries the one with the lowest
        source label, then the lowest target label, is taken first. A class that is left without evidence gets the
        lowest free source label, with a warning.

    >>> one_to_one(torch.tensor([[5, 4], [4, 0], [0, 1]])).argmax(0).tolist()
    [0, 2]
    >>> one_to_one(torch.tensor([[5, 4], [4, 0], [0, 1]]), optimal=True).argmax(0).tolist()
    [1, 0]
    """
    matrix = _matrix(evidence)
    k_source, k_target = matrix.shape
    _check_one_to_one(k_source, k_target)
    table = matrix.cpu().numpy()
    chosen = _optimal_assignment(table) if optimal else _greedy_assignment(table)
    unsupported = torch.from_numpy(table[chosen, np.arange(k_target)] <= 0)
    _warn(unsupported, classes, "no free source label has evidence for target {}: an arbitrary one is used")
    return _selection(torch.from_numpy(chosen), k_source).to(matrix.device)


def bayes(evidence: Evidence, smoothing: float = 1.0, *, classes: Sequence[str] | None = None) -> Tensor:
    """BLM and BLM+, Eq. 5 with Eqs. 6–7 or 8–9: ω ∝ J / (row sums of J + λ), every column scaled to sum 1.

    Args:
        evidence: J, (k_S, k_T), counts for BLM or summed top-K probabilities for BLM+.
        smoothing: λ ≥ 0, added to the row sums only.
        classes: target class names for the warning about classes without evidence.

    Returns:
        ω (k_S, k_T) float32. A class without evidence gets a uniform column, with a warning. The factors 1/n and
        n + k_S·λ of the equations are the same for a whole column and cancel.

    >>> bayes(torch.tensor([[0, 2], [0, 1], [1, 0]])).tolist()   # the paper's dogs and cat, λ = 1
    [[0.0, 0.5714285969734192], [0.0, 0.4285714328289032], [1.0, 0.0]]
    """
    if not (math.isfinite(smoothing) and smoothing >= 0):
        raise ReprogramError(
            f"smoothing λ = {smoothing!r} was given, but a number of at least 0 is expected (the paper has 1)"
        )
    matrix = _matrix(evidence)
    rows = matrix.sum(1, keepdim=True) + smoothing
    conditional = matrix / rows.where(rows > 0, 1)
    mass = conditional.sum(0)
    empty = mass <= 0
    _warn(empty, classes, "there is no evidence for target {}: a uniform column is used")
    omega = conditional / mass.where(~empty, 1)
    omega[:, empty] = 1 / len(matrix)
    return omega.float()


def same_labels(source_labels: Sequence[str], classes: Sequence[str], device: torch.device | None = None) -> Tensor:
    """No mapping at all, where the label sets agree: each class takes the source label of the same name.

    Case, `_` and `-` do not matter, and one synonym of a comma-separated source label suffices.

    >>> same_labels(["tench, Tinca tinca", "goldfish", "hen"], ["Goldfish", "tinca_tinca"]).argmax(0).tolist()
    [1, 0]
    """
    places: dict[str, int] = {}
    for index, label in enumerate(source_labels):
        places.setdefault(_canonical(label), index)
    for index, label in enumerate(source_labels):
        for synonym in label.split(","):
            places.setdefault(_canonical(synonym), index)
    missing = [name for name in classes if _canonical(name) not in places]
    if missing:
        raise ReprogramError(
            f"mapping 'none' needs every class among the source labels, but {missing[0]!r} "
            f"({len(missing)} of {len(classes)}) is not there; choose a mapping such as blm+"
        )
    return _selection(torch.tensor([places[_canonical(name)] for name in classes]), len(source_labels)).to(device)


@dataclass(frozen=True)
class MappingSettings:
    """What a rule may look at besides J: the label sets, the hyper-parameters and the seed of the random mapping."""

    source_labels: Sequence[str]
    classes: Sequence[str]
    smoothing: float = 1.0
    top_ratio: TopRatio = 0.15
    optimal: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Method:
    """A named mapping: the statistic it needs (None: no data at all), its rule, when it is estimated, its settings."""

    summary: str
    statistic: Kind | None
    rule: Callable[[Tensor | None, MappingSettings], Tensor] | None
    refresh: Refresh
    uses: frozenset[str] = frozenset()


def _random_rule(_: Tensor | None, settings: MappingSettings) -> Tensor:
    generator = torch.Generator().manual_seed(settings.seed)
    return random(len(settings.source_labels), len(settings.classes), generator)


def _one_to_one_rule(evidence: Tensor | None, settings: MappingSettings) -> Tensor:
    assert evidence is not None
    return one_to_one(evidence, optimal=settings.optimal, classes=settings.classes)


def _bayes_rule(evidence: Tensor | None, settings: MappingSettings) -> Tensor:
    assert evidence is not None
    return bayes(evidence, settings.smoothing, classes=settings.classes)


def _same_labels_rule(_: Tensor | None, settings: MappingSettings) -> Tensor:
    return same_labels(settings.source_labels, settings.classes)


_ASSIGNED = frozenset({"refresh", "optimal"})
_SMOOTHED = frozenset({"refresh", "smoothing"})
METHODS: dict[str, Method] = {
    "rlm": Method("random one-to-one", None, _random_rule, "never"),
    "flm": Method("greedy one-to-one, once", "counts", _one_to_one_rule, "never", _ASSIGNED),
    "ilm": Method("greedy one-to-one", "counts", _one_to_one_rule, "reuse", _ASSIGNED),
    "blm": Method("Bayes on counts", "counts", _bayes_rule, "reuse", _SMOOTHED),
    "blm+": Method("Bayes on top-K", "probabilities", _bayes_rule, "reuse", _SMOOTHED | {"top_ratio"}),
    "linear": Method("a weight matrix learned by gradient, no bias", None, None, "never"),
    "sigmoid": Method("the same, squashed by a sigmoid", None, None, "never"),
    "none": Method("source labels as they are, where the label sets agree", None, _same_labels_rule, "never"),
}


class Mapping(nn.Module, ABC):
    """f_out as a module: source logits (N, k_S) times ω (k_S, k_T), no bias, no temperature (Eq. 2)."""

    name: str
    refresh: Refresh

    @property
    @abstractmethod
    def weights(self) -> Tensor:
        """ω, (k_S, k_T) float32."""

    def forward(self, logits: Tensor) -> Tensor:
        """Map source logits (N, k_S) in any precision to target logits (N, k_T) in float32."""
        with torch.autocast(logits.device.type, enabled=False):
            return logits.float() @ self.weights.float()

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Everything but the tensors that is needed to build this mapping again, as plain JSON values."""


class EstimatedMapping(Mapping):
    """A gradient-free mapping: ω and the statistics J it came from are buffers, nothing is trained.

    Before the first `estimate` every class has a uniform column, except for the rules that need no data.
    """

    omega: Tensor

    def __init__(self, name: str, settings: MappingSettings, refresh: Refresh) -> None:
        super().__init__()
        method = METHODS[name]
        assert method.rule is not None
        self.name, self.refresh, self.settings = name, refresh, settings
        self._rule = method.rule
        k_source, k_target = len(settings.source_labels), len(settings.classes)
        self.statistics: JointStatistics | None = None
        if method.statistic == "counts":
            self.statistics = JointStatistics.counts(k_source, k_target)
        elif method.statistic == "probabilities":
            top_k = top_count(settings.top_ratio, k_target, k_source)
            self.statistics = JointStatistics.probabilities(k_source, k_target, top_k)
        if self.statistics is None:
            omega = self._rule(None, settings)
        else:  # a rule that cannot work, such as one-to-one with too few source labels, must say so before any pass
            if method.rule is _one_to_one_rule:
                _check_one_to_one(k_source, k_target)
            omega = torch.full((k_source, k_target), 1 / k_source)
        self.register_buffer("omega", omega)

    @property
    @override
    def weights(self) -> Tensor:
        return self.omega

    def gather(self) -> JointStatistics:
        """Empty statistics of the right kind, on the right device, to be filled and handed to `estimate`."""
        assert self.statistics is not None
        return type(self.statistics)(**self.statistics.config()).to(self.omega.device)  # type: ignore[arg-type]

    def estimate(self, statistics: JointStatistics) -> float:
        """Replace ω by rule(J) and keep J; return the change of ω.

        The change is the mean over classes of half the absolute difference of the columns: 0 is none, 1 is disjoint.
        """
        assert self.statistics is not None
        if statistics is not self.statistics:
            self.statistics.check_alike(statistics)
            self.statistics.reset().merge(statistics)
        omega = self._rule(self.statistics.matrix, self.settings).to(self.omega.device)
        change = float((omega - self.omega).abs().sum(0).mean() / 2)
        self.omega.copy_(omega)
        return change

    @override
    def config(self) -> dict[str, Any]:
        used = {
            "smoothing": self.settings.smoothing,
            "top_ratio": self.settings.top_ratio,
            "refresh": self.refresh,
            "optimal": self.settings.optimal,
        }
        return {
            "name": self.name,
            "seed": self.settings.seed,
            **{name: value for name, value in used.items() if name in METHODS[self.name].uses},
        }


class LearnedMapping(Mapping):
    """The paper's "Deep" mapping: a weight matrix without bias, trained by its own optimiser; optionally squashed."""

    refresh: Refresh = "never"

    def __init__(self, name: str, k_source: int, k_target: int, seed: int = 0) -> None:
        super().__init__()
        self.name, self.seed = name, seed
        bound = k_source**-0.5
        values = torch.rand(k_source, k_target, generator=torch.Generator().manual_seed(seed))
        self.matrix = nn.Parameter((2 * values - 1) * bound)

    @property
    @override
    def weights(self) -> Tensor:
        return self.matrix.sigmoid() if self.name == "sigmoid" else self.matrix

    @override
    def config(self) -> dict[str, Any]:
        return {"name": self.name, "seed": self.seed}


def make_mapping(
    name: str,
    source_labels: Sequence[str],
    classes: Sequence[str],
    *,
    smoothing: float = 1.0,
    top_ratio: TopRatio = 0.15,
    refresh: Refresh | None = None,
    optimal: bool = False,
    seed: int = 0,
) -> Mapping:
    """Build a mapping by its name.

    Args:
        name: one of `METHODS`: rlm, flm, ilm, blm, blm+, linear, sigmoid, none.
        source_labels: the k_S names on the frozen model's side.
        classes: the k_T names on the task's side.
        smoothing: λ of BLM and BLM+.
        top_ratio: α of BLM+, or "all" for the ablation without top-K.
        refresh: when ω is estimated: "never" again after the start, from a "fresh" pass before each epoch, or by "reuse" of
            the outputs of the epoch just trained. None takes the method's own.
        optimal: for one-to-one mappings, the exact assignment instead of the greedy one.
        seed: of the random choice, or of the learned mapping's start.

    >>> make_mapping("blm+", [f"source {i}" for i in range(50)], ["cat", "dog"]).weights.shape
    torch.Size([50, 2])
    """
    if name not in METHODS:
        raise unknown("mapping", name, METHODS)
    if refresh is not None and refresh not in REFRESHES:
        raise unknown("refresh", refresh, REFRESHES)
    if not (math.isfinite(smoothing) and smoothing >= 0):
        raise ReprogramError(
            f"smoothing λ = {smoothing!r} was given, but a number of at least 0 is expected (the paper has 1)"
        )
    top_count(top_ratio, len(classes), len(source_labels))
    changed = {
        "smoothing": smoothing != 1,
        "top_ratio": top_ratio != 0.15,
        "refresh": refresh is not None,
        "optimal": optimal,
    }
    for setting, is_changed in changed.items():
        if is_changed and setting not in METHODS[name].uses:
            takers = ", ".join(other for other, method in METHODS.items() if setting in method.uses)
            raise ReprogramError(f"mapping {name!r} does not use {setting}; leave it out, or choose one that does: {takers}")
    if METHODS[name].rule is None:
        return LearnedMapping(name, len(source_labels), len(classes), seed)
    settings = MappingSettings(source_labels, classes, smoothing, top_ratio, optimal, seed)
    return EstimatedMapping(name, settings, refresh or METHODS[name].refresh)


def _matrix(evidence: Evidence) -> Tensor:
    matrix = (evidence.matrix if isinstance(evidence, JointStatistics) else torch.as_tensor(evidence)).double()
    if matrix.ndim != 2 or not bool((matrix.isfinite() & (matrix >= 0)).all()):
        raise ReprogramError(
            f"J of shape {tuple(matrix.shape)} was given, but a (k_S, k_T) matrix of finite numbers ≥ 0 is expected"
        )
    return matrix


def _check_one_to_one(k_source: int, k_target: int) -> None:
    if k_target > k_source:
        raise ReprogramError(
            f"a one-to-one mapping cannot give {k_target} classes a source label each out of {k_source}; "
            "choose blm or blm+, or a model with more labels"
        )


def _selection(chosen: Tensor, k_source: int) -> Tensor:
    """ω with a single 1 in each column, at the chosen source label."""
    omega = torch.zeros(k_source, len(chosen))
    omega[chosen, torch.arange(len(chosen))] = 1
    return omega


def _greedy_assignment(table: "np.ndarray[Any, np.dtype[np.float64]]") -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The source label of each target class. One sort of the nonzero entries replaces k_T searches of the whole matrix."""
    k_source, k_target = table.shape
    chosen = np.full(k_target, -1, dtype=np.int64)
    free = np.ones(k_source, dtype=bool)
    sources, targets = np.nonzero(table)  # in row-major order, which the stable sort keeps among equals
    left = k_target
    for place in np.argsort(-table[sources, targets], kind="stable"):
        source, target = sources[place], targets[place]
        if chosen[target] < 0 and free[source]:
            chosen[target], free[source], left = source, False, left - 1
            if not left:
                return chosen
    unmatched = chosen < 0
    chosen[unmatched] = np.flatnonzero(free)[: unmatched.sum()]
    return chosen


def _optimal_assignment(table: "np.ndarray[Any, np.dtype[np.float64]]") -> "np.ndarray[Any, np.dtype[np.int64]]":
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError:
        raise ReprogramError("the optimal assignment needs scipy; run: pip install 'reprogram[sklearn]'") from None
    targets, sources = linear_sum_assignment(table.T, maximize=True)
    chosen = np.empty(table.shape[1], dtype=np.int64)
    chosen[targets] = sources
    return chosen


def _canonical(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").replace("-", " ").split())


def _warn(affected: Tensor, classes: Sequence[str] | None, message: str) -> None:
    indices = affected.nonzero().flatten().tolist()
    if indices:
        named = ", ".join(repr(classes[i]) if classes else str(i) for i in indices[:5])
        rest = f" and {len(indices) - 5} more" if len(indices) > 5 else ""
        plural = "classes" if len(indices) > 1 else "class"
        warnings.warn(message.format(f"{plural} {named}{rest}"), EvidenceWarning, stacklevel=3)
