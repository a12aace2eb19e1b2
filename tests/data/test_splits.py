"""The three splits: words, drawing, and what their classes have to have in common."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram import ReprogramError
from reprogram.data.splits import checked_classes, resembles_split, sorted_classes, stratified_folds, stratified_split


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0.05, 0.95), st.integers(0, 3))
def test_a_stratified_split_is_a_partition_that_empties_no_class(labels, fraction, seed):
    labels = torch.tensor(labels)
    rest, drawn = stratified_split(labels, fraction, seed, "test")
    assert sorted(rest.tolist() + drawn.tolist()) == list(range(len(labels)))
    assert set(labels[rest].tolist()) == set(labels.tolist())
    for label in labels.unique():
        total = int((labels == label).sum())
        assert int((labels[drawn] == label).sum()) == min(round(fraction * total), total - 1)


def test_folds_hold_every_class_and_differ_by_one_at_most():
    labels = torch.tensor([0] * 10 + [1] * 7 + [2] * 3)
    folds = stratified_folds(labels, 3, seed=1)
    for label in range(3):
        counts = folds[labels == label].bincount(minlength=3)
        assert counts.max() - counts.min() <= 1
    assert torch.equal(folds, stratified_folds(labels, 3, seed=1))
    assert not torch.equal(folds, stratified_folds(labels, 3, seed=2))
    assert stratified_folds(labels, 1, seed=0) is None


def test_numbers_sort_by_value_and_names_by_spelling():
    assert sorted_classes(["2", "10", "1"]) == ("1", "2", "10")
    assert sorted_classes(["b", "10", "9"]) == ("10", "9", "b")


def test_a_class_written_in_two_ways_is_refused_with_both():
    numbers = {"train": torch.tensor([0, 2]), "test": torch.tensor([1, 2])}
    for classes in (("pug", "PUG", "x"), ("sea lion", "Sea_Lion", "x"), ("a-b", "a b", "x")):
        with pytest.raises(ReprogramError, match=f"{classes[0]!r} in train and {classes[1]!r} in test"):
            checked_classes(classes, numbers, "table 't'")
    assert len(checked_classes(("1", "-1", "x"), numbers, "table 't'")) == 2, "a sign is no hyphen"


def test_letters_of_both_cases_are_classes_where_both_are_trained():
    numbers = {"train": torch.tensor([0, 1]), "test": torch.tensor([0, 1])}
    assert checked_classes(("a", "A"), numbers, "data") == ()


def test_classes_that_a_split_lacks_are_noted():
    numbers = {"train": torch.tensor([0, 1, 2]), "test": torch.tensor([0])}
    assert checked_classes(("a", "b", "c", "unused"), numbers, "d") == (
        "the test split has no image of the classes 'b', 'c'",
    )
    numbers = {"train": torch.tensor([0]), "val": torch.tensor([0]), "test": torch.tensor([0, 1])}
    assert checked_classes(("a", "b"), numbers, "d") == ("the train split has no image of class 'b'",)


def test_words_that_look_like_splits():
    meant = ("train", "Evaluation", "eval", "dev", "TestSet", "train_images", "holdout", "val2", "hold-out")
    assert all(resembles_split(word) for word in meant)
    assert not any(
        resembles_split(word) for word in ("trainers", "valley", "tester", "device", "evil", "cat", "training shoe")
    )
