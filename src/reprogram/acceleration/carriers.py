"""The gradient of θ through the first layer, once for a batch instead of once for each sample.

θ reaches every canvas of a batch in the same way: canvas n = (what belongs to image n) + c(θ). So the gradient of c, the
*carrier* (1, 3, S, S), is the sum over the samples of the canvases' gradients. A convolution's backward pass is linear in
the gradient it is given: summing before it instead of after it is the same number for the N-th part of the work.
"""

from typing import Any

import torch
from torch import Tensor

from reprogram.acceleration.windows import add_up

aten = torch.ops.aten


def attach(canvas: Tensor, carrier: Tensor | None) -> Tensor:
    """The canvases (N, 3, S, S), whose gradient goes, summed over the samples, to their carrier (1, 3, S, S)."""
    return canvas if carrier is None else _Attach.apply(canvas, carrier)  # type: ignore[no-untyped-call]


def convolve(canvas: Tensor, carrier: Tensor | None, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    """A convolution of canvases (N, 3, S, S) without a gradient of their own, whose gradient goes to their carrier.

    Args:
        canvas: what is convolved.
        carrier: the part of it that needs a gradient; of its values nothing is read.
        weight: of the convolution.
        bias: of the convolution.
        options: stride, padding, dilation and groups.
    """
    if carrier is None or not carrier.requires_grad or not torch.is_grad_enabled():
        return aten.conv2d(canvas, weight, bias, *options)  # type: ignore[no-any-return]
    return _Convolve.apply(canvas, carrier, weight, bias, *options)  # type: ignore[no-any-return,no-untyped-call]


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, canvas: Tensor, carrier: Tensor) -> Tensor:
        ctx.dtype = carrier.dtype
        return canvas.view_as(canvas)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, add_up(grad, ctx.dtype)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        canvas: Tensor,
        carrier: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        groups: int,
    ) -> Tensor:
        ctx.save_for_backward(carrier, weight)
        ctx.options = (stride, padding, dilation, False, [0, 0], groups)
        return aten.conv2d(canvas, weight, bias, stride, padding, dilation, groups)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        carrier, weight = ctx.saved_tensors
        weight = weight.to(carrier.dtype)
        summed = add_up(grad, carrier.dtype)
        to_carrier = aten.convolution_backward(summed, carrier, weight, None, *ctx.options, [True, False, False])[0]
        return None, to_carrier, None, None, None, None, None, None
