"""LabelMapper as a scikit-learn classifier: its conformance checks, and what it adds to them."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import reprogram
from reprogram.errors import ReprogramError
from reprogram.mappings.base import METHODS, make_mapping
from reprogram.mappings.label_mapper import LabelMapper, LabelMapperCV

MORE_CLASSES = "the check has more classes than columns, but a one-to-one mapping gives each class a column of its own"
EXPECTED = {
    "one-to-one": {
        "check_classifiers_classes": MORE_CLASSES,
        "check_classifiers_train": MORE_CLASSES,
        "check_estimators_fit_returns_self": MORE_CLASSES,
        "check_estimators_overwrite_params": MORE_CLASSES,
        "check_estimators_partial_fit_n_features": MORE_CLASSES,
        "check_fit2d_1feature": MORE_CLASSES,
        "check_readonly_memmap_input": MORE_CLASSES,
    },
    "learned": {
        "check_sample_weight_equivalence_on_dense_data": "batches of repeated samples are other batches than weighted ones",
    },
}


def expected_failures(estimator):
    method = getattr(estimator, "method", None)
    if method in ("rlm", "flm", "ilm"):
        return EXPECTED["one-to-one"]
    return EXPECTED["learned"] if method in ("linear", "sigmoid") else {}


@parametrize_with_checks(
    [
        *(LabelMapper(name) for name in ("rlm", "flm", "blm", "blm+", "gaussian")),
        LabelMapper("linear", max_iter=20),
        LabelMapper("blm+", normalize="standardise", top_ratio="all"),
        LabelMapperCV(methods=("blm", "gaussian"), smoothings=(1.0,), shrinkages=("oas", 0.3)),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_conformance(estimator, check):
    check(estimator)


def drawn(seed=0, n=200, k_source=20, k_target=4, noise=2.0):
    rng = np.random.default_rng(seed)
    labels = np.array(["ant", "bee", "cat", "dog", "eel"])[np.arange(n) % k_target]
    means = 2 * np.random.default_rng(99).normal(size=(5, k_source))
    return means[np.arange(n) % k_target] + noise * rng.normal(size=(n, k_source)), labels


ESTIMATED = [name for name, method in METHODS.items() if method.statistic is not None]


@pytest.mark.parametrize("method", ESTIMATED)
def test_it_is_the_mapping_of_the_library(method):
    logits, labels = drawn()
    mapper = LabelMapper(method).fit(logits, labels)
    mapping = make_mapping(method, [f"label {i}" for i in range(20)], ["ant", "bee", "cat", "dog"])
    numbers = torch.from_numpy(np.searchsorted(mapper.classes_, labels))
    mapping.estimate(mapping.new_statistics().update(torch.from_numpy(logits), numbers))
    np.testing.assert_array_equal(mapper.weights_, mapping.weights.numpy())
    with torch.no_grad():
        expected = mapping(torch.from_numpy(logits)).numpy()
    np.testing.assert_allclose(mapper.decision_function(logits), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(mapper.predict_proba(logits).sum(1), 1)
    assert mapper.score(logits, labels) > (0.4 if method in ("flm", "ilm") else 0.6)


@pytest.mark.parametrize("method", ESTIMATED)
def test_partial_fit_in_pieces_equals_fit(method):
    logits, labels = drawn()
    whole, pieces = (
        LabelMapper(method, normalize=usable(method)).fit(logits, labels),
        LabelMapper(method, normalize=usable(method)),
    )
    for start, stop in ((0, 3), (3, 120), (120, 200)):
        pieces.partial_fit(logits[start:stop], labels[start:stop], classes=["dog", "cat", "bee", "ant"])
    np.testing.assert_allclose(pieces.weights_, whole.weights_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(pieces.decision_function(logits), whole.decision_function(logits), rtol=1e-4, atol=1e-4)


def usable(method):
    return "standardise" if "normalize" in METHODS[method].uses else "none"


def test_partial_fit_says_what_it_needs():
    logits, labels = drawn()
    with pytest.raises(ReprogramError, match=r"the first call needs all of them: classes=\[\.\.\.\]"):
        LabelMapper().partial_fit(logits, labels)
    mapper = LabelMapper().partial_fit(logits, labels, classes=np.unique(labels))
    with pytest.raises(ReprogramError, match=r"label .*'eel'.* was given, but the classes are ant, bee, cat, dog"):
        mapper.partial_fit(logits[:1], ["eel"])


@pytest.mark.parametrize("method", ESTIMATED)
def test_classes_come_and_go_as_if_they_had_always_or_never_been_there(method):
    logits, labels = drawn(k_target=5)
    settings = {"top_ratio": 0.5} if method == "blm+" else {}  # K = 2 for four and for five classes
    without_eel = labels != "eel"
    five, four = LabelMapper(method, **settings).fit(logits, labels), LabelMapper(method, **settings)
    four.fit(logits[without_eel], labels[without_eel])
    grown = clone(four).fit(logits[without_eel], labels[without_eel]).add_class("eel", logits[~without_eel])
    assert grown.classes_.tolist() == five.classes_.tolist()
    np.testing.assert_allclose(grown.weights_, five.weights_, rtol=1e-5, atol=1e-7)
    shrunk = clone(five).fit(logits, labels)
    if method == "gaussian":
        with pytest.raises(ReprogramError, match="subtract the statistics of its samples first"):
            shrunk.remove_class("eel")
        shrunk.remove_class("eel", logits[~without_eel])
    else:
        shrunk.remove_class("eel")
    np.testing.assert_allclose(shrunk.weights_, four.weights_, rtol=1e-4, atol=1e-5)
    assert shrunk.predict(logits).tolist() == four.predict(logits).tolist()


@pytest.mark.parametrize("method", ESTIMATED)
def test_forgotten_samples_were_never_there(method):
    logits, labels = drawn()
    mapper = LabelMapper(method, normalize=usable(method)).fit(logits, labels).forget(logits[:30], labels[:30])
    expected = LabelMapper(method, normalize=usable(method)).fit(logits[30:], labels[30:])
    np.testing.assert_allclose(mapper.weights_, expected.weights_, rtol=1e-4, atol=1e-5)
    with pytest.raises(ReprogramError, match="do not contain all samples"):
        mapper.forget(np.repeat(logits, 3, 0), np.repeat(labels, 3))


def test_weighted_samples_are_forgotten_with_their_weights():
    logits, labels = drawn()
    weights = np.full(200, 2.0)
    mapper = LabelMapper("blm").fit(logits, labels, sample_weight=weights).forget(logits[:50], labels[:50], weights[:50])
    np.testing.assert_allclose(mapper.weights_, LabelMapper("blm").fit(logits[50:], labels[50:], weights[50:]).weights_)


def test_a_refused_change_leaves_everything_as_it_was():
    logits, labels = drawn()
    mapper = LabelMapper().fit(logits, labels)
    before = mapper.decision_function(logits)
    with pytest.raises(ReprogramError, match="still has samples"):
        mapper.remove_class("cat", logits[labels == "cat"][:5])
    np.testing.assert_array_equal(mapper.decision_function(logits), before)
    assert mapper.mapping_.statistics.n == 200
    numbers = LabelMapper("blm").fit(logits, np.arange(200) % 4)
    with pytest.raises(ReprogramError, match=r"class 4\.0 was given, but the classes are of type int64"):
        numbers.add_class(4.0, logits[:3])
    assert LabelMapper("rlm").fit(logits, labels).remove_class("cat").classes_.tolist() == ["ant", "bee", "dog"]


def test_class_changes_that_cannot_be():
    logits, labels = drawn()
    mapper = LabelMapper("blm").fit(logits, labels)
    with pytest.raises(ReprogramError, match="class 'cat' is already known"):
        mapper.add_class("cat", logits[:2])
    with pytest.raises(ReprogramError, match="class 'cow'"):
        mapper.remove_class("cow")
    with pytest.raises(ReprogramError, match="'linear' is learned and cannot change its classes"):
        LabelMapper("linear", max_iter=1).fit(logits, labels).add_class("eel", logits[:2])
    with pytest.raises(ReprogramError, match="'linear' is learned and cannot forget"):
        LabelMapper("linear", max_iter=1, normalize="centre").fit(logits, labels).forget(logits, labels)
    with pytest.raises(ReprogramError, match="at least 1 source label"):
        mapper.explain(0)
    with pytest.raises(ReprogramError, match="smoothing λ = '1' was given"):
        LabelMapper("blm", smoothing="1").fit(logits, labels)
    with pytest.raises(ReprogramError, match="'rlm' has no statistics"):
        LabelMapper("rlm").fit(logits, labels).forget(logits, labels)


def test_explain_names_the_source_labels():
    logits, labels = drawn()
    names = [f"source {i}" for i in range(20)]
    mapper = LabelMapper("blm", source_labels=names).fit(logits, labels)
    explained = mapper.explain(k=3)
    assert list(explained) == ["ant", "bee", "cat", "dog"]
    for column, rows in enumerate(explained.values()):
        weights = [weight for _, weight in rows]
        assert weights == sorted(weights, reverse=True)
        assert weights[0] == pytest.approx(mapper.weights_[:, column].max())
        assert mapper.weights_[names.index(rows[0][0]), column] == pytest.approx(weights[0])
    assert any(weight < 0 for rows in LabelMapper().fit(logits, labels).explain().values() for _, weight in rows)
    with pytest.raises(ReprogramError, match="3 source labels were given for logits of 20 columns"):
        LabelMapper(source_labels=names[:3]).fit(logits, labels)


def test_without_a_mapping_the_labels_must_agree():
    mapper = LabelMapper("none", source_labels=["Dog", "ant", "bee", "cat", *(f"x{i}" for i in range(16))]).fit(*drawn())
    assert mapper.predict(np.eye(20)[:4]).tolist() == ["dog", "ant", "bee", "cat"]
    with pytest.raises(ReprogramError, match="mapping 'none' needs every class"):
        LabelMapper("none").fit(*drawn())


def test_pipeline_grid_search_pandas_and_copies():
    logits, labels = drawn()
    frame = pd.DataFrame(logits.astype(np.float32), columns=[f"logit {i}" for i in range(20)])
    pipeline = make_pipeline(StandardScaler(), LabelMapper("blm+"))
    search = GridSearchCV(pipeline, {"labelmapper__smoothing": [0.1, 10.0], "labelmapper__method": ["blm", "blm+"]}, cv=3)
    search.fit(frame, pd.Series(labels))
    assert search.best_score_ > 0.6
    assert cross_val_score(LabelMapper(), frame, labels, cv=3).mean() > 0.9
    mapper = LabelMapper().fit(frame, labels)
    assert mapper.feature_names_in_.tolist()[:2] == ["logit 0", "logit 1"]
    again = pickle.loads(pickle.dumps(mapper))
    np.testing.assert_array_equal(again.predict(frame), mapper.predict(frame))
    assert clone(mapper).get_params() == mapper.get_params()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_dtypes(dtype):
    logits, labels = drawn(noise=0.5)
    assert LabelMapper("blm").fit((4 * logits).astype(dtype), labels).score((4 * logits).astype(dtype), labels) > 0.9


def test_weights_of_samples_are_repetitions():
    logits, labels = drawn()
    times = np.arange(200) % 3
    for method in ESTIMATED:
        weighted = LabelMapper(method).fit(logits, labels, sample_weight=times)
        repeated = LabelMapper(method).fit(logits.repeat(times, 0), labels.repeat(times))
        np.testing.assert_allclose(weighted.weights_, repeated.weights_, rtol=1e-5, atol=1e-7)


def test_the_learned_method_learns_and_its_seed_decides():
    logits, labels = drawn()
    mapper = LabelMapper("linear", random_state=0, max_iter=20).fit(logits, labels)
    assert mapper.score(logits, labels) > 0.9
    same, other = (LabelMapper("linear", random_state=seed, max_iter=20).fit(logits, labels) for seed in (0, 1))
    np.testing.assert_array_equal(mapper.weights_, same.weights_)
    assert not np.array_equal(mapper.weights_, other.weights_)
    assert mapper.n_iter_ == 20


def test_cv_keeps_its_table_and_is_what_it_chose():
    logits, labels = drawn()
    chooser = LabelMapperCV().fit(logits, labels)
    choice = chooser.selection_.choice
    chosen = LabelMapper(choice.method, **choice.settings).fit(logits, labels)
    np.testing.assert_array_equal(chooser.weights_, chosen.weights_)
    assert len(chooser.selection_.table) > 50


def test_unfitted_and_unknown():
    with pytest.raises(NotFittedError):
        LabelMapper().predict(np.zeros((2, 3)))
    with pytest.raises(ReprogramError, match=r"method 'gausian'.*gaussian"):
        LabelMapper("gausian").fit(*drawn())
    assert reprogram.LabelMapper is LabelMapper
    with pytest.raises(AttributeError, match="LabelMaper"):
        reprogram.LabelMaper  # noqa: B018
