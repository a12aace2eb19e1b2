"""The temperature by sums on nodes against a scalar optimiser on all scores, and what does not change it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from reprogram.mappings.reliability import ReliabilitySums
from reprogram.mappings.temperature import CENTRE, STRENGTH, TemperatureSums


def scored(seed, n=60, k=4, size=1.0):
    rng = np.random.default_rng(seed)
    targets = torch.from_numpy(rng.integers(0, k, n))
    scores = torch.from_numpy(rng.normal(size=(n, k))) + 1.5 * torch.eye(k, dtype=torch.float64)[targets]
    return size * scores, targets, torch.from_numpy(rng.uniform(0.2, 3.0, n))


def searched(scores, targets, weights=None):
    """log T by a bounded search on the whole objective."""
    weights = torch.ones(len(targets), dtype=torch.float64) if weights is None else weights
    spread = float(((weights * scores.var(1, correction=0)).sum() / weights.sum()).sqrt())
    centre = np.log(CENTRE * spread / np.log(scores.shape[1]))
    scale = max(1.0, float(weights.sum() / weights.square().sum()))

    def objective(log_t):
        losses = -(scores / np.exp(log_t)).log_softmax(1).gather(1, targets[:, None]).flatten()
        return float(scale * (losses @ weights)) + STRENGTH / 2 * (log_t - centre) ** 2

    coarse = min(np.arange(centre - 4, centre + 4, 0.05), key=objective)
    return minimize_scalar(objective, bounds=(coarse - 0.1, coarse + 0.1), method="bounded", options={"xatol": 1e-9}).x


@pytest.mark.parametrize("size", [1e-12, 0.01, 1.0, 300.0, 1e20])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_where_a_search_over_all_scores_ends(size, weighted):
    scores, targets, weights = scored(3, size=size)
    sums = TemperatureSums()
    for part in torch.arange(len(targets)).split(17):
        sums.add(scores[part], targets[part], weights=weights[part] if weighted else None)
    expected = searched(scores, targets, weights if weighted else None)
    assert np.log(sums.temperature()) == pytest.approx(expected, abs=2e-4)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 59))
def test_parts_that_are_merged_give_what_all_give_at_once(seed, cut):
    scores, targets, weights = scored(seed)
    whole, one, other = TemperatureSums(), TemperatureSums(), TemperatureSums()
    whole.add(scores, targets, weights=weights)
    one.add(scores[:cut], targets[:cut], weights=weights[:cut])
    other.add(scores[cut:], targets[cut:], weights=weights[cut:])
    one.merge(other)
    assert one.n == whole.n
    assert one.temperature() == pytest.approx(whole.temperature(), rel=1e-9)
    assert one.before().log_loss == pytest.approx(whole.before().log_loss, rel=1e-9)
    assert one.after().brier == pytest.approx(whole.after().brier, rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.floats(1e-6, 1e6))
def test_scores_of_another_scale_get_the_same_probabilities(seed, factor):
    scores, targets, _ = scored(seed)
    one, other = TemperatureSums(), TemperatureSums()
    one.add(scores, targets)
    other.add(scores * factor, targets)
    assert other.temperature() / factor == pytest.approx(one.temperature(), rel=1e-3)


def test_what_it_says_of_probabilities_is_what_they_are():
    scores, targets, _ = scored(5, n=400, size=20.0)
    sums = TemperatureSums()
    sums.add(scores, targets)
    for said, divisor in ((sums.before(), 1.0), (sums.after(), sums.temperature())):
        real = ReliabilitySums()
        real.add(scores / divisor, targets)
        assert said.log_loss == pytest.approx(real.mean().log_loss, rel=1e-4)
        assert said.brier == pytest.approx(real.mean().brier, rel=1e-4)
    real = ReliabilitySums()
    real.add(scores, targets)
    assert sums.before().calibration_error == pytest.approx(real.mean().calibration_error, rel=1e-9)
    assert sums.after().log_loss < sums.before().log_loss / 2


def test_without_a_judged_sample_it_is_the_stated_default():
    scores, targets, _ = scored(1)
    sums = TemperatureSums()
    assert sums.temperature() == 1
    sums.add(scores, targets, judged=torch.zeros(len(targets), dtype=torch.bool))
    spread = float(scores.var(1, correction=0).mean().sqrt())
    assert sums.temperature() == pytest.approx(CENTRE * spread / np.log(4))
    assert sums.before() is None
    small = TemperatureSums()
    small.add(scores / 100, targets, judged=torch.zeros(len(targets), dtype=torch.bool))
    assert small.temperature() == 1  # no sharper than the plain softmax


def test_samples_whose_scores_are_all_equal_count_but_say_nothing_of_the_temperature():
    scores, targets, _ = scored(2)
    one, other = TemperatureSums(), TemperatureSums()
    other.add(torch.zeros(1, 4), torch.tensor([0]))
    for sums in (one, other):
        sums.add(scores, targets)
    assert other.n == one.n + 1
    mean = (one.before().log_loss * one.n + np.log(4)) / other.n
    assert other.before().log_loss == pytest.approx(mean)
    assert other.after().log_loss > one.after().log_loss


def test_rounding_errors_are_no_scores_to_be_sure_by():
    """Two classes on one label have one score but for the last digit, and a tiny temperature would make that certain."""
    equal = torch.tensor([5.0, 5.0, -7.0], dtype=torch.float64)[:, None].repeat(40, 2)
    equal[::2, 1] *= 1 + 2e-16
    sums = TemperatureSums()
    sums.add(equal, torch.arange(120) % 2)
    assert sums.temperature() == 1.0
    sums.add(torch.tensor([[5.0, 5.0001]], dtype=torch.float64).repeat(40, 1), torch.ones(40, dtype=torch.int64))
    assert 0 < sums.temperature() < 1e-3
