"""Numbers at their limits, for every mapping: the result is right, or refused in one sentence; never NaN, never nonsense."""

import warnings

import numpy as np
import pytest
import torch

from reprogram.errors import EvidenceWarning, NonFiniteError, ReprogramError
from reprogram.mappings.assignment import one_to_one
from reprogram.mappings.bayesian import bayes
from reprogram.mappings.label_mapper import LabelMapper, LabelMapperCV
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.selection import select
from reprogram.statistics.joint import JointStatistics

pytestmark = pytest.mark.filterwarnings("ignore::reprogram.errors.EvidenceWarning")
FAMILIES = [name for name in MAPPINGS if name not in ("none", "ensemble")]  # which take classes of given names alone
ESTIMATED = [name for name in FAMILIES if make_mapping(name, ["a", "b"], ["c", "d"]).statistics is not None]
families = pytest.mark.parametrize("name", FAMILIES)
estimated = pytest.mark.parametrize("name", ESTIMATED)
normalising = pytest.mark.parametrize("normalize", ["centre", "standardise"])
SQUARED = [("gaussian", {}), ("blm", {"normalize": "standardise"}), ("linear", {"normalize": "standardise"})]
K_SOURCE = 5


def drawn(n=60, k_source=K_SOURCE, k_target=3, seed=0, apart=2.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k_target
    X = rng.normal(size=(n, k_source))
    X[np.arange(n), y % k_source] += apart
    return X, y


def mapper(name, **settings):
    return LabelMapper(name, random_state=0, max_iter=5, **settings)


def outcome(act):
    """What comes of an act: its value, or the one sentence that it was refused with."""
    try:
        return act()
    except ReprogramError:
        return None


def assert_sound(fitted, X):
    """Finite weights, and probabilities that are some."""
    assert np.isfinite(fitted.weights_).all()
    shares = fitted.predict_proba(X)
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)
    assert "nan" not in str(fitted.explain())
    assert set(fitted.predict(X)) <= set(fitted.classes_)


@families
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_everywhere(name, bad):
    X, y = drawn()
    good = mapper(name).fit(X, y)
    spoilt = X.copy()
    spoilt[7, 3] = bad
    before = good.weights_.copy()
    for act in (
        lambda: good.fit(spoilt, y),
        lambda: good.partial_fit(spoilt, y),
        lambda: good.predict(spoilt),
        lambda: good.predict_proba(spoilt),
        lambda: good.forget(spoilt, y),
        lambda: good.fit(X, np.where(y == 1, bad, y)),
        lambda: good.fit(X, y, sample_weight=spoilt[:, 3]),
        lambda: good.mapping_.predict(torch.from_numpy(spoilt), evidence=1),
        lambda: good.mapping_.count(torch.from_numpy(spoilt), torch.from_numpy(y)),
    ):
        with pytest.raises(ValueError, match=r"(?i)nan|infin|not estimated from data|no statistics|learned"):
            act()
    np.testing.assert_array_equal(good.weights_, before)
    assert_sound(good, X)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["flm", "blm", "blm+", "gaussian", "gaussian+"])
def test_a_choice_refuses_nan_too(method, bad):
    X, y = drawn()
    X[3, 1] = bad
    with pytest.raises(NonFiniteError, match="the logits hold NaN or infinity"):
        select((torch.from_numpy(X), torch.from_numpy(y)), 3, methods=[method])


@families
@pytest.mark.parametrize("scale", [1e-300, 1e-165, 1e-100, 1e-40, 1e-20, 1e20, 1e40, 1e155, 1e160, 1e300])
def test_logits_of_any_size_give_the_mapping_of_the_same_logits_or_a_sentence(name, scale):
    X, y = drawn()
    plain = mapper(name).fit(X, y)
    found = outcome(lambda: mapper(name).fit(X * scale, y))
    if found is None:
        assert name in ("gaussian", "linear", "sigmoid")
        assert not 1e-30 < scale < 1e30
        return
    answers = outcome(lambda: found.predict(X * scale))
    if answers is None:
        assert scale > 1e30
        return
    assert_sound(found, X * scale)
    if name not in ("linear", "sigmoid", "blm+", "gaussian+"):  # gradients and softmax depend on the size
        np.testing.assert_array_equal(answers, plain.predict(X))


@pytest.mark.parametrize(("name", "settings"), SQUARED)
@pytest.mark.parametrize("scale", [1e-300, 1e-165, 1e-100, 1e40, 1e160, 1e300])
def test_what_is_squared_must_not_leave_the_numbers(name, settings, scale):
    X, y = drawn()
    with pytest.raises(NonFiniteError, match=r"scale them down|multiply them by a constant"):
        mapper(name, **settings).fit(X * scale, y)
    with pytest.raises(NonFiniteError, match=r"scale them down|multiply them by a constant"):
        LabelMapperCV(methods=["gaussian"]).fit(X * scale, y)


@pytest.mark.parametrize("scale", [1e31, 1e36])
def test_what_deviates_by_more_than_weights_can_follow_is_refused_by_gaussian_alone(scale):
    X, y = drawn()
    with pytest.raises(NonFiniteError, match=r"deviate by up to .*1e\+30 is expected.*scale them down"):
        mapper("gaussian").fit(X * scale, y)
    for normalize in ("centre", "standardise"):
        found, plain = (mapper("blm", normalize=normalize).fit(logits, y) for logits in (X * scale, X))
        np.testing.assert_array_equal(found.predict(X * scale), plain.predict(X))


MASKS = [float(np.finfo(np.float32).min), -3e38, -1e38, -1e9]
masks = pytest.mark.parametrize("mask", MASKS)


def masked(mask, dtype=np.float32, n=200):
    """Logits over 12 labels, of which the last 5 are masked, and the same without those."""
    X, y = drawn(n=n, k_source=12, k_target=4, seed=3)
    X = (X * np.linspace(0.5, 5, 12)).astype(dtype)
    X[:, 7:] = mask
    return X, X[:, :7], y


@masks
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gaussian", {}),
        *((name, {"normalize": how}) for name in ("flm", "blm", "blm+") for how in ("centre", "standardise")),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_masked_labels_are_as_good_as_none(name, settings, mask, dtype, weighted):
    X, rest, y = masked(mask, dtype)
    weights = np.random.default_rng(0).uniform(0.1, 3, len(X)) if weighted else None
    if name == "gaussian":
        settings = {"shrinkage": 1e-6}  # of which the target is the mean variance of all labels
    with np.errstate(over="raise", invalid="raise"):
        found = mapper(name, **settings).fit(X, y, sample_weight=weights)
        plain = mapper(name, **settings).fit(rest, y, sample_weight=weights)
    np.testing.assert_allclose(found.predict_proba(X), plain.predict_proba(rest), rtol=1e-3, atol=1e-5)
    assert_sound(found, X)


@masks
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["flm", "blm", "blm+", "gaussian", None])
def test_a_choice_takes_masked_labels(method, mask, dtype):
    X, rest, y = masked(mask, dtype)
    methods = None if method is None else [method]
    grid = {"shrinkage": [1e-6], "normalize": ["none", "centre", "standardise"]}
    found, plain = (
        select((torch.from_numpy(logits), torch.from_numpy(y)), 4, methods=methods, grid=grid) for logits in (X, rest)
    )
    expected = {str(row.candidate): row.score.correct for row in plain.table}
    same = {str(row.candidate): row.score.correct for row in found.table}
    assert {name: same[name] for name in expected} == expected
    assert_sound(LabelMapperCV(methods=methods).fit(X, y), X)


@pytest.mark.parametrize("method", ["flm", "blm", "blm+"])
def test_a_choice_that_normalises_nothing_takes_what_cannot_be_squared(method):
    X, rest, y = masked(-1e300, np.float64)
    found, plain = (
        select((torch.from_numpy(logits), torch.from_numpy(y)), 4, methods=[method], grid={"normalize": ["none"]})
        for logits in (X, rest)
    )
    assert [row.to_json() for row in found.table] == [row.to_json() for row in plain.table]
    with pytest.raises(NonFiniteError, match="leave out the columns of labels that are masked"):
        select((torch.from_numpy(X), torch.from_numpy(y)), 4, methods=[method], grid={"normalize": ["centre"]})


@estimated
@masks
def test_with_masked_labels_forgetting_and_folds_are_a_fit_that_never_saw_the_samples(name, mask):
    X, _, y = masked(mask)
    Z, Y, folds = torch.from_numpy(X), torch.from_numpy(y), torch.arange(len(y)) % 5

    def fitted(kept):
        mapping = make_mapping(name, [f"s{i}" for i in range(12)], list("abcd"))
        mapping.estimate(mapping.count(Z[kept], Y[kept]))
        return mapping

    whole = fitted(folds >= 0)
    whole.forget(whole.count(Z[folds == 1], Y[folds == 1]))
    torch.testing.assert_close(whole(Z), fitted(folds != 1)(Z), rtol=1e-4, atol=1e-4)
    crossed = fitted(folds >= 0)
    crossed.estimate(*(crossed.count(Z[folds == fold], Y[folds == fold]) for fold in range(5)))
    found = crossed(Z, folds)
    for fold in range(5):
        own = folds == fold
        torch.testing.assert_close(found[own], fitted(~own)(Z[own]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-165, 1e160])
@pytest.mark.parametrize("method", ["flm", "blm", "blm+", "gaussian"])
def test_a_choice_is_made_or_refused_at_any_size(method, scale):
    X, y = drawn()
    found = outcome(lambda: LabelMapperCV(methods=[method]).fit(X * scale, y))
    if found is not None:
        assert_sound(found, X * scale)
        assert found.score(X * scale, y) > 0.5


@families
@pytest.mark.parametrize("weight", [1e-300, 1e-165, 1e-100, 1e-12, 1e12, 1e100, 1e155, 1e300])
def test_sample_weights_of_any_size_give_the_mapping_without_them_or_a_sentence(name, weight):
    """A weight of 2 is the sample twice, so that against λ and n their size counts; it does not without λ."""
    X, y = drawn()
    settings = {"smoothing": 0} if name.startswith("blm") else {"shrinkage": 0.2} if name.startswith("gaussian") else {}
    if not 1e-100 <= weight <= 1e100:
        with pytest.raises(ReprogramError, match=r"sample weights from .* scale them"):
            mapper(name, **settings).fit(X, y, sample_weight=np.full(len(X), weight))
        return
    found = mapper(name, **settings).fit(X, y, sample_weight=np.full(len(X), weight))
    expected = mapper(name, **settings).fit(X, y)
    factor = 60 / 57 if name.startswith("gaussian") and weight > 1 else 1  # of ν, n less the number of classes
    np.testing.assert_allclose(found.weights_, factor * expected.weights_, rtol=2e-5, atol=1e-7)
    assert_sound(found, X)


@families
@pytest.mark.parametrize("light", [1e-200, 5e-324])
def test_a_weight_that_vanishes_beside_the_others_counts_as_none(name, light):
    X, y = drawn()
    weights = np.where(np.arange(len(X)) == 7, light, 1.0)
    found = mapper(name).fit(X, y, sample_weight=weights)
    expected = mapper(name).fit(X, y, sample_weight=np.where(weights < 1, 0, weights))
    np.testing.assert_array_equal(found.weights_, expected.weights_)


@families
def test_the_sentence_about_weights_holds_for_every_mapping(name):
    """λ, ν and the shrinkage count samples, so that more than the ratios of the weights matters."""
    X, y = drawn()
    with pytest.raises(ReprogramError, match="scale them so that 2 is a sample that counts twice") as refusal:
        mapper(name).fit(X, y, sample_weight=np.full(len(X), 1e200))
    assert "ratios" not in str(refusal.value)
    if name in ESTIMATED:
        twice = mapper(name).fit(X, y, sample_weight=np.where(y == 1, 2, 1))
        np.testing.assert_allclose(
            twice.weights_,
            mapper(name).fit(np.vstack([X, X[y == 1]]), np.append(y, y[y == 1])).weights_,
            rtol=1e-4,
            atol=1e-6,
        )


@families
def test_weights_of_very_different_size_are_sound(name):
    X, y = drawn()
    weights = np.where(y == 0, 1e-100, np.where(y == 1, 1.0, 1e100))
    assert_sound(mapper(name).fit(X, y, sample_weight=weights), X)


@families
def test_all_samples_in_one_class_and_classes_that_never_came(name):
    X, _ = drawn()
    only = mapper(name).fit(X, np.full(len(X), 7))
    assert (only.predict(X) == 7).all()
    assert_sound(only, X)
    some = mapper(name).partial_fit(X, np.full(len(X), 1), classes=[0, 1, 2])
    assert_sound(some, X)
    one_to_one = name in ("rlm", "flm", "ilm")
    assert one_to_one or name in ("linear", "sigmoid") or some.predict_proba(X)[:, [0, 2]].max() < 1


@families
def test_a_single_sample(name):
    X, _ = drawn(n=1)
    assert_sound(mapper(name).fit(X, [3]), X)
    assert_sound(mapper(name).partial_fit(X, [1], classes=[0, 1]), X)
    with pytest.raises(ReprogramError, match="at least 2 are needed"):
        LabelMapperCV().fit(X, [3])


@families
def test_two_classes(name):
    X, y = drawn(k_target=2)
    fitted = mapper(name).fit(X, y)
    assert_sound(fitted, X)
    assert fitted.decision_function(X).shape == (len(X),)


@families
def test_a_single_source_label(name):
    X, y = drawn(k_source=1, k_target=3)
    if name in ("rlm", "flm", "ilm"):
        with pytest.raises(ReprogramError, match="cannot give 3 classes a source label each out of 1"):
            mapper(name).fit(X, y)
    else:
        assert_sound(mapper(name).fit(X, y), X)
    assert_sound(mapper(name).fit(X, np.zeros(len(X))), X)
    assert_sound(LabelMapperCV().fit(X, y), X)


@estimated
def test_ten_thousand_classes(name):
    k_target = 10_000
    if name in ("flm", "ilm"):
        with pytest.raises(ReprogramError, match="cannot give 10000 classes"):
            mapper(name).fit(*drawn(n=2 * k_target, k_target=k_target))
        return
    X, y = drawn(n=2 * k_target, k_source=16, k_target=k_target)
    # leaving each of 20,000 out takes half a minute: of each kind of formula once
    calibration = "temperature" if name in ("gaussian", "blm") else "none"
    fitted = mapper(name, calibration=calibration).fit(X, y)
    assert fitted.weights_.shape == (16, k_target)
    assert_sound(fitted, X[:50])
    rest = fitted.remove_class(77, X[y == 77])
    assert len(rest.classes_) == k_target - 1
    assert_sound(rest, X[:50])


@normalising
def test_ten_thousand_classes_are_normalised_without_a_table_of_samples_and_classes(normalize):
    X, y = drawn(n=20_000, k_source=16, k_target=10_000)
    fitted = mapper("blm", normalize=normalize, calibration="none").fit(X, y)
    np.testing.assert_allclose(fitted.mapping_.shift.numpy(), X.mean(0), rtol=1e-5, atol=1e-6)


@families
@pytest.mark.parametrize("value", [0.0, 1.0, -3e4, 1e20])
def test_constant_logits_and_identical_samples_tell_nothing(name, value):
    _, y = drawn()
    flat = np.full((len(y), K_SOURCE), value)
    same = np.tile(np.random.default_rng(0).normal(size=K_SOURCE) + value, (len(y), 1))
    for X in (flat, same):
        fitted = outcome(lambda X=X: mapper(name).fit(X, y))
        if fitted is None:
            assert name in ("linear", "sigmoid")
            assert value == 1e20
            continue
        assert_sound(fitted, X)
        if name.startswith("gaussian"):
            np.testing.assert_allclose(fitted.predict_proba(X), 1 / 3)
    if abs(value) < 1e20:
        chosen = LabelMapperCV().fit(same, y)
        assert chosen.selection_.table[0].score.accuracy <= 0.5
        assert_sound(chosen, same)


@pytest.mark.parametrize("name", ["blm", "blm+", "flm"])
def test_logits_that_are_all_the_same_are_told(name):
    mapping = make_mapping(name, ["a", "b", "c"], ["x", "y"])
    flat, targets = torch.zeros(8, 3), torch.arange(8) % 2
    with pytest.warns(EvidenceWarning, match="the same logit for all 3 source labels, which says nothing about their class"):
        mapping.count(flat, targets)
    some = flat.clone()
    some[:5, 1] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvidenceWarning)
        mapping.count(some, targets)  # a few ties are ties


@estimated
def test_counts_of_ten_to_the_eight_are_exact(name):
    """Statistics of 60 samples, 2^27 times: doubled 27 times, the mapping stays, and one sample more or less is seen."""
    X, y = drawn()
    logits, targets = torch.from_numpy(X), torch.from_numpy(y)
    mapping = make_mapping(name, [f"s{i}" for i in range(K_SOURCE)], ["a", "b", "c"], **(
        {"smoothing": 0} if name.startswith("blm") else {"shrinkage": 0.2} if name.startswith("gaussian") else {}
    ))  # fmt: skip
    once = mapping.count(logits, targets)
    mapping.estimate(once)
    before = mapping.weights.clone()
    many = once.copy()
    for _ in range(27):
        many.merge(many.copy())
    assert many.n == 60 * 2**27
    assert many.samples.tolist() == [20 * 2**27] * 3
    if isinstance(many, JointStatistics) and many.kind == "counts":
        assert torch.equal(many.matrix, once.matrix * 2**27)
    mapping.estimate(many)
    factor = 60 / 57 if name.startswith("gaussian") else 1  # of ν, n less the number of classes
    torch.testing.assert_close(mapping.weights, factor * before, rtol=1e-5, atol=1e-6)
    more = many.copy().merge(mapping.count(logits[:1], targets[:1]))
    assert more.n == many.n + 1
    assert torch.equal(more.subtract(mapping.count(logits[:1], targets[:1])).samples, many.samples)


def test_float32_answers_are_counted_in_whole_numbers():
    """2^24 + 1 is no float32: J must not be one."""
    statistics = JointStatistics.counts(2, 1)
    statistics.matrix[0, 0] = statistics.samples[0] = statistics.counted[0] = 2**24
    statistics.update(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert statistics.matrix[0, 0] == 2**24 + 1


def test_fp16_logits_that_overflowed_are_refused_and_those_at_the_edge_count():
    logits = torch.tensor([[65504.0, -65504.0, 0.0]] * 4, dtype=torch.float16) * torch.tensor([[1], [-1], [1], [-1]])
    targets = torch.tensor([0, 1, 0, 1])
    for name in ESTIMATED:
        mapping = make_mapping(name, ["a", "b", "c"], ["x", "y"])
        mapping.estimate(mapping.count(logits.half(), targets))
        assert mapping.predict(logits).indices.tolist() == [0, 1, 0, 1]
        with pytest.raises(NonFiniteError, match="NaN or infinity"):
            mapping.count(logits.half() * 2, targets)


@normalising
@pytest.mark.parametrize(("offset", "deviation"), [(0.0, 1.0), (1e5, 0.1), (-1e6, 1.0), (1e9, 1e3)])
@pytest.mark.parametrize("chunk", [40, 500])
def test_a_large_offset_leaves_means_and_deviations_as_they_are(normalize, offset, deviation, chunk):
    rng = np.random.default_rng(0)
    X, y = offset + deviation * rng.normal(size=(2000, 4)), rng.integers(0, 3, 2000)
    X[:, 3] = offset  # which is constant
    fitted = mapper("blm", normalize=normalize)
    for start in range(0, 2000, chunk):
        fitted.partial_fit(X[start : start + chunk], y[start : start + chunk], classes=[0, 1, 2])
    mean, spread = fitted.mapping_.statistics.moments_of_logits()
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(spread[:3], X[:, :3].std(0), rtol=1e-9)
    assert spread[3] == 0
    if normalize == "standardise":
        np.testing.assert_allclose(fitted.mapping_.scale[:3], X[:, :3].std(0), rtol=1e-5)
        assert fitted.mapping_.scale[3] == 1


def test_a_large_offset_does_not_change_what_is_chosen():
    X, y = drawn(n=120, apart=1.5)
    plain, moved = (LabelMapperCV(grid={"normalize": ["standardise"]}).fit(part, y) for part in (X, X + 1e5))
    scores = [[(str(row.candidate), row.score.correct) for row in each.selection_.table] for each in (plain, moved)]
    assert sorted(scores[0]) == sorted(scores[1])


def test_labels_that_a_model_masks_do_not_hide_the_others():
    """A column of -1e9 for all samples says nothing, and takes nothing away."""
    X, y = drawn(n=120, apart=1.5)
    masked = np.hstack([X, np.full((120, 2), -1e9)])
    plain, found = mapper("gaussian", shrinkage=0.1).fit(X, y), mapper("gaussian", shrinkage=0.1).fit(masked, y)
    assert (plain.predict(X) == found.predict(masked)).mean() > 0.97
    assert not found.weights_[5:].any()


@pytest.mark.parametrize("settings", [{"shrinkage": 1e-300}, {"shrinkage": 5e-324}])
def test_a_shrinkage_of_nearly_nothing_is_refused_where_it_cannot_work(settings):
    X, y = drawn(n=4, k_source=40, k_target=2)  # fewer samples than directions
    with pytest.raises(NonFiniteError, match=r"leave the range of float32.*shrinkage"):
        mapper("gaussian", **settings).fit(X, y)


@pytest.mark.parametrize("name", ["blm", "blm+"])
def test_smoothing_of_any_size(name):
    X, y = drawn()
    assert_sound(mapper(name, smoothing=1e100).fit(X, y, sample_weight=np.full(60, 1e-100)), X)
    with pytest.raises(ReprogramError, match=r"smoothing = 1e\+101"):
        mapper(name, smoothing=1e101).fit(X, y)


@pytest.mark.parametrize("name", ["linear", "sigmoid"])
def test_a_learned_mapper_that_diverges_says_so_and_stays_as_it_was(name):
    X, y = drawn()
    good = mapper(name).fit(X, y)
    before, proba = good.weights_.copy(), good.predict_proba(X)
    with pytest.raises(NonFiniteError, match=r"became NaN or infinite in pass \d+.*lower learning_rate = 0\.01"):
        good.partial_fit(X * 1e38, y)
    np.testing.assert_array_equal(good.weights_, before)
    np.testing.assert_array_equal(good.predict_proba(X), proba)
    assert_sound(good.partial_fit(X, y), X)
    with pytest.raises(NonFiniteError, match="became NaN or infinite"):
        LabelMapper(name, learning_rate=1e37, max_iter=50).fit(X * 1e3, y)


@families
def test_a_refused_fit_leaves_no_half_fitted_mapper(name):
    X, y = drawn()
    fresh = mapper(name)
    with pytest.raises(ReprogramError, match="sample weights"):
        fresh.fit(X, y, sample_weight=np.full(60, 1e-200))
    assert not hasattr(fresh, "mapping_")
    assert not hasattr(fresh, "classes_")


@estimated
def test_a_refused_estimate_changes_nothing(name):
    X, y = drawn()
    mapping = make_mapping(name, [f"s{i}" for i in range(K_SOURCE)], ["a", "b", "c"])
    mapping.estimate(mapping.count(torch.from_numpy(X), torch.from_numpy(y)))
    before = {key: value.clone() for key, value in mapping.state_dict().items()}
    spoilt = mapping.statistics.copy()
    for part in spoilt.buffers():
        if part.is_floating_point():
            part.fill_(torch.nan)
    if not any(part.is_floating_point() and part.numel() > 3 for part in spoilt.buffers()):
        return  # whole numbers are never NaN
    for act in (mapping.estimate, mapping.learn):
        with pytest.raises(ReprogramError):
            act(spoilt)
        assert all(torch.equal(value, before[key]) for key, value in mapping.state_dict().items())


def test_weights_that_are_no_numbers_are_not_explained():
    mapping = make_mapping("blm", ["a", "b"], ["x", "y"])
    mapping.omega[0, 0] = torch.nan
    for act in (mapping.explain, lambda: mapping.predict(torch.zeros(1, 2)), lambda: mapping.save("/nonexistent/x")):
        with pytest.raises(ReprogramError):
            act()
    with pytest.raises(NonFiniteError, match="the weights hold NaN or infinity"):
        mapping.explain()
    with pytest.raises(NonFiniteError, match="weights or the answers hold NaN"):
        mapping.predict_answers(torch.tensor([[0]]), torch.tensor([[1.0]]))


@families
def test_labels_that_are_bytes_are_refused_in_one_sentence(name):
    X, y = drawn()
    texts = np.array(["ant", "bee", "cat"])
    good, raw = mapper(name).fit(X, texts[y]), np.array([b"ant", b"bee", b"cat"])[y]
    for act in (
        lambda: mapper(name).fit(X, raw),
        lambda: mapper(name).fit(X, raw.tolist()),
        lambda: mapper(name).fit(X, raw.astype(object)),
        lambda: mapper(name).partial_fit(X, texts[y], classes=[b"ant", b"bee", b"cat"]),
        lambda: mapper(name).partial_fit(X, raw, classes=texts),
        lambda: good.partial_fit(X, raw),
        lambda: good.forget(X, raw),
        lambda: good.add_class(b"dog", X),
        lambda: good.remove_class(b"cat"),
    ):
        with pytest.raises(ReprogramError, match=r"label b'\w+' is bytes, but text or numbers are expected; decode"):
            act()
    with pytest.raises(ReprogramError, match=r"b'cat' stands among the classes, but these are names; write 'cat'"):
        make_mapping(name, ["a"] * 5, [b"cat", "dog"])


@pytest.mark.parametrize(
    "options",
    [{"learning_rate": rate} for rate in (0, -1, 1e38, np.nan, np.inf, "fast", None)]
    + [{"max_iter": passes} for passes in (-1, 1.5, np.nan, "many", None)],
    ids=str,
)
def test_learning_that_cannot_be_is_refused(options):
    X, y = drawn()
    with pytest.raises(ReprogramError, match=rf"{next(iter(options))} = .* was given, but a .*number"):
        LabelMapper("linear", **options).fit(X, y)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_a_table_of_evidence_of_any_size(smoothing):
    for size in (1e-300, 1e-12, 1e300):
        table = torch.tensor([[5.5, 4.0], [4.0, 0.0], [0.0, 1.0]], dtype=torch.float64) * size
        assert one_to_one(table).argmax(0).tolist() == [0, 2]
        assert bayes(table, smoothing).isfinite().all()
    for bad in (torch.nan, torch.inf, -1.0, 1.5e308):
        for rule in (one_to_one, bayes):
            with pytest.raises(ReprogramError, match=r"matrix of finite numbers ≥ 0 with a finite sum is expected"):
                rule(torch.tensor([[bad, 1.5e308], [1.0, 1.0]], dtype=torch.float64))


@pytest.mark.parametrize("name", ["rlm", "linear"])
def test_seeds_of_any_size(name):
    for seed in (-1, 2**31, 2**63, 2**64 - 1, -(2**63)):
        assert make_mapping(name, ["a", "b"], ["x", "y"], seed=seed).weights.isfinite().all()
    for seed in (2**64, -(2**63) - 1, 10**5000):
        with pytest.raises(ReprogramError, match="a seed of more than 64 bits"):
            make_mapping(name, ["a", "b"], ["x", "y"], seed=seed)


def test_folds_of_which_one_is_refused_change_nothing():
    X, y = drawn()
    Z, Y = torch.from_numpy(X), torch.from_numpy(y)
    mapping = make_mapping("gaussian", [str(i) for i in range(K_SOURCE)], list("abc"), shrinkage=1e-60)
    mapping.estimate(mapping.count(Z, Y), mapping.count(Z + 1, Y))
    state = {name: part.clone() for name, part in mapping.state_dict().items()}
    before = mapping(Z, Y % 2)
    with pytest.raises(NonFiniteError, match="leave the range of float32"):  # as 5 samples have no covariance of rank 5
        mapping.estimate(mapping.count(Z[:50], Y[:50]), mapping.count(Z[50:55], Y[50:55]))
    for name, part in mapping.state_dict().items():
        assert torch.equal(part, state[name]), name
    assert torch.equal(mapping(Z, Y % 2), before)
