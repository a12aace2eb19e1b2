"""The mean of what is trained: its weights, and what the model shows when."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from reprogram.training.average import Average


def walked(values, horizon, rests=()):
    """A parameter that takes these values one after the other, with rests after some of them."""
    theta = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    average = Average({"theta": theta}, horizon)
    average.begin()
    for place, value in enumerate(values):
        theta.data.fill_(value)
        average.take()
        if place in rests:
            average.end()
            average.begin()
            assert float(theta.detach()) == value, "the optimiser goes on from where it was"
    average.end()
    return float(theta.detach()), average


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=12),
    st.floats(0.05, 1e6),
    st.sets(st.integers(0, 11)),
)
def test_weights_fall_exponentially_and_rests_change_nothing(values, horizon, rests):
    weights = np.exp(-np.arange(len(values))[::-1] / horizon)
    found, average = walked(values, horizon, rests)
    np.testing.assert_allclose(found, weights @ values / weights.sum(), rtol=1e-9, atol=1e-9)
    assert average.taken == len(values)
    assert float(average.moving["theta"]) == values[-1]


def test_the_ends():
    assert walked([1.0, 2.0, 6.0], 1e-3)[0] == 6.0
    assert abs(walked([1.0, 2.0, 6.0], 1e12)[0] - 3.0) < 1e-9
    assert walked([4.0], 7.0)[0] == 4.0
