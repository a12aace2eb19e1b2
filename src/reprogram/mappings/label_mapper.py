"""The scikit-learn face: `LabelMapper`, a classifier on a frozen model's logits, and `LabelMapperCV`, which chooses one."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from reprogram.errors import ReprogramError, ignore_evidence_warnings, unknown
from reprogram.mappings.base import LEARNED, METHODS, Mapping, Normalize, make_mapping
from reprogram.mappings.gaussian import Shrinkage
from reprogram.mappings.selection import RATIOS, SELECTABLE, SHRINKAGES, SMOOTHINGS, Selection, select
from reprogram.randomness import generator
from reprogram.statistics.base import Statistics
from reprogram.statistics.joint import JointStatistics, TopRatio

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ModuleNotFoundError:
    raise ReprogramError("LabelMapper needs scikit-learn; run: pip install 'reprogram[sklearn]'") from None

_BATCH = 256


class _Mapper(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What mappers do once it is known which mapping they have."""

    source_labels: Sequence[str] | None
    mapping_: Mapping
    classes_: NDArray[Any]
    n_features_in_: int

    def add_class(self, label: Any, X: Any) -> Self:
        """Add a class by logits of its samples; what is known about the others stays, and K stays."""
        check_is_fitted(self)
        if np.asarray(label).dtype.kind != self.classes_.dtype.kind:
            raise ReprogramError(
                f"class {label!r} was given, but the classes are of type {self.classes_.dtype}; give a label of that type"
            )
        if label in self.classes_:
            raise ReprogramError(f"class {label!r} is already known; add samples to it with partial_fit")
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        self._arrange(unique_labels(np.append(self.classes_, np.asarray([label]))))
        return self._learn(X, np.full(len(X), label, dtype=self.classes_.dtype))

    def remove_class(self, label: Any, X: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget a class; the result equals a mapper that never saw it.

        Args:
            label: the class.
            X: the logits of its samples; only the gaussian method needs them, because its covariance is shared.
            sample_weight: the weights that they were given with.
        """
        check_is_fitted(self)
        if label not in self.classes_:
            raise unknown("class", str(label), [str(known) for known in self.classes_])
        before = self.mapping_.statistics
        if X is not None:
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
            of_class = np.full(len(X), label, dtype=self.classes_.dtype)
            self.mapping_.statistics = self._statistics().copy().subtract(self._count(X, of_class, sample_weight))
        try:
            self._arrange(self.classes_[self.classes_ != label])
        except ReprogramError:
            self.mapping_.statistics = before
            raise
        return self if self.mapping_.statistics is None else self._estimate()

    def forget(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Take samples out again, with the weights that they had; the result equals a mapper that never saw them."""
        check_is_fitted(self)
        if self.mapping_.name in LEARNED:
            raise ReprogramError(f"method {self.mapping_.name!r} is learned and cannot forget; fit it again without them")
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=False)
        self._statistics().subtract(self._count(X, y, sample_weight))
        return self._estimate()

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Target logits: (n, k_T), or for two classes (n,) the second's lead."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The label with the largest target logit, (n,)."""
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(1)])

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Softmax of the target logits, (n, k_T)."""
        scores = self._scores(X)
        shifted = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(shifted / shifted.sum(1, keepdims=True))

    @property
    def weights_(self) -> NDArray[Any]:
        """ω, (k_S, k_T) float32."""
        check_is_fitted(self)
        return np.asarray(self.mapping_.weights.detach().numpy())

    def explain(self, k: int = 3) -> dict[Any, list[tuple[str, float]]]:
        """For each class the k source labels of the largest |weight|, with names and weights."""
        check_is_fitted(self)
        if k < 1:
            raise ReprogramError(f"k = {k} was given, but at least 1 source label per class is expected")
        weights, names = torch.from_numpy(self.weights_), self.mapping_.settings.source_labels
        order = weights.abs().topk(min(k, len(names)), dim=0).indices.T.tolist()
        return {
            label: [(names[source], float(weights[source, column])) for source in row]
            for column, (label, row) in enumerate(zip(self.classes_.tolist(), order, strict=True))
        }

    def _start(self, classes: NDArray[Any], method: str, seed: int = 0, **settings: Any) -> None:
        """An empty mapping for these classes."""
        names = self.source_labels
        if names is None:
            names = [f"label {index}" for index in range(self.n_features_in_)]
        elif len(names) != self.n_features_in_:
            raise ReprogramError(
                f"{len(names)} source labels were given for logits of {self.n_features_in_} columns; give one for each"
            )
        self.classes_ = classes
        self.mapping_ = make_mapping(method, list(names), [str(label) for label in classes.tolist()], seed=seed, **settings)
        self.mapping_.statistics = _weighted(self.mapping_.statistics)

    def _arrange(self, classes: NDArray[Any]) -> None:
        """Go over to other classes, keeping what is known about the ones that stay."""
        if not len(classes):
            raise ReprogramError("the last class cannot be removed; fit a new LabelMapper instead")
        if self.mapping_.name in LEARNED:
            raise ReprogramError(f"method {self.mapping_.name!r} is learned and cannot change its classes; fit it again")
        with ignore_evidence_warnings():
            self.mapping_ = self.mapping_.with_classes([str(label) for label in classes.tolist()])
        self.classes_ = classes

    def _learn(self, X: NDArray[Any], y: NDArray[Any], weights: ArrayLike | None = None) -> Self:
        if weights is not None:
            weights = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
            if not np.any(weights):
                raise ReprogramError("all sample weights are zero, but at least one sample must count")
        if self.mapping_.statistics is not None:
            self._statistics().merge(self._count(X, y, weights))
            self._estimate()
        return self

    def _numbers(self, y: NDArray[Any]) -> Tensor:
        """Labels as indices of `classes_`."""
        places = np.searchsorted(self.classes_, y).clip(0, len(self.classes_) - 1)
        strange = self.classes_[places] != y
        if strange.any():
            known = ", ".join(map(str, self.classes_[:5].tolist()))
            raise ReprogramError(
                f"label {y[strange][0]!r} was given, but the classes are {known} ...; add it with add_class"
            )
        return torch.from_numpy(places)

    def _statistics(self) -> Statistics:
        if self.mapping_.statistics is None:
            raise ReprogramError(
                f"method {self.mapping_.name!r} has no statistics; only mappings estimated from data can forget"
            )
        return self.mapping_.statistics

    def _count(self, X: NDArray[Any], y: NDArray[Any], weights: ArrayLike | None) -> Statistics:
        statistics, numbers = self._statistics().empty(), self._numbers(y)
        sample_weight = None if weights is None else torch.from_numpy(_check_sample_weight(weights, X, dtype=np.float64))
        for start in range(0, len(X), 4096):
            part = slice(start, start + 4096)
            logits = torch.from_numpy(np.ascontiguousarray(X[part]))
            statistics.update(logits, numbers[part], None if sample_weight is None else sample_weight[part])
        return statistics

    def _estimate(self) -> Self:
        with ignore_evidence_warnings():  # a class of weight 0 is the caller's own doing
            self.mapping_.estimate(self._statistics())
        return self

    def _scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        affine = self.mapping_.affine
        with torch.no_grad():
            weight, bias = affine.omega.double(), affine.bias
            logits = torch.from_numpy(np.ascontiguousarray(X)).double()
            logits = logits if affine.shift is None else logits - affine.shift.double()
            logits = logits if affine.scale is None else logits / affine.scale.double()
            scores = logits @ weight
            return np.asarray((scores if bias is None else scores + bias.double()).numpy())


class LabelMapper(_Mapper):
    """Classify by the logits (n, k_S) that a frozen model gives for other labels.

    Args:
        method: any mapping: rlm, flm, ilm, blm, blm+, gaussian, linear, sigmoid or none. On fixed logits ilm is flm.
        smoothing: λ of blm and blm+.
        top_ratio: α of blm+, or "all".
        normalize: "none" as published, "centre" or "standardise" the logits before ω.
        shrinkage: of the gaussian mapping's covariance, or "oas".
        priors: whether the gaussian mapping prefers frequent classes.
        source_labels: k_S names of the columns, for `explain`; numbered if not given. Needed by method "none".
        max_iter: passes over the data for the learned methods, linear and sigmoid.
        learning_rate: of the learned methods' Adam.
        random_state: seed of rlm and of the learned methods.

    Attributes:
        classes_: (k_T,) the labels, sorted.
        weights_: (k_S, k_T) ω: what the (normalised) logits are multiplied with.
        mapping_: the mapping itself; `mapping_.affine.folded()` gives the weight and the bias of a last layer.
        n_features_in_: k_S.

    >>> logits = np.array([[9, 1, 0], [8, 2, 1], [0, 7, 1], [1, 8, 0], [0, 1, 6], [1, 0, 7]], dtype=float)
    >>> animals = ["cat", "cat", "dog", "dog", "bird", "bird"]
    >>> mapper = LabelMapper("blm", source_labels=["tabby", "beagle", "wren"]).fit(logits, animals)
    >>> mapper.predict([[1, 9, 0]]).tolist(), mapper.explain(k=1)["cat"]
    (['dog'], [('tabby', 1.0)])
    """

    n_iter_: int
    _passes_of: Mapping | None = None
    _optimizer: torch.optim.Optimizer | None = None

    def __init__(
        self,
        method: str = "gaussian",
        *,
        smoothing: float = 1.0,
        top_ratio: TopRatio = 0.15,
        normalize: Normalize = "none",
        shrinkage: Shrinkage = "oas",
        priors: bool = False,
        source_labels: Sequence[str] | None = None,
        max_iter: int = 100,
        learning_rate: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.smoothing = smoothing
        self.top_ratio = top_ratio
        self.normalize = normalize
        self.shrinkage = shrinkage
        self.priors = priors
        self.source_labels = source_labels
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Estimate the mapping from logits X (n, k_S) and labels y (n,)."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self._start(unique_labels(y), self.method, self._seed(), **self._settings())
        return self._learn(X, y, sample_weight)._descend(X, y, sample_weight, self.max_iter)

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Add samples to what is known; of estimated methods exactly as if all had been given to `fit` at once.

        Args:
            X: logits (n, k_S).
            y: labels (n,).
            classes: all labels that will ever come; needed at the first call. Later calls may bring new labels with
                `add_class`.
            sample_weight: (n,) weights.
        """
        first = not hasattr(self, "mapping_")
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=first)
        check_classification_targets(y)
        if first:
            if classes is None:
                raise ReprogramError("partial_fit got no classes, but the first call needs all of them: classes=[...]")
            self._start(unique_labels(np.asarray(classes)), self.method, self._seed(), **self._settings())
        return self._learn(X, y, sample_weight)._descend(X, y, sample_weight, 1)

    def __sklearn_tags__(self) -> Any:
        """Say that most mappings read a class off the largest logits, and classify nothing else well."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.method not in ("gaussian", "linear")
        return tags

    def _settings(self) -> dict[str, Any]:
        """The settings that the method uses."""
        if self.method not in METHODS:
            raise unknown("method", str(self.method), METHODS)
        names = ("smoothing", "top_ratio", "normalize", "shrinkage", "priors")
        return {name: getattr(self, name) for name in names if name in METHODS[self.method].uses}

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _descend(self, X: NDArray[Any], y: NDArray[Any], weights: ArrayLike | None, passes: int) -> Self:
        """For the learned methods, Adam on the cross-entropy, in batches whose order the seed decides."""
        if self._passes_of is not self.mapping_:
            self._passes_of, self.n_iter_ = self.mapping_, 0
            self._optimizer = None
        if self.method not in LEARNED:
            self.n_iter_ = 1
            return self
        inputs = self.mapping_.affine.normalised(torch.from_numpy(np.ascontiguousarray(X)))
        numbers = self._numbers(y)
        each = torch.from_numpy(_check_sample_weight(weights, X, dtype=np.float32))
        optimizer = self._optimizer = self._optimizer or torch.optim.Adam(self.mapping_.parameters(), lr=self.learning_rate)
        for _ in range(passes):
            order = torch.randperm(len(X), generator=generator(self.mapping_.settings.seed, "order", self.n_iter_))
            self.n_iter_ += 1
            for batch in order.split(_BATCH):
                losses = F.cross_entropy(inputs[batch] @ self.mapping_.weights, numbers[batch], reduction="none")
                optimizer.zero_grad()
                (losses @ each[batch] / each[batch].sum().clamp_min(1e-30)).backward()
                optimizer.step()
        return self


class LabelMapperCV(_Mapper):
    """A `LabelMapper` that chooses its method, λ, α, normalisation and shrinkage by leave-one-out, without training.

    Args:
        methods: which mappings to try, of flm, blm, blm+ and gaussian.
        smoothings: λ to try.
        top_ratios: α to try.
        normalizations: to try.
        shrinkages: of the gaussian mapping, to try.
        source_labels: k_S names of the columns, for `explain`.

    Attributes:
        selection_: the table of all candidates, the choice, and how sure it is.

    >>> logits = np.random.default_rng(0).normal(size=(60, 5)) + 3 * np.eye(5)[np.arange(60) % 3]
    >>> mapper = LabelMapperCV(methods=("blm", "gaussian")).fit(logits, np.arange(60) % 3)
    >>> mapper.selection_.choice.method, mapper.score(logits, np.arange(60) % 3) > 0.9
    ('blm', True)
    """

    selection_: Selection

    def __init__(
        self,
        methods: Sequence[str] = SELECTABLE,
        *,
        smoothings: Sequence[float] = SMOOTHINGS,
        top_ratios: Sequence[TopRatio] = RATIOS,
        normalizations: Sequence[Normalize] = ("none", "centre", "standardise"),
        shrinkages: Sequence[Shrinkage] = SHRINKAGES,
        source_labels: Sequence[str] | None = None,
    ) -> None:
        self.source_labels = source_labels
        self.methods = methods
        self.smoothings = smoothings
        self.top_ratios = top_ratios
        self.normalizations = normalizations
        self.shrinkages = shrinkages

    def fit(self, X: Any, y: Any) -> Self:
        """Choose on logits X (n, k_S) and labels y (n,), then estimate the chosen mapping from all of them."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_ = unique_labels(y)
        self.selection_ = select(
            (torch.from_numpy(np.ascontiguousarray(X)), self._numbers(y)),
            len(self.classes_),
            methods=self.methods,
            smoothings=self.smoothings,
            top_ratios=self.top_ratios,
            normalizations=self.normalizations,
            shrinkages=self.shrinkages,
        )
        self._start(self.classes_, self.selection_.choice.method, **self.selection_.choice.settings)
        return self._learn(X, y)


def _weighted(statistics: Statistics | None) -> Statistics | None:
    """The same empty statistics, ready for sample weights."""
    if not isinstance(statistics, JointStatistics):
        return statistics
    return JointStatistics(**{**statistics.config(), "weighted": True})
