"""Own tails and quantiles against scipy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reprogram.experiments.distributions import (
    MOST_EXACT,
    binomial_flip,
    chi_square_tail,
    holm,
    range_below,
    range_quantile,
    sign_flip,
)
from reprogram.experiments.means import t_interval

differences = st.lists(st.integers(-50, 50).map(lambda value: value / 500), min_size=1, max_size=9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(0, 200), st.integers(1, 40))
def test_the_tail_of_chi_square_is_scipys(value, freedom):
    assert chi_square_tail(value, freedom) == pytest.approx(stats.chi2.sf(value, freedom), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("count", range(2, 21))
def test_the_range_of_normal_numbers_is_scipys(count):
    with np.errstate(all="ignore"):
        assert range_quantile(count) == pytest.approx(stats.studentized_range.ppf(0.95, count, np.inf), abs=2e-5)
        for width in (0.5, 2.0, 5.0):
            assert range_below(width, count) == pytest.approx(stats.studentized_range.cdf(width, count, np.inf), abs=1e-7)


def test_a_range_is_never_below_nothing():
    assert range_below(0.0, 5) == range_below(-1.0, 5) == 0.0
    assert range_below(50.0, 5) == pytest.approx(1.0)
    assert range_quantile(10, 0.5) < range_quantile(10, 0.95) < range_quantile(10, 0.999)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 1000).map(lambda value: value / 1000), min_size=2, max_size=40))
def test_the_interval_of_a_mean_is_students(values):
    low, high = t_interval(values)
    error = stats.sem(values)
    if error == 0:
        assert low == high == pytest.approx(values[0])
    else:
        assert (low, high) == pytest.approx(stats.t.interval(0.95, len(values) - 1, np.mean(values), error), abs=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(differences)
def test_flips_of_signs_are_those_of_a_permutation_test(values):
    found = sign_flip(values)
    if len(values) > 1:
        # in whole numbers, so that sums that are equal are so for scipy, too
        whole = np.round(np.array(values) * 500)
        exact = stats.permutation_test((whole,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=False)
        assert found == pytest.approx(exact.pvalue, abs=1e-12)
    assert found == sign_flip(values[::-1]) == sign_flip([-value for value in values])


def test_few_units_cannot_say_much():
    assert sign_flip([0.4]) == 1.0
    assert sign_flip([0.1, 0.2, 0.3, 0.4]) == 0.125
    assert sign_flip([0.1] * 12) == 2 / 4096


def test_of_many_units_flips_are_drawn_and_the_order_does_not_matter():
    values = np.random.default_rng(0).normal(0.2, 1, MOST_EXACT + 20)
    found = sign_flip(values.tolist())
    # without ties Wilcoxon's and this test agree roughly; the normal approximation of the flips agrees closely
    z = abs(values.sum()) / np.sqrt((values**2).sum())
    assert found == pytest.approx(2 * stats.norm.sf(z), abs=0.01)
    assert found == sign_flip(values[::-1].tolist())
    assert sign_flip([1.0] * 40) == 1 / 100_001


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 200), st.integers(0, 200))
def test_flips_of_single_images_are_the_binomial_test(first, second):
    expected = 1.0 if first == second else stats.binomtest(first, first + second).pvalue
    assert binomial_flip(first, second) == pytest.approx(expected, rel=1e-8)
    if first + second <= 12:
        assert binomial_flip(first, second) == pytest.approx(sign_flip([1.0] * first + [-1.0] * second or [0.0]))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_by_its_definition(chances):
    found = holm(chances)
    order = np.argsort(chances, kind="stable")
    steps = [min(1.0, (len(chances) - place) * chances[which]) for place, which in enumerate(order)]
    expected = np.empty(len(chances))
    expected[order] = np.maximum.accumulate(steps)
    assert found == pytest.approx(expected.tolist())
    assert all(adjusted >= chance for adjusted, chance in zip(found, chances, strict=True))
