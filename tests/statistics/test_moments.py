"""Means and deviations by groups, against numpy on all values at once."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import NonFiniteError
from reprogram.statistics.joint import JointStatistics
from reprogram.statistics.moments import between, of_groups, overall

fast = settings(deadline=None, derandomize=True, max_examples=60)


@fast
@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 50),
    groups=st.integers(1, 4),
    offset=st.sampled_from([0.0, 1.0, -1e5, 1e5]),
    weighted=st.booleans(),
    cut=st.integers(0, 50),
)
def test_they_are_those_of_numpy_in_one_piece_and_in_two(seed, n, groups, offset, weighted, cut):
    rng = np.random.default_rng(seed)
    values, place = offset + rng.normal(size=(n, 3)), rng.integers(0, groups, n)
    weights = rng.uniform(0.1, 3, n) if weighted else np.ones(n)
    mean = np.average(values, axis=0, weights=weights)
    deviation = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))

    def of(rows):
        heavy = torch.from_numpy(weights[rows]) if weighted else None
        return of_groups(torch.from_numpy(values[rows]), torch.from_numpy(place[rows]), groups, heavy)

    whole, (first, second) = of(slice(None)), (of(slice(cut)), of(slice(cut, None)))
    spread = first[2] + second[2] + between(*first[:2], *second[:2])
    for parts in (whole, (first[0] + second[0], first[1] + second[1], spread)):
        found = overall(*parts)
        np.testing.assert_allclose(found[0], mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[1], deviation, rtol=1e-6, atol=0 if n > 1 else 1e-9)


def test_a_constant_is_one_however_many_there_are_and_however_they_come():
    for value in (0.1, -1e5 / 3, 1e20 / 7, 1e-20 / 3):
        statistics = JointStatistics.counts(3, 2, moments=True)
        for size in (1, 4096, 777, 3):
            logits = torch.full((size, 3), value, dtype=torch.float64)
            logits[:, 0] *= torch.arange(size) % 2 + 2  # so that one is none
            statistics.update(logits, torch.arange(size) % 2)
        deviation = statistics.moments_of_logits()[1]
        assert deviation[0] > 0
        assert not deviation[1:].any()


def test_a_logit_that_is_next_to_nothing_beside_others_is_constant():
    values = torch.tensor([[1.0, 1e-40], [2.0, 3e-40], [4.0, 2e-40]], dtype=torch.float64)
    assert overall(*of_groups(values, torch.zeros(3, dtype=torch.int64), 1))[1].tolist()[1] == 0
    with pytest.raises(NonFiniteError, match=r"at most \d\S*e-40 in size.*multiply them by a constant"):
        overall(*of_groups(values[:, 1:], torch.zeros(3, dtype=torch.int64), 1))
