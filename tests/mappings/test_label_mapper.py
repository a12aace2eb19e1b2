"""LabelMapper as a scikit-learn classifier: its conformance checks, and what it adds to them."""

import inspect
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
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data, parametrize_with_checks
from torch import nn

import reprogram
import sealed
from reprogram.errors import ReprogramError
from reprogram.mappings.label_mapper import LabelMapper, LabelMapperCV
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import MAPPINGS

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
    "calibrated": {
        "check_sample_weight_equivalence_on_dense_data": "temperatures of weighted samples are measured on folds",
    },
}


def expected_failures(estimator):
    method = getattr(estimator, "method", None)
    if method in ("rlm", "flm", "ilm"):
        return EXPECTED["one-to-one"] | ({} if method == "rlm" else EXPECTED["calibrated"])
    return EXPECTED["learned"] if method in ("linear", "sigmoid") else EXPECTED["calibrated"]


@parametrize_with_checks(
    [
        *(LabelMapper(name) for name in ("rlm", "flm", "blm", "blm+", "gaussian")),
        LabelMapper("linear", max_iter=20),
        LabelMapper("blm+", normalize="standardise", top_ratio="all"),
        LabelMapperCV(methods=("blm", "gaussian"), grid={"smoothing": (1.0,), "shrinkage": ("oas", 0.3)}),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_conformance(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", ["flm", "blm", "blm+", "gaussian"])
def test_whole_weights_repeat_a_sample(method):
    check_sample_weight_equivalence_on_dense_data("LabelMapper", LabelMapper(method, calibration="none"))


def drawn(seed=0, n=200, k_source=20, k_target=4, noise=2.0):
    rng = np.random.default_rng(seed)
    labels = np.array(["ant", "bee", "cat", "dog", "eel"])[np.arange(n) % k_target]
    means = 2 * np.random.default_rng(99).normal(size=(5, k_source))
    return means[np.arange(n) % k_target] + noise * rng.normal(size=(n, k_source)), labels


ESTIMATED = ["flm", "ilm", "blm", "blm+", "gaussian", "gaussian+"]


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
    return "standardise" if "normalize" in MAPPINGS[method].settings.model_fields else "none"


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
    if method.startswith("gaussian"):
        with pytest.raises(ReprogramError, match=r"needs the samples of class 'eel'.*; give their logits, too"):
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
    with pytest.raises(ReprogramError, match="'linear' is learned by gradient and cannot forget"):
        LabelMapper("linear", max_iter=1, normalize="centre").fit(logits, labels).forget(logits, labels)
    with pytest.raises(ReprogramError, match="a whole number of source labels from 1 on"):
        mapper.explain(0)
    with pytest.raises(ReprogramError, match="smoothing = 'much' was given, but it should be a number; change that value"):
        LabelMapper("blm", smoothing="much").fit(logits, labels)
    with pytest.raises(ReprogramError, match="mapping 'rlm' is not estimated from data"):
        LabelMapper("rlm").fit(logits, labels).forget(logits, labels)


def test_explain_names_the_source_labels():
    logits, labels = drawn()
    names = [f"source {i}" for i in range(20)]
    mapper = LabelMapper("blm", source_labels=names).fit(logits, labels)
    explained = mapper.explain(count=3)
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
    chosen = LabelMapper(choice.mapping, **choice.settings).fit(logits, labels)
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


# ---- parameters: the settings of all mappings


def test_parameters_are_the_settings_of_all_mappings():
    settings = {name for family in MAPPINGS.values() for name in family.settings.without_training()}
    own = {"method", "source_labels", "calibration", "prediction_sets", "max_iter", "learning_rate", "random_state"}
    assert set(inspect.signature(LabelMapper).parameters) == own | settings
    assert set(LabelMapper().get_params()) == own | settings
    assert {"smoothing", "top_ratio", "top_k", "normalize", "shrinkage", "priors", "optimal"} <= settings
    assert "folds" not in settings, "it only matters in training"
    assert repr(LabelMapper("blm", smoothing=3)) == "LabelMapper(method='blm', smoothing=3)"
    mapper = LabelMapper("blm")
    mapper.smoothing = 7.0
    assert mapper.get_params()["smoothing"] == 7.0
    with pytest.raises(TypeError, match="setting 'smothing' is not known; did you mean 'smoothing'"):
        LabelMapper("blm", smothing=3)


def test_a_method_ignores_the_settings_of_others_and_takes_its_own_defaults():
    logits, labels = drawn()
    mapper = LabelMapper("blm", shrinkage=0.5, top_k=3, priors=True).fit(logits, labels)
    assert mapper.mapping_.settings == MAPPINGS["blm"].settings()
    gaussian = clone(mapper).set_params(method="gaussian").fit(logits, labels)
    assert (gaussian.mapping_.settings.shrinkage, gaussian.mapping_.settings.priors) == (0.5, True)


def test_top_k_says_how_many_labels_count():
    logits, labels = drawn()
    mapper = LabelMapper("blm+", top_k=5).fit(logits, labels)
    assert mapper.mapping_.statistics.top_k == 5
    assert mapper.get_params()["top_k"] == 5
    all_of_them = LabelMapper("blm+", top_k=99).fit(logits, labels)
    np.testing.assert_array_equal(all_of_them.weights_, LabelMapper("blm+", top_ratio="all").fit(logits, labels).weights_)
    with pytest.raises(ReprogramError, match="top_k = 0 was given, but it should be greater than or equal to 1"):
        LabelMapper("blm+", top_k=0).fit(logits, labels)


@pytest.mark.parametrize(
    ("method", "grid"),
    [
        ("blm", {"smoothing": np.array([1, 10, 100])}),
        ("blm", {"smoothing": np.logspace(-2, 2, 3, dtype=np.float32)}),
        ("blm+", {"top_k": np.arange(1, 4), "normalize": np.array(["none", "centre"])}),
        ("gaussian", {"shrinkage": np.array([0.1, 0.5]), "priors": np.array([False, True])}),
    ],
)
def test_numpy_scalars_are_the_numbers_that_they_are(method, grid):
    logits, labels = drawn()
    search = GridSearchCV(LabelMapper(method), grid, cv=2, error_score="raise").fit(logits, labels)
    plain = {name: [value.item() for value in values] for name, values in grid.items()}
    same = GridSearchCV(LabelMapper(method), plain, cv=2, error_score="raise").fit(logits, labels)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], same.cv_results_["mean_test_score"])


# ---- labels of all types


@pytest.mark.parametrize(
    ("labels", "added", "dtype"),
    [
        (np.array([1, 5, 9], np.uint8), 7, np.uint8),
        (np.array([1, 5, 9], np.uint8), np.int64(7), np.uint8),
        (np.array([1, 5, 9], np.uint8), 300, np.uint16),
        (np.array([1, 5, 9], np.uint8), -1, np.int16),
        (np.array([-1, 5, 9], np.int8), 200, np.int16),
        (np.array([1, 5, 9], np.int64), 2, np.int64),
        (np.array([1, 5, 2**63], np.uint64), 7, np.uint64),
        (np.array(["a", "c", "d"]), "b", "<U1"),
        (np.array(["a", "c", "d"]), "a longer name", "<U13"),
        (np.array([1.0, 5.0, 9.0]), 7.0, np.float64),
    ],
)
def test_a_class_can_be_added_to_labels_of_any_type(labels, added, dtype):
    logits = drawn(n=120, k_target=4, noise=0.3)[0]
    numbers = np.arange(120) % 4
    old = numbers < 3
    everything = np.append(labels, np.array([added], dtype=dtype))[numbers]
    for method in ("blm", "gaussian"):
        mapper = LabelMapper(method).fit(logits[old], labels[numbers[old]]).add_class(added, logits[~old])
        always = LabelMapper(method).fit(logits, everything)
        assert mapper.classes_.dtype == dtype
        assert mapper.classes_.tolist() == always.classes_.tolist()
        np.testing.assert_allclose(mapper.weights_, always.weights_, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(mapper.predict(logits), always.predict(logits))
        mapper.partial_fit(logits, everything).forget(logits, everything)
        need = (logits[~old],) if method == "gaussian" else ()
        assert mapper.remove_class(added, *need).classes_.tolist() == sorted(labels.tolist())


@pytest.mark.parametrize(
    ("labels", "added"),
    [
        (np.array([1, 5, 9]), 4.0),
        (np.array([1, 5, 9]), "b"),
        (np.array([1, 5, 9]), True),
        (np.array([1.0, 5.0, 9.0]), 3),
        (np.array(["a", "c", "d"]), 3),
        (np.array([1, 5, 2**63], np.uint64), -1),
        (np.array([1, 5, 9]), None),
        (np.array([1, 5, 9]), [3]),
    ],
)
def test_labels_of_another_type_are_refused(labels, added):
    logits = drawn(n=30)[0]
    mapper = LabelMapper("blm").fit(logits, labels[np.arange(30) % 3])
    with pytest.raises(
        ReprogramError, match=r"class .* was given, but the classes are of type .*; give a label of that type"
    ):
        mapper.add_class(added, logits[:3])
    with pytest.raises(ReprogramError, match=r"class .* is not known"):
        mapper.remove_class(added)
    if isinstance(added, (int, float, str)) and added not in (True, -1):
        with pytest.raises(ReprogramError, match=r"label .* was given, but the classes are .*; add it with add_class"):
            mapper.forget(logits[:2], [added, added])


@pytest.mark.parametrize("method", ["rlm", "none"])
def test_classes_of_methods_without_data_come_and_go(method):
    logits, labels = drawn(k_target=5)
    names = ["ant", "bee", "cat", "dog", "eel", *(f"x{i}" for i in range(15))]
    four = labels != "eel"
    always = LabelMapper(method, source_labels=names, random_state=0).fit(logits, labels)
    mapper = LabelMapper(method, source_labels=names, random_state=0).fit(logits[four], labels[four])
    never = mapper.weights_.copy()
    np.testing.assert_array_equal(mapper.add_class("eel", logits[~four]).weights_, always.weights_)
    np.testing.assert_array_equal(mapper.remove_class("eel", logits[~four]).weights_, never)


def test_other_classes_in_a_later_partial_fit_are_refused():
    logits, labels = drawn()
    mapper = LabelMapper("blm").partial_fit(logits, labels, classes=np.unique(labels))
    mapper.partial_fit(logits, labels, classes=["dog", "cat", "bee", "ant"])
    for other in (["ant", "bee"], ["ant", "bee", "cat", "dog", "eel"], [0, 1, 2, 3]):
        with pytest.raises(ReprogramError, match=r"classes .* were given, but this mapper has .*; leave them out"):
            mapper.partial_fit(logits, labels, classes=other)
    assert mapper.mapping_.statistics.n == 400


def test_a_first_call_that_is_refused_leaves_it_unfitted():
    logits, labels = drawn()
    for refused in ({"y": labels}, {"y": np.full(200, "ant"), "sample_weight": np.zeros(200)}):
        mapper = LabelMapper("blm")
        with pytest.raises(ValueError, match=r"label 'cat'|zero"):
            mapper.partial_fit(logits, classes=["ant", "bee"], **refused)
        with pytest.raises(NotFittedError):
            mapper.predict(logits)


def test_explain_of_samples_says_what_it_takes():
    logits, labels = drawn()
    with pytest.raises(ReprogramError, match="a ndarray was given, but a whole number of source labels from 1 on"):
        LabelMapper("blm").fit(logits, labels).explain(logits)


# ---- saving


TYPES = {
    "int": np.array([3, 10, 20]),
    "int8": np.array([-3, 10, 20], np.int8),
    "uint64": np.array([3, 10, 2**63 + 1], np.uint64),
    "str": np.array(["ant", "bee, or not", "Kätzchen\n"]),
    "bool": np.array([False, True]),
    "float": np.array([0.0, 1.0, 3.0]),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("method", ["blm", "gaussian", "linear"])
def test_a_saved_mapper_predicts_the_same_bits(method, kind, tmp_path):
    kinds = TYPES[kind]
    logits = drawn(n=90, k_target=3)[0]
    y = kinds[np.arange(90) % len(kinds)]
    mapper = LabelMapper(method, max_iter=3, random_state=0).fit(logits, y, sample_weight=np.linspace(0.1, 1, 90))
    mapper.save(tmp_path / "mapper")
    again = LabelMapper.load(tmp_path / "mapper")
    assert again.classes_.dtype == mapper.classes_.dtype
    np.testing.assert_array_equal(again.classes_, mapper.classes_)
    np.testing.assert_array_equal(again.predict(logits), mapper.predict(logits))
    assert again.predict(logits).dtype == mapper.predict(logits).dtype
    np.testing.assert_array_equal(again.decision_function(logits), mapper.decision_function(logits))
    np.testing.assert_array_equal(again.predict_proba(logits), mapper.predict_proba(logits))
    assert (again.n_features_in_, again.n_iter_, again.explain()) == (20, mapper.n_iter_, mapper.explain())
    if method != "linear":
        for each in (mapper, again):
            each.partial_fit(2 * logits, y).forget(logits[:9], y[:9], np.linspace(0.1, 1, 90)[:9])
        np.testing.assert_array_equal(again.weights_, mapper.weights_)


def test_settings_and_column_names_are_saved(tmp_path):
    logits, labels = drawn()
    frame = pd.DataFrame(logits, columns=[f"logit {i}" for i in range(20)])
    mapper = LabelMapper("blm+", source_labels=[f"s{i}" for i in range(20)], smoothing=0.5, top_k=4, normalize="centre")
    mapper.fit(frame, pd.Series(labels)).save(tmp_path / "mapper")
    again = LabelMapper.load(tmp_path / "mapper")
    kept = ("method", "source_labels", "smoothing", "top_k", "normalize")
    assert {name: again.get_params()[name] for name in kept} == {name: mapper.get_params()[name] for name in kept}
    np.testing.assert_array_equal(again.predict_proba(frame), mapper.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"logit 0": "other"}))
    assert clone(again).fit(frame, labels).score(frame, labels) == mapper.score(frame, labels)


def test_a_chosen_mapper_is_saved_like_any_other(tmp_path):
    logits, labels = drawn()
    mapper = LabelMapperCV(methods=("blm", "gaussian")).fit(logits, labels)
    mapper.save(tmp_path / "mapper")
    again = LabelMapper.load(tmp_path / "mapper")
    assert again.method == mapper.selection_.choice.mapping
    np.testing.assert_array_equal(again.predict_proba(logits), mapper.predict_proba(logits))


def test_the_mapping_of_a_model_becomes_a_mapper(tmp_path):
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 20))
    frozen = reprogram.Frozen(module, input_size=8, labels=[f"source {i}" for i in range(20)])
    logits, labels = drawn()
    order = ["dog", "ant", "cat", "bee"]  # a model's classes need not be sorted
    mapping = make_mapping("gaussian", frozen.labels, order)
    mapping.estimate(mapping.count(torch.from_numpy(logits), torch.tensor([order.index(name) for name in labels])))
    reprogram.Reprogrammed(reprogram.make_program("none", canvas=8), frozen, mapping).save(tmp_path / "model")
    mapper = LabelMapper.load(tmp_path / "model")
    assert mapper.classes_.tolist() == order
    assert mapper.predict(logits).tolist() == mapping.predict(torch.from_numpy(logits), precise=True).labels
    mapper.forget(logits[:50], labels[:50])
    expected = LabelMapper("gaussian").fit(logits[50:], labels[50:])
    np.testing.assert_allclose(mapper.weights_[:, np.argsort(order)], expected.weights_, rtol=1e-4, atol=1e-5)
    grown = mapper.add_class("eel", logits[:50] + 9)
    assert grown.classes_.tolist() == ["ant", "bee", "cat", "dog", "eel"]
    assert grown.score(logits[50:], labels[50:]) > 0.9


DAMAGE = {
    "no table": 3,
    "no labels": {"dtype": "<i8"},
    "fewer labels": {"labels": [0, 1], "dtype": "<i8"},
    "other labels": {"labels": [0, 1, 2, 7], "dtype": "<i8"},
    "labels that are lists": {"labels": [[0], [1], [2], [3]], "dtype": "<i8"},
    "an unknown type": {"labels": [0, 1, 2, 3], "dtype": "hello"},
    "a type that is a table": {"labels": [0, 1, 2, 3], "dtype": {}},
    "names for other columns": {"labels": [0, 1, 2, 3], "dtype": "<i8", "features": ["a"]},
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_labels_are_one_sentence(case, tmp_path):
    logits, _ = drawn()
    LabelMapper("blm").fit(logits, np.arange(200) % 4).save(tmp_path / "mapper")
    path = tmp_path / "mapper" / "artefact.json"
    sealed.forge(path, label_mapper=DAMAGE[case])
    with pytest.raises(ReprogramError, match="do not fit together; make it again"):
        LabelMapper.load(tmp_path / "mapper")
