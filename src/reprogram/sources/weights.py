"""State dicts of the user's own: read without running code from them, and fit into a module."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from reprogram.errors import ReprogramError
from reprogram.sources.registry import find_weights


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict from safetensors or from a torch file, refusing any file that would run code."""
    path = find_weights(path)
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
    return {key.removeprefix("module."): value for key, value in content.items()}


def fill(module: nn.Module, state: dict[str, Tensor], name: str) -> None:
    """Load a state dict into a module; `name` is what the message calls it."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        problem = str(error).split("\n\t")[1].rstrip(". ")[:200]
        raise ReprogramError(
            f"the weights do not fit {name} ({problem}); give the state dict of that architecture"
        ) from None
