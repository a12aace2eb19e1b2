"""The paper's theory by random search: what its lemmas and its corollary say, where that fails, and what holds instead."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.mappings.bayesian import bayes
from reprogram.theory import deterministic, expected_accuracy, least_accurate

IDENTITY, FLIP = deterministic([0, 1], 2), deterministic([1, 0], 2)
CASES, ROUNDING = 20_000, 1e-12


@pytest.fixture(scope="module")
def cases():
    """Joint distributions, uniform among all of two labels and two classes, and mappings with uniform columns."""
    draw = np.random.default_rng(0)
    joint = -np.log(draw.random((CASES, 2, 2)))
    first = draw.random((CASES, 1, 2))
    return joint / joint.sum((1, 2), keepdims=True), np.concatenate([first, 1 - first], axis=1)


def given_class(joint):
    return joint / joint.sum(1, keepdims=True)  # p(s | t)


def below(joint, mapping, other):
    return expected_accuracy(joint, mapping) < expected_accuracy(joint, other) - ROUNDING


def blm(joint):
    conditional = joint / joint.sum(2, keepdims=True)
    return conditional / conditional.sum(1, keepdims=True)


def slow_accuracy(joint, mapping):
    """Appendix E, second line of the first proof, term by term."""
    total = 0.0
    for t in range(len(joint[0])):
        p_t = math.fsum(row[t] for row in joint)
        total += p_t * math.fsum(joint[s][t] / p_t * mapping[s][t] for s in range(len(joint)))
    return total


def test_the_measure_is_that_of_the_proofs(cases):
    joint, mapping = cases
    found = expected_accuracy(joint, mapping)
    assert found.shape == (CASES,)
    for case in range(0, CASES, 500):
        assert found[case] == pytest.approx(slow_accuracy(joint[case].tolist(), mapping[case].tolist()), abs=1e-12)


# ---- what is printed


def test_the_lemma_on_identity_holds(cases):
    joint, mapping = cases
    p = given_class(joint)
    condition = (p[:, 1, 0] >= p[:, 0, 0]) & (p[:, 0, 1] >= p[:, 1, 1])
    assert condition.sum() > CASES / 5
    assert not below(joint, mapping, IDENTITY)[condition].any()


def test_the_lemma_on_flip_fails_in_half_of_the_cases_as_it_is_printed(cases):
    joint, mapping = cases
    p = given_class(joint)
    printed = (p[:, 0, 0] <= p[:, 1, 0]) & (p[:, 0, 1] <= p[:, 1, 1])
    assert 0.45 < below(joint, mapping, FLIP)[printed].mean() < 0.55


def test_the_lemma_on_flip_holds_with_the_first_inequality_the_other_way(cases):
    joint, mapping = cases
    p = given_class(joint)
    right = (p[:, 0, 0] >= p[:, 1, 0]) & (p[:, 0, 1] <= p[:, 1, 1])
    assert right.sum() > CASES / 5
    assert not below(joint, mapping, FLIP)[right].any()


def test_the_corollary_fails_for_identity_for_flip_and_for_both_at_once(cases):
    joint, mapping = cases
    p = given_class(joint)
    printed = (p[:, 1, 0] >= p[:, 0, 0]) | (p[:, 0, 1] >= p[:, 1, 1])
    identity, flip = below(joint, mapping, IDENTITY)[printed], below(joint, mapping, FLIP)[printed]
    assert 0.3 < identity.mean() < 0.4
    assert 0.6 < flip.mean() < 0.7
    assert 0.1 < (identity & flip).mean() < 0.2
    assert below(joint, blm(joint), IDENTITY)[printed].any()  # nor does it hold for BLM's own mapping
    assert below(joint, blm(joint), FLIP)[printed].any()


def test_a_case_against_the_corollary_by_hand():
    joint = [[0.25, 0.0], [0.25, 0.5]]  # p(s = 1 | t = 0) ≥ p(s = 0 | t = 0), so that a = 1 is there
    mapping = [[0.5, 0.5], [0.5, 0.5]]
    assert expected_accuracy(joint, mapping) == 0.5
    assert expected_accuracy(joint, IDENTITY) == 0.75


# ---- what is true

matrices = (
    st.integers(0, 100_000)
    .map(np.random.default_rng)
    .flatmap(
        lambda draw: st.tuples(st.integers(1, 6), st.integers(1, 6), st.booleans()).map(
            lambda shape: _random_joint(draw, *shape)
        )
    )
)


def _random_joint(draw, k_source, k_target, sparse):
    joint = draw.exponential(size=(k_source, k_target)) ** draw.choice([0.2, 1, 5])
    if sparse:
        joint *= draw.random(joint.shape) < 0.5
        joint[0] += 1e-3
    return joint / joint.sum()


@settings(deadline=None, derandomize=True, max_examples=200)
@given(matrices, st.integers(0, 100_000))
def test_a_mapping_is_least_accurate_exactly_where_no_column_can_be_worse(joint, seed):
    draw = np.random.default_rng(seed)
    k_source, k_target = joint.shape
    chosen = joint.argmin(0) if seed % 2 else draw.integers(k_source, size=k_target)
    mapping = np.zeros_like(joint)
    mapping[chosen, range(k_target)] = 1
    worst = joint.min(0).sum()
    assert least_accurate(joint, mapping) == (expected_accuracy(joint, mapping) <= worst + 1e-15)


def test_a_mapping_cannot_be_beaten_by_identity_and_flip_only_where_nothing_can_be_told(cases):
    joint, _ = cases
    both = least_accurate(joint, IDENTITY) & least_accurate(joint, FLIP)
    assert not both.any()  # p(s | t) = 1/2 everywhere is not met by chance
    assert least_accurate(np.full((2, 2), 0.25), IDENTITY)
    assert least_accurate(np.full((2, 2), 0.25), FLIP)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(matrices, st.sampled_from([0.0, 1e-3, 1.0, 1e3]))
def test_blm_is_never_below_chance_whatever_the_distribution_and_the_smoothing(joint, smoothing):
    joint = joint[:, joint.sum(0) > 0]  # a class without evidence has a uniform column by decision, not by the rule
    counts = 1000 * joint
    omega = bayes(torch.from_numpy(counts), smoothing).double().numpy()
    assert expected_accuracy(joint, omega) >= 1 / len(joint) - 1e-6


@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (4, 3)])
def test_one_to_one_mappings_have_the_accuracy_of_chance_on_average(shape):
    joint = _random_joint(np.random.default_rng(7), *shape, sparse=False)
    k_source, k_target = shape
    found = []
    for chosen in itertools.permutations(range(k_source), k_target):
        mapping = np.zeros(shape)
        mapping[chosen, range(k_target)] = 1
        found.append(expected_accuracy(joint, mapping))
    assert np.mean(found) == pytest.approx(1 / k_source, abs=1e-12)


def test_blm_is_at_least_as_good_as_the_worse_of_identity_and_flip(cases):
    joint, _ = cases
    found = expected_accuracy(joint, blm(joint))
    worse = np.minimum(expected_accuracy(joint, IDENTITY), expected_accuracy(joint, FLIP))
    better = np.maximum(expected_accuracy(joint, IDENTITY), expected_accuracy(joint, FLIP))
    assert (found >= worse - ROUNDING).all()
    assert (found < better - ROUNDING).mean() > 0.9  # and mostly below the better one


def test_with_hard_answers_and_two_labels_blm_predicts_as_identity_or_flip(cases):
    joint, _ = cases
    predicted = blm(joint).argmax(2)
    assert (predicted[:, 0] != predicted[:, 1]).all()


def test_no_randomised_rule_is_more_accurate_than_the_best_deterministic_one(cases):
    joint, mapping = cases
    rule = mapping / mapping.sum(2, keepdims=True)  # rows sum to 1: it does draw a class
    assert (expected_accuracy(joint, rule) <= joint.max(2).sum(1) + ROUNDING).all()


# ---- mistakes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_accuracy([[1, 2], [3, 4]], IDENTITY), "divide counts by their sum"),
        (lambda: expected_accuracy([0.5, 0.5], IDENTITY), "k_S × k_T matrix"),
        (lambda: expected_accuracy(IDENTITY / 2, np.eye(3)), "shape (3, 3) was given"),
        (lambda: deterministic([0, 2], 2), "classes from 0 to 1"),
        (lambda: least_accurate(IDENTITY / 2, IDENTITY * 2), "scale its columns"),
    ],
)
def test_mistakes_are_one_sentence(call, message):
    with pytest.raises(ReprogramError) as caught:
        call()
    assert message in str(caught.value)
