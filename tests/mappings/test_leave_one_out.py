"""Leave-one-out scores against brute force: estimate again without each sample."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ignore_evidence_warnings
from reprogram.mappings.bayesian import bayes
from reprogram.mappings.densities import GaussianFit
from reprogram.mappings.gaussians import gaussian
from reprogram.mappings.leave_one_out import bayes_without, gaussian_without, normalised_without
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics

fast = settings(deadline=None, derandomize=True, max_examples=40)
VARIANTS = ["none", "centre", "standardise"]


def drawn(seed, n, k_source, k_target, rounded=False):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k_source, generator=generator)
    return (logits.round() if rounded else logits), torch.randint(0, k_target, (n,), generator=generator)


@fast
@given(
    seed=st.integers(0, 9999),
    n=st.integers(2, 25),
    k_source=st.integers(1, 9),
    k_target=st.integers(1, 5),
    top_k=st.integers(0, 9),
    smoothing=st.sampled_from([0.0, 0.01, 1.0, 1000.0]),
    rounded=st.booleans(),
)
def test_bayes_equals_brute_force(seed, n, k_source, k_target, top_k, smoothing, rounded):
    """Also with ties, absent classes, single samples and rows that only one sample speaks for; top_k 0 stands for counts."""
    logits, targets = drawn(seed, n, k_source, k_target, rounded)
    kind, top_k = ("probabilities", min(top_k, k_source)) if top_k else ("counts", 1)

    def counted(keep):
        return JointStatistics(kind, k_source, k_target, top_k, moments=True).update(logits[keep], targets[keep])

    whole = counted(torch.arange(n))
    inputs = [normalised_without(logits, whole.moments_of_logits(), n, variant) for variant in VARIANTS]
    found = bayes_without(whole, whole.evidence(logits), targets, smoothing, inputs)
    for left_out in range(n):
        others = counted(torch.arange(n) != left_out)
        with ignore_evidence_warnings():
            omega = bayes(others, smoothing).double()
        mean, deviation = others.moments_of_logits()
        centred = logits[left_out].double() - mean
        expected = [logits[left_out].double(), centred, centred / deviation.where(deviation > 0, 1)]
        for variant, scores in enumerate(found):
            torch.testing.assert_close(inputs[variant][left_out], expected[variant], rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(scores[left_out], expected[variant] @ omega, rtol=1e-5, atol=1e-5)


@fast
@given(
    seed=st.integers(0, 9999),
    n=st.integers(2, 25),
    k_source=st.integers(1, 12),
    k_target=st.integers(1, 5),
    shrinkage=st.sampled_from(["oas", 0.1, 1.0]),
    priors=st.booleans(),
)
def test_gaussian_equals_brute_force(seed, n, k_source, k_target, shrinkage, priors):
    logits, targets = drawn(seed, n, k_source, k_target)
    whole = GaussianStatistics(k_source, k_target).update(logits, targets)
    found = gaussian_without(GaussianFit.of(whole), logits, targets, shrinkage, priors=priors)
    for left_out in range(n):
        keep = torch.arange(n) != left_out
        others = GaussianStatistics(k_source, k_target).update(logits[keep], targets[keep])
        omega, mean, bias = gaussian(others, shrinkage, priors=priors)
        expected = (logits[left_out].double() - mean) @ omega + bias
        size = float(expected.abs().max())
        torch.testing.assert_close(found[left_out], expected, rtol=1e-6, atol=1e-6 * size + 1e-9)


@pytest.mark.parametrize("shrinkage", ["oas", 0.3])
def test_one_sample_per_class_and_few_samples_in_many_dimensions(shrinkage):
    logits, _ = drawn(0, 6, 40, 6)
    targets = torch.arange(6)
    whole = GaussianStatistics(40, 6).update(logits, targets)
    found = gaussian_without(GaussianFit.of(whole), logits, targets, shrinkage)
    assert found.isfinite().all()
    assert (found.argmax(1) != targets).all()  # nothing is left of the class once its only sample is out


def test_normalised_without_a_constant_logit_stays_finite():
    logits = torch.cat([torch.full((8, 1), 7.3), torch.randn(8, 3, generator=torch.Generator().manual_seed(0))], dim=1)
    whole = JointStatistics.counts(4, 2, moments=True).update(logits, torch.arange(8) % 2)
    assert normalised_without(logits, whole.moments_of_logits(), 8, "standardise")[:, 0].abs().max() < 1e-6
