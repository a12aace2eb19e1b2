"""Pairs of images that are alike, against a comparison of all with all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from reprogram.answers.labels import Rows
from reprogram.audit import duplicates
from reprogram.audit.duplicates import THRESHOLD, find_duplicates
from reprogram.audit.material import Material, from_arrays


def material(seed=0, n=50, copies=3, near=4):
    """Random answers; then exact copies of the first rows, and rows that differ from the next by little."""
    draw = default_rng(seed)
    logits = torch.from_numpy(draw.normal(size=(n, 30))).float()
    logits = torch.cat([logits, logits[:copies], logits[copies : copies + near] + 0.01])
    count = len(logits)
    splits = draw.choice(["train", "val", "test"], count).tolist()
    return from_arrays(logits, (draw.permutation(count) % 2).tolist(), splits=splits), logits


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 3, 7, 64]))
def test_all_planted_pairs_and_no_others_are_found_whatever_the_cuts(seed, at_once):
    found, _ = material(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_AT_ONCE", at_once)
        pairs = find_duplicates(found)
    exact = {(pair.first, pair.second) for pair in pairs if pair.exact}
    assert exact == {(0, 50), (1, 51), (2, 52)}
    assert {(pair.first, pair.second) for pair in pairs if not pair.exact} == {(3 + i, 53 + i) for i in range(4)}
    for pair in pairs:
        assert pair.across == bool(found.splits[pair.first] != found.splits[pair.second])
        assert THRESHOLD <= pair.similarity <= 1
    assert [pair.exact for pair in pairs] == sorted((pair.exact for pair in pairs), reverse=True)


def test_the_nearest_of_another_split_is_told_beside_the_nearest():
    draw = default_rng(0)
    logits = torch.from_numpy(draw.normal(size=(40, 30))).float()
    logits[1], logits[2] = logits[0] + 0.001, logits[0] + 0.05 * torch.from_numpy(draw.normal(size=30)).float()
    splits = ["train"] * 40
    splits[2] = "test"
    pairs = find_duplicates(from_arrays(logits, [0, 1] * 20, splits=splits))
    assert {(pair.first, pair.second, pair.across) for pair in pairs} >= {(0, 1, False), (0, 2, True)}


def test_images_of_the_same_bytes_are_the_same_whatever_the_model_says():
    draw = default_rng(0)
    logits = torch.from_numpy(draw.normal(size=(20, 30))).float()
    plain = from_arrays(logits, [0, 1] * 10)
    marks = [f"image {i}" for i in range(20)]
    marks[7] = marks[3]
    marks[8] = marks[9] = ""  # could not be read
    whole = Material(
        plain.start, plain.labels, plain.names, plain.splits, plain.classes, plain.source_labels, fingerprints=marks
    )
    assert [(pair.first, pair.second, pair.exact) for pair in find_duplicates(whole)] == [(3, 7, True)]


def test_equal_answers_count_only_where_scores_tell_them_apart():
    indices = torch.tensor([[0, 1, 2], [0, 1, 2], [0, 1, -1], [0, 1, -1], [3, 4, 5], [3, 4, 5]])
    scores = torch.tensor([[0.5, 0.3, 0.1]] * 2 + [[0.9, 0.05, 0.0]] * 2 + [[0.6, 0.2, 0.1]] * 2, dtype=torch.float64)
    nothing = torch.zeros(6, dtype=torch.int64)
    ranked = torch.tensor([False] * 4 + [True] * 2)
    rows = Rows(nothing, None, indices, scores, ranked, nothing, nothing)
    given_ = Material(lambda: iter([rows]), nothing, list("abcdef"), nothing, ("x", "y"), list("stuvwx"), answers=3)
    assert [(pair.first, pair.second) for pair in find_duplicates(given_)] == [(0, 1)]
