"""The best labels of rows, against sorting them; their softmax, against numpy in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.statistics import ranking
from reprogram.statistics.joint import JointStatistics
from reprogram.statistics.ranking import stable_top_k, top_labels, top_softmax

fast = settings(deadline=None, derandomize=True, max_examples=150)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


class OfAnotherDevice(torch.Tensor):
    """Is ranked as tensors that numpy does not see."""


@st.composite
def tables(draw):
    """Rows of any length, some without equal values, some with few or with many of them; as they lie in memory or not."""
    n, count = draw(st.sampled_from([0, 1, 2, 9])), draw(st.sampled_from([1, 2, 7, 16, 63, 64, 97, 365]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    values = torch.randn(n, count, generator=generator, dtype=torch.float64)
    levels = draw(st.sampled_from([0, 1, 4, 40]))
    if levels:
        values = (values * levels / 2).round()
    values = values * draw(st.sampled_from([1.0, 1e4]))
    values = values.to(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):
        values = values.T.contiguous().T
    largest = draw(st.sampled_from([count, max(count // 8, 1), min(count, 3)]))
    return values, draw(st.integers(1, largest))


def sorted_labels(values, k):
    return [sorted(range(len(row)), key=lambda label: (-row[label], label))[:k] for row in values.double().tolist()]


@fast
@given(tables())
def test_they_are_those_of_a_stable_sort(table):
    values, k = table
    before, expected = values.clone(), sorted_labels(values, k)
    labels = top_labels(values, k)
    assert (labels.dtype, labels.shape) == (torch.int64, (len(values), k))
    assert labels.sort(1).values.tolist() == [sorted(row) for row in expected]
    top, ranked = stable_top_k(values, k)
    assert ranked.tolist() == expected
    assert top.dtype == values.dtype
    assert torch.equal(top, values.gather(1, ranked))
    assert torch.equal(values, before)
    elsewhere = ranking._by_top_k(values, k)  # how it is done on other devices
    assert elsewhere.sort(1).values.tolist() == [sorted(row) for row in expected]


@pytest.mark.parametrize("count", [40, 1003])
@pytest.mark.parametrize("strange", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_has_a_rank_too(count, strange):
    values = torch.randn(6, count, generator=torch.Generator().manual_seed(0))
    values[1, count - 1] = values[2, 5] = values[2, 7] = values[4, 0] = strange
    values[5] = strange
    expected = values.sort(dim=1, descending=True, stable=True).indices[:, :4].sort(1).values
    assert torch.equal(top_labels(values, 4).sort(1).values, expected)
    elsewhere = values.as_subclass(OfAnotherDevice)
    assert torch.equal(top_labels(elsewhere, 4).sort(1).values.as_subclass(torch.Tensor), expected)


def test_a_tie_beside_not_a_number_is_no_less_a_tie():
    """One row has fewer values from the edge up than it should, if NaN is not counted, and another has more."""
    values = torch.tensor([[torch.nan, 1.0, 0.0, 0.0], [2.0, 1.0, 1.0, 1.0], [torch.nan, torch.nan, torch.nan, 1.0]])
    expected = [[0, 1], [0, 1], [0, 1]]
    assert top_labels(values.as_subclass(OfAnotherDevice), 2).sort(1).values.tolist() == expected
    assert top_labels(values, 2).sort(1).values.tolist() == expected


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("k", [1, 2, 6, 7, 50])
def test_whole_numbers_are_ranked_too(dtype, k):
    values = torch.randint(0, 9, (5, 50), generator=torch.Generator().manual_seed(k)).to(dtype)
    assert top_labels(values, k).sort(1).values.tolist() == [sorted(row) for row in sorted_labels(values, k)]
    JointStatistics.probabilities(50, 4, k).update(values, torch.arange(5) % 4)


@pytest.mark.parametrize("k", [2, 6])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 130])
def test_many_rows_are_ranked_in_pieces_as_all_at_once(k, beyond):
    rows = ranking._NEAR // 1000 + beyond  # as many as are held at once, one less, one more, and a second piece
    values = (torch.randn(rows, 1000, generator=torch.Generator().manual_seed(k)) * 20).round()
    expected = values.sort(dim=1, descending=True, stable=True).indices[:, :k]
    assert torch.equal(top_labels(values, k), expected)
    values[-1, 1:] = float("-inf")  # in the last piece alone, and the first labels of those that are equal count
    assert top_labels(values, k)[-1].tolist() == list(range(k))


def test_equal_values_in_a_group_that_was_left_out_win_by_their_index():
    """Of 1000 labels and K = 5, label 1 and label 72 + 1 are in groups apart; many such ties at the edge."""
    values = torch.zeros(3, 1000)
    values[0, [999, 500, 3]] = 2.0
    values[0, [71, 72, 140, 700, 2]] = 1.0
    values[1, torch.arange(0, 1000, 71)] = 1.0
    assert top_labels(values, 5).sort(1).values.tolist() == [
        [2, 3, 71, 500, 999],
        [0, 71, 142, 213, 284],
        [0, 1, 2, 3, 4],
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "count"), [(0, 5), (1, 1), (7, 5), (150, 1000), (2, 70_000)])
def test_the_softmax_is_that_of_float64(dtype, n, count):
    """Also where the rows are too many to be held at once, and where one alone is."""
    generator = torch.Generator().manual_seed(1)
    logits = (8 * torch.randn(n, count, generator=generator)).to(dtype)
    labels = torch.randint(0, count, (n, 3), generator=generator)
    exact = np.exp(logits.double().numpy() - logits.double().numpy().max(1, keepdims=True))
    exact = np.take_along_axis(exact / exact.sum(1, keepdims=True), labels.numpy(), 1)
    before = logits.clone()
    found = top_softmax(logits, labels)
    assert torch.equal(logits, before)  # float64 too, of which no copy is needed to compute in it
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), exact, rtol=1e-13)
    assert torch.equal(found, logits.softmax(1, dtype=torch.float64).gather(1, labels))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("top_k", [1, 5, 15, 400, 1000])
def test_evidence_of_a_thousand_labels_is_the_literal_one(dtype, top_k):
    logits = (3 * torch.randn(90, 1000, generator=torch.Generator().manual_seed(2))).to(dtype)
    targets = torch.arange(90) % 7
    found = JointStatistics.probabilities(1000, 8, top_k).update(logits.requires_grad_(), targets).matrix
    scores, expected = logits.detach().double().softmax(1), torch.zeros(1000, 8, dtype=torch.float64)
    for row, labels in enumerate(sorted_labels(logits.detach(), top_k)):
        expected[labels, targets[row]] += scores[row, labels]
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_logits_that_ask_for_a_gradient_are_counted_like_others():
    logits = torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.0, 1.0]])
    labels = top_labels(logits.requires_grad_(), 2)
    found = top_softmax(logits, labels)
    assert not found.requires_grad
    torch.testing.assert_close(found, logits.detach().double().softmax(1).gather(1, labels))
