"""Linear layers over the channels of many places, as the convolutions of one place that they are.

torch multiplies matrices in float32 with MKL, which on processors of AMD takes a path without their wide registers, and
convolves with oneDNN, which uses them. W·x for each token of a transformer, or each place of a map with channels last, is a
1 × 1 convolution: the same products, added in another order.
"""

import functools
import platform
from pathlib import Path

import torch
from torch import Tensor

from reprogram.acceleration.network import aten

# A kernel of one place has nothing to spread, so its dilation changes no number. But torch hands a convolution of less than
# 16 images on one thread back to MKL if its kernel has one place, unless it is dilated.
_OPTIONS = ([1, 1], [0, 0], [2, 2], 1)
_CPUINFO = Path("/proc/cpuinfo")


def linear(values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """W·x + b over the last dimension, by the faster of two ways.

    Args:
        values: (..., channels).
        weight: (outputs, channels).
        bias: (outputs), or None.
    """
    if not _is_faster_as_convolution(values, weight):
        return aten.linear(values, weight, bias)  # type: ignore[no-any-return]
    places = values.reshape(1, -1, 1, values.shape[-1]).permute(0, 3, 1, 2)  # one image, a column of places, channels last
    found = aten.conv2d(places, weight[:, :, None, None], bias, *_OPTIONS)
    return found.permute(0, 2, 3, 1).reshape(*values.shape[:-1], len(weight))  # type: ignore[no-any-return]


def _is_faster_as_convolution(values: Tensor, weight: Tensor) -> bool:
    """A rule, not a measurement, so that a run is the same every time; one row for each image is not worth it."""
    return (
        values.ndim > 2
        and values.numel() > 0  # no convolution takes nothing
        and values.dtype == weight.dtype == torch.float32
        and values.device.type == weight.device.type == "cpu"
        and _mkl_holds_back()
    )


@functools.cache
def _mkl_holds_back() -> bool:
    """Whether matrices are multiplied by MKL on a processor for which it does not do its best."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    try:
        return "AuthenticAMD" in platform.processor() or "AuthenticAMD" in _CPUINFO.read_text()
    except OSError:  # another system
        return False
