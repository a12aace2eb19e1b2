"""Counts of right answers with their uncertainty."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.scores import GroupSums, Score, accuracy_interval


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


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)).map(lambda pair: (min(pair), pair[1])), min_size=2, max_size=30)
)
@settings(deadline=None, derandomize=True, max_examples=100)
def test_groups_never_tell_more_than_their_answers(groups):
    sums = GroupSums()
    sums.add(*zip(*groups, strict=True))
    score = sums.score()
    n = sum(size for _, size in groups)
    assert (score.correct, score.n) == (sum(hits for hits, _ in groups), n)
    if n == len(groups):
        assert score == Score(score.correct, n)
        return
    assert score.groups == len(groups)
    assert 0 <= score.effective <= n
    low, high = score.interval
    assert low <= score.accuracy + 1e-12
    assert high >= score.accuracy - 1e-12
    assert Score.from_json(score.to_json()) == score


def test_the_interval_by_groups_covers_the_truth_where_that_of_single_answers_does_not():
    """Videos of ten frames that are right or wrong together, most of the time: 95 % should contain the true 0.7."""
    rng = np.random.default_rng(0)
    covered = np.zeros(2)
    for _ in range(400):
        shares = rng.beta(0.7, 0.3, 30)
        hits = rng.binomial(10, shares)
        sums = GroupSums()
        sums.add(hits.tolist(), [10] * 30)
        for place, score in enumerate((sums.score(), Score(int(hits.sum()), 300))):
            covered[place] += score.interval[0] <= 0.7 <= score.interval[1]
    assert covered[0] / 400 > 0.92
    assert covered[1] / 400 < 0.75


def test_groups_that_agree_count_as_one_answer_each():
    sums = GroupSums()
    sums.add([4] * 400 + [0] * 400, [4] * 800)
    assert sums.score().effective == pytest.approx(800, rel=0.01)
    sums = GroupSums()
    sums.add([4] * 10, [4] * 10)
    assert sums.score().effective == pytest.approx(10 * (1.96 / 2.262) ** 2, rel=0.01)
    sums = GroupSums()
    sums.add([3], [4])
    assert sums.score().interval == (0.0, 1.0)


@pytest.mark.parametrize("values", [{"groups": 3}, {"groups": 3, "effective_n": 9.0}, {"groups": "3", "effective_n": 2.0}])
def test_groups_that_cannot_be_are_refused(values):
    with pytest.raises(ReprogramError, match="effective_n"):
        Score.from_json({"correct": 1, "n": 4, **values})
