"""Temperature and share of wrong labels against a slow search, and against labels that were drawn."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.audit.certainty import fitted_certainty


def drawn(n, k, wrong, seed, sharpness=3.0):
    """Target logits, and labels drawn from their softmax, a share of which is then wrong."""
    draw = torch.Generator().manual_seed(seed)
    scores = sharpness * torch.randn(n, k, generator=draw, dtype=torch.float64)
    labels = scores.softmax(1).multinomial(1, generator=draw).flatten()
    bad = torch.rand(n, generator=draw) < wrong
    return scores, torch.where(bad, (labels + torch.randint(1, k, (n,), generator=draw)) % k, labels)


def likelihood(scores, labels, temperature, noise):
    total = 0.0
    for row, label in zip((scores / temperature).softmax(1).tolist(), labels.tolist(), strict=True):
        total += math.log((1 - noise) * row[label] + noise * (1 - row[label]) / (len(row) - 1))
    return total


def test_no_other_temperature_and_share_explain_the_labels_better():
    scores, labels = drawn(300, 4, 0.15, seed=1)
    found = fitted_certainty(scores, labels)
    best = likelihood(scores, labels, found.temperature, found.noise)
    for temperature in (0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 3.0):
        for noise in (1e-6, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5):
            assert likelihood(scores, labels, temperature, noise) <= best + 0.05


@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.3])
def test_what_was_drawn_is_found(wrong):
    scores, labels = drawn(6000, 5, wrong, seed=2)
    found = fitted_certainty(scores, labels)
    low, high = found.interval
    assert low <= wrong <= high
    assert high - low < 0.1
    assert found.temperature == pytest.approx(1, abs=0.12)


@settings(max_examples=20, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(0, 100))
def test_the_scale_of_logits_does_not_matter(scale, seed):
    scores, labels = drawn(120, 3, 0.1, seed)
    one, other = fitted_certainty(scores, labels), fitted_certainty(scores * scale, labels)
    assert other.temperature == pytest.approx(one.temperature * scale, rel=1e-4)
    assert other.noise == pytest.approx(one.noise, abs=1e-4)
    torch.testing.assert_close(other.probabilities(scores * scale), one.probabilities(scores), rtol=1e-3, atol=1e-5)


def test_wrong_is_bayes_rule_and_falls_with_the_probability_of_the_label():
    scores, labels = drawn(500, 4, 0.2, seed=3)
    found = fitted_certainty(scores, labels)
    log_given = found.log_probability(scores, labels)
    wrong = found.wrong(log_given, 4)
    p = log_given.exp()
    random = found.noise * (1 - p) / 3
    torch.testing.assert_close(wrong, random / (random + (1 - found.noise) * p))
    assert bool((wrong[log_given.argsort()].diff() <= 1e-12).all())
    assert float(wrong.mean()) == pytest.approx(found.noise, abs=0.005)


def test_flat_scores_say_nothing():
    found = fitted_certainty(torch.zeros(10, 3), torch.arange(10) % 3)
    assert (found.noise, found.interval) == (0.0, (0.0, 1.0))
