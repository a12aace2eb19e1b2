"""One `load_data` for every kind: objects in memory here, files and names in the test of their own module."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from reprogram import ReprogramError, load_data
from reprogram.data import ArraySplit, DataSet


def test_a_tuple_of_arrays_is_split_by_the_seed():
    images = np.zeros((40, 8, 8, 3), dtype=np.uint8)
    data, again, other = (load_data((images, ["cat", "dog"] * 20), split_seed=seed) for seed in (0, 0, 1))
    assert data.classes == ("cat", "dog")
    assert (len(data.train), len(data.test)) == (32, 8)
    assert data.test.names == again.test.names != other.test.names


def test_tensors_are_arrays_too():
    data = load_data((torch.rand(20, 3, 8, 8), torch.arange(20) % 2))
    assert data.train.pixels(8).shape == (16, 3, 8, 8)


def test_a_dictionary_of_torch_data_sets():
    train, test = (TensorDataset(torch.rand(n, 3, 8, 8), torch.arange(n) % 3) for n in (9, 6))
    data = load_data({"train": train, "test": test, "classes": ["a", "b", "c"]})
    assert data.classes == ("a", "b", "c")
    assert (len(data.train), len(data.test), data.val) == (9, 6, None)
    assert torch.equal(data.train.pixels(8)[4], (train[4][0] * 255).round().to(torch.uint8))


def test_a_data_set_passes_through():
    split = ArraySplit(torch.rand(4, 3, 8, 8), [0, 1, 0, 1])
    data = DataSet("mine", ("a", "b"), train=split, test=split)
    assert load_data(data) is data


@pytest.mark.parametrize("spec", ["nowhere.csv", "nowhere.npz", "nowhere"])
def test_what_is_not_there(spec):
    with pytest.raises(ReprogramError, match=spec):
        load_data(spec)
