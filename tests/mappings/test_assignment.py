"""One-to-one mappings against the paper's algorithms, transcribed."""

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given, settings

import oracle
from one_to_one import chosen, evidence_matrices, quiet
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.mappings.assignment import one_to_one, random
from reprogram.mappings.making import make_mapping

fast = settings(deadline=None, derandomize=True, max_examples=60)


# ---- trap 4: one-to-one


@fast
@given(evidence_matrices())
def test_trap_4_greedy_is_algorithm_5(matrix):
    """Small integers make ties and zero remainders the rule; Algorithm 5 as printed would match a label twice."""
    k_source, k_target = matrix.shape
    if k_target > k_source:
        with pytest.raises(ReprogramError, match=f"{k_target} classes .*{k_source}"):
            one_to_one(matrix)
        return
    expected = oracle.greedy(matrix)
    assert chosen(quiet(one_to_one, matrix)) == expected
    assert chosen(quiet(one_to_one, matrix.clone())) == expected


def test_trap_4_greedy_on_a_large_matrix():
    matrix = torch.randint(0, 30, (60, 25), generator=torch.Generator().manual_seed(0))
    assert chosen(one_to_one(matrix)) == oracle.greedy(matrix)


def test_trap_4_ties_go_to_the_lowest_source_then_target_label():
    assert chosen(one_to_one(torch.ones(4, 3))) == [0, 1, 2]
    assert chosen(one_to_one(torch.tensor([[0, 2], [2, 2]]))) == [1, 0]


def test_trap_4_all_zero_columns_get_the_lowest_free_labels_with_a_warning_that_names_them():
    matrix = torch.tensor([[0, 0, 9], [0, 0, 0], [0, 4, 0], [0, 0, 0]])
    with pytest.warns(EvidenceWarning, match="target class 'okapi'"):
        assert chosen(one_to_one(matrix, classes=["okapi", "cat", "dog"])) == [1, 2, 0]
    with pytest.warns(EvidenceWarning, match="classes 0, 1, 2:"):
        assert chosen(one_to_one(torch.zeros(5, 3))) == [0, 1, 2]


def test_trap_4_a_class_that_lost_all_its_labels_is_named_too():
    with pytest.warns(EvidenceWarning, match="target class 'cat'"):
        assert chosen(one_to_one(torch.tensor([[5, 4], [0, 0], [0, 0]]), classes=["dog", "cat"])) == [0, 1]


def test_trap_4_full_evidence_gives_no_warning():
    assert chosen(one_to_one(torch.eye(3))) == [0, 1, 2]


@pytest.mark.parametrize("name", ["rlm", "flm", "ilm"])
def test_trap_4_too_few_source_labels_is_a_clear_error_before_any_pass(name):
    with pytest.raises(ReprogramError, match=r"3 classes a source label each out of 2; choose blm or blm\+"):
        make_mapping(name, ["a", "b"], ["x", "y", "z"])


@pytest.mark.parametrize("name", ["blm", "blm+", "linear", "sigmoid"])
def test_more_classes_than_source_labels_are_fine_elsewhere(name):
    assert make_mapping(name, ["a", "b"], ["x", "y", "z"])(torch.zeros(4, 2)).shape == (4, 3)


@fast
@given(evidence_matrices(4, 6, 4))
def test_optimal_is_the_best_of_all_permutations_and_never_below_greedy(matrix):
    k_source, k_target = matrix.shape
    columns = torch.arange(k_target)
    totals = [float(matrix[list(rows), columns].sum()) for rows in itertools.permutations(range(k_source), k_target)]
    optimal = float(matrix[chosen(quiet(one_to_one, matrix, optimal=True)), columns].sum())
    greedy = float(matrix[chosen(quiet(one_to_one, matrix)), columns].sum())
    assert optimal == pytest.approx(max(totals), abs=1e-9)
    assert optimal >= greedy - 1e-9


def test_optimal_beats_greedy_where_greedy_is_short_sighted():
    matrix = torch.tensor([[5, 4], [4, 0], [0, 1]])
    assert chosen(one_to_one(matrix)) == [0, 2]
    assert chosen(one_to_one(matrix, optimal=True)) == [1, 0]


def test_optimal_names_classes_without_evidence_and_stays_one_to_one():
    with pytest.warns(EvidenceWarning, match="target class 'okapi'"):
        labels = chosen(one_to_one(torch.tensor([[3, 0], [1, 0], [0, 0]]), optimal=True, classes=["cat", "okapi"]))
    assert labels[0] == 0


# ---- random


def test_random_draws_every_mapping_of_algorithm_3_equally_often():
    possible = set()
    for path in itertools.product(range(4), repeat=2):
        picks = iter(path)
        possible.add(tuple(oracle.random_label_mapping(4, 2, lambda left, picks=picks: left[next(picks) % len(left)])))
    assert len(possible) == 12
    generator = torch.Generator().manual_seed(0)
    drawn = Counter(tuple(chosen(random(4, 2, generator))) for _ in range(2400))
    assert set(drawn) == possible
    assert all(140 < count < 260 for count in drawn.values()), drawn  # 200 expected, deviation 14


def test_random_follows_its_generator_and_leaves_the_global_one_alone():
    state = torch.get_rng_state()
    first = random(50, 20, torch.Generator().manual_seed(7))
    assert torch.equal(first, random(50, 20, torch.Generator().manual_seed(7)))
    assert not torch.equal(first, random(50, 20, torch.Generator().manual_seed(8)))
    assert torch.equal(torch.get_rng_state(), state)


def test_random_with_as_many_classes_as_labels_and_with_more():
    assert sorted(chosen(random(6, 6))) == list(range(6))
    with pytest.raises(ReprogramError, match=r"6 classes .*out of 5"):
        random(5, 6)


def test_what_differs_by_rounding_alone_is_a_tie():
    """0.1 + 0.2 is above 0.3 by rounding: the lowest label is taken all the same."""
    assert chosen(one_to_one(torch.tensor([[0.3, 0.0], [0.1 + 0.2, 0.0], [0.0, 1.0]], dtype=torch.float64))) == [0, 2]
