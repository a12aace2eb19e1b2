import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram import ArraySplit, DataSet, ReprogramError
from reprogram.data.dataset import stratified_split


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


def test_a_decoded_split_is_kept():
    split = ArraySplit(torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 0]))
    assert split.pixels(16) is split.pixels(16)
    assert split.pixels(8).shape == (3, 3, 8, 8)
    assert torch.equal(split.subset(torch.tensor([2, 0])).pixels(16), split.pixels(16)[[2, 0]])


def test_the_validation_fraction_is_checked():
    split = ArraySplit(torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ReprogramError, match=r"fraction 1\.5"):
        DataSet("x", ("a", "b"), train=split, test=split).with_validation(1.5, 0)
