"""f_out as modules: the table `METHODS` names the published combinations of a statistic, a rule and a refresh schedule.

To add a mapping, write a rule in `rules.py`, a function from J (k_S × k_T) to ω of the same shape, and give it a row here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from reprogram.errors import ReprogramError, unknown
from reprogram.mappings.closed_form import (
    bayes,
    check_one_to_one,
    check_smoothing,
    one_to_one,
    random,
    same_labels,
    warn_about,
)
from reprogram.mappings.gaussian import Shrinkage, check_shrinkage, gaussian
from reprogram.sources.texts import Texts
from reprogram.statistics.base import Statistics
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics, TopRatio, top_count

Refresh = Literal["never", "fresh", "reuse"]
REFRESHES: tuple[Refresh, ...] = ("never", "fresh", "reuse")
Normalize = Literal["none", "centre", "standardise"]
NORMALIZATIONS: tuple[Normalize, ...] = ("none", "centre", "standardise")
StatisticKind = Literal["counts", "probabilities", "gaussian"]


@dataclass(frozen=True)
class MappingSettings:
    """What a mapping may look at besides the statistics: the label sets, the hyper-parameters and a seed.

    Attributes:
        top_k: K itself, where it must stay as it was although the number of classes has changed; None: from `top_ratio`.
        span: (k_S, r) orthonormal columns that all logits are combinations of, for the Gaussian mapping of many labels.
    """

    source_labels: Sequence[str]
    classes: Sequence[str]
    smoothing: float = 1.0
    top_ratio: TopRatio = 0.15
    top_k: int | None = None
    normalize: Normalize = "none"
    shrinkage: Shrinkage = "oas"
    priors: bool = False
    folds: int | None = None
    refresh: Refresh | None = None
    optimal: bool = False
    seed: int = 0
    span: Tensor | None = None


@dataclass(frozen=True)
class Affine:
    """Target logits = ((z − shift) / scale) · ω + bias, where each part but ω may be left out."""

    omega: Tensor
    shift: Tensor | None = None
    scale: Tensor | None = None
    bias: Tensor | None = None

    def normalised(self, logits: Tensor) -> Tensor:
        """What ω is multiplied with: source logits (N, k_S), centred and scaled."""
        logits = logits.float()
        if self.shift is not None:
            logits = logits - self.shift
        return logits if self.scale is None else logits / self.scale

    def __call__(self, logits: Tensor) -> Tensor:
        """Map source logits (N, k_S) in any precision to target logits (N, k_T) in float32."""
        with torch.autocast(logits.device.type, enabled=False):
            product = self.normalised(logits) @ self.omega.float()
            return product if self.bias is None else product + self.bias

    def on(self, device: torch.device) -> "Affine":
        """The same on a device."""
        parts = (self.omega, self.shift, self.scale, self.bias)
        return Affine(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]

    def folded(self) -> tuple[Tensor, Tensor]:
        """W (k_S, k_T) and b (k_T,), with target logits = z·W + b: what can be folded into a model's last layer."""
        weight = self.omega.double() if self.scale is None else self.omega.double() / self.scale[:, None]
        offset = weight.new_zeros(weight.shape[1]) if self.bias is None else self.bias.double()
        if self.shift is not None:
            offset = offset - self.shift.double() @ weight
        return weight.float(), offset.float()


@dataclass(frozen=True)
class Method:
    """A named mapping: the statistic it needs (None: no data at all), its rule, when it is estimated, its settings."""

    summary: str
    statistic: StatisticKind | None
    rule: Callable[[Tensor | None, MappingSettings], Tensor] | None
    refresh: Refresh
    uses: frozenset[str] = frozenset()
    folds: int = 0


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


def _ensemble_rule(_: Tensor | None, settings: MappingSettings) -> Tensor:
    if not isinstance(settings.source_labels, Texts):
        raise ReprogramError(
            "mapping 'ensemble' averages texts about the classes, but this model has labels of its own; "
            "choose an openclip: model, or a mapping such as blm+"
        )
    return settings.source_labels.ensemble(settings.classes)


_LINEAR = frozenset({"normalize"})
_ESTIMATED = frozenset({"refresh", "folds"})
_ASSIGNED = _LINEAR | _ESTIMATED | {"optimal"}
_SMOOTHED = _LINEAR | _ESTIMATED | {"smoothing"}
METHODS: dict[str, Method] = {
    "rlm": Method("random one-to-one", None, _random_rule, "never", _LINEAR),
    "flm": Method("greedy one-to-one, once", "counts", _one_to_one_rule, "never", _ASSIGNED),
    "ilm": Method("greedy one-to-one", "counts", _one_to_one_rule, "reuse", _ASSIGNED),
    "blm": Method("Bayes on counts", "counts", _bayes_rule, "reuse", _SMOOTHED),
    "blm+": Method("Bayes on top-K", "probabilities", _bayes_rule, "reuse", _SMOOTHED | {"top_ratio", "top_k"}),
    "gaussian": Method(
        "Bayes with normal densities", "gaussian", None, "reuse", _ESTIMATED | {"shrinkage", "priors", "span"}, folds=5
    ),
    "linear": Method("a weight matrix learned by gradient, no bias", None, None, "never", _LINEAR),
    "sigmoid": Method("the same, squashed by a sigmoid", None, None, "never", _LINEAR),
    "none": Method("source labels as they are, where the label sets agree", None, _same_labels_rule, "never", _LINEAR),
    "ensemble": Method("the mean of each class's texts, zero-shot (CLIP)", None, _ensemble_rule, "never", _LINEAR),
}
LEARNED = ("linear", "sigmoid")


class Mapping(nn.Module, ABC):
    """f_out: source logits (N, k_S) times ω (k_S, k_T), no bias, no temperature (Eq. 2), unless asked to normalise.

    Attributes:
        statistics: what the mapping was estimated from; None if it needs no data.
        shift: (k_S,) subtracted from the source logits; None for the paper's mappings.
        scale: (k_S,) that they are divided by after that; None for the paper's mappings.
        bias: (k_T,) of the Gaussian mapping, else None.
    """

    statistics: Statistics | None
    shift: Tensor | None
    scale: Tensor | None
    bias: Tensor | None

    def __init__(self, name: str, settings: MappingSettings) -> None:
        super().__init__()
        method = METHODS[name]
        self.name, self.settings = name, settings
        self.refresh: Refresh = settings.refresh or method.refresh
        self.folds = method.folds if settings.folds is None else settings.folds
        self._fold_parts: list[Affine] = []
        self.statistics = _empty_statistics(name, settings)
        k_source, k_target = len(settings.source_labels), len(settings.classes)
        shifted, scaled = settings.normalize != "none" or name == "gaussian", settings.normalize == "standardise"
        self.register_buffer("shift", torch.zeros(k_source) if shifted else None)
        self.register_buffer("scale", torch.ones(k_source) if scaled else None)
        self.register_buffer("bias", torch.zeros(k_target) if name == "gaussian" else None)

    @property
    @abstractmethod
    def weights(self) -> Tensor:
        """ω, (k_S, k_T) float32: what the normalised logits are multiplied with."""

    @property
    def affine(self) -> Affine:
        """The whole mapping as one affine function."""
        return Affine(self.weights, self.shift, self.scale, self.bias)

    def forward(self, logits: Tensor, folds: Tensor | None = None) -> Tensor:
        """Map source logits (N, k_S) in any precision to target logits (N, k_T) in float32.

        With the `folds` (N,) of training samples, each is scored by the mapping that was estimated without its fold.
        """
        if folds is None or not self._fold_parts:
            return self.affine(logits)
        scores = torch.stack([part(logits) for part in self._fold_parts])
        return scores[folds.to(scores.device), torch.arange(len(logits), device=scores.device)]

    def new_statistics(self) -> Statistics:
        """Empty statistics of the right kind, on the right device, to be filled and handed to `estimate`."""
        assert self.statistics is not None
        return self.statistics.empty().to(self.weights.device)

    @torch.no_grad()
    def estimate(self, *parts: Statistics) -> float:
        """Replace the mapping by the one of these statistics and keep them; return the change of ω.

        Given the statistics of several folds, keep their sum and, for `forward(logits, folds)`, the mappings without each.
        The change is the mean over classes of the absolute difference of the columns, over their absolute sums: 0 is
        none, 1 is disjoint.
        """
        assert self.statistics is not None
        if parts[0] is not self.statistics:
            for part in parts:
                self.statistics.check_alike(part)
            self.statistics.reset()
            for part in parts:
                self.statistics.merge(part)
        found, before = self._solve(self.statistics), self.weights.detach().clone()
        for name in ("shift", "scale", "bias"):
            if (buffer := getattr(self, name)) is not None:
                buffer.copy_(getattr(found, name))
        self._keep(found.omega)
        self._fold_parts = []
        if len(parts) > 1:
            self._fold_parts = [self._solve(self.statistics.copy().subtract(part)).on(before.device) for part in parts]
        sizes = (self.weights.abs().sum(0) + before.abs().sum(0)).clamp_min(1e-30)
        return float(((self.weights - before).abs().sum(0) / sizes).mean())

    def with_classes(self, classes: Sequence[str]) -> "Mapping":
        """This mapping for other classes: what is known about the kept ones stays, new ones have no evidence yet.

        Nothing about the kept classes is counted again. K stays what it was. Call `estimate` after counting new samples.
        """
        old = {name: index for index, name in enumerate(self.settings.classes)}
        settings = replace(self.settings, classes=tuple(classes))
        if isinstance(self.statistics, JointStatistics) and "top_k" in METHODS[self.name].uses:
            settings = replace(settings, top_k=self.statistics.top_k)
        fresh = type(self)(self.name, settings)
        if self.statistics is not None:
            fresh.statistics = self.statistics.with_classes([old.get(name) for name in classes])
        return fresh.to(self.weights.device)

    def config(self) -> dict[str, Any]:
        """Everything but the tensors that is needed to build this mapping again, as plain JSON values."""
        used = {name: getattr(self.settings, name) for name in sorted(METHODS[self.name].uses - {"span"})}
        if "refresh" in used:
            used["refresh"] = self.refresh
        return {"name": self.name, "seed": self.settings.seed, **used}

    def _solve(self, statistics: Statistics) -> Affine:
        """The mapping of these statistics."""
        omega, settings = self._rule(statistics), self.settings
        if settings.normalize == "none":
            return Affine(omega)
        assert isinstance(statistics, JointStatistics)
        mean, deviation = statistics.moments_of_logits()
        scale = deviation.where(deviation > 0, 1).float() if settings.normalize == "standardise" else None
        return Affine(omega, mean.float(), scale)

    @abstractmethod
    def _rule(self, statistics: Statistics) -> Tensor:
        """ω of these statistics."""

    def _keep(self, omega: Tensor) -> None:
        """Take over what `_rule` has found."""


class EstimatedMapping(Mapping):
    """A gradient-free mapping: ω and the statistics it came from are buffers, nothing is trained.

    Before the first `estimate` every class has a uniform column, except for the rules that need no data.
    """

    omega: Tensor

    def __init__(self, name: str, settings: MappingSettings) -> None:
        super().__init__(name, settings)
        method = METHODS[name]
        k_source, k_target = len(settings.source_labels), len(settings.classes)
        if method.rule is _one_to_one_rule:  # a rule that cannot work must say so before any pass
            check_one_to_one(k_source, k_target)
        if method.statistic is None:
            assert method.rule is not None
            omega = method.rule(None, settings)
        else:
            omega = torch.full((k_source, k_target), 1 / k_source)
        self.register_buffer("omega", omega)

    @property
    @override
    def weights(self) -> Tensor:
        return self.omega

    @override
    def _solve(self, statistics: Statistics) -> Affine:
        if not isinstance(statistics, GaussianStatistics):
            return super()._solve(statistics)
        warn_about(
            statistics.samples <= 0, self.settings.classes, "there is no evidence for target {}: it is left at the average"
        )
        omega, mean, bias = gaussian(statistics, self.settings.shrinkage, priors=self.settings.priors)
        if statistics.span is not None:
            omega, mean = statistics.span @ omega, statistics.span @ mean
        return Affine(omega.float(), mean.float(), None, bias.float())

    @override
    def _rule(self, statistics: Statistics) -> Tensor:
        method = METHODS[self.name]
        assert method.rule is not None
        assert isinstance(statistics, JointStatistics)
        return method.rule(None if method.statistic is None else statistics.matrix, self.settings)

    @override
    def _keep(self, omega: Tensor) -> None:
        self.omega.copy_(omega)


class LearnedMapping(Mapping):
    """The paper's "Deep" mapping: a weight matrix without bias, trained by its own optimiser; optionally squashed."""

    def __init__(self, name: str, settings: MappingSettings) -> None:
        super().__init__(name, settings)
        k_source, k_target = len(settings.source_labels), len(settings.classes)
        values = torch.rand(k_source, k_target, generator=torch.Generator().manual_seed(settings.seed))
        self.matrix = nn.Parameter((2 * values - 1) * k_source**-0.5)

    @property
    @override
    def weights(self) -> Tensor:
        return self.matrix.sigmoid() if self.name == "sigmoid" else self.matrix

    @override
    def _rule(self, statistics: Statistics) -> Tensor:
        return self.weights.detach()


def make_mapping(
    name: str,
    source_labels: Sequence[str],
    classes: Sequence[str],
    *,
    smoothing: float = 1.0,
    top_ratio: TopRatio = 0.15,
    top_k: int | None = None,
    normalize: Normalize = "none",
    shrinkage: Shrinkage = "oas",
    priors: bool = False,
    folds: int | None = None,
    refresh: Refresh | None = None,
    optimal: bool = False,
    seed: int = 0,
    span: Tensor | None = None,
) -> Mapping:
    """Build a mapping by its name.

    Args:
        name: one of `METHODS`: rlm, flm, ilm, blm, blm+, gaussian, linear, sigmoid, none, ensemble.
        source_labels: the k_S names on the frozen model's side.
        classes: the k_T names on the task's side.
        smoothing: λ of BLM and BLM+.
        top_ratio: α of BLM+, or "all" for the ablation without top-K.
        top_k: K of BLM+ itself, instead of α.
        normalize: "none" as published, or let the source logits be centred or standardised before ω, by their means and
            deviations over the same samples.
        shrinkage: ρ of the Gaussian mapping's covariance, or "oas".
        priors: whether the Gaussian mapping prefers frequent classes.
        folds: in training, score each sample by the mapping estimated without its fold out of so many; 0 uses all samples
            for all, as published. None takes the method's own: 5 for the Gaussian mapping, 0 for the others.
        refresh: when ω is estimated: "never" again after the start, from a "fresh" pass before each epoch, or by "reuse" of
            the outputs of the epoch just trained. None takes the method's own.
        optimal: for one-to-one mappings, the exact assignment instead of the greedy one.
        seed: of the random choice, or of the learned mapping's start.
        span: orthonormal columns (k_S, r) that span the logits, so that the Gaussian mapping can work in r dimensions.

    >>> make_mapping("blm+", [f"source {i}" for i in range(50)], ["cat", "dog"]).weights.shape
    torch.Size([50, 2])
    """
    if name not in METHODS:
        raise unknown("mapping", str(name), METHODS)
    settings = MappingSettings(
        source_labels=source_labels,
        classes=classes,
        smoothing=smoothing,
        top_ratio=top_ratio,
        top_k=top_k,
        normalize=normalize,
        shrinkage=shrinkage,
        priors=priors,
        folds=folds,
        refresh=refresh,
        optimal=optimal,
        seed=seed,
        span=span if name == "gaussian" else None,
    )
    _check(name, settings)
    return LearnedMapping(name, settings) if name in LEARNED else EstimatedMapping(name, settings)


def _check(name: str, settings: MappingSettings) -> None:
    if settings.refresh is not None and settings.refresh not in REFRESHES:
        raise unknown("refresh", settings.refresh, REFRESHES)
    if settings.normalize not in NORMALIZATIONS:
        raise unknown("normalize", settings.normalize, NORMALIZATIONS)
    check_smoothing(settings.smoothing)
    check_shrinkage(settings.shrinkage)
    top_count(settings.top_ratio, len(settings.classes), len(settings.source_labels))
    if settings.folds is not None and (settings.folds < 0 or settings.folds == 1):
        raise ReprogramError(f"folds = {settings.folds} was given, but 0 (none) or at least 2 is expected")
    plain = MappingSettings((), ())
    for setting in ("smoothing", "top_ratio", "top_k", "normalize", "shrinkage", "priors", "folds", "refresh", "optimal"):
        if getattr(settings, setting) != getattr(plain, setting) and setting not in METHODS[name].uses:
            takers = ", ".join(other for other, method in METHODS.items() if setting in method.uses)
            raise ReprogramError(f"mapping {name!r} does not use {setting}; leave it out, or choose one that does: {takers}")


def _empty_statistics(name: str, settings: MappingSettings) -> Statistics | None:
    """What has to be gathered for this mapping; None if it needs no data."""
    kind, moments = METHODS[name].statistic, settings.normalize != "none"
    k_source, k_target = len(settings.source_labels), len(settings.classes)
    if kind == "gaussian":
        coordinates = k_source if settings.span is None else settings.span.shape[1]
        return GaussianStatistics(coordinates, k_target, span=settings.span)
    if kind == "probabilities":
        top_k = settings.top_k or top_count(settings.top_ratio, k_target, k_source)
        return JointStatistics.probabilities(k_source, k_target, top_k, moments=moments)
    if kind == "counts" or moments:
        return JointStatistics.counts(k_source, k_target, moments=moments)
    return None
