"""A training's state as one safetensors file: tensors by name, and a JSON header. Nothing is pickled."""

from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.files import fitting, read_tensors, write_tensors
from reprogram.files.reading import check_schema

REMEDY = "take it from a backup, or start anew elsewhere"
_SLOTS = ("step", "exp_avg", "exp_avg_sq", "momentum_buffer")


class Accuracies(BaseModel):
    """What an epoch reached; None where it was not measured."""

    model_config = ConfigDict(strict=True, extra="forbid")
    train: float | None
    val: float | None
    test: float | None


class Record(BaseModel):
    """What is told of one epoch."""

    model_config = ConfigDict(strict=True, extra="forbid")
    epoch: int = Field(ge=0)
    loss: float | None
    accuracy: Accuracies
    mapping_change: float | None
    seconds: float
    images_per_second: float | None


class _Header(BaseModel):
    """What a checkpoint tells beside its tensors."""

    model_config = ConfigDict(strict=True, extra="forbid")
    origin: dict[str, Any]
    records: list[Record]
    selected_epoch: int = Field(ge=0)
    scaler: dict[str, float]
    loss_temperature: float | None = Field(gt=0)
    planned: int | None = Field(None, ge=1)
    spent: float = Field(0.0, ge=0)


def write_checkpoint(
    path: Path, tensors: dict[str, Tensor], optimizers: dict[str, torch.optim.Optimizer], header: dict[str, Any]
) -> None:
    """Replace the checkpoint in one step; a kill at any moment leaves the old or the new one.

    Of the optimisers only what they have gathered is stored: their settings are those of the run.
    """
    everything = dict(tensors)
    for name, optimizer in optimizers.items():
        for index, slots in optimizer.state_dict()["state"].items():
            for slot, value in slots.items():
                if isinstance(value, Tensor):
                    everything[f"optimizer/{name}/{index}/{slot}"] = value
    write_tensors(path, everything, header)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a checkpoint, both checked for damage and form."""
    tensors, header = read_tensors(path, "checkpoint", remedy=REMEDY)
    check_schema(header, f"checkpoint {str(path)!r}", _Header, REMEDY)
    numbers = [record["epoch"] for record in header["records"]]
    if numbers != list(range(1, len(numbers) + 1)) or header["selected_epoch"] > len(numbers):
        raise ReprogramError(f"checkpoint {str(path)!r} does not count its epochs one after another; {REMEDY}")
    return tensors, header


def fill_optimizers(tensors: dict[str, Tensor], optimizers: dict[str, torch.optim.Optimizer], what: str) -> None:
    """Give optimisers what a checkpoint has stored of them."""
    for name, optimizer in optimizers.items():
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        stored: dict[int, dict[str, Tensor]] = {}
        for key, tensor in part(tensors, f"optimizer/{name}").items():
            index, _, slot = key.partition("/")
            if not index.isdecimal() or int(index) >= len(parameters) or slot not in _SLOTS:
                raise ReprogramError(f"{what} has a tensor {key!r} for its optimiser {name}, which has none such; {REMEDY}")
            like = torch.zeros(()) if slot == "step" else parameters[int(index)].detach().cpu()
            fitting({key: tensor}, {key: like}, what, REMEDY)
            stored.setdefault(int(index), {})[slot] = tensor
        optimizer.load_state_dict({"state": stored, "param_groups": optimizer.state_dict()["param_groups"]})


def part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Those tensors whose names begin with `name/`, without it."""
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
