import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.training.evaluation import Evaluation, accuracy_interval


def evaluation(labels, predicted, confidence):
    return Evaluation(torch.tensor(labels), torch.tensor(predicted), torch.tensor(confidence), ("a", "b", "c"))


def test_accuracy_per_class_counts_absent_classes_too():
    outcome = evaluation([0, 0, 2, 2], [0, 2, 2, 2], [0.9, 0.8, 0.7, 0.6])
    assert (outcome.n, outcome.correct, outcome.accuracy) == (4, 3, 0.75)
    assert outcome.per_class() == [("a", 2, 1), ("b", 0, 0), ("c", 2, 2)]


def test_calibration_error_by_hand():
    outcome = evaluation([0, 0, 0, 0], [0, 0, 1, 1], [0.95, 0.95, 0.55, 0.55])
    assert outcome.calibration_error(bins=10) == pytest.approx(0.5 * 0.05 + 0.5 * 0.55, abs=1e-6)
    assert evaluation([0], [0], [1.0]).calibration_error() == 0


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_accuracy_and_stays_in_range(numbers):
    correct, n = numbers
    low, high = accuracy_interval(correct, n)
    assert 0 <= low <= correct / n + 1e-12
    assert correct / n - 1e-12 <= high <= 1


def test_the_interval_solves_its_quadratic():
    """Wilson's bounds p satisfy |p̂ − p| = z·sqrt(p(1−p)/n)."""
    for bound in accuracy_interval(30, 80):
        assert abs(30 / 80 - bound) == pytest.approx(1.959964 * (bound * (1 - bound) / 80) ** 0.5, rel=1e-5)
