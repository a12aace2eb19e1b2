"""Ranks over blocks, Friedman's test and the critical difference: laws, and scipy as the oracle."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grids import grid, outcome
from reprogram.experiments.ranks import critical_difference, friedman, rank, ranked

accuracies = st.lists(st.integers(0, 6).map(lambda value: value / 6), min_size=1, max_size=8)


@given(accuracies)
def test_ranks_share_what_they_have(values):
    found = ranked(values)
    k = len(values)
    assert sum(found) == pytest.approx(k * (k + 1) / 2)
    assert found == pytest.approx(stats.rankdata([-value for value in values]).tolist())


def test_rounding_does_not_break_a_tie():
    assert ranked([0.1 + 0.2, 0.3, 0.1]) == (1.5, 1.5, 3.0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(3, 6), st.integers(2, 9), st.integers(0, 10_000))
def test_friedmans_statistic_is_scipys(k, n, number):
    values = np.random.default_rng(number).integers(0, 8, (n, k)) / 8  # with ties
    runs = [
        outcome({"data": f"{row:02}", "mapping": f"m{column}"}, 0, float(values[row, column]))
        for row in range(n)
        for column in range(k)
    ]
    found = rank(runs, "mapping")
    assert np.allclose(np.sum(found.ranks, axis=1), k * (k + 1) / 2)
    if found.statistic is None:
        assert all(len(set(row)) == 1 for row in values)
        return
    expected = stats.friedmanchisquare(*values.T)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.chance == pytest.approx(expected.pvalue, abs=1e-12)


@pytest.mark.parametrize(("k", "n"), [(2, 4), (5, 12), (9, 4), (20, 30)])
def test_the_critical_difference_by_its_definition(k, n):
    with np.errstate(all="ignore"):
        q = stats.studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2)
    assert critical_difference(k, n) == pytest.approx(q * np.sqrt(k * (k + 1) / (6 * n)), rel=1e-4)


def test_blocks_in_which_a_method_is_missing_do_not_count():
    runs = [run for run in grid(mapping=("p", "q", "r")) if (run.labels["data"], run.labels["mapping"]) != ("b", "q")]
    found = rank(runs, "mapping")
    assert [block["data"] for block in found.blocks] == ["a", "c", "d"]
    assert found.left_out == 1


def test_means_are_over_seeds_that_all_methods_have():
    runs = [
        outcome({"data": "a", "mapping": name}, seed, value)
        for name, values in {"p": (0.5, 0.5, 0.9), "q": (0.6, 0.6)}.items()
        for seed, value in enumerate(values)
    ]
    assert rank(runs, "mapping").average == (2.0, 1.0)  # the third seed of p has no partner


def test_blocks_are_all_other_labels_and_their_data_sets_are_counted():
    found = rank(grid(program=("none", "padding")), "mapping")
    assert (len(found.blocks), found.sets) == (8, 4)


def test_without_a_common_block_there_are_no_ranks():
    found = rank([outcome({"data": name, "mapping": name}, 0, 0.5) for name in "ab"], "mapping")
    assert (found.average, found.statistic, found.chance, found.critical, found.left_out) == ((), None, None, None, 2)
    assert found.groups() == []


def test_all_equal_says_nothing():
    assert friedman([[1.5, 1.5], [1.5, 1.5]]) is None
    assert friedman([[1.0], [1.0]]) is None


def test_groups_are_what_the_critical_difference_does_not_tell_apart():
    runs = [
        outcome({"data": f"{block:02}", "mapping": name}, 0, 0.9 - 0.1 * place - 0.001 * (block % 2) * place)
        for block in range(12)
        for place, name in enumerate("abcde")
    ]
    found = rank(runs, "mapping")
    assert found.average == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert found.critical == pytest.approx(1.761, abs=1e-3)
    assert found.groups() == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(rng: random.Random):
    runs = grid(program=("none", "padding"))
    mixed = list(runs)
    rng.shuffle(mixed)
    assert rank(mixed, "mapping") == rank(runs, "mapping")
