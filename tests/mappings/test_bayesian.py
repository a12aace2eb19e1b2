"""BLM and BLM+ against the paper's equations, transcribed."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from one_to_one import SOURCE, evidence_matrices, quiet
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.mappings.bayesian import bayes
from reprogram.mappings.making import make_mapping
from reprogram.statistics.joint import JointStatistics, top_count

fast = settings(deadline=None, derandomize=True, max_examples=60)
pytestmark = pytest.mark.filterwarnings("ignore:most samples have the same logit")  # ties are what is tested here


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


@pytest.mark.parametrize("smoothing", [-1, -1e-9, 1e101, float("nan"), float("inf")])
def test_impossible_smoothing_is_refused(smoothing):
    with pytest.raises(ReprogramError, match=rf"{re.escape(repr(smoothing))}.*from 0 to 1e\+100"):
        bayes(torch.ones(2, 2), smoothing)


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
    with pytest.raises(ReprogramError, match=f"{ratio!r} was given.*positive number or 'all'"):
        top_count(ratio, 10, 1000)


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
