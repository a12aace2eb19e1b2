"""Linear layers as convolutions: the same numbers and gradients, and only where a rule says so."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from reprogram import Frozen
from reprogram.acceleration import linear as module
from reprogram.acceleration.accelerate import accelerate
from reprogram.acceleration.linear import linear
from reprogram.programs import Padding


class Called(TorchDispatchMode):
    """Whether a convolution was called."""

    convolved = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.convolved |= "convolution" in func.name()
        return func(*args, **kwargs or {})


@pytest.fixture(params=[True, False], ids=["AMD", "other"])
def as_convolution(request, monkeypatch):
    monkeypatch.setattr(module, "_mkl_holds_back", lambda: request.param)
    return request.param


def layer(*size, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    values, weight, bias = torch.randn(size, generator=draw), torch.randn(5, size[-1], generator=draw), torch.randn(5)
    return values.to(dtype).requires_grad_(), weight.to(dtype), bias.to(dtype)


@pytest.mark.parametrize("size", [(2, 7, 6), (1, 1, 6), (3, 2, 4, 6), (0, 7, 6)])
@pytest.mark.parametrize("biased", [True, False])
def test_values_and_gradients_are_those_of_the_linear_layer(size, biased, as_convolution):
    values, weight, bias = layer(*size)
    bias = bias if biased else None
    expected = nn.functional.linear(values, weight, bias)
    with Called() as called:
        found = linear(values, weight, bias)
    assert called.convolved == (as_convolution and values.numel() > 0)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected)
    direction = torch.randn(expected.shape)
    torch.testing.assert_close(
        *(torch.autograd.grad(output, values, direction, materialize_grads=True)[0] for output in (found, expected))
    )


def test_values_that_do_not_lie_in_order(monkeypatch):
    monkeypatch.setattr(module, "_mkl_holds_back", lambda: True)
    values, weight, bias = layer(6, 4, 6)
    turned = values.transpose(0, 2)
    torch.testing.assert_close(linear(turned, weight, bias), nn.functional.linear(turned, weight, bias))


@pytest.mark.parametrize(
    ("size", "dtype"), [((4, 6), torch.float32), ((2, 7, 6), torch.float64), ((2, 7, 6), torch.bfloat16)]
)
def test_rows_of_one_image_each_and_other_types_stay_linear(size, dtype, monkeypatch):
    monkeypatch.setattr(module, "_mkl_holds_back", lambda: True)
    values, weight, bias = layer(*size, dtype=dtype)
    with Called() as called:
        found = linear(values, weight, bias)
    assert not called.convolved
    assert torch.equal(found, nn.functional.linear(values, weight, bias))


@pytest.mark.parametrize(
    ("maker", "mkl", "expected"),
    [("AuthenticAMD", True, True), ("GenuineIntel", True, False), (None, True, False), ("AuthenticAMD", False, False)],
)
def test_the_rule_asks_for_the_maker_of_the_processor(maker, mkl, expected, tmp_path, monkeypatch):
    if maker is not None:
        (tmp_path / "cpuinfo").write_text(f"vendor_id\t: {maker}\n")
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(module.platform, "processor", lambda: "")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert module._mkl_holds_back.__wrapped__() is expected


class Tokens(nn.Module):
    """A transformer of one block; a ReLU that may write into its input comes straight after a linear layer."""

    def __init__(self):
        super().__init__()
        self.embed, self.block = nn.Conv2d(3, 8, 8, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        tokens = self.block(self.embed(x).flatten(2).transpose(1, 2))
        return self.last(nn.functional.relu(self.first(tokens), inplace=True).mean(1))


def test_a_transformer_gives_its_numbers_and_its_gradient(as_convolution):
    torch.manual_seed(0)
    frozen, program = Frozen(Tokens(), input_size=32), Padding(32, 8)
    accelerated, images = accelerate(frozen, program), torch.rand(3, 3, 8, 8)
    assert accelerated.schedule is not None, accelerated.describe()
    expected, found = frozen(program(images)), accelerated(images)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    gradients = (torch.autograd.grad(output.square().sum(), program.theta)[0] for output in (found, expected))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)
