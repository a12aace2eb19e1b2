"""Strided convolutions of few channels per group, whose gradient takes a way of its own in bf16."""

import pytest
import torch
from torch import nn

from reprogram.acceleration import thin
from reprogram.acceleration.accelerate import accelerate
from reprogram.acceleration.network import aten, export_network
from reprogram.acceleration.thin import convolve_thin, is_thin
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark
from reprogram.sources import Frozen


def rounded(*size, seed=0):
    """Numbers that bf16 has, too."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


@pytest.mark.parametrize(
    ("channels", "groups", "kernel", "stride", "padding"),
    [(6, 6, 3, 2, 1), (6, 6, 5, [2, 1], [2, 0]), (8, 4, 3, 2, 0), (6, 6, 3, [3], "valid")],
)
@pytest.mark.parametrize("together", [1, 2**19])
def test_the_gradient_is_that_of_full_precision_rounded_once(
    monkeypatch, channels, groups, kernel, stride, padding, together
):
    monkeypatch.setattr(thin, "_TOGETHER", together)
    values, weight = rounded(3, channels, 9, 11), rounded(2 * channels, channels // groups, kernel, kernel, seed=1)
    options = (None, stride, padding, 1, groups)
    full = values.clone().requires_grad_()
    out = convolve_thin(full, weight, *options)
    grad = rounded(*out.shape, seed=2)
    out.backward(grad)
    low = values.bfloat16().requires_grad_()
    found = convolve_thin(low, weight.bfloat16(), *options)
    found.backward(grad.bfloat16())
    assert found.dtype == low.grad.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), out.detach(), rtol=2**-7, atol=2**-6)
    torch.testing.assert_close(low.grad.float(), full.grad, rtol=2**-7, atol=1e-5)


def test_the_gradient_has_a_gradient():
    values, weight = rounded(2, 4, 7, 7).bfloat16(), rounded(4, 1, 3, 3, seed=1).bfloat16()
    seconds = []
    for convolve in (convolve_thin, aten.conv2d):
        given = values.clone().requires_grad_()
        out = convolve(given, weight, None, [2, 2], [1, 1], [1, 1], 4)
        (first,) = torch.autograd.grad(out.float().square().sum(), given, create_graph=True)
        seconds.append(torch.autograd.grad(first.float().square().sum(), given)[0].float())
    assert float((seconds[0] - seconds[1]).norm() / seconds[1].norm()) < 0.02


def test_in_full_precision_it_is_the_operator_to_the_bit():
    values, weight, bias = rounded(2, 4, 7, 7).requires_grad_(), rounded(4, 1, 3, 3, seed=1), rounded(4, seed=2)
    found = convolve_thin(values, weight, bias, 2, 1, 1, 4)
    assert torch.equal(found, aten.conv2d(values, weight, bias, [2, 2], [1, 1], [1, 1], 4))
    assert "Convolution" in type(found.grad_fn).__name__


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Conv2d(12, 12, 3, stride=2, groups=12), True),
        (nn.Conv2d(12, 12, 3, stride=(1, 2), groups=6), True),
        (nn.Conv2d(12, 12, 3, groups=12), False),
        (nn.Conv2d(12, 12, 3, stride=2, groups=3), False),
        (nn.Conv2d(12, 12, 3, stride=2), False),
        (nn.Conv2d(12, 12, 3, padding="same", groups=12), False),
    ],
)
def test_which_convolutions_are_meant(layer, expected):
    network = export_network(nn.Sequential(nn.Conv2d(3, 12, 1), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval(), 12)
    assert [is_thin(node, network.weights) for node in network.operators if "conv" in str(node.target)] == [False, expected]


@pytest.mark.parametrize("program", [Padding(32, 8), Watermark(32)])
def test_a_prepared_network_sends_its_gradient_that_way(monkeypatch, program):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [
            nn.Conv2d(3, 8, 3),
            nn.Conv2d(8, 8, 3, stride=2, groups=8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, groups=8),
        ]
        frozen = Frozen(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)), input_size=32)
    ready, passed = accelerate(frozen, program), []
    assert ready.schedule is not None
    real = thin._Thin.backward
    monkeypatch.setattr(thin._Thin, "backward", staticmethod(lambda *given: passed.append(1) or real(*given)))
    images = torch.rand(4, 3, program.image_size, program.image_size, generator=torch.Generator().manual_seed(1))
    gradients = []
    for enabled in (False, True):
        program.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = ready(images)
        logits.float().logsumexp(1).sum().backward()
        gradients.append(program.theta.grad.clone())
        assert len(passed) >= (2 if enabled else 0)
        assert enabled or not passed
    full, low = gradients
    assert float((low - full).norm() / full.norm()) < 0.05
