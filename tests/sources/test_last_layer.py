"""Models without their last layer."""

import pytest
import torch

import nets
from reprogram.sources import BlackBox
from reprogram.sources.last_layer import penultimate


@pytest.mark.parametrize("shared", [True, False])
def test_the_features_and_the_layer_make_the_logits(shared):
    frozen = nets.classifier()
    cut = penultimate(frozen, 16, shared=shared)
    assert (cut.layer, cut.width) == ("4", 5)
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(frozen.module[4](cut.module(x)), frozen(x))
    own = {id(parameter) for parameter in cut.module.parameters()}
    assert own.isdisjoint(map(id, frozen.module.parameters())) != shared


def test_a_clip_gives_its_embeddings():
    frozen = nets.clip()
    cut = penultimate(frozen, 16)
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(frozen.from_features(cut.module(x)), frozen(x), atol=1e-5)
    assert (cut.layer, cut.width) == ("head", 6)


def test_what_has_none():
    assert penultimate(nets.squashed(), 16) is None
    assert penultimate(BlackBox(lambda pixels: pixels.mean((2, 3)), k_source=3, input_size=16, name="x"), 16) is None
