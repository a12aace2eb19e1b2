"""The learned mappings: what they train, where they start, and what cannot be done with them."""

import pytest
import torch

from one_to_one import SOURCE
from reprogram.errors import ReprogramError
from reprogram.mappings.base import Mapping
from reprogram.mappings.learned import LearnedMapping
from reprogram.mappings.making import make_mapping
from reprogram.statistics.joint import JointStatistics

CLASSES = ["cat", "dog"]
both = pytest.mark.parametrize("name", ["linear", "sigmoid"])


@both
def test_trap_7_learned_mapping_has_no_bias_and_all_it_has_is_used(name):
    """A straightforward nn.Linear brings a bias that the product with a weight never uses."""
    mapping = make_mapping(name, SOURCE, CLASSES)
    assert isinstance(mapping, LearnedMapping)
    (parameter,) = mapping.parameters()
    assert parameter.shape == (12, 2)
    assert list(mapping.buffers()) == []
    assert mapping(torch.zeros(3, 12)).abs().sum() == 0, "no bias: zero logits stay zero"
    mapping(torch.randn(5, 12)).square().sum().backward()
    assert (parameter.grad != 0).all()


@both
def test_learned_mappings_start_from_their_seed(name):
    state = torch.get_rng_state()
    one, same, other = (make_mapping(name, SOURCE, CLASSES, seed=seed).weights for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_sigmoid_squashes_the_weight():
    mapping = make_mapping("sigmoid", SOURCE, CLASSES)
    with torch.no_grad():
        mapping.matrix.copy_(torch.linspace(-20, 20, 24).view(12, 2))
    assert mapping.weights.min() >= 0
    assert mapping.weights.max() <= 1
    torch.testing.assert_close(mapping(torch.ones(1, 12)), mapping.matrix.sigmoid().sum(0)[None])
    linear = make_mapping("linear", SOURCE, CLASSES)
    assert linear.weights.min() < 0


@both
def test_an_estimate_changes_how_logits_are_normalised_and_never_the_weights(name):
    mapping = make_mapping(name, SOURCE, CLASSES, normalize="centre")
    before = mapping.weights.detach().clone()
    logits = torch.randn(20, 12, generator=torch.Generator().manual_seed(0)) + 3
    assert mapping.estimate(mapping.count(logits, torch.arange(20) % 2)) == 0
    assert torch.equal(mapping.weights, before)
    torch.testing.assert_close(mapping.shift, logits.mean(0))
    assert [key for key, _ in mapping.named_parameters()] == ["matrix"]


@both
@pytest.mark.parametrize("normalize", ["none", "centre"])
def test_what_was_learned_by_gradient_cannot_be_taken_apart(name, normalize):
    mapping = make_mapping(name, SOURCE, CLASSES, normalize=normalize)
    samples = JointStatistics.counts(12, 2, moments=normalize != "none")
    for change, word in ((mapping.learn, "learn more"), (mapping.forget, "forget")):
        with pytest.raises(ReprogramError, match=f"mapping '{name}' is learned by gradient and cannot {word}; fit it again"):
            change(samples)
    changes = (
        lambda: mapping.with_class("owl"),
        lambda: mapping.without_class("cat"),
        lambda: mapping.without_class("cat", samples),
        lambda: mapping.with_classes(["dog"]),
    )
    for change in changes:
        with pytest.raises(ReprogramError, match=f"mapping '{name}' is learned and cannot change its classes; fit it again"):
            change()


@both
def test_a_saved_one_says_the_same(name, tmp_path):
    mapping = make_mapping(name, SOURCE, CLASSES, normalize="standardise", seed=4)
    logits = torch.randn(20, 12, generator=torch.Generator().manual_seed(0)) + 3
    mapping.estimate(mapping.count(logits, torch.arange(20) % 2))
    with torch.no_grad():
        mapping.matrix.mul_(3)
    mapping.save(tmp_path / "mapping")
    again = Mapping.load(tmp_path / "mapping")
    assert torch.equal(again(logits), mapping(logits))
