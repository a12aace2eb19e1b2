"""Counts of right answers with their uncertainty."""

import json

import pytest

from reprogram.errors import ReprogramError
from reprogram.scores import Score, accuracy_interval


def test_a_score_says_its_accuracy_with_the_interval():
    score = Score(90, 100)
    assert str(score) == "90.0 % (95 % interval 82.6 to 94.5 %, 90 of 100)"
    assert score.accuracy == 0.9
    assert score.interval == accuracy_interval(90, 100)


def test_nothing_answered_says_nothing():
    assert (Score(0, 0).accuracy, Score(0, 0).interval) == (0.0, (0.0, 1.0))


def test_a_score_survives_json():
    assert Score.from_json(json.loads(json.dumps(Score(7, 9).to_json()))) == Score(7, 9)


@pytest.mark.parametrize("values", [None, [], {"correct": 1}, {"correct": 1.5, "n": 2}, {"correct": "1", "n": 2}])
def test_what_is_no_score_is_refused(values):
    with pytest.raises(ReprogramError, match="whole numbers 'correct' and 'n'"):
        Score.from_json(values)


@pytest.mark.parametrize(("correct", "n"), [(3, 2), (-1, 2)])
def test_impossible_counts_are_refused(correct, n):
    with pytest.raises(ReprogramError, match=f"{correct} of {n} answers cannot be right"):
        Score(correct, n)


def test_all_right_reaches_one_and_none_right_zero():
    assert all(Score(n, n).interval[1] == 1 and Score(0, n).interval[0] == 0 for n in range(1, 500))


@pytest.mark.parametrize(("correct", "n"), [(0, 2**63), (1, 10**400), (10**5000, 10**5000), (-(10**5000), 1)], ids=range(4))
def test_counts_that_no_computer_could_have_counted_are_refused(correct, n):
    with pytest.raises(ReprogramError, match=r"more than 2\^63 answers cannot be right"):
        Score.from_json({"correct": correct, "n": n})


def test_counts_of_ten_to_the_eight_have_a_narrow_interval():
    low, high = Score(90_000_000, 100_000_000).interval
    assert 0.89993 < low < 0.9 < high < 0.90007
