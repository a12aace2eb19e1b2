"""A training's state as one safetensors file: tensors by name, and a JSON header. Nothing is pickled."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reprogram.files import read_tensors, write_tensors


def write_checkpoint(
    path: Path, tensors: dict[str, Tensor], optimizers: dict[str, torch.optim.Optimizer], header: dict[str, Any]
) -> None:
    """Replace the checkpoint in one step; a kill at any moment leaves the old or the new one."""
    everything = dict(tensors)
    described: dict[str, Any] = {}
    for name, optimizer in optimizers.items():
        state = optimizer.state_dict()
        scalars: dict[str, dict[str, Any]] = {}
        for index, slots in state["state"].items():
            for slot, value in slots.items():
                if isinstance(value, Tensor):
                    everything[f"optimizer/{name}/{index}/{slot}"] = value
                else:
                    scalars.setdefault(str(index), {})[slot] = value
        described[name] = {"groups": state["param_groups"], "scalars": scalars}
    write_tensors(path, everything, {**header, "optimizers": described})


def read_checkpoint(path: Path, optimizers: dict[str, torch.optim.Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Fill the optimisers from a checkpoint and return its other tensors and its header."""
    everything, header = read_tensors(path, "checkpoint")
    for name, optimizer in optimizers.items():
        described = header["optimizers"][name]
        state: dict[int, dict[str, Any]] = {int(index): dict(slots) for index, slots in described["scalars"].items()}
        for key, tensor in everything.items():
            if key.startswith(f"optimizer/{name}/"):
                index, slot = key.split("/")[2:]
                state.setdefault(int(index), {})[slot] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": described["groups"]})
    return {key: tensor for key, tensor in everything.items() if not key.startswith("optimizer/")}, header
