import json
import re

import pytest
import torch
from reprogram.mappings.closed_form import bayes, one_to_one

from one_to_one import SOURCE, chosen
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.mappings.base import METHODS, REFRESHES, EstimatedMapping, LearnedMapping, make_mapping
from reprogram.sources.texts import Texts
from reprogram.statistics.joint import JointStatistics

# ---- the modules


CLASSES = ["source 3", "source 1"]
LOGITS = 5 * torch.eye(12)[[3, 3, 1, 0]]
LABELS = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_made_used_and_made_again(name):
    method = METHODS[name]
    templates = [f"{number} {{}}" for number in range(6)]
    source = Texts(CLASSES, templates, torch.eye(12)) if name == "ensemble" else SOURCE
    mapping = make_mapping(name, source, CLASSES, seed=5)
    assert mapping.name == name
    assert mapping.refresh == method.refresh
    assert mapping.weights.shape == (12, 2)
    assert mapping.weights.dtype == torch.float32
    if method.statistic is not None:
        gathered = mapping.new_statistics()
        assert (gathered.kind, gathered.n) == (method.statistic, 0)
        mapping.estimate(gathered.update(LOGITS, LABELS))
    assert mapping(LOGITS).shape == (4, 2)
    config = json.loads(json.dumps(mapping.config()))
    again = make_mapping(source_labels=source, classes=CLASSES, **config)
    again.load_state_dict(mapping.state_dict())
    assert again.config() == mapping.config()
    assert torch.equal(again(LOGITS), mapping(LOGITS))


def test_the_table_of_methods_is_the_paper_s():
    counts, probabilities = "counts", "probabilities"
    expected = {"flm": counts, "ilm": counts, "blm": counts, "blm+": probabilities, "rlm": None, "none": None}
    assert {name: METHODS[name].statistic for name in expected} == expected
    once = {name for name, method in METHODS.items() if method.refresh == "never"}
    assert once == {"rlm", "flm", "none", "ensemble", "linear", "sigmoid"}


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


@pytest.mark.parametrize("refresh", REFRESHES)
def test_the_refresh_can_be_chosen(refresh):
    assert make_mapping("blm", SOURCE, CLASSES, refresh=refresh).refresh == refresh


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"name": "bml+"}, r"mapping 'bml\+' is not known; did you mean 'blm\+'\?"),
        ({"name": "blm", "refresh": "often"}, "refresh 'often' is not known.*never, fresh, reuse"),
    ],
)
def test_unknown_words_get_the_nearest_one(settings_, message):
    with pytest.raises(ReprogramError, match=message):
        make_mapping(source_labels=SOURCE, classes=CLASSES, **settings_)


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
    mapping.estimate(mapping.statistics.update(*more))
    assert mapping.statistics.n == 5
    expected = mapping.new_statistics().update(LOGITS, LABELS).update(*more)
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


def test_estimated_mappings_train_nothing():
    for name in ("rlm", "flm", "ilm", "blm", "blm+", "none"):
        mapping = make_mapping(name, SOURCE, CLASSES)
        assert isinstance(mapping, EstimatedMapping)
        assert list(mapping.parameters()) == []
        assert not mapping(LOGITS).requires_grad


# ---- trap 7: the learned mapping


@pytest.mark.parametrize("name", ["linear", "sigmoid"])
def test_trap_7_learned_mapping_has_no_bias_and_all_it_has_is_used(name):
    """A straightforward nn.Linear brings a bias that the product with a weight never uses."""
    mapping = make_mapping(name, SOURCE, CLASSES)
    assert isinstance(mapping, LearnedMapping)
    (parameter,) = mapping.parameters()
    assert parameter.shape == (12, 2)
    assert list(mapping.buffers()) == []
    assert mapping(torch.zeros(3, 12)).abs().sum() == 0, "no bias: zero logits stay zero"
    mapping(torch.randn(5, 12)).square().sum().backward()
    assert (parameter.grad != 0).all()


@pytest.mark.parametrize("name", ["linear", "sigmoid"])
def test_learned_mappings_start_from_their_seed(name):
    state = torch.get_rng_state()
    one, same, other = (make_mapping(name, SOURCE, CLASSES, seed=seed).weights for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_sigmoid_squashes_the_weight():
    mapping = make_mapping("sigmoid", SOURCE, CLASSES)
    with torch.no_grad():
        mapping.matrix.copy_(torch.linspace(-20, 20, 24).view(12, 2))
    assert mapping.weights.min() >= 0
    assert mapping.weights.max() <= 1
    torch.testing.assert_close(mapping(torch.ones(1, 12)), mapping.matrix.sigmoid().sum(0)[None])
    linear = make_mapping("linear", SOURCE, CLASSES)
    assert linear.weights.min() < 0


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


# ---- normalising and classes that come and go


def spread(n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    offsets = 4 * torch.randn(12, generator=generator)
    return 2 * torch.randn(n, 12, generator=generator) + offsets, torch.arange(n) % 3


NORMALISED = [name for name in METHODS if "normalize" in METHODS[name].uses and name not in ("none", "ensemble")]


@pytest.mark.parametrize("normalize", ["centre", "standardise"])
@pytest.mark.parametrize("name", NORMALISED)
def test_normalising_is_the_same_omega_on_normalised_logits(name, normalize):
    logits, targets = spread()
    plain, mapping = (make_mapping(name, SOURCE, ["a", "b", "c"], normalize=how) for how in ("none", normalize))
    if plain.statistics is not None:
        plain.estimate(plain.new_statistics().update(logits, targets))
    mapping.estimate(mapping.new_statistics().update(logits, targets))
    assert torch.equal(mapping.weights, plain.weights)
    expected = (logits - logits.mean(0)) / (logits.std(0, correction=0) if normalize == "standardise" else 1)
    torch.testing.assert_close(mapping(logits), expected @ plain.weights, rtol=1e-4, atol=1e-4)
    weight, bias = mapping.affine.folded()
    torch.testing.assert_close(logits @ weight + bias, mapping(logits), rtol=1e-4, atol=1e-4)
    again = make_mapping(source_labels=SOURCE, classes=["a", "b", "c"], **json.loads(json.dumps(mapping.config())))
    again.load_state_dict(mapping.state_dict())
    assert torch.equal(again(logits), mapping(logits))


def test_a_constant_logit_is_not_blown_up():
    logits, targets = spread()
    logits[:, 5] = 7.3
    mapping = make_mapping("blm", SOURCE, ["a", "b", "c"], normalize="standardise")
    mapping.estimate(mapping.new_statistics().update(logits, targets))
    assert mapping.scale[5] == 1
    assert mapping.affine.normalised(logits)[:, 5].abs().max() < 1e-5


def test_published_mappings_carry_no_affine_parts():
    mapping = make_mapping("blm+", SOURCE, ["a", "b"])
    assert {*mapping.state_dict()} == {
        "omega",
        *(f"statistics.{name}" for name in ("matrix", "samples", "counted", "rounding")),
    }
    assert (mapping.shift, mapping.scale, mapping.bias) == (None, None, None)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].statistic is not None])
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
    if name == "gaussian":
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
    assert make_mapping(source_labels=SOURCE, classes=smaller.settings.classes, **smaller.config()).statistics.top_k == 2


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
