"""The scikit-learn face: `LabelMapper`, a classifier on a frozen model's logits, and `LabelMapperCV`, which chooses one."""

from collections.abc import Callable, Sequence
from collections.abc import Mapping as Table
from copy import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from reprogram.errors import ReprogramError, ignore_evidence_warnings, unknown
from reprogram.mappings.affine import checked_scores
from reprogram.mappings.artefact import load_mapping, unfit
from reprogram.mappings.base import Mapping
from reprogram.mappings.cards import mapper_card
from reprogram.mappings.class_labels import SavedLabels, check_labels, class_names, class_numbers, class_place, with_label
from reprogram.mappings.exclusive import exclusive
from reprogram.mappings.grouping import group_numbers
from reprogram.mappings.learned import check_learning, descend
from reprogram.mappings.making import make_mapping
from reprogram.mappings.parameters import check_mapper_settings, with_settings
from reprogram.mappings.probabilities import Probabilities
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.selection import Selection, select
from reprogram.statistics.base import Statistics, checked_weights

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state, estimator_html_repr
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ModuleNotFoundError:
    raise ReprogramError("LabelMapper needs scikit-learn; run: pip install 'reprogram[sklearn]'") from None

_SECTION = "label_mapper"


class _Mapper(Probabilities, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What mappers do once it is known which mapping they have."""

    source_labels: Sequence[str] | None
    n_features_in_: int

    @exclusive
    def add_class(self, label: Any, X: Any) -> Self:
        """Add a class by logits of its samples; what is known about the others stays, and K stays."""
        check_is_fitted(self)
        classes = with_label(self.classes_, label)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        mapping = self.mapping_.with_classes(class_names(classes))
        if mapping.statistics is not None:
            numbers = class_numbers(classes, np.full(len(X), label, dtype=classes.dtype))
            with ignore_evidence_warnings():
                mapping.learn(mapping.count(_tensor(X), numbers))
        self.mapping_, self.classes_ = mapping, classes
        return self

    @exclusive
    def remove_class(self, label: Any, X: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget a class; the result equals a mapper that never saw it.

        Args:
            label: the class.
            X: the logits of its samples; only gaussian and gaussian+ need them, whose covariance is shared.
            sample_weight: the weights that they were given with.
        """
        check_is_fitted(self)
        place = class_place(self.classes_, label)
        if place is None:
            raise unknown("class", str(label), [str(known) for known in self.classes_])
        counted = None
        if X is not None and self.mapping_.statistics is not None:
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
            counted = self._count(X, torch.full((len(X),), place), sample_weight)
        with ignore_evidence_warnings():
            self.mapping_ = self.mapping_.without_class(self.mapping_.classes[place], counted)
        self.classes_ = np.delete(self.classes_, place)
        return self

    @exclusive
    def forget(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Take samples out again, with the weights that they had; the result equals a mapper that never saw them."""
        check_is_fitted(self)
        check_labels(y)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=False)
        with ignore_evidence_warnings():
            self.mapping_.forget(self._count(X, class_numbers(self.classes_, y), sample_weight))
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Target logits: (n, k_T), or for two classes (n,) the second's lead."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The label with the largest target logit, (n,)."""
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(1)])

    @property
    def weights_(self) -> NDArray[Any]:
        """ω, (k_S, k_T) float32."""
        check_is_fitted(self)
        return np.asarray(self.mapping_.weights.detach().numpy())

    def explain(self, count: int = 3) -> dict[Any, list[tuple[str, float]]]:
        """For each class its `count` source labels of the largest |weight|, with names and weights."""
        check_is_fitted(self)
        found = self.mapping_.explain(count).classes.values()
        named = ([(label.source, label.weight) for label in labels] for labels in found)
        return dict(zip(self.classes_.tolist(), named, strict=True))

    @exclusive
    def save(self, folder: str | Path) -> None:
        """Write the fitted mapper as a folder of JSON and safetensors; nothing is pickled."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        facts = SavedLabels(
            labels=self.classes_.tolist(),
            dtype=self.classes_.dtype.str,
            features=None if names is None else names.tolist(),
            passes=getattr(self, "n_iter_", 1),
        )
        self.mapping_.save(folder, **{_SECTION: facts.model_dump()})

    @classmethod
    def load(cls, folder: str | Path) -> "LabelMapper":
        """Read a fitted mapper: one that `save` wrote, or the mapping of a run or of `reprogram map`."""
        mapping, content = load_mapping(Path(folder))
        try:
            facts = SavedLabels.read(content.get(_SECTION, {"labels": list(mapping.classes)}))
            classes = facts.classes()
        except (ReprogramError, TypeError, ValueError, OverflowError):
            raise unfit(Path(folder)) from None
        if class_names(classes) != list(mapping.classes) or len(facts.features or mapping.source_labels) != mapping.k_source:
            raise unfit(Path(folder))
        settings = {name: getattr(mapping.settings, name) for name in mapping.settings.without_training()}
        mapper = LabelMapper(mapping.name, source_labels=list(mapping.source_labels), **settings)
        mapper.mapping_, mapper.classes_ = mapping, classes
        mapper.n_features_in_, mapper.n_iter_ = mapping.k_source, facts.passes
        if facts.features is not None:
            mapper.feature_names_in_ = np.asarray(facts.features, dtype=object)
        return mapper

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mapping_")

    def _html_repr(self) -> str:
        """What a notebook shows: what was found, once something was; before, scikit-learn's diagram of the parameters."""
        if not hasattr(self, "mapping_"):
            return str(estimator_html_repr(self))
        bare = copy(self)
        bare.source_labels = None  # which are a thousand, perhaps
        asked, chosen = " ".join(repr(bare).split()), getattr(self, "selection_", None)
        return mapper_card(type(self).__name__, self.mapping_, self.classes_.tolist(), asked, chosen)

    def _repr_html_inner(self) -> str:  # of scikit-learn before 1.7, which asks no `_html_repr`
        return self._html_repr()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return {kind: self._html_repr() if kind == "text/html" else text for kind, text in bundle.items()}

    def _start(self, classes: NDArray[Any], method: str, seed: int = 0, **settings: Any) -> None:
        """An empty mapping for these classes."""
        names = self.source_labels
        if names is None:
            names = [f"label {index}" for index in range(self.n_features_in_)]
        elif len(names) != self.n_features_in_:
            raise ReprogramError(
                f"{len(names)} source labels were given for logits of {self.n_features_in_} columns; give one for each"
            )
        self.mapping_ = make_mapping(method, list(names), class_names(classes), seed=seed, weighted=True, **settings)
        self.classes_ = classes

    def _learn(self, X: NDArray[Any], numbers: Tensor, weights: NDArray[Any] | None = None) -> Self:
        if self.mapping_.statistics is not None:
            counted = self._count(X, numbers, weights)
            with ignore_evidence_warnings():  # a class of weight 0 is the caller's own doing
                self.mapping_.estimate(self.mapping_.statistics.copy().merge(counted))
        return self

    def _count(self, X: NDArray[Any], numbers: Tensor, weights: ArrayLike | None) -> Statistics:
        sample_weight = None if weights is None else torch.from_numpy(_check_sample_weight(weights, X, dtype=np.float64))
        return self.mapping_.count(_tensor(X), numbers, sample_weight)

    def _scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        with torch.no_grad():
            return np.asarray(checked_scores(self._function()(_tensor(X).double())).numpy())

    @exclusive
    def _function(self) -> Callable[[Tensor], Tensor]:
        """The mapping as it is now, which no later change reaches."""
        affine, inputs = self.mapping_.affine.to(torch.float64), self.mapping_.inputs
        return lambda logits: affine(inputs(logits))


class LabelMapper(_Mapper):
    """Classify by the logits (n, k_S) that a frozen model gives for other labels.

    Args:
        method: any mapping: rlm, flm, ilm, blm, blm+, gaussian, gaussian+, linear, sigmoid, none, or a registered one. On
            fixed logits ilm is flm.
        source_labels: k_S names of the columns, for `explain`; numbered if not given. Needed by method "none".
        calibration: whether `predict_proba` is at a temperature that `fit` measures by leave-one-out ("temperature"), or the
            plain softmax ("none").
        prediction_sets: whether `fit` also prepares `predict_set`; for method gaussian that takes ten times as long.
        max_iter: passes over the data for the learned methods, linear and sigmoid.
        learning_rate: of the learned methods' Adam.
        random_state: seed of rlm and of the learned methods.
        settings: what the method can be told, such as `smoothing`, `top_ratio`, `top_k`, `normalize`, `shrinkage`, `priors`
            and `optimal`; None is the method's default. All mappings' settings are parameters, for grid searches; a method
            ignores those of the others.

    Attributes:
        classes_: (k_T,) the labels, sorted.
        weights_: (k_S, k_T) ω: what the (normalised) logits are multiplied with.
        mapping_: the mapping itself; `mapping_.affine.folded()` gives the weight and the bias of a last layer.
        n_features_in_: k_S.

    >>> logits = np.array([[9, 1, 0], [8, 2, 1], [0, 7, 1], [1, 8, 0], [0, 1, 6], [1, 0, 7]], dtype=float)
    >>> animals = ["cat", "cat", "dog", "dog", "bird", "bird"]
    >>> mapper = LabelMapper("blm", source_labels=["tabby", "beagle", "wren"]).fit(logits, animals)
    >>> mapper.predict([[1, 9, 0]]).tolist(), mapper.explain(count=1)["cat"]
    (['dog'], [('tabby', 1.0)])
    """

    n_iter_: int
    _passes_of: Mapping | None = None
    _optimizer: torch.optim.Optimizer | None = None

    @with_settings
    def __init__(
        self,
        method: str = "gaussian",
        *,
        source_labels: Sequence[str] | None = None,
        calibration: str = "temperature",
        prediction_sets: bool = False,
        max_iter: int = 100,
        learning_rate: float = 0.01,
        random_state: Any = None,
        **settings: Any,
    ) -> None:
        self.method = method
        self.source_labels = source_labels
        self.calibration = calibration
        self.prediction_sets = prediction_sets
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.random_state = random_state
        check_mapper_settings(settings)
        for name, value in settings.items():
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, the settings of all mappings among them: None for those that were not given."""
        return {name: getattr(self, name, None) for name in self._get_param_names()}

    @exclusive
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Estimate the mapping from logits X (n, k_S) and labels y (n,)."""
        check_labels(y)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        classes, weights = unique_labels(y), _checked_weights(sample_weight, X)
        self._start(classes, self.method, self._seed(), **self._settings())
        numbers = class_numbers(classes, y)
        return self._learn(X, numbers, weights)._descend(X, numbers, weights, self.max_iter)._certify(X, numbers, weights)

    @exclusive
    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Add samples to what is known; of estimated methods exactly as if all had been given to `fit` at once.

        Several threads may call it at the same time: one waits for the other.

        Args:
            X: logits (n, k_S).
            y: labels (n,).
            classes: all labels that will ever come; needed at the first call. Later calls may bring new labels with
                `add_class`.
            sample_weight: (n,) weights.
        """
        first = not hasattr(self, "mapping_")
        check_labels(y)
        check_labels(classes)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=first)
        check_classification_targets(y)
        weights = _checked_weights(sample_weight, X)
        given = None if classes is None else unique_labels(np.asarray(classes))
        if first:
            if given is None:
                raise ReprogramError("partial_fit got no classes, but the first call needs all of them: classes=[...]")
            numbers = class_numbers(given, y)
            self._start(given, self.method, self._seed(), **self._settings())
        else:
            if given is not None and not np.array_equal(given, np.sort(self.classes_)):
                raise ReprogramError(
                    f"classes {given.tolist()[:5]} were given, but this mapper has {self.classes_.tolist()[:5]}; leave "
                    "them out, or change them with add_class and remove_class"
                )
            numbers = class_numbers(self.classes_, y)
        return self._learn(X, numbers, weights)._descend(X, numbers, weights, 1)

    def __sklearn_tags__(self) -> Any:
        """Say that most mappings read a class off the largest logits, and classify nothing else well."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.method not in MAPPINGS or not MAPPINGS[self.method].load().general
        return tags

    def _settings(self) -> dict[str, Any]:
        """The settings that the method uses."""
        if self.method not in MAPPINGS:
            raise unknown("method", str(self.method), MAPPINGS)
        return {name: getattr(self, name, None) for name in MAPPINGS[self.method].settings.without_training()}

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _descend(self, X: NDArray[Any], numbers: Tensor, weights: NDArray[Any] | None, passes: int) -> Self:
        """For the learned methods, Adam on the cross-entropy, in batches whose order the seed decides."""
        if self._passes_of is not self.mapping_:
            self._passes_of, self.n_iter_ = self.mapping_, 0
            self._optimizer = None
        if not self.mapping_.learned:
            self.n_iter_ = 1
            return self
        check_learning(self.learning_rate, self.max_iter)
        each = torch.from_numpy(_check_sample_weight(weights, X, dtype=np.float64))
        optimizer = self._optimizer = self._optimizer or torch.optim.Adam(self.mapping_.parameters(), lr=self.learning_rate)
        descend(self.mapping_, optimizer, (_tensor(X), numbers, each), first=self.n_iter_, passes=passes)
        self.n_iter_ += passes
        return self


class LabelMapperCV(_Mapper):
    """A `LabelMapper` that chooses its method and its settings by leave-one-out, without training.

    Args:
        methods: which mappings to try; by default all that can be judged without training.
        grid: the values to try for single settings, such as `{"smoothing": [1, 10]}`; by default each mapping's own.
        source_labels: k_S names of the columns, for `explain`.
        calibration: as of `LabelMapper`, and so is `prediction_sets`.
        prediction_sets: whether `predict_set` is prepared.

    Attributes:
        selection_: the table of all candidates, the choice, and how sure it is.

    >>> logits = np.random.default_rng(0).normal(size=(60, 5)) + 3 * np.eye(5)[np.arange(60) % 3]
    >>> mapper = LabelMapperCV(methods=("blm", "gaussian")).fit(logits, np.arange(60) % 3)
    >>> mapper.selection_.choice.mapping, mapper.score(logits, np.arange(60) % 3) > 0.9
    ('gaussian', True)
    """

    selection_: Selection

    def __init__(
        self,
        methods: Sequence[str] | None = None,
        *,
        grid: Table[str, Sequence[Any]] | None = None,
        source_labels: Sequence[str] | None = None,
        calibration: str = "temperature",
        prediction_sets: bool = False,
    ) -> None:
        self.methods = methods
        self.grid = grid
        self.source_labels = source_labels
        self.calibration = calibration
        self.prediction_sets = prediction_sets

    @exclusive
    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Choose on logits X (n, k_S) and labels y (n,), then estimate the chosen mapping from all of them.

        Samples of one of the `groups` (n,), names or numbers such as those of videos, are left out together.
        """
        check_labels(y)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        classes = unique_labels(y)
        numbers = class_numbers(classes, y)
        together = None if groups is None else group_numbers(groups, len(X))
        samples = (_tensor(X), numbers) if together is None else (_tensor(X), numbers, together)
        self.selection_ = select(samples, len(classes), methods=self.methods, grid=self.grid)
        self._start(classes, self.selection_.choice.mapping, **self.selection_.choice.settings)
        return self._learn(X, numbers)._certify(X, numbers, groups=together)


def _checked_weights(weights: ArrayLike | None, X: NDArray[Any]) -> NDArray[Any] | None:
    if weights is None:
        return None
    checked: NDArray[Any] = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    if not np.any(checked):
        raise ReprogramError("all sample weights are zero, but at least one sample must count")
    found: NDArray[Any] = checked_weights(torch.from_numpy(checked)).numpy()
    return found


def _tensor(X: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.require(X, requirements=["C", "W"]))  # torch wants to be allowed to write
