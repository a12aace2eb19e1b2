"""Which precision `auto` means for a network: bf16 where the device has it in hardware and the network gains by it.

A static rule, so that a run stays a function of its settings, its model and its processor. One blank canvas goes through
the module, and each operator that multiplies tells how many multiplications it makes, and of how many channels. bf16 pays
in wide ones; narrow ones are padded to what the hardware takes at once, and depthwise ones are limited by other things. On
a GPU everything pays.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from reprogram.acceleration.accelerate import can_be_prepared
from reprogram.acceleration.network import aten
from reprogram.acceleration.thin import THIN
from reprogram.devices import Precision, in_hardware
from reprogram.sources.frozen import Frozen

_WIDE = 8  # outputs that share their inputs, and twice as many inputs of each: what the hardware multiplies at once
_SHARE = 0.5  # of the multiplications, in wide operators; a guess: what was timed, and gains, has 0.9 and more


@dataclass(frozen=True)
class Chosen:
    """A precision.

    Attributes:
        precision: never auto.
        why: in a few words; empty where nothing was left to decide.
    """

    precision: Precision
    why: str = ""

    def __str__(self) -> str:
        return f"{self.precision} ({self.why})" if self.why else self.precision


def choose_precision(frozen: Frozen, canvas: int, precision: Precision = "auto", *, preparing: bool = True) -> Chosen:
    """Read `auto` for a frozen model on the device that it is on; any other precision stays what it is.

    Args:
        frozen: the model.
        canvas: the side of what it receives.
        precision: what was asked for.
        preparing: whether `accelerate` may be used; without it, strided depthwise layers are slow to train through.
    """
    if precision != "auto":
        return Chosen(precision)
    if not frozen.differentiable:  # it computes where and as it likes, and each look at it may cost money
        return Chosen("fp32", "the model only answers")
    device = frozen.mean.device
    if not in_hardware(device, "bf16"):
        return Chosen("fp32", f"this {device.type} has no bf16 in hardware")
    if device.type != "cpu":
        return Chosen("bf16", "in hardware")
    counted = _count(frozen, canvas)
    if counted is None or not counted.all:
        return Chosen("fp32", "its multiplications are not to be seen")
    share = counted.wide / counted.all
    told = f"{100 * share:.0f} % of its multiplications are in wide layers"
    if share < _SHARE:
        return Chosen("fp32", f"only {told}")
    if counted.thin and not (preparing and can_be_prepared(frozen, canvas)):
        return Chosen("fp32", "its strided depthwise layers cannot be prepared for bf16")
    return Chosen("bf16", told)


def network_line(described: str, chosen: Chosen) -> str:
    """What is told of a network before it runs: how it was prepared, and a precision that is not the default."""
    return f"network: {described}" + (f", in {chosen}" if chosen.why or chosen.precision != "fp32" else "")


class _Count(TorchDispatchMode):
    """Counts multiplications: all, those of wide operators, and how many strided convolutions have few channels a group."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.all, self.wide, self.thin = 0, 0, 0

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is aten.convolution.default:
            weight, stride, groups = args[1], args[3], args[8]
            self._add(found.numel(), weight[0].numel(), weight.shape[0] // groups)
            self.thin += groups > 1 and weight.shape[1] < THIN and max(stride) > 1
        elif func in _PRODUCTS:
            left, right = args[_PRODUCTS[func] :][:2]
            self._add(found.numel(), left.shape[-1], right.shape[-1])
        return found

    def _add(self, results: int, inputs: int, outputs: int) -> None:
        self.all += results * inputs
        self.wide += results * inputs if outputs >= _WIDE and inputs >= 2 * _WIDE else 0


#: Products of matrices, and where their two factors stand.
_PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}


def _count(frozen: Frozen, canvas: int) -> _Count | None:
    """What one canvas takes; None where it cannot go through."""
    weight = next(frozen.module.parameters(), frozen.mean)
    blank = torch.zeros(1, 3, canvas, canvas, device=weight.device)
    seen = _Count()
    try:
        # not in inference mode, where operators are not taken apart
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(weight.device.type, enabled=False), seen:
            frozen(blank)
    except Exception:  # whoever runs it will hear why
        return None
    return seen
