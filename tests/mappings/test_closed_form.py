import itertools
import math
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from one_to_one import SOURCE, chosen
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.mappings.base import (
    make_mapping,
)
from reprogram.mappings.closed_form import bayes, one_to_one, random, same_labels
from reprogram.statistics.joint import JointStatistics, top_count

fast = settings(deadline=None, derandomize=True, max_examples=60)


def quiet(rule, *args, **kwargs):
    """Call a rule where classes without evidence are expected and not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        return rule(*args, **kwargs)


@st.composite
def samples(draw):
    """Logits, labels, k_T. Ties, absent classes, few samples, k_T > k_S and one-hot confidence all occur."""
    k_source, k_target = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    n = draw(st.integers(1, 10))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    logits = torch.randn(n, k_source, generator=generator, dtype=torch.float64)
    logits = logits.mul(2).round() if draw(st.booleans()) else logits * draw(st.sampled_from([0.0, 1.0, 8.0, 400.0]))
    labels = torch.tensor(draw(st.lists(st.integers(0, k_target - 1), min_size=n, max_size=n)))
    return logits, labels, k_target


@st.composite
def evidence_matrices(draw, least_source=1, most_source=7, most_target=7):
    """J with many equal and many zero entries, as integers or as fractions."""
    rows, columns = draw(st.integers(least_source, most_source)), draw(st.integers(1, most_target))
    cells = draw(st.lists(st.integers(0, 4), min_size=rows * columns, max_size=rows * columns))
    matrix = torch.tensor(cells).view(rows, columns)
    return matrix.double() * 0.1 if draw(st.booleans()) else matrix


# ---- Bayes against the equations


@fast
@given(samples(), st.sampled_from([0.0, 1e-6, 0.5, 1.0, 10.0, 1e6]))
def test_blm_is_equations_5_6_7(sample, smoothing):
    logits, labels, k_target = sample
    omega = quiet(bayes, JointStatistics.counts(logits.shape[1], k_target).update(logits, labels), smoothing)
    assert omega.dtype == torch.float32
    np.testing.assert_allclose(omega, oracle.blm(logits, labels, k_target, smoothing), rtol=0, atol=1e-6)


@fast
@given(samples(), st.sampled_from([0.0, 1e-6, 0.5, 1.0, 10.0, 1e6]), st.integers(1, 6))
def test_blm_plus_is_equations_5_8_9(sample, smoothing, k):
    logits, labels, k_target = sample
    k = min(k, logits.shape[1])
    omega = quiet(bayes, JointStatistics.probabilities(logits.shape[1], k_target, k).update(logits, labels), smoothing)
    assert omega.dtype == torch.float32
    np.testing.assert_allclose(omega, oracle.blm_plus(logits, labels, k_target, k, smoothing), rtol=0, atol=1e-6)


def test_blm_and_blm_plus_at_a_larger_size():
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(40, 30, generator=generator)
    labels = torch.randint(0, 5, (40,), generator=generator)
    blm = bayes(JointStatistics.counts(30, 5).update(logits, labels), 1.0)
    np.testing.assert_allclose(blm, oracle.blm(logits, labels, 5, 1.0), rtol=0, atol=1e-6)
    blm_plus = bayes(JointStatistics.probabilities(30, 5, 4).update(logits, labels), 1.0)
    np.testing.assert_allclose(blm_plus, oracle.blm_plus(logits, labels, 5, 4, 1.0), rtol=0, atol=1e-6)


HOSTILE = {
    "a class absent": ([[3, 1, 0], [0, 1, 3], [2, 2, 1]], [0, 2, 2], 4),
    "two classes": ([[3, 1, 0], [0, 1, 3], [2, 2, 1], [0, 0, 1]], [0, 1, 1, 0], 2),
    "one class": ([[3, 1, 0], [0, 1, 3]], [0, 0], 1),
    "more classes than source labels": ([[1, 0], [0, 1], [2, 0], [0, 2], [1, 1]], [0, 1, 2, 3, 4], 5),
    "nothing but ties": ([[0, 0, 0, 0]] * 5, [0, 1, 2, 0, 1], 3),
    "ties at the edge of the top K": ([[2, 1, 1, 1], [1, 1, 2, 2]], [0, 1], 2),
    "a single sample": ([[0.3, -0.2, 0.1]], [1], 2),
    "certain of everything": ([[900, -900, 0], [-900, 900, 0], [0, -900, 900]], [0, 1, 1], 2),
    "one source label": ([[5.0], [-5.0]], [0, 1], 2),
}


@pytest.mark.parametrize("smoothing", [0, 1, 7.5])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_input_still_gives_the_paper_s_numbers(case, smoothing):
    logits, labels, k_target = HOSTILE[case]
    logits, labels = torch.tensor(logits, dtype=torch.float64), torch.tensor(labels)
    k_source = logits.shape[1]
    omega = quiet(bayes, JointStatistics.counts(k_source, k_target).update(logits, labels), smoothing)
    np.testing.assert_allclose(omega, oracle.blm(logits, labels, k_target, smoothing), rtol=0, atol=1e-6)
    for k in sorted({1, 2, k_source} - set(range(k_source + 1, 3))):
        omega = quiet(bayes, JointStatistics.probabilities(k_source, k_target, k).update(logits, labels), smoothing)
        np.testing.assert_allclose(omega, oracle.blm_plus(logits, labels, k_target, k, smoothing), rtol=0, atol=1e-6)


def test_blm_plus_with_one_hot_confidence_is_blm():
    logits, labels = 2000 * torch.eye(5)[[0, 3, 3, 1, 2, 2]], torch.tensor([0, 1, 1, 0, 2, 0])
    soft = bayes(JointStatistics.probabilities(5, 3, 2).update(logits, labels))
    assert torch.equal(soft, bayes(JointStatistics.counts(5, 3).update(logits, labels)))


def test_the_paper_s_cat_and_dogs():
    cat, dog = 0, 1
    logits, labels = torch.eye(3)[[0, 0, 1, 2]], torch.tensor([dog, dog, dog, cat])
    omega = bayes(JointStatistics.counts(3, 2).update(logits, labels), 0.0)
    assert omega.tolist() == [[0, 0.5], [0, 0.5], [1, 0]]


@fast
@given(evidence_matrices(), st.sampled_from([0.0, 0.1, 1.0, 100.0]))
def test_columns_of_omega_sum_to_one(matrix, smoothing):
    omega = quiet(bayes, matrix, smoothing)
    assert (omega >= 0).all()
    torch.testing.assert_close(omega.sum(0), torch.ones(matrix.shape[1]), rtol=0, atol=1e-6)


@fast
@given(evidence_matrices(), st.randoms(use_true_random=False))
def test_permuting_labels_permutes_omega(matrix, shuffler):
    rows, columns = list(range(matrix.shape[0])), list(range(matrix.shape[1]))
    shuffler.shuffle(rows)
    shuffler.shuffle(columns)
    permuted = quiet(bayes, matrix[rows][:, columns])
    torch.testing.assert_close(permuted, quiet(bayes, matrix)[rows][:, columns], rtol=0, atol=1e-6)


def test_smoothing_goes_into_the_row_sums_only():
    omega = bayes(torch.tensor([[1, 0], [4, 5]]), smoothing=1.0)
    expected = np.array([[1 / 2, 0], [4 / 10, 5 / 10]])
    np.testing.assert_allclose(omega, expected / expected.sum(0), atol=1e-6)


def test_evidence_of_a_million_samples_and_of_a_trace_are_both_finite():
    for scale in (1e12, 1e-12):
        omega = bayes(torch.tensor([[3.0, 1.0], [1.0, 0.0]], dtype=torch.float64) * scale)
        assert omega.isfinite().all()
        torch.testing.assert_close(omega.sum(0), torch.ones(2))


@pytest.mark.parametrize("rule", [bayes, one_to_one, lambda j: one_to_one(j, optimal=True)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_rules_do_not_change_their_evidence(rule, dtype):
    matrix = torch.tensor([[5, 4], [4, 3], [0, 1]], dtype=dtype)
    statistics = JointStatistics("counts" if dtype == torch.int64 else "probabilities", 3, 2)
    statistics.matrix.copy_(matrix)
    rule(matrix)
    rule(statistics)
    assert matrix.tolist() == [[5, 4], [4, 3], [0, 1]]
    assert torch.equal(statistics.matrix, matrix)


@pytest.mark.parametrize("smoothing", [-1, -1e-9, float("nan"), float("inf")])
def test_impossible_smoothing_is_refused(smoothing):
    for build in (
        lambda: bayes(torch.ones(2, 2), smoothing),
        lambda: make_mapping("blm", SOURCE, ["a"], smoothing=smoothing),
    ):
        with pytest.raises(ReprogramError, match=f"{smoothing!r}.*at least 0"):
            build()


@pytest.mark.parametrize("rule", [bayes, one_to_one])
@pytest.mark.parametrize(
    "matrix",
    [
        torch.ones(3),
        torch.ones(3, 2, 1),
        torch.tensor([[1.0, float("nan")]]),
        torch.tensor([[1.0, float("inf")]]),
        -torch.eye(3),
    ],
)
def test_what_is_not_evidence_is_refused(rule, matrix):
    with pytest.raises(ReprogramError, match=r"J of shape.*finite numbers"):
        rule(matrix)


# ---- trap 1: K


@pytest.mark.parametrize("k_target", range(1, 7))
def test_trap_1_few_classes_still_get_one_label(k_target):
    """floor(0.15 · k_T) is 0 below 7 classes; a straightforward top-0 gives NaN and predicts class 0 for everything."""
    assert math.floor(0.15 * k_target) == 0
    assert top_count(0.15, k_target, 1000) == 1
    classes = [f"class {index}" for index in range(k_target)]
    mapping = make_mapping("blm+", SOURCE, classes, top_ratio=0.15)
    logits, labels = 9 * torch.eye(12)[:k_target], torch.arange(k_target)
    mapping.estimate(mapping.new_statistics().update(logits, labels))
    assert mapping.weights.isfinite().all()
    assert mapping(logits).argmax(1).tolist() == labels.tolist()


def test_trap_1_the_ratio_is_read_as_the_decimal_that_was_written():
    assert math.floor(0.29 * 100) == 28, "binary floating point is what makes this a trap"
    assert top_count(0.29, 100, 1000) == 29
    for hundredths in range(1, 101):
        assert top_count(hundredths / 100, 100, 1000) == hundredths


def test_trap_1_twelve_data_sets_of_the_protocol():
    k_targets = [102, 47, 101, 101, 43, 10, 37, 196, 397, 10, 100, 10]
    expected = [15, 7, 15, 15, 6, 1, 5, 29, 59, 1, 15, 1]
    assert [top_count(0.15, k_target, 1000) for k_target in k_targets] == expected


@pytest.mark.parametrize(
    ("ratio", "k_target", "k_source", "expected"),
    [
        (0.15, 1000, 10, 10),
        (1, 7, 1000, 7),
        (1.0, 7, 7, 7),
        (3, 7, 1000, 21),
        ("all", 7, 1000, 1000),
        (1e-9, 7, 5, 1),
        (0.5, 3, 1, 1),
    ],
)
def test_trap_1_k_stays_between_one_and_k_source(ratio, k_target, k_source, expected):
    assert top_count(ratio, k_target, k_source) == expected


@pytest.mark.parametrize("ratio", [0, -0.15, float("nan"), float("inf"), "most", "0.15"])
def test_impossible_ratios_are_refused(ratio):
    for build in (lambda: top_count(ratio, 10, 1000), lambda: make_mapping("blm+", SOURCE, ["a", "b"], top_ratio=ratio)):
        with pytest.raises(ReprogramError, match=f"{ratio!r} was given.*positive number or 'all'"):
            build()


# ---- trap 3: classes without evidence


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_trap_3_a_class_without_evidence_gets_a_uniform_column_and_is_named(smoothing):
    matrix = torch.tensor([[2, 0, 1], [1, 0, 0], [0, 0, 3], [0, 0, 0]])
    with pytest.warns(EvidenceWarning, match="no evidence for target class 'okapi': a uniform column") as caught:
        omega = bayes(matrix, smoothing, classes=["cat", "okapi", "dog"])
    assert len(caught) == 1
    assert omega[:, 1].tolist() == [0.25] * 4
    assert omega.isfinite().all()
    assert torch.equal(omega[:, [0, 2]], bayes(matrix[:, [0, 2]], smoothing)), "the other columns must not notice"


def test_trap_3_without_names_the_index_is_named_and_many_are_summed_up():
    with pytest.warns(EvidenceWarning, match=r"target class 1:"):
        bayes(torch.tensor([[1, 0], [1, 0]]))
    with pytest.warns(EvidenceWarning, match=r"classes 0, 1, 2, 3, 4 and 2 more:"):
        omega = bayes(torch.zeros(3, 7))
    torch.testing.assert_close(omega, torch.full((3, 7), 1 / 3))


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


# ---- same labels


def test_same_labels_ignores_case_dashes_and_takes_synonyms():
    source = ["tench, Tinca tinca", "T-shirt, tee", "Great_White-Shark", "hen"]
    assert chosen(same_labels(source, ["HEN", "tinca_tinca", "great white shark", "t shirt"])) == [3, 0, 2, 1]
    assert chosen(same_labels(source, ["tench, tinca tinca"])) == [0]


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        (["Cardigan, Cardigan Welsh corgi", "cardigan"], "cardigan", 1),
        (["harmonica, mouth organ, harp, mouth harp", "harp"], "harp", 1),
        (["ruffed grouse, partridge, Bonasa umbellus", "partridge"], "Partridge", 1),
    ],
)
def test_the_very_same_name_wins_over_a_synonym_of_an_earlier_label(source, name, expected):
    assert chosen(same_labels(source, [name])) == [expected]


def test_same_labels_names_what_is_missing():
    with pytest.raises(ReprogramError, match=r"'zebra' \(2 of 3\) is not there"):
        same_labels(["cat", "dog"], ["dog", "zebra", "okapi"])
    with pytest.raises(ReprogramError, match="'zebra'"):
        make_mapping("none", ["cat", "dog"], ["zebra"])
