"""Where and in which precision a model computes."""

import os
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from reprogram.errors import ReprogramError

Precision = Literal["auto", "fp32", "bf16", "fp16"]
_WITHOUT_BF16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI")
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


def in_hardware(device: torch.device, precision: Precision) -> bool:
    """Whether a device multiplies matrices of a precision itself.

    Emulated bf16 is far slower than fp32: a hundred times on a CPU that has AVX2 alone.
    """
    if precision == "bf16" and device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if precision == "bf16":
        if _narrowed():
            return False
        checks = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
        return device.type == "cpu" and any(check() for check in checks if check is not None)
    return precision == "fp32" or device.type in ("cuda", "mps")


def _narrowed() -> bool:
    """Whether the user has told oneDNN, which multiplies on CPUs, to do without what bf16 needs."""
    asked = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    return asked.upper() in _WITHOUT_BF16


def at_hand(device: torch.device, precision: Precision) -> Precision:
    """The precision if the device has it in hardware, else fp32: what a model that was trained elsewhere computes in."""
    return precision if in_hardware(device, precision) else "fp32"


def precision_note(device: torch.device, precision: Precision) -> str | None:
    """What to tell where a model of a precision computes in another one; None where it does not."""
    if in_hardware(device, precision):
        return None
    return (
        f"trained and measured in {precision}, which this {device.type} does not have in hardware; it computes in fp32, "
        "and some answers may differ"
    )


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Run the frozen model in a lower precision; the mapping and all statistics stay in float32 and float64."""
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, _DTYPES[precision])


def clock(device: torch.device) -> float:
    """Seconds since some moment, when the device has done all that it was told."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()
