"""The models of the references: what they train, what they leave alone, and under which names they keep it."""

import numpy as np
import pytest
import torch
from torch import nn

import nets
from reprogram.data import DataSet
from reprogram.data.dataset import ArraySplit
from reprogram.errors import ReprogramError
from reprogram.randomness import generator
from reprogram.references.models import ReferenceModel
from reprogram.sources import BlackBox, Frozen
from reprogram.training.loop import fit


def small_data(n=40, size=16):
    images, labels = nets.images(n, size), torch.arange(n) % 3
    images[labels == 1] //= 2
    images[labels == 2, 0] //= 3
    part = ArraySplit(images, labels)
    return DataSet("small", nets.CLASSES, part, ArraySplit(images[: n // 2], labels[: n // 2]))


def normed(canvas=16):
    """With a batch norm and a dropout, whose statistics are not those of a fresh one."""

    def make():
        body = [nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*body, nn.Dropout(0.5), nn.Linear(6, 7))

    net = nets.seeded(make)
    net[1].running_mean.fill_(0.3)
    net[1].running_var.fill_(2.0)
    return Frozen(net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), input_size=canvas, labels=nets.LABELS)


def copies(frozen):
    return {key: tensor.clone() for key, tensor in frozen.module.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("source", [nets.classifier, normed, nets.clip])
def test_the_source_model_stays_as_it_is_to_the_bit(source, whole):
    frozen = source()
    before, mark = copies(frozen), frozen.fingerprint
    model = ReferenceModel(frozen, nets.CLASSES, 16, whole=whole, seed=0)
    start = {key: value.clone() for key, value in model.weights().items()}
    result = fit(model, small_data(), epochs=2, batch_size=8, lr=0.01, mapping_lr=0.01)
    assert same(copies(frozen), before)
    assert frozen.fingerprint == mark
    assert not any(parameter.requires_grad for parameter in frozen.module.parameters())
    assert result.records[1]["loss"] < result.records[0]["loss"]
    moved = {key for key, value in model.weights().items() if not torch.equal(value, start[key])}
    assert {f"{model.layer}.weight", f"{model.layer}.bias"} <= moved
    assert bool(moved - {f"{model.layer}.weight", f"{model.layer}.bias"}) == whole


def test_batch_norms_learn_their_scale_and_keep_their_statistics():
    frozen = normed()
    model = ReferenceModel(frozen, nets.CLASSES, 16, whole=True, seed=0)
    fit(model, small_data(), epochs=1, batch_size=8, lr=0.01)
    learned = model.weights()
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(learned[name], frozen.module.state_dict()[name])
    assert not torch.equal(learned["1.weight"], frozen.module[1].weight)
    images = nets.images(4, 16)
    with torch.no_grad():
        assert torch.equal(model(images), model.train()(images))  # no dropout either


@pytest.mark.parametrize("whole", [False, True])
def test_weights_fit_a_network_of_the_same_kind(whole):
    model = ReferenceModel(normed(), nets.CLASSES, 16, whole=whole, seed=0)
    fit(model, small_data(), epochs=1, batch_size=8, lr=0.01)
    network = normed().module
    network[-1] = nn.Linear(6, 3)
    network.load_state_dict(model.weights(), strict=whole)
    images = nets.images(5, 16)
    with torch.no_grad():
        expected = network.eval()(model.program(images))
        assert torch.allclose(model(images), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("whole", [False, True])
def test_a_clip_of_any_precision_gives_features(dtype, whole):
    frozen = nets.clip()
    frozen.module.image_tower.to(dtype)
    model = ReferenceModel(frozen, nets.CLASSES, 16, whole=whole, seed=0)
    scores = model(nets.images(4, 16))
    assert (scores.dtype, scores.shape) == (torch.float32, (4, 3))
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert {weight.dtype for weight in frozen.module.image_tower.parameters()} == {dtype}


def test_a_plain_loop_finds_the_same_last_layer():
    """finetune-linear in a few lines of torch: features once, then Adam on a linear layer."""
    frozen, data = nets.classifier(), small_data()
    model = ReferenceModel(frozen, nets.CLASSES, 16, whole=False, seed=5)
    layer = nn.Linear(5, 3)
    with torch.no_grad():
        layer.weight.copy_(model.mapping.matrix.T)
        layer.bias.zero_()
        pixels = (data.train.pixels(16).float() / 255 - frozen.mean) / frozen.std
        features = frozen.module[:-1](pixels)
    solver = torch.optim.Adam(layer.parameters(), lr=0.02)
    for epoch in range(3):
        for batch in torch.randperm(40, generator=generator(1, "order", epoch)).split(16):
            solver.zero_grad()
            nn.functional.cross_entropy(layer(features[batch]), data.train.labels[batch]).backward()
            solver.step()
    fit(model, data, epochs=3, batch_size=16, lr=0.02, schedule="constant", seed=1)
    learned = model.weights()
    np.testing.assert_allclose(learned["4.weight"], layer.weight.detach(), atol=1e-4)
    np.testing.assert_allclose(learned["4.bias"], layer.bias.detach(), atol=1e-4)


def test_how_many_numbers_are_trained():
    linear = ReferenceModel(nets.classifier(), nets.CLASSES, 16, whole=False, seed=0)
    whole = ReferenceModel(nets.classifier(), nets.CLASSES, 16, whole=True, seed=0)
    count = sum(parameter.numel() for parameter in nets.classifier().module.parameters())
    assert sum(map(torch.numel, linear.parameters())) == 5 * 3 + 3
    assert sum(map(torch.numel, whole.parameters())) == count - (5 * 7 + 7) + 5 * 3 + 3


def test_what_has_no_features_is_refused():
    box = BlackBox(lambda pixels: pixels.mean((2, 3)), labels=["r", "g", "b"], input_size=16, name="colours")
    with pytest.raises(ReprogramError, match="colours only answers: it gives neither features nor gradients"):
        ReferenceModel(box, nets.CLASSES, 16, whole=False, seed=0)
    with pytest.raises(ReprogramError, match="does not end in a linear layer"):
        ReferenceModel(nets.squashed(), nets.CLASSES, 16, whole=True, seed=0)
