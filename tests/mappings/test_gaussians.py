"""The Gaussian mapping against a literal numpy transcription."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.mappings.gaussians import gaussian, log_priors
from reprogram.mappings.making import make_mapping
from reprogram.statistics.gaussian import LARGEST_COVARIANCE, GaussianStatistics

fast = settings(deadline=None, derandomize=True, max_examples=40)


def drawn(seed, n, k_source, k_target, rank=None):
    """Logits of a given rank with class-dependent means, and labels that leave no class out."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k_target
    rank = rank or k_source
    features = rng.normal(size=(n, rank)) + 2 * rng.normal(size=(k_target, rank))[labels]
    logits = features @ rng.normal(size=(rank, k_source)) + rng.normal(size=k_source)
    return logits.astype(np.float32), labels


def counted(logits, labels, k_target):
    statistics = GaussianStatistics(logits.shape[1], k_target)
    return statistics.update(torch.from_numpy(logits), torch.from_numpy(labels))


@fast
@given(
    seed=st.integers(0, 999),
    n=st.integers(6, 60),
    k_source=st.integers(2, 12),
    k_target=st.integers(2, 5),
    shrinkage=st.sampled_from(["oas", 0.05, 0.5, 1.0]),
    priors=st.booleans(),
)
def test_agrees_with_the_literal_transcription(seed, n, k_source, k_target, shrinkage, priors):
    logits, labels = drawn(seed, n, k_source, k_target)
    omega, mean, bias = gaussian(counted(logits, labels, k_target), shrinkage, priors=priors)
    scores = (torch.from_numpy(logits).double() - mean) @ omega + bias
    expected = oracle.gaussian_scores(logits, labels, k_target, logits, shrinkage, priors)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())


def test_a_large_sample_finds_the_known_posterior():
    rng = np.random.default_rng(0)
    means, labels = np.array([[0.0, 0.0], [2.0, 1.0]]), np.arange(40_000) % 2
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    logits = (means[labels] + rng.multivariate_normal([0, 0], covariance, len(labels))).astype(np.float32)
    omega, mean, bias = gaussian(counted(logits, labels, 2))
    points = torch.tensor([[0.0, 0.0], [1.0, 0.5], [2.0, 1.0], [-1.0, 3.0]], dtype=torch.float64)
    found = ((points - mean) @ omega + bias).softmax(1)[:, 1]
    precision = np.linalg.inv(covariance)
    distance = [np.einsum("nd,de,ne->n", points.numpy() - m, precision, points.numpy() - m) for m in means]
    np.testing.assert_allclose(found, 1 / (1 + np.exp((distance[1] - distance[0]) / 2)), atol=0.02)


@pytest.mark.parametrize(
    ("n", "k_source", "k_target", "rank"),
    [(20, 60, 4, None), (200, 60, 4, 10), (5, 40, 5, None), (3, 7, 3, 2), (1, 5, 2, None), (12, 6, 2, 1)],
)
@pytest.mark.parametrize("shrinkage", ["oas", 1e-3])
def test_few_samples_and_deficient_ranks_stay_finite_and_classify_what_they_saw(n, k_source, k_target, rank, shrinkage):
    logits, labels = drawn(1, n, k_source, k_target, rank)
    omega, mean, bias = gaussian(counted(logits, labels, k_target), shrinkage)
    scores = (torch.from_numpy(logits).double() - mean) @ omega + bias
    assert scores.isfinite().all()
    if n <= k_target or k_source >= 40:
        assert scores.argmax(1).tolist() == labels.tolist()


def test_equal_logits_say_nothing_and_break_nothing():
    statistics = GaussianStatistics(3, 2).update(torch.full((4, 3), 7.5), torch.tensor([0, 1, 0, 1]))
    omega, _, bias = gaussian(statistics)
    assert omega.abs().max() < 1e-6
    assert bias.isfinite().all()


def test_in_the_span_of_the_features_it_is_the_same_mapping():
    logits, labels = drawn(3, 80, 30, 4, rank=6)
    centred = torch.from_numpy(logits).double()
    span = torch.linalg.svd(centred, full_matrices=False).Vh[:7].T.contiguous()
    names, classes = [f"s{i}" for i in range(30)], list("abcd")
    inside = make_mapping("gaussian", names, classes, span=span, shrinkage=0.2)
    inside.estimate(inside.new_statistics().update(torch.from_numpy(logits), torch.from_numpy(labels)))
    ratio = 0.2 / 0.8 * 30 / 7  # the target is the mean variance per label, or per dimension of the span
    plain = counted(logits, labels, 4)
    omega, mean, bias = gaussian(plain, ratio / (1 + ratio))
    expected = ((centred - mean) @ omega + bias) / (1 + ratio) / 0.8
    torch.testing.assert_close(inside(torch.from_numpy(logits)).double(), expected, rtol=1e-4, atol=1e-4)


def test_too_many_labels_are_refused_with_the_way_out():
    with pytest.raises(ReprogramError, match=r"32157 source labels needs a covariance of 8 GB; give it at most .* or blm\+"):
        make_mapping("gaussian", [str(i) for i in range(32157)], ["a", "b"])
    assert LARGEST_COVARIANCE >= 1000


def scores_of(logits, labels, k_target, weights=None, **options):
    """Target logits of the samples themselves."""
    z = torch.from_numpy(logits)
    statistics = GaussianStatistics(logits.shape[1], k_target).update(z, torch.from_numpy(labels), weights)
    omega, mean, bias = gaussian(statistics, **options)
    return (z.double() - mean) @ omega + bias


@pytest.mark.parametrize("priors", [False, True])
@pytest.mark.parametrize("shrinkage", ["oas", 0.3])
@pytest.mark.parametrize("scale", [1 / 40, 1e-9, 0.5])
def test_the_scale_of_shares_does_not_matter(scale, shrinkage, priors):
    logits, labels = drawn(0, 40, 6, 3)
    uneven = torch.rand(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for weights in (torch.ones(40, dtype=torch.float64), uneven / 2):
        one = scores_of(logits, labels, 4, weights, shrinkage=shrinkage, priors=priors)
        other = scores_of(logits, labels, 4, scale * weights, shrinkage=shrinkage, priors=priors)
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-9)
    plain = scores_of(logits, labels, 4, shrinkage=shrinkage, priors=priors)
    ones = scores_of(logits, labels, 4, torch.ones(40, dtype=torch.float64), shrinkage=shrinkage, priors=priors)
    assert torch.equal(ones, plain)


@pytest.mark.parametrize("shrinkage", ["oas", 0.3])
def test_a_weight_of_two_is_the_sample_twice(shrinkage):
    logits, labels = drawn(0, 40, 6, 3)
    times = np.arange(40) % 3
    weighted = scores_of(logits, labels, 3, torch.from_numpy(times * 1.0), shrinkage=shrinkage, priors=True)
    repeated = scores_of(logits.repeat(times, 0), labels.repeat(times), 3, shrinkage=shrinkage, priors=True)
    torch.testing.assert_close(weighted[times > 0].repeat_interleave(torch.from_numpy(times[times > 0]), 0), repeated)


def test_priors_are_bayes_rule():
    """p(t | z) ∝ (share of t) · N(z; m_t, Σ), by hand, with shares 0.9 and 0.1 of weights that sum to 1."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    logits = (rng.normal(size=(400, 2)) + 1.5 * labels[:, None]).astype(np.float32)
    weights = torch.from_numpy(np.where(labels == 0, 0.9, 0.1) / 200)
    found = scores_of(logits, labels, 2, weights, shrinkage=1.0, priors=True).softmax(1)
    z = torch.from_numpy(logits).double()
    means = [z[labels == t].mean(0) for t in (0, 1)]
    about = torch.stack([z - means[t] for t in (0, 1)])[labels, np.arange(400)]
    scatter = float((weights * about.square().sum(1)).sum())
    size = 1 / float(weights.square().sum())  # Kish's
    variance = scatter / 2 * size / (size - 2)
    density = [torch.exp(-(z - m).square().sum(1) / (2 * variance)) for m in means]
    expected = torch.stack([0.9 * density[0], 0.1 * density[1]], dim=1)
    torch.testing.assert_close(found, expected / expected.sum(1, keepdim=True), rtol=1e-9, atol=1e-9)


def test_only_a_class_without_samples_gets_half_a_sample():
    shares = torch.tensor([[0.9, 0.1, 0.0], [0.25, 3.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.9, 0.1, 0.5], [0.25, 3.0, 1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(log_priors(shares).exp(), expected / expected.sum(1, keepdim=True))


@pytest.mark.parametrize("shrinkage", ["oas", 0.05])
def test_a_common_offset_of_all_logits_does_not_matter(shrinkage):
    logits, labels = drawn(0, 60, 30, 3, rank=20)
    logits = logits.round() / 4  # so that float32 holds them with the offset, too
    far = logits + np.float32(2**17)
    near, moved = (scores_of(part, labels, 3, shrinkage=shrinkage) for part in (logits, far))
    torch.testing.assert_close(moved, near, rtol=1e-5, atol=1e-5)


def test_a_class_without_samples_is_left_at_the_average_with_a_warning():
    logits, labels = drawn(0, 30, 5, 2)
    mapping = make_mapping("gaussian", list("vwxyz"), ["a", "b", "unseen"])
    gathered = mapping.new_statistics().update(torch.from_numpy(logits), torch.from_numpy(labels))
    with pytest.warns(EvidenceWarning, match="no evidence for target class 'unseen'"):
        mapping.estimate(gathered)
    assert mapping.weights[:, 2].abs().max() == 0
    assert set(mapping(torch.from_numpy(logits)).argmax(1).tolist()) == {0, 1}
    torch.testing.assert_close(mapping.bias[2], mapping.bias[:2].mean())


@pytest.mark.parametrize("value", [0.0, 1.5, -1.0, float("nan"), "ledoit"])
def test_impossible_shrinkage(value):
    with pytest.raises(ReprogramError, match=f"{value!r} was given, but a number above 0 and up to 1, or 'oas'"):
        gaussian(GaussianStatistics(3, 2), value)


def test_gradients_flow_and_the_fold_form_equals_its_affine_form():
    logits, labels = drawn(5, 40, 8, 3)
    mapping = make_mapping("gaussian", [f"s{i}" for i in range(8)], list("abc"))
    folds = torch.arange(40) % 4
    z, y = torch.from_numpy(logits), torch.from_numpy(labels)
    parts = [mapping.new_statistics().update(z[folds == f], y[folds == f]) for f in range(4)]
    mapping.estimate(*parts)
    weight, offset = mapping.affine.folded()
    torch.testing.assert_close(z @ weight + offset, mapping(z), rtol=1e-4, atol=1e-3)
    z.requires_grad_()
    mapping(z).sum().backward()
    torch.testing.assert_close(z.grad[0], weight.sum(1), rtol=1e-4, atol=1e-4)
    held_out = mapping(z, folds).detach()
    for fold in range(4):
        without = make_mapping("gaussian", [f"s{i}" for i in range(8)], list("abc"))
        without.estimate(without.new_statistics().update(z.detach()[folds != fold], y[folds != fold]))
        torch.testing.assert_close(held_out[folds == fold], without(z.detach())[folds == fold], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shrinkage", ["oas", 0.1])
@pytest.mark.parametrize("n", [200, 2000])
def test_forgetting_down_to_one_sample_of_each_class_equals_a_refit(n, shrinkage):
    """What rounding leaves of the scatter of many forgotten samples is not taken for spread."""
    draw = torch.Generator().manual_seed(n)
    logits, labels = torch.randn(n, 6, generator=draw), torch.arange(n) % 3
    kept = GaussianStatistics(6, 3).update(logits, labels).subtract(GaussianStatistics(6, 3).update(logits[3:], labels[3:]))
    refit = GaussianStatistics(6, 3).update(logits[:3], labels[:3])
    for found, expected in zip(gaussian(kept, shrinkage), gaussian(refit, shrinkage), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [500, 5000])
def test_removing_a_large_class_leaves_no_spread_behind(size):
    draw = torch.Generator().manual_seed(size)
    logits = torch.randn(size + 6, 6, generator=draw)
    labels = torch.cat([torch.tensor([0, 1, 2, 3, 4, 4]), torch.full((size,), 5)])
    kept = GaussianStatistics(6, 6).update(logits, labels).subtract(GaussianStatistics(6, 6).update(logits[6:], labels[6:]))
    kept, refit = kept.with_classes(range(5)), GaussianStatistics(6, 5).update(logits[:6], labels[:6])
    for found, expected in zip(gaussian(kept, 0.1), gaussian(refit, 0.1), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("constant", [0.1, 7.3, 2.5])
def test_constant_logits_tell_nothing(constant):
    labels = torch.arange(30) % 3
    omega, _, bias = gaussian(GaussianStatistics(4, 3).update(torch.full((30, 4), constant, dtype=torch.float64), labels))
    assert not omega.any()
    assert not bias.any()
