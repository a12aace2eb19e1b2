"""Leave-one-group-out scores against brute force: estimate again without each group."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ignore_evidence_warnings
from reprogram.mappings.bayesian import bayes
from reprogram.mappings.densities import GaussianFit
from reprogram.mappings.gaussians import gaussian
from reprogram.mappings.leave_group_out import bayes_without_groups, gaussian_without_groups, normalised_without_groups
from reprogram.mappings.leave_one_out import bayes_without, gaussian_without, normalised_without
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics

fast = settings(deadline=None, derandomize=True, max_examples=40)
VARIANTS = ["none", "centre", "standardise"]


def drawn(seed, n, k_source, k_target, count):
    """Logits, targets, and groups that may hold several classes, also all samples of one."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k_source, generator=generator)
    targets = torch.randint(0, k_target, (n,), generator=generator)
    return logits, targets, torch.randint(0, count, (n,), generator=generator) * 7 - 3


@fast
@given(
    seed=st.integers(0, 9999),
    n=st.integers(3, 30),
    k_source=st.integers(1, 9),
    k_target=st.integers(1, 5),
    count=st.integers(2, 12),
    top_k=st.integers(0, 9),
    smoothing=st.sampled_from([0.0, 0.01, 1.0, 1000.0]),
)
def test_bayes_equals_brute_force(seed, n, k_source, k_target, count, top_k, smoothing):
    """Also with absent classes, classes in one group, and rows that only one group speaks for; top_k 0 is counts."""
    logits, targets, groups = drawn(seed, n, k_source, k_target, count)
    kind, top_k = ("probabilities", min(top_k, k_source)) if top_k else ("counts", 1)

    def counted(keep):
        return JointStatistics(kind, k_source, k_target, top_k, moments=True).update(logits[keep], targets[keep])

    whole = counted(torch.arange(n))
    inputs = [normalised_without_groups(logits, groups, whole.moments_of_logits(), n, variant) for variant in VARIANTS]
    found = bayes_without_groups(whole, whole.evidence(logits), targets, groups, smoothing, inputs)
    for group in groups.unique():
        own = groups == group
        if bool(own.all()):
            continue
        others = counted(~own)
        with ignore_evidence_warnings():
            omega = bayes(others, smoothing).double()
        mean, deviation = others.moments_of_logits()
        centred = logits[own].double() - mean
        expected = [logits[own].double(), centred, centred / deviation.where(deviation > 0, 1)]
        for variant, scores in enumerate(found):
            torch.testing.assert_close(inputs[variant][own], expected[variant], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(scores[own], expected[variant] @ omega, rtol=1e-4, atol=1e-4)


@fast
@given(
    seed=st.integers(0, 9999),
    n=st.integers(3, 40),
    k_source=st.integers(1, 12),
    k_target=st.integers(1, 5),
    count=st.integers(2, 15),
    shrinkage=st.sampled_from(["oas", 0.1, 1.0]),
    priors=st.booleans(),
)
def test_gaussian_equals_brute_force(seed, n, k_source, k_target, count, shrinkage, priors):
    """Groups of more samples than there are logits, and of fewer."""
    logits, targets, groups = drawn(seed, n, k_source, k_target, count)
    whole = GaussianStatistics(k_source, k_target).update(logits, targets)
    found = gaussian_without_groups(GaussianFit.of(whole), logits, targets, groups, shrinkage, priors=priors)
    for group in groups.unique():
        own = groups == group
        if bool(own.all()):
            continue
        others = GaussianStatistics(k_source, k_target).update(logits[~own], targets[~own])
        omega, mean, bias = gaussian(others, shrinkage, priors=priors)
        expected = (logits[own].double() - mean) @ omega + bias
        size = float(expected.abs().max())
        torch.testing.assert_close(found[own], expected, rtol=1e-6, atol=1e-6 * size + 1e-9)


def test_groups_of_one_sample_give_the_very_numbers_of_leave_one_out():
    logits, targets, _ = drawn(0, 40, 6, 3, 2)
    groups = torch.randperm(40)
    joint = JointStatistics.counts(6, 3, moments=True).update(logits, targets)
    evidence = joint.evidence(logits)
    for variant in VARIANTS:
        inputs = [normalised_without(logits, joint.moments_of_logits(), 40, variant)]
        assert torch.equal(normalised_without_groups(logits, groups, joint.moments_of_logits(), 40, variant), inputs[0])
        expected = bayes_without(joint, evidence, targets, 1.0, inputs)
        assert torch.equal(bayes_without_groups(joint, evidence, targets, groups, 1.0, inputs)[0], expected[0])
    fit = GaussianFit.of(GaussianStatistics(6, 3).update(logits, targets))
    assert torch.equal(gaussian_without_groups(fit, logits, targets, groups), gaussian_without(fit, logits, targets))


@pytest.mark.parametrize("shrinkage", ["oas", 0.3])
def test_a_class_in_one_group_has_nothing_left(shrinkage):
    """Repeated views: no sample is recognised by its copies, which leave-one-out falls for."""
    generator = torch.Generator().manual_seed(1)
    shots = 3 * torch.randn(6, 40, generator=generator)
    logits = shots.repeat_interleave(4, 0) + 0.01 * torch.randn(24, 40, generator=generator)
    targets = torch.arange(6).repeat_interleave(4)
    fit = GaussianFit.of(GaussianStatistics(40, 6).update(logits, targets))
    assert (gaussian_without(fit, logits, targets, shrinkage).argmax(1) == targets).all()
    found = gaussian_without_groups(fit, logits, targets, targets, shrinkage)
    assert found.isfinite().all()
    assert (found.argmax(1) != targets).all()


def test_many_groups_are_treated_in_batches(monkeypatch):
    logits, targets, groups = drawn(3, 200, 5, 3, 60)
    fit = GaussianFit.of(GaussianStatistics(5, 3).update(logits, targets))
    joint = JointStatistics.probabilities(5, 3, 2).update(logits, targets)
    one = gaussian_without_groups(fit, logits, targets, groups)
    two = bayes_without_groups(joint, joint.evidence(logits), targets, groups, 1.0, [logits.double()])[0]
    monkeypatch.setattr("reprogram.mappings.leave_group_out._VALUES", 1)
    torch.testing.assert_close(gaussian_without_groups(fit, logits, targets, groups), one)
    again = bayes_without_groups(joint, joint.evidence(logits), targets, groups, 1.0, [logits.double()])[0]
    torch.testing.assert_close(again, two)
