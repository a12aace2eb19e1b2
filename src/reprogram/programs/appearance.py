"""What a program looks like: its canvas around, or over, a plain grey image, as pixels that a person can see."""

import torch
from torch import Tensor

from reprogram.images.pictures import channel_values
from reprogram.programs.base import Program

_GREY = 0.5


@torch.no_grad()
def appearance(program: Program, size: int | None = None) -> Tensor:
    """How far the program moves each pixel of a grey canvas, (3, size, size) float32 in units of [0, 1].

    A border is told by its distance from grey, a pattern that is added by itself. 0.5 plus this is what is seen.

    Args:
        program: bound to its model's normalisation, or not, which then is none.
        size: the side of what is given, by default the canvas.

    >>> from reprogram.programs.padding import Padding
    >>> appearance(Padding(8, 4)).abs().max().item()
    0.0
    """
    image = torch.full((1, 3, program.image_size, program.image_size), _GREY, device=program.mean.device)
    moved = (program.place(image) * program.std + program.mean)[0] - _GREY
    moved = moved.float().cpu()
    if size is not None and size < program.canvas:
        moved = torch.nn.functional.interpolate(moved[None], (size, size), mode="area")[0]
    return moved


@torch.no_grad()
def placed(program: Program, images: Tensor) -> Tensor:
    """What the model is shown of images (N, 3, H, W) in uint8 or [0, 1], as pixels (N, 3, canvas, canvas) in [0, 1]."""
    seen: Tensor = program(images.to(program.mean.device)) * program.std + program.mean
    return seen.clamp(0, 1).float().cpu()


def bound_as_stored(program: Program, normalisation: dict[str, list[float]]) -> Program:
    """Bind a program to the normalisation that an artefact tells, where the frozen model is not at hand."""
    return program.bind(channel_values(normalisation["mean"]), channel_values(normalisation["std"]))
