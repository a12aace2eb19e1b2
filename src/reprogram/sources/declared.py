"""What a model's configuration declares is checked before memory is taken for it: a line of text can claim any size."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reprogram.errors import ReprogramError

#: The most numbers that a model may have whose file does not bring them, such as one with random weights.
MOST_NUMBERS = 2 * 10**9
#: The widest side of the images that a model may ask for.
MOST_SIDE = 8192
_MOST_LAYERS, _MOST_ENTRIES, _MOST = 400, 100_000, 2_000_000
_LAYERS = ("layers", "depth", "depths", "num_hidden_layers", "num_layers", "num_blocks")
_SIDES = ("size", "image_size", "img_size", "crop_size", "pad_size", "shortest_edge", "longest_edge")
_SLACK = 2**24  # tables that a model makes for itself


def check_numbers(settings: Any, name: str, key: str = "", depth: int = 0) -> None:
    """Refuse a configuration with a number that no model has, before anything is built by it.

    Args:
        settings: what the file holds: tables, lists and plain values.
        name: how the message calls the model.
        key: the setting that this is a part of.
        depth: of that part.

    Raises:
        ReprogramError: a number is too large, not finite, or the tables are nested too deeply.
    """
    if depth > 20:
        raise ReprogramError(f"{name} nests its settings more than 20 deep; mend its configuration")
    if isinstance(settings, (dict, list, tuple)) and len(settings) > _MOST_ENTRIES:
        raise ReprogramError(
            f"{name} has {len(settings):,} entries in {key[:60]}, but {_MOST_ENTRIES:,} are the most; mend it"
        )
    if isinstance(settings, dict):
        for inner, value in settings.items():
            # the sides of a picture are a table, of which the name says what they are
            sides = inner in ("height", "width") and key in _SIDES
            check_numbers(value, name, key if sides else str(inner), depth + 1)
    elif isinstance(settings, (list, tuple)):
        for value in settings:
            check_numbers(value, name, key, depth + 1)
        if key in _LAYERS:  # of each stage
            check_numbers(sum(value for value in settings if type(value) is int), name, key, depth + 1)
    elif isinstance(settings, (int, float)) and not isinstance(settings, bool):
        most = _MOST_LAYERS if key in _LAYERS else MOST_SIDE if key in _SIDES else _MOST
        if not math.isfinite(settings) or abs(settings) > most:
            raise ReprogramError(
                f"{name} sets {key[:60]} = {str(settings)[:40]}, but at most {most:,} is expected; mend its configuration"
            )


def check_declared(build: Callable[[], nn.Module], files: Iterable[Path], name: str) -> None:
    """Build a model without memory for its numbers, and refuse it if it has more of them than its files can hold.

    Args:
        build: builds the model.
        files: its weights; where there are none, `MOST_NUMBERS` is the limit.
        name: how the message calls the model.
    """
    try:
        with torch.device("meta"):
            module = build()
            declared = sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
    except ReprogramError:
        raise
    except Exception:  # some architectures compute while they are built, which needs memory; what is wrong shows then
        return
    held = [path.stat().st_size for path in files if path.is_file()]  # a number takes a byte at the least
    most = sum(held) + _SLACK if held else MOST_NUMBERS
    if declared > most:
        limit = f"which its weights of {sum(held):,} bytes cannot hold" if held else f"but {most:,} are the most"
        raise ReprogramError(f"{name} declares {declared:,} numbers, {limit}; mend its configuration, or get it again")
