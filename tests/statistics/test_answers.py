"""Ranked answers as numbers, against loops over their places."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.statistics.answers import TopK, distinct

fast = settings(deadline=None, derandomize=True, max_examples=40)


def answers_of(seed, n, width, k_source, twice=False):
    """Answers of any length; of the same label twice, if wanted."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.rand(n, max(k_source, width), generator=generator).argsort(1)[:, :width] % k_source
    if twice:
        indices = torch.randint(0, k_source, (n, width), generator=generator)
    indices[torch.rand(n, width, generator=generator) < 0.3] = -1
    return TopK.of(indices, torch.rand(n, width, generator=generator, dtype=torch.float64), k_source)


@fast
@given(seed=st.integers(0, 9999), n=st.integers(1, 6), width=st.integers(1, 5), k_source=st.integers(5, 8))
def test_vectors_and_products_are_sums_over_the_named_labels(seed, n, width, k_source):
    answers = answers_of(seed, n, width, k_source, twice=True)
    expected = torch.zeros(n, k_source, dtype=torch.float64)
    for row in range(n):
        for label, score in zip(answers.indices[row].tolist(), answers.probabilities[row].tolist(), strict=True):
            if label >= 0:
                expected[row, label] += score
    torch.testing.assert_close(answers.dense(), expected)
    table = torch.randn(k_source, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(answers.times(table), expected @ table)
    labels, values = distinct(answers.labels, answers.probabilities)
    again = TopK(torch.where(values > 0, labels, -1), values, k_source)
    torch.testing.assert_close(again.dense(), expected)
    kept = [[label for label in row if label >= 0] for row in again.indices.tolist()]
    assert all(len(set(row)) == len(row) for row in kept)


def test_the_best_labels_are_kept_the_first_among_equals():
    answers = TopK.of(torch.tensor([[4, 2, 0, 3], [-1, 1, -1, 0]]), torch.tensor([[0.2, 0.5, 0.2, 0.1], [9, 0, 9, 0]]), 5)
    best = answers.best(2)
    assert best.indices.tolist() == [[2, 4], [1, 0]]
    assert answers.best(None) is answers
    assert [part.indices.tolist() for part in answers.split(1)] == [[[4, 2, 0, 3]], [[-1, 1, -1, 0]]]


def test_ranks_give_weights_where_there_are_no_scores():
    answers = TopK.of(torch.tensor([[1, 0, -1], [2, -1, -1], [-1, -1, -1]]), None, 3)
    torch.testing.assert_close(answers.probabilities[0], torch.tensor([2 / 3, 1 / 3, 0], dtype=torch.float64))
    assert answers.probabilities[1:].tolist() == [[1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("indices", "scores", "message"),
    [
        (torch.tensor([0]), None, r"\(1,\) and None"),
        (torch.tensor([[0.0]]), None, "integers are expected"),
        (torch.tensor([[3]]), None, "from 3 to 3 were given"),
        (torch.tensor([[0]]), torch.tensor([[1.5]]), r"outside \[0, 1\]"),
    ],
)
def test_what_is_no_answer_is_refused(indices, scores, message):
    with pytest.raises(ReprogramError, match=message):
        TopK.of(indices, scores, 3)
