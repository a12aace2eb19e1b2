"""Mappings that are ω alone: with logits normalised or as they come."""

import json

import pytest
import torch

from one_to_one import SOURCE, spread
from reprogram.mappings.making import make_mapping

NORMALISED = ["rlm", "flm", "ilm", "blm", "blm+", "linear", "sigmoid"]


@pytest.mark.parametrize("normalize", ["centre", "standardise"])
@pytest.mark.parametrize("name", NORMALISED)
def test_normalising_is_the_same_omega_on_normalised_logits(name, normalize):
    logits, targets = spread()
    plain, mapping = (make_mapping(name, SOURCE, ["a", "b", "c"], normalize=how) for how in ("none", normalize))
    if plain.statistics is not None:
        plain.estimate(plain.new_statistics().update(logits, targets))
    mapping.estimate(mapping.new_statistics().update(logits, targets))
    assert torch.equal(mapping.weights, plain.weights)
    expected = (logits - logits.mean(0)) / (logits.std(0, correction=0) if normalize == "standardise" else 1)
    torch.testing.assert_close(mapping(logits), expected @ plain.weights, rtol=1e-4, atol=1e-4)
    weight, bias = mapping.affine.folded()
    torch.testing.assert_close(logits @ weight + bias, mapping(logits), rtol=1e-4, atol=1e-4)
    again = make_mapping(source_labels=SOURCE, classes=["a", "b", "c"], **json.loads(json.dumps(mapping.config())))
    again.load_state_dict(mapping.state_dict())
    assert torch.equal(again(logits), mapping(logits))


def test_a_constant_logit_is_not_blown_up():
    logits, targets = spread()
    logits[:, 5] = 7.3
    mapping = make_mapping("blm", SOURCE, ["a", "b", "c"], normalize="standardise")
    mapping.estimate(mapping.new_statistics().update(logits, targets))
    assert mapping.scale[5] == 1
    assert mapping.affine.normalised(logits)[:, 5].abs().max() < 1e-5


def test_published_mappings_carry_no_affine_parts():
    mapping = make_mapping("blm+", SOURCE, ["a", "b"])
    assert {*mapping.state_dict()} == {
        "omega",
        *(f"statistics.{name}" for name in ("matrix", "samples", "counted", "rounding")),
    }
    assert (mapping.shift, mapping.scale, mapping.bias) == (None, None, None)
