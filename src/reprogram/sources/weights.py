"""State dicts of the user's own: read without running code from them, and fit into a module."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from reprogram.errors import ReprogramError, first_line
from reprogram.sources.registry import find_weights

# Files of a hundred thousand tensors have headers of some megabytes; torch does not pack what it writes.
_MOST_HEADER, _MOST_RATIO, _SLACK = 2**24, 20, 2**24


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict from safetensors or from a torch file, refusing any file that would run code."""
    path = find_weights(path)
    check_weights(path)
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise ReprogramError(
            f"weights file {str(path)!r} is not valid safetensors ({error}): damaged, cut short or of another kind; "
            "copy or download it again, or save it again with safetensors.torch.save_file(model.state_dict(), ...)"
        ) from None
    except Exception as error:  # torch.load raises many types for a broken or an unsafe file, all meaning the same here
        raise ReprogramError(
            f"weights file {str(path)!r} is not a plain state dict ({type(error).__name__}: it is broken or holds code); "
            "save model.state_dict() as safetensors"
        ) from None
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()
    ):
        raise ReprogramError(f"weights file {str(path)!r} does not hold a dict of tensors; save model.state_dict()")
    odd = next((key for key, value in content.items() if not _is_plain(value)), None)
    if odd is not None:
        raise ReprogramError(
            f"weights file {str(path)!r} holds {odd[:80]!r} as a sparse, quantized or repeated tensor, but plain ones are "
            "expected; save them with .to_dense() or .contiguous()"
        )
    return {key.removeprefix("module."): value for key, value in content.items()}


def check_weights(path: Path) -> None:
    """Refuse a weights file that would take far more memory than it has bytes, before it is read."""
    with path.open("rb") as file:
        start = file.read(8)
    header = int.from_bytes(start, "little")
    if path.suffix == ".safetensors" and _MOST_HEADER < header <= path.stat().st_size:
        raise ReprogramError(
            f"weights file {str(path)!r} begins with {header:,} bytes of names, but {_MOST_HEADER:,} are the most; "
            "save model.state_dict() as safetensors"
        )
    if not start.startswith(b"PK"):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
    except Exception:  # torch reads what zipfile does not, and says what is wrong with the rest
        return
    if unpacked > _MOST_RATIO * path.stat().st_size + _SLACK:
        raise ReprogramError(
            f"weights file {str(path)!r} of {path.stat().st_size:,} bytes unpacks to {unpacked:,}, which weights do not; "
            "save model.state_dict() as safetensors"
        )


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's numbers are all in the file: a sparse, quantized or repeated one can claim any size."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def fill(module: nn.Module, state: dict[str, Tensor], name: str) -> None:
    """Load a state dict into a module; `name` is what the message calls it."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        problem = [*str(error).split("\n\t"), first_line(error)][1].rstrip(". ")[:200]
        raise ReprogramError(
            f"the weights do not fit {name} ({problem}); give the state dict of that architecture"
        ) from None
