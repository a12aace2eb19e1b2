"""Two methods on matched runs: units, laws, oracles, and what cannot be said."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grids import grid, outcome
from reprogram.errors import ReprogramError
from reprogram.experiments.distributions import holm
from reprogram.experiments.pairs import compare_pair, compare_pairs
from reprogram.experiments.units import over_images


def two(values, **options):
    """Runs of methods p and q: data set → seed → accuracies of both."""
    return [
        outcome({"data": data, "mapping": name}, seed, value, **options)
        for data, seeds in values.items()
        for seed, both in enumerate(seeds)
        for name, value in zip("pq", both, strict=True)
        if value is not None
    ]


def shifted(runs, by):
    return [replace(run, accuracy={name: value + by for name, value in run.accuracy.items()}) for run in runs]


def numbers(difference):
    return difference.mean, difference.interval, difference.chance


def test_data_sets_are_the_units_where_there_are_several():
    values = {"a": [(0.6, 0.5), (0.7, 0.5)], "b": [(0.4, 0.45)], "c": [(0.8, 0.7), (0.8, 0.7)]}
    pair = compare_pair(two(values), "mapping", "p", "q")
    units = [0.15, -0.05, 0.1]
    assert pair.difference.values == pytest.approx(dict(zip("abc", units, strict=True)))
    assert (pair.difference.over, pair.difference.units, pair.matched) == ("data", 3, 5)
    assert pair.difference.mean == pytest.approx(np.mean(units))
    assert pair.difference.interval == pytest.approx(stats.t.interval(0.95, 2, np.mean(units), stats.sem(units)))
    assert (pair.difference.ahead, pair.difference.level, pair.difference.behind) == (2, 0, 1)
    exact = stats.permutation_test((units,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert pair.difference.chance == pytest.approx(exact.pvalue)
    assert pair.difference.least == 0.25
    assert pair.difference.words == "over 3 data sets"


def test_other_labels_of_a_data_set_are_averaged_first():
    runs = [
        outcome({"data": data, "program": program, "mapping": name}, 0, value)
        for data, program, *both in (("a", "none", 0.6, 0.5), ("a", "padding", 0.6, 0.4), ("b", "none", 0.5, 0.4))
        for name, value in zip("pq", both, strict=True)
    ]
    assert compare_pair(runs, "mapping", "p", "q").difference.values == pytest.approx({"a": 0.15, "b": 0.1})


def test_on_one_data_set_seeds_are_the_units():
    pair = compare_pair(two({"a": [(0.6, 0.5), (0.7, 0.5), (0.5, 0.5)]}), "mapping", "p", "q")
    assert (pair.difference.over, pair.difference.units, pair.difference.level) == ("seeds", 3, 1)
    assert pair.difference.chance == 0.5  # one of the three is zero: its sign changes nothing
    assert pair.difference.least == 0.5


def test_of_single_runs_test_images_are_the_units():
    right = {"p": (1,) * 60 + (0,) * 40, "q": (1,) * 45 + (0,) * 50 + (1,) * 5}
    runs = [outcome({"data": "a", "mapping": name}, 0, sum(hits) / 100, n=100, right=hits) for name, hits in right.items()]
    found = compare_pair(runs, "mapping", "p", "q").difference
    assert (found.over, found.units, found.ahead, found.level, found.behind) == ("test images", 100, 15, 80, 5)
    assert found.mean == pytest.approx(0.1)
    assert found.chance == pytest.approx(stats.binomtest(15, 20).pvalue)
    assert found.interval[0] < 0.1 < found.interval[1]
    seeds = [replace(run, seed=seed) for run in runs for seed in range(3)]  # which change nothing
    assert numbers(compare_pair(seeds, "mapping", "p", "q").difference) == numbers(found)


@pytest.mark.parametrize("change", ["other epoch", "not read", "other number", "groups"])
def test_images_are_no_units_where_they_do_not_belong_to_the_accuracy(change):
    one = outcome({"mapping": "p"}, 0, 0.6, n=10, right=(1,) * 6 + (0,) * 4)
    other = outcome({"mapping": "q"}, 0, 0.5, n=10, right=(1,) * 5 + (0,) * 5)
    assert compare_pair([one, other], "mapping", "p", "q").difference.over == "test images"
    changed = {
        "other epoch": replace(other, accuracy={**other.accuracy, "selected": 0.7}),
        "not read": replace(other, right=None),
        "other number": replace(other, right=(1, 0)),
        "groups": replace(other, extra={"effective_test_images": 5.0}),
    }[change]
    found = compare_pair([one, changed], "mapping", "p", "q").difference
    assert (found.over, found.interval, found.chance, found.units) == ("nothing", None, None, 1)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60))
def test_the_interval_over_images_by_its_definition(pairs):
    first, second = zip(*pairs, strict=True)
    found, back = over_images(first, second), over_images(second, first)
    more = np.array([a - b for a, b in pairs] + [1, -1])  # Bonett and Price
    half = stats.norm.ppf(0.975) * np.sqrt(np.mean(more**2) - more.mean() ** 2) / np.sqrt(len(more))
    low, high = max(more.mean() - half, -1), min(more.mean() + half, 1)
    assert found.interval == pytest.approx((low, high))
    assert found.mean == pytest.approx(np.mean(first) - np.mean(second))
    assert (back.mean, *back.interval) == pytest.approx((-found.mean, -found.interval[1], -found.interval[0]))


def test_unmatched_runs_are_counted_and_left_out():
    values = {"a": [(0.6, 0.5), (0.9, None)], "b": [(None, 0.1), (0.7, 0.6)]}
    pair = compare_pair(two(values), "mapping", "p", "q")
    assert (pair.matched, pair.only_first, pair.only_second) == (2, 1, 1)
    assert pair.difference.values == pytest.approx({"a": 0.1, "b": 0.1})
    nothing = compare_pair(two({"a": [(0.6, None)], "b": [(None, 0.5)]}), "mapping", "p", "q")
    assert (nothing.matched, nothing.difference.mean, nothing.difference.chance) == (0, None, None)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 3))
def test_the_difference_is_antisymmetric_and_knows_no_level(number, sets, seeds):
    runs = grid(tuple("abcd"[:sets]), ("p", "q"), range(seeds), seed=number)
    found = compare_pair(runs, "mapping", "p", "q").difference
    back = compare_pair(runs, "mapping", "q", "p").difference
    moved = compare_pair(shifted(runs, 0.0625), "mapping", "p", "q").difference
    assert back.mean == -found.mean
    assert (back.ahead, back.level, back.behind, back.chance) == (found.behind, found.level, found.ahead, found.chance)
    assert moved.mean == pytest.approx(found.mean, abs=1e-12)
    assert moved.chance == found.chance
    if found.interval is not None:
        assert back.interval == pytest.approx((-found.interval[1], -found.interval[0]))
        assert moved.interval == pytest.approx(found.interval, abs=1e-9)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_the_order_of_runs_and_the_names_of_seeds_do_not_matter(rng: random.Random):
    runs = grid()
    mixed = list(runs)
    rng.shuffle(mixed)
    assert compare_pairs(mixed, "mapping") == compare_pairs(runs, "mapping")
    names = [11, 5, 7]
    rng.shuffle(names)
    renamed = [replace(run, seed=names[run.seed]) for run in runs]
    assert compare_pairs(renamed, "mapping") == compare_pairs(runs, "mapping")


def test_all_pairs_are_corrected_together():
    pairs = compare_pairs(grid(mapping=("p", "q", "r", "s")), "mapping", order=["s"])
    assert [(pair.first, pair.second) for pair in pairs][:3] == [("s", "p"), ("s", "q"), ("s", "r")]
    assert len(pairs) == 6
    assert [pair.adjusted for pair in pairs] == pytest.approx(holm([pair.difference.chance for pair in pairs]))


def test_pairs_without_a_test_do_not_count_in_the_correction():
    runs = [run for run in grid(mapping=("p", "q")) if run.labels["data"] != "a"]
    alone = [outcome({"data": "z", "mapping": "lonely"}, 0, 0.5)]
    pairs = {(pair.first, pair.second): pair for pair in compare_pairs([*runs, *alone], "mapping")}
    assert pairs["p", "q"].adjusted == pairs["p", "q"].difference.chance
    assert pairs["lonely", "p"].adjusted is None


def test_data_sets_themselves_are_compared_over_seeds():
    runs = grid(("a", "b"), ("p",), range(4))
    assert compare_pair(runs, "data", "a", "b").difference.over == "seeds"


def test_what_is_not_there_is_said():
    with pytest.raises(ReprogramError, match="axis 'maping' is not known; did you mean 'mapping'"):
        compare_pairs(grid(), "maping")
    with pytest.raises(ReprogramError, match="mapping 'blm-' is not known; did you mean 'blm'"):
        compare_pair(grid(), "mapping", "blm-", "ilm")
