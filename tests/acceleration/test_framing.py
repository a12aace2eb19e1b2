"""Single operators on shared map and patch, against the same operators on whole maps in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reprogram import Frozen
from reprogram.acceleration.accelerate import Accelerated
from reprogram.acceleration.builder import make_schedule
from reprogram.acceleration.folding import fold_batch_norm
from reprogram.acceleration.network import ExportError, aten, export_network
from reprogram.acceleration.windows import Box, Sliding, Span, Window, surround
from reprogram.programs import Padding


class Layer(nn.Module):
    """A function of a map, with a few weights around it so that there is a network."""

    def __init__(self, act, channels=4):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 1)
        self.act = act if isinstance(act, nn.Module) else None
        self.function = act

    def forward(self, x):
        y = self.function(self.first(x))
        return y.flatten(1) if y.ndim > 2 else y


def same(x):
    return F.conv2d(F.pad(x, (0, 1, 1, 2)), torch.ones(4, 1, 3, 4, dtype=x.dtype), stride=2, groups=4)


OPERATORS = {
    "conv 3": nn.Conv2d(4, 6, 3, padding=1),
    "conv 3 stride 2": nn.Conv2d(4, 6, 3, 2, 1),
    "conv 7 stride 2": nn.Conv2d(4, 6, 7, 2, 3),
    "conv 1 stride 2": nn.Conv2d(4, 6, 1, 2),
    "conv 1 stride 3": nn.Conv2d(4, 6, 1, 3),
    "conv 2": nn.Conv2d(4, 6, 2),
    "conv 4 stride 4": nn.Conv2d(4, 6, 4, 4),
    "conv 4 padded": nn.Conv2d(4, 6, 4, padding=2),
    "conv 3 by 5": nn.Conv2d(4, 6, (3, 5), (1, 2), (0, 3)),
    "groups": nn.Conv2d(4, 8, 3, padding=1, groups=2),
    "depthwise": nn.Conv2d(4, 4, 5, padding=2, groups=4),
    "dilation": nn.Conv2d(4, 6, 3, padding=2, dilation=2),
    "dilation, stride": nn.Conv2d(4, 6, 3, 2, padding=3, dilation=3),
    "same": nn.Conv2d(4, 6, 4, padding="same", dilation=2),
    "valid": nn.Conv2d(4, 6, 3, padding="valid"),
    "asymmetric padding": same,
    "padding with a value": lambda x: F.max_pool2d(F.pad(x, (1, 2, 0, 3), value=0.7), 3, 2),
    "max pool": nn.MaxPool2d(3, 2, 1),
    "max pool, ceil": nn.MaxPool2d(3, 2, ceil_mode=True),
    "max pool, dilated": nn.MaxPool2d(3, 1, 1, dilation=2),
    "average pool": nn.AvgPool2d(2, 2),
    "average pool, padded": nn.AvgPool2d(3, 2, 1),
    "average pool, ceil": nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
    "global mean": nn.AdaptiveAvgPool2d(1),
    "mean": lambda x: x.mean((2, 3)),
    "mean of a dimension": lambda x: x.mean((1, 2)),
    "coarse mean": nn.AdaptiveAvgPool2d(3),
    "batch norm": nn.BatchNorm2d(4),
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "hardswish": nn.Hardswish(),
    "silu": nn.SiLU(inplace=True),
    "gelu": nn.GELU(approximate="tanh"),
    "hardsigmoid": nn.Hardsigmoid(),
    "residual": lambda x: x + F.conv2d(x, torch.ones(4, 1, 3, 3, dtype=x.dtype) / 9, padding=1, groups=4),
    "concatenation": lambda x: torch.cat([x, F.max_pool2d(x, 3, 1, 1)], 1),
    "concatenation of rows": lambda x: torch.cat([x, x.relu()], 2),
    "gate": lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(),
    "numbers": lambda x: (x * 2 + 1) / 3,
    "weight per place": lambda x: x + torch.linspace(0, 1, x.shape[-1], dtype=x.dtype),
    "channels last layer norm": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2),
    "layer norm over columns": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "linear over channels": lambda x: F.linear(x.permute(0, 2, 3, 1), torch.ones(2, 4, dtype=x.dtype)),
    "turned": lambda x: x.transpose(2, 3).relu(),
    "unknown": lambda x: F.unfold(x, 3, stride=2),
    "reflection": lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"),
    "cropped": lambda x: F.pad(x, (-3, -2, 0, 0)),
}
DENSE = {
    "average pool, padded",
    "batch norm",
    "coarse mean",
    "concatenation of rows",
    "cropped",
    "gate",
    "layer norm over columns",
    "mean",
    "global mean",
    "mean of a dimension",
    "reflection",
    "turned",
    "unknown",
    "weight per place",
}


@pytest.mark.parametrize(("size", "place"), [(17, (5, 6)), (16, (1, 3)), (15, (7, 1)), (14, (2, 11))])
@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name, size, place):
    torch.manual_seed(0)
    module = Layer(OPERATORS[name]).double().eval().requires_grad_(False)
    if isinstance(module.act, nn.BatchNorm2d):
        module.act.running_mean.uniform_(-1, 1)
        module.act.running_var.uniform_(0.5, 2)
    start, length = place
    window = Window(Box(Span(start, start + length), Span(start - 1, start - 1 + length)), Box(Span(0, size), Span(0, size)))
    network = export_network(module, size)
    fold_batch_norm(network)
    schedule = make_schedule(network, window, limit=1.0)
    shared = torch.randn(1, 3, size, size, dtype=torch.float64, requires_grad=True)
    patch = torch.randn(4, 3, length, length, dtype=torch.float64, requires_grad=True)
    canvas = shared.expand(4, -1, -1, -1).clone()
    window.box.of(canvas, 2).copy_(patch)
    expected, found = module(canvas), schedule.run(shared, patch)
    assert schedule.framed >= (1 if name in DENSE or size != 17 else 2)
    assert torch.allclose(found, expected, atol=1e-12)
    weights = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad((found * weights).sum(), (shared, patch)),
        torch.autograd.grad((expected * weights).sum(), (shared, patch)),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, atol=1e-11)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_sliding_windows_touch_what_they_read(kernel, stride, dilation):
    before, size = kernel // 2, 20
    outputs = (size + 2 * before - dilation * (kernel - 1) - 1) // stride + 1
    sliding = Sliding(kernel, stride, before, dilation)
    for start in range(size):
        for stop in range(start + 1, size + 1):
            touched = sliding.touched(Span(start, stop), outputs)
            reading = [
                o
                for o in range(outputs)
                if any(start <= o * stride - before + dilation * tap < stop for tap in range(kernel))
            ]
            assert len(touched) >= 1
            assert all(touched.start <= o < touched.stop for o in reading)
            needed = sliding.needed(touched)
            assert needed.start == touched.start * stride - before
            assert needed.stop == (touched.stop - 1) * stride - before + dilation * (kernel - 1) + 1


def test_a_region_inside_the_patch_is_a_view():
    window = Window(Box(Span(2, 8), Span(2, 8)), Box(Span(0, 10), Span(0, 10)))
    patch = torch.randn(2, 3, 6, 6)
    inner = surround(torch.zeros(1, 3, 10, 10), patch, window, Box(Span(3, 5), Span(2, 8)))
    assert inner.untyped_storage().data_ptr() == patch.untyped_storage().data_ptr()


def test_writing_into_a_tensor_that_is_read_again_is_refused():
    def act(x):
        y = x.relu()
        y.add_(1)
        z = y * 2
        y.mul_(3)
        return y + z

    with pytest.raises(ExportError, match="reads again"):
        export_network(Layer(act).eval(), 8)


def test_batch_norm_is_folded_only_where_nobody_else_reads_the_convolution():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            return (self.norm(y) + y).mean((2, 3))

    network = export_network(Twice().eval(), 8)
    assert fold_batch_norm(network) == 0
    assert any(node.target is aten.batch_norm.default for node in network.operators)


def test_half_precision_autocast_runs():
    frozen = Frozen(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 5)), input_size=16)
    program = Padding(16, 4)
    network = export_network(frozen.module, 16)
    window = Window(Box(Span(6, 10), Span(6, 10)), Box(Span(0, 16), Span(0, 16)))
    accelerated = Accelerated(frozen, program, make_schedule(network, window, 0.9), 0)
    images = torch.rand(2, 3, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        half = accelerated(images)
    half.float().sum().backward()
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.float(), frozen(program(images)), atol=0.05)
    assert program.theta.grad.isfinite().all()
