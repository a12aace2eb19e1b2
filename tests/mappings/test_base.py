"""What all mappings have in common: rules and statistics, the product, folds, classes and samples that come and go."""

import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from one_to_one import SOURCE, chosen, quiet, spread
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.mappings.assignment import one_to_one
from reprogram.mappings.bayesian import bayes
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import MAPPINGS
from reprogram.sources.texts import Texts
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics

fast = settings(deadline=None, derandomize=True, max_examples=6)
CLASSES = ["source 3", "source 1"]
LOGITS = 5 * torch.eye(12)[[3, 3, 1, 0]]
LABELS = torch.tensor([0, 0, 1, 1])


COUNTS, PROBABILITIES = {"kind": "counts", "top_k": 1}, {"kind": "probabilities", "top_k": 1}
# what each mapping counts for two classes, and when it is estimated in training
FACTS = {
    "rlm": (None, "never"),
    "flm": (COUNTS, "never"),
    "ilm": (COUNTS, "reuse"),
    "blm": (COUNTS, "reuse"),
    "blm+": (PROBABILITIES, "reuse"),
    "gaussian": ({}, "reuse"),
    "gaussian+": ({"top_k": None, "weighting": "log"}, "reuse"),
    "linear": (None, "never"),
    "sigmoid": (None, "never"),
    "none": (None, "never"),
    "ensemble": (None, "never"),
}
ESTIMATED = [name for name, (counted, _) in FACTS.items() if counted is not None]


@pytest.mark.parametrize("name", MAPPINGS)
def test_every_mapping_can_be_made_used_and_made_again(name):
    counted, refresh = FACTS[name]
    templates = [f"{number} {{}}" for number in range(6)]
    source = Texts(CLASSES, templates, torch.eye(12)) if name == "ensemble" else SOURCE
    mapping = make_mapping(name, source, CLASSES, seed=5)
    assert (mapping.name, mapping.refresh) == (name, refresh)
    assert (mapping.k_source, mapping.k_target, mapping.classes) == (12, 2, tuple(CLASSES))
    assert mapping.weights.shape == (12, 2)
    assert mapping.weights.dtype == torch.float32
    if counted is None:
        with pytest.raises(ReprogramError, match=f"mapping {re.escape(repr(name))} is not estimated from data"):
            mapping.new_statistics()
    else:
        gathered = mapping.new_statistics()
        assert gathered.config() == {**counted, "k_source": 12, "k_target": 2}
        assert gathered.n == 0
        mapping.estimate(gathered.update(LOGITS, LABELS))
    assert mapping(LOGITS).shape == (4, 2)
    config = json.loads(json.dumps(mapping.config()))
    again = make_mapping(source_labels=source, classes=CLASSES, **config)
    again.load_state_dict(mapping.state_dict())
    assert again.config() == mapping.config()
    assert torch.equal(again(LOGITS), mapping(LOGITS))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("flm", one_to_one),
        ("ilm", one_to_one),
        ("blm", lambda j: bayes(j, 0.5)),
        ("blm+", lambda j: bayes(j, 0.5)),
    ],
)
def test_each_method_applies_its_rule_with_its_settings(name, rule):
    settings = {"blm": {"smoothing": 0.5}, "blm+": {"smoothing": 0.5, "top_ratio": 1.0}}
    mapping = make_mapping(name, SOURCE, CLASSES, **settings.get(name, {}))
    statistics = mapping.new_statistics().update(LOGITS, LABELS)
    mapping.estimate(statistics)
    assert torch.equal(mapping.weights, rule(statistics))


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("rlm", {"refresh": "fresh"}),
        ("ilm", {"smoothing": 0.5}),
        ("blm", {"top_ratio": "all"}),
        ("blm+", {"optimal": True}),
        ("linear", {"refresh": "never"}),
    ],
)
def test_a_setting_that_the_method_does_not_use_is_refused(name, setting):
    """An ablation that did not happen must not be believed to have happened."""
    with pytest.raises(ReprogramError, match=f"{re.escape(repr(name))} does not use {next(iter(setting))}"):
        make_mapping(name, SOURCE, CLASSES, **setting)


def test_blm_plus_takes_k_from_the_ratio():
    assert make_mapping("blm+", SOURCE, CLASSES, top_ratio=2.0).new_statistics().top_k == 4
    assert make_mapping("blm+", SOURCE, CLASSES, top_ratio="all").new_statistics().top_k == 12
    assert make_mapping("blm+", SOURCE, CLASSES).new_statistics().top_k == 1


def test_optimal_and_seed_reach_the_rules():
    matrix = torch.tensor([[5, 4], [4, 0], [0, 1]])
    for optimal, expected in ((False, [0, 2]), (True, [1, 0])):
        mapping = make_mapping("ilm", ["a", "b", "c"], ["x", "y"], optimal=optimal)
        statistics = mapping.new_statistics()
        statistics.matrix.copy_(matrix)
        statistics.samples.copy_(matrix.sum(0))
        mapping.estimate(statistics)
        assert chosen(mapping.weights) == expected
    one, same, other = (make_mapping("rlm", SOURCE, SOURCE[:6], seed=seed).weights for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("refresh", ["never", "fresh", "reuse", "after"])
def test_the_refresh_can_be_chosen(refresh):
    assert make_mapping("blm", SOURCE, CLASSES, refresh=refresh).refresh == refresh


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"name": "bml+"}, r"mapping 'bml\+' is not known; did you mean 'blm\+'\?"),
        (
            {"name": "blm", "refresh": "often"},
            "refresh = 'often' was given, but it should be 'never', 'fresh', 'reuse' or 'after'",
        ),
        ({"name": "blm", "smothing": 2}, "setting 'smothing' is not known; did you mean 'smoothing'"),
    ],
)
def test_unknown_words_get_the_known_ones(settings_, message):
    with pytest.raises(ReprogramError, match=message):
        make_mapping(source_labels=SOURCE, classes=CLASSES, **settings_)


@pytest.mark.parametrize(
    ("source", "classes", "message"),
    [
        (SOURCE, ["cat", "dog", "cat"], "the classes name 'cat' more than once; give each a name of its own"),
        (SOURCE, [], "12 source labels and 0 classes were given; both need at least one"),
        ([], ["cat"], "0 source labels and 1 classes were given; both need at least one"),
        (SOURCE, "cat", "classes = 'cat' was given, but a list of names is expected"),
        ("cat", ["cat"], "source_labels = 'cat' was given, but a list of names is expected"),
        (SOURCE, [1, 2], "1 stands among the classes, but these are names; write '1'"),
        (["cat", None], ["cat"], "None stands among the source_labels, but these are names"),
    ],
)
def test_label_sets_that_cannot_be(source, classes, message):
    with pytest.raises(ReprogramError, match=message):
        make_mapping("blm", source, classes)


def test_two_source_labels_may_have_one_name():
    """ImageNet has two cranes; they stay two labels."""
    mapping = make_mapping("blm", ["crane", "crane", "wren"], ["bird", "machine"])
    mapping.estimate(mapping.count(torch.eye(3)[[0, 1, 2]], torch.tensor([0, 1, 0])))
    assert [label.source for label in mapping.explain(3).classes["machine"]] == ["crane"]
    assert mapping.predict(torch.eye(3)[[1]]).labels == ["machine"]


@pytest.mark.parametrize("name", ["flm", "ilm", "blm", "blm+"])
def test_before_the_first_estimate_every_column_is_uniform(name):
    torch.testing.assert_close(make_mapping(name, SOURCE, CLASSES).weights, torch.full((12, 2), 1 / 12))


def test_estimate_returns_how_much_omega_changed():
    mapping = make_mapping("ilm", ["a", "b", "c", "d"], ["x", "y"])
    first = JointStatistics.counts(4, 2).update(torch.eye(4)[[0, 1]], torch.tensor([0, 1]))
    assert mapping.estimate(first) == pytest.approx(0.75)  # from uniform to one-hot over four labels
    assert mapping.estimate(first) == 0
    half = JointStatistics.counts(4, 2).update(torch.eye(4)[[0, 2]], torch.tensor([0, 1]))
    assert mapping.estimate(half) == pytest.approx(0.5)  # one of two classes moved
    all_new = JointStatistics.counts(4, 2).update(torch.eye(4)[[1, 3]], torch.tensor([0, 1]))
    assert mapping.estimate(all_new) == pytest.approx(1.0)


def test_estimate_replaces_the_statistics_and_keeps_them():
    mapping = make_mapping("blm", SOURCE, CLASSES)
    statistics = mapping.new_statistics().update(LOGITS, LABELS)
    for _ in range(2):
        mapping.estimate(statistics)
    assert torch.equal(mapping.statistics.matrix, statistics.matrix)
    assert mapping.statistics.n == 4
    assert {"omega", *(f"statistics.{name}" for name in ("matrix", "samples", "counted", "rounding"))} == set(
        mapping.state_dict()
    )
    statistics.reset()
    assert mapping.statistics.n == 4, "later changes of what was handed in must not reach the mapping"


def test_estimate_from_its_own_statistics_keeps_them():
    """Add or take out samples of a fitted mapping, then estimate again."""
    mapping = make_mapping("blm", SOURCE, CLASSES)
    mapping.estimate(mapping.new_statistics().update(LOGITS, LABELS))
    more = 5 * torch.eye(12)[[7]], torch.tensor([1])
    expected = mapping.new_statistics().update(LOGITS, LABELS).update(*more)
    mapping.statistics.update(*more)
    for parts in ((), (mapping.statistics,)):
        mapping.estimate(*parts)
        assert mapping.statistics.n == 5
        assert torch.equal(mapping.weights, bayes(expected))


def test_estimate_refuses_unlike_statistics_and_changes_nothing():
    mapping = make_mapping("blm", SOURCE, CLASSES)
    mapping.estimate(mapping.new_statistics().update(LOGITS, LABELS))
    before = {key: value.clone() for key, value in mapping.state_dict().items()}
    with pytest.raises(ReprogramError, match="cannot be combined"):
        mapping.estimate(JointStatistics.counts(12, 3))
    assert all(torch.equal(value, before[key]) for key, value in mapping.state_dict().items())


def test_estimate_names_the_class_without_evidence():
    mapping = make_mapping("blm+", SOURCE, ["cat", "okapi"])
    with pytest.warns(EvidenceWarning, match="'okapi'"):
        mapping.estimate(mapping.new_statistics().update(LOGITS[:1], torch.tensor([0])))


def test_mappings_that_are_not_learned_train_nothing():
    for name in ("rlm", "flm", "ilm", "blm", "blm+", "gaussian", "none"):
        mapping = make_mapping(name, SOURCE, CLASSES)
        assert not mapping.learned
        assert list(mapping.parameters()) == []
        assert not mapping(LOGITS).requires_grad


# ---- the product


@pytest.fixture
def estimated():
    mapping = make_mapping("blm", SOURCE, CLASSES)
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(60, 12, generator=generator), torch.randint(0, 2, (60,), generator=generator)
    mapping.estimate(mapping.new_statistics().update(logits, labels))
    return mapping


def test_forward_is_raw_logits_times_omega(estimated):
    logits = 100 * torch.randn(7, 12, generator=torch.Generator().manual_seed(1))
    expected = logits.double() @ estimated.weights.double()
    torch.testing.assert_close(estimated(logits), expected.float(), rtol=1e-5, atol=1e-4)
    assert estimated(2 * logits).allclose(2 * estimated(logits)), "no softmax and no temperature: the map is linear"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_forward_answers_in_float32_whatever_comes_in(estimated, dtype):
    logits = torch.randn(7, 12, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert estimated(logits).dtype == torch.float32
    assert torch.equal(estimated(logits), logits.float() @ estimated.weights)


@pytest.mark.parametrize("name", ["blm", "linear", "sigmoid"])
def test_forward_is_in_full_precision_even_under_autocast(name):
    mapping = make_mapping(name, SOURCE, CLASSES)
    logits = torch.randn(7, 12, generator=torch.Generator().manual_seed(1))
    expected = mapping(logits)
    with torch.autocast("cpu", torch.bfloat16):
        found = mapping(logits)
        assert (logits @ mapping.weights).dtype == torch.bfloat16, "otherwise this test tests nothing"
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["blm", "linear"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_forward_still_works_after_a_cast_of_the_enclosing_model(name, dtype):
    mapping = make_mapping(name, SOURCE, CLASSES).to(dtype)
    assert mapping(torch.randn(7, 12).to(dtype)).dtype == torch.float32


def test_gradient_flows_through_the_mapping_to_the_logits(estimated):
    logits = torch.zeros(1, 12, requires_grad=True)
    estimated(logits)[0, 1].backward()
    assert torch.equal(logits.grad[0], estimated.weights[:, 1])


# ---- classes that come and go, and folds


@pytest.mark.parametrize("name", ESTIMATED)
def test_adding_and_removing_a_class_is_exact(name):
    logits, targets = spread()
    first = targets < 2
    settings_ = {"top_k": 3} if name == "blm+" else {}
    two, three = (make_mapping(name, SOURCE, list(classes), **settings_) for classes in ("ab", "abc"))
    two.estimate(two.new_statistics().update(logits[first], targets[first]))
    three.estimate(three.new_statistics().update(logits, targets))
    grown = two.with_classes(["a", "b", "c"])
    grown.statistics.update(logits[~first], targets[~first])
    grown.estimate(grown.statistics)
    torch.testing.assert_close(grown.weights, three.weights, rtol=1e-5, atol=1e-6)
    if name.startswith("gaussian"):
        gone = three.new_statistics().update(logits[~first], targets[~first])
        three.statistics.subtract(gone)
    shrunk = three.with_classes(["b", "a"])
    shrunk.estimate(shrunk.statistics)
    torch.testing.assert_close(shrunk.weights[:, [1, 0]], two.weights, rtol=1e-4, atol=1e-5)


def test_with_other_classes_k_stays_and_is_saved():
    mapping = make_mapping("blm+", SOURCE, [str(i) for i in range(14)])
    assert mapping.statistics.top_k == 2
    smaller = mapping.with_classes([str(i) for i in range(7)])
    assert smaller.statistics.top_k == 2
    assert make_mapping(source_labels=SOURCE, classes=smaller.classes, **smaller.config()).statistics.top_k == 2


def test_folds_score_what_they_have_not_seen():
    logits, targets = spread()
    mapping = make_mapping("blm", SOURCE, ["a", "b", "c"], folds=3)
    folds = torch.arange(60) // 3 % 3
    mapping.estimate(*(mapping.new_statistics().update(logits[folds == f], targets[folds == f]) for f in range(3)))
    for fold in range(3):
        without = make_mapping("blm", SOURCE, ["a", "b", "c"])
        without.estimate(without.new_statistics().update(logits[folds != fold], targets[folds != fold]))
        torch.testing.assert_close(mapping(logits, folds)[folds == fold], without(logits[folds == fold]))
    whole = make_mapping("blm", SOURCE, ["a", "b", "c"])
    whole.estimate(whole.new_statistics().update(logits, targets))
    assert torch.equal(mapping(logits), whole(logits))


# ---- laws: samples and classes that come and go leave no trace


FAMILIES = {
    "flm": {},
    "ilm": {"optimal": True},
    "blm": {"smoothing": 0.3, "normalize": "standardise"},
    "blm+": {"top_k": 3, "normalize": "centre"},
    "gaussian": {"shrinkage": 0.3, "priors": True},
    "gaussian+": {"top_k": 4, "weighting": "sqrt", "shrinkage": 0.3},
    "rlm": {"normalize": "centre"},
}
families = pytest.mark.parametrize("name", FAMILIES)
draws = given(seed=st.integers(0, 9999), cut=st.integers(1, 44), weighted=st.booleans())


def family(name, classes, weighted):
    return make_mapping(name, SOURCE, list(classes), weighted=weighted, seed=3, **FAMILIES[name])


def weighted_samples(seed, weighted, n=45):
    """Logits, class numbers, weights in quarters (whose sums are exact, so that ties stay ties) or None."""
    generator = torch.Generator().manual_seed(seed)
    logits, targets = spread(n, seed)
    return logits, targets, torch.randint(1, 9, (n,), generator=generator) / 4 if weighted else None


def part(samples, chosen_rows):
    return tuple(None if column is None else column[chosen_rows] for column in samples)


def assert_same(found, expected):
    assert found.classes == expected.classes
    assert found.config() == expected.config()
    assert torch.equal(found.statistics.counted, expected.statistics.counted)
    for name in ("weights", "shift", "scale", "bias"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@families
@fast
@draws
def test_learning_in_parts_is_learning_the_whole(name, seed, cut, weighted):
    samples = weighted_samples(seed, weighted)
    whole, parts = family(name, "abc", weighted), family(name, "abc", weighted)
    quiet(whole.learn, whole.count(*samples))
    for rows in (slice(cut, None), slice(0, cut)):
        assert quiet(parts.learn, parts.count(*part(samples, rows))) is parts
    assert_same(parts, whole)


@families
@fast
@draws
def test_forgetting_undoes_learning(name, seed, cut, weighted):
    samples = weighted_samples(seed, weighted)
    never, mapping = family(name, "abc", weighted), family(name, "abc", weighted)
    quiet(never.learn, never.count(*part(samples, slice(cut, None))))
    quiet(mapping.learn, mapping.count(*samples))
    assert quiet(mapping.forget, mapping.count(*part(samples, slice(0, cut)))) is mapping
    assert_same(mapping, never)


@families
@fast
@given(seed=st.integers(0, 9999), weighted=st.booleans())
def test_a_class_that_comes_was_always_there_and_one_that_goes_never_was(name, seed, weighted):
    samples = weighted_samples(seed, weighted)
    last = samples[1] == 2
    always, never = family(name, "abc", weighted), family(name, "ab", weighted)
    quiet(always.learn, always.count(*samples))
    quiet(never.learn, never.count(*part(samples, ~last)))
    of_last = always.count(*part(samples, last))
    assert_same(quiet(never.with_class, "c", of_last), always)
    assert_same(always.without_class("c", of_last), never)
    if not name.startswith("gaussian"):
        assert_same(always.without_class("c"), never)
    assert (never.classes, always.classes, always.statistics.n) == (("a", "b"), ("a", "b", "c"), 45), "they made new ones"


def test_a_class_without_samples_can_come_and_go():
    samples = weighted_samples(0, False)
    mapping = family("gaussian", "abc", False)
    mapping.learn(mapping.count(*samples))
    assert_same(mapping.with_class("d").without_class("d"), mapping)


@pytest.mark.parametrize("name", ["blm", "gaussian"])
def test_class_changes_that_cannot_be(name):
    mapping = family(name, "abc", False)
    mapping.learn(mapping.count(*weighted_samples(0, False)))
    with pytest.raises(ReprogramError, match="class 'a' is already known; add samples to it instead"):
        mapping.with_class("a")
    with pytest.raises(ReprogramError, match="class 'd' is not known"):
        mapping.without_class("d")
    with pytest.raises(ReprogramError, match="class 'a' is the last one and cannot be removed"):
        family(name, "a", False).without_class("a")
    if name == "gaussian":
        with pytest.raises(ReprogramError, match=r"'gaussian' needs the samples of class 'b'.*; give their logits"):
            mapping.without_class("b")


def test_mappings_without_statistics_say_that_they_have_none():
    mapping = make_mapping("none", SOURCE, CLASSES)
    for change in (mapping.learn, mapping.forget):
        with pytest.raises(ReprogramError, match="mapping 'none' has no statistics, so it cannot"):
            change(JointStatistics.counts(12, 2))


def test_samples_of_another_kind_are_refused_and_change_nothing():
    mapping = family("blm", "abc", False)
    mapping.learn(mapping.count(*weighted_samples(0, False)))
    before = {key: value.clone() for key, value in mapping.state_dict().items()}
    for change in (mapping.learn, mapping.forget):
        with pytest.raises(ReprogramError, match="cannot be combined"):
            change(GaussianStatistics(12, 3))
    assert all(torch.equal(value, before[key]) for key, value in mapping.state_dict().items())
