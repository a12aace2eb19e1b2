"""Means over seeds: what they are, and that their intervals never claim what seeds or images cannot tell."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grids import grid, outcome
from reprogram.errors import ReprogramError
from reprogram.experiments.means import cell_means
from reprogram.experiments.outcomes import Failure
from reprogram.scores import Score

X = {"data": "x"}


def test_three_seeds():
    (cell,) = cell_means([outcome(X, seed, value) for seed, value in enumerate((0.70, 0.74, 0.72))])
    assert cell.mean == pytest.approx(0.72)
    assert cell.std == pytest.approx(np.std([0.70, 0.74, 0.72], ddof=1))
    assert cell.interval == pytest.approx(stats.t.interval(0.95, 2, 0.72, 0.02 / np.sqrt(3)))
    assert (cell.over, cell.seeds, cell.values) == ("seeds", (0, 1, 2), (0.70, 0.74, 0.72))


def test_one_seed_tells_of_test_images():
    (cell,) = cell_means([outcome(X, 0, 0.72)])
    assert (cell.std, cell.over) == (None, "test images")
    assert cell.interval == pytest.approx(Score(360, 500).interval)


def test_seeds_that_change_nothing_do_not_make_a_mean_certain():
    (cell,) = cell_means([outcome(X, seed, 0.72) for seed in range(3)])
    assert (cell.std, cell.over) == (0.0, "test images")
    assert cell.interval == pytest.approx(Score(360, 500).interval)


def test_images_in_groups_tell_less():
    (cell,) = cell_means([outcome(X, 0, 0.72, effective_test_images=50.0)])
    assert cell.interval == pytest.approx(Score(36, 50).interval)


def test_an_interval_stays_among_shares():
    (cell,) = cell_means([outcome(X, 0, 0.99), outcome(X, 1, 0.91)])
    assert cell.interval[1] == 1.0


def test_without_validation_the_last_epoch_stands_for_the_selected_one():
    runs = [outcome(X, 0, None, last=0.6, best=0.7), outcome(X, 1, 0.5, last=0.4)]
    (cell,) = cell_means(runs)
    assert (cell.values, cell.fell_back) == ((0.6, 0.5), 1)
    (cell,) = cell_means(runs, "last")
    assert (cell.values, cell.fell_back) == ((0.6, 0.4), 0)
    (cell,) = cell_means(runs, "best_on_test")
    assert cell.values == (0.7, 0.5)


def test_failed_runs_are_counted_and_a_cell_of_these_alone_has_no_mean():
    cells = cell_means(
        [outcome(X, 0, 0.5)], failures=[Failure("f", X, 1, "diverged"), Failure("g", {"data": "y"}, 0, "diverged")]
    )
    assert [(cell.labels["data"], cell.mean, cell.failed) for cell in cells] == [("x", 0.5, 1), ("y", None, 1)]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(rng: random.Random):
    runs = grid(mapping=("a", "b"), seeds=(0, 1, 2))
    mixed = list(runs)
    rng.shuffle(mixed)
    assert cell_means(mixed) == cell_means(runs)


@given(st.permutations(range(4)))
def test_which_seed_gave_which_accuracy_does_not_matter(order):
    values = (0.1, 0.45, 0.3, 0.32)
    (plain,) = cell_means([outcome(X, seed, value) for seed, value in enumerate(values)])
    (mixed,) = cell_means([outcome(X, seed, values[place]) for seed, place in enumerate(order)])
    assert (mixed.mean, mixed.std, mixed.interval) == (plain.mean, plain.std, plain.interval)


def test_runs_that_labels_do_not_tell_apart_are_refused():
    with pytest.raises(ReprogramError, match="have the same labels and seed 0; give what they differ in as an axis"):
        cell_means([outcome(X, 0, 0.5), outcome(X, 0, 0.6)])
    with pytest.raises(ReprogramError, match="give each run a label on every axis"):
        cell_means([outcome(X, 0, 0.5), outcome({"mapping": "blm"}, 0, 0.6)])
    with pytest.raises(ReprogramError, match="did you mean 'last'"):
        cell_means([outcome(X, 0, 0.5)], "lst")
