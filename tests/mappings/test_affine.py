"""The affine form of a mapping: what it computes, and the last layer that it can be folded into."""

import pytest
import torch

from one_to_one import spread
from reprogram.mappings.affine import Affine
from reprogram.mappings.making import make_mapping

EACH = {
    "flm": {},
    "blm": {"normalize": "standardise"},
    "blm+": {"normalize": "centre"},
    "gaussian": {"priors": True},
    "linear": {"normalize": "standardise"},
    "none": {"normalize": "centre"},
}


@pytest.mark.parametrize("name", EACH)
def test_folded_is_forward(name):
    mapping = make_mapping(name, [*"abcdefghijkl"], [*"abc"], **EACH[name])
    logits, targets = spread()
    if mapping.statistics is not None:
        mapping.estimate(mapping.count(logits, targets))
    weight, bias = mapping.affine.folded()
    assert (weight.dtype, bias.dtype, weight.shape, bias.shape) == (torch.float32, torch.float32, (12, 3), (3,))
    exact = mapping.affine.to(torch.float64)(logits)
    torch.testing.assert_close(logits.double() @ weight.double() + bias.double(), exact, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(mapping(logits).double(), exact, rtol=1e-4, atol=1e-4)


def test_each_part_may_be_left_out():
    logits = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    omega, shift, scale, bias = torch.eye(2), torch.tensor([1.0, 1.0]), torch.tensor([2.0, 4.0]), torch.tensor([10.0, 20.0])
    for parts, expected in (
        ((omega,), [[1, 2], [3, 5]]),
        ((omega, shift), [[0, 1], [2, 4]]),
        ((omega, None, scale), [[0.5, 0.5], [1.5, 1.25]]),
        ((omega, shift, scale, bias), [[10, 20.25], [11, 21]]),
    ):
        affine = Affine(*parts)
        assert affine(logits).tolist() == expected
        weight, offset = affine.folded()
        torch.testing.assert_close(logits @ weight + offset, torch.tensor(expected, dtype=torch.float32))
        assert affine.to(torch.float64)(logits).dtype == torch.float64
