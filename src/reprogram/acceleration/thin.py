"""Strided convolutions of few channels per group, as depthwise ones, whose backward pass in bf16 is slow on a CPU.

oneDNN, as torch 2.13 brings it, is slow there: a depthwise convolution of stride 2 took 8 to 140 times as long to
differentiate in bf16 as in float32, and the few of a mobile network took four fifths of its training step. So the gradient
that arrives is widened, sent back in float32, and narrowed: it loses no digit that the other way would keep.
"""

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from reprogram.acceleration.network import arguments, aten

#: Channels per group, from which on bf16 is the faster one.
THIN = 4
_TOGETHER = 2**19  # numbers that are widened at a time: they stay in the cache


def is_thin(node: Node, weights: dict[Node, Tensor]) -> bool:
    """Whether a convolution is one of these."""
    given = arguments(node)
    stride = given["stride"]
    if given["weight"] not in weights or given["groups"] == 1 or given["padding"] == "same":
        return False
    return weights[given["weight"]].shape[1] < THIN and max([stride] if isinstance(stride, int) else stride) > 1


def convolve_thin(
    input: Tensor,  # noqa: A002  # the names are those of torch's operator
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The convolution; in full precision, without a gradient, or off the CPU as torch does it."""
    options = (_pair(stride), _pair(0 if padding == "valid" else padding), _pair(dilation), groups)
    full = weight.dtype in (torch.float32, torch.float64)
    if full or weight.device.type != "cpu" or not input.requires_grad or not torch.is_grad_enabled():
        return aten.conv2d(input, weight, bias, *options)  # type: ignore[no-any-return]
    return _Thin.apply(input, weight, bias, *options)  # type: ignore[no-any-return,no-untyped-call]


def _pair(value: Any) -> list[int]:
    numbers = [value] if isinstance(value, int) else list(value)
    return [numbers[0], numbers[-1]]


class _Thin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.shape, ctx.dtype, ctx.options = values.shape, values.dtype, options
        return aten.conv2d(values, weight, bias, *options)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (weight,) = ctx.saved_tensors
        wide = weight.float()
        stride, padding, dilation, groups = ctx.options
        options = (stride, padding, dilation, False, [0, 0], groups, [True, False, False])
        layout = torch.channels_last
        if torch.is_grad_enabled():  # to be differentiated once more: nothing may be written in place
            given = torch.empty(ctx.shape, dtype=wide.dtype, device=grad.device, memory_format=layout)
            whole = aten.convolution_backward(grad.to(wide.dtype), given, wide, None, *options)[0]
            return whole.to(ctx.dtype), None, None, None, None, None, None
        found = torch.empty(ctx.shape, dtype=ctx.dtype, device=grad.device, memory_format=layout)
        count = max(1, _TOGETHER // max(1, found[0].numel())) if len(found) else 1
        for narrow, part in zip(found.split(count), grad.split(count), strict=True):
            # of the input a convolution's gradient reads the shape alone
            given = torch.empty(narrow.shape, dtype=wide.dtype, device=grad.device, memory_format=layout)
            narrow.copy_(aten.convolution_backward(part.to(wide.dtype), given, wide, None, *options)[0])
        return found, None, None, None, None, None, None
