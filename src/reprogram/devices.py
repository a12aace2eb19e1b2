"""Where and in which precision a model computes."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from reprogram.errors import ReprogramError

Precision = Literal["auto", "fp32", "bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str) -> torch.device:
    """Read a device name; `auto` takes the best there is."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise ReprogramError(
            f"device {name!r} is not available here; choose auto, cpu, or a device that torch sees"
        ) from None
    return device


def choose_precision(device: torch.device, precision: Precision) -> Precision:
    """Read `auto`: bf16 where the device multiplies matrices of it in hardware, fp32 elsewhere.

    Emulated bf16 is far slower than fp32: a hundred times on a CPU that has AVX2 alone.
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        native = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        checks = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
        native = device.type == "cpu" and any(check() for check in checks if check is not None)
    return "bf16" if native else "fp32"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Run the frozen model in a lower precision; the mapping and all statistics stay in float32 and float64."""
    precision = choose_precision(device, precision)
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, _DTYPES[precision])
