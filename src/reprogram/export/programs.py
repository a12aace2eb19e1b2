"""`--format torch`: a run as one program of torch.export, from uint8 images to probabilities."""

from pathlib import Path

import torch
from torch import Tensor, nn

from reprogram.errors import ReprogramError, first_line
from reprogram.export.networks import quiet
from reprogram.export.trunk import Head, Trunk, linear_kind
from reprogram.files import write_file
from reprogram.programs.base import Program
from reprogram.reprogrammed import Reprogrammed


class Placed(nn.Module):
    """A program on pixels in [0, 1] of its own size, and what comes behind it."""

    def __init__(self, program: Program, behind: nn.Module) -> None:
        super().__init__()
        self.program, self.behind = program, behind

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels (N, 3, S, S) to features (N, d)."""
        return self.behind(self.program.place(pixels))  # type: ignore[no-any-return]


class _Whole(nn.Module):
    """uint8 (N, S, S, 3) to probabilities and calibrated logits (N, k_T)."""

    def __init__(self, model: Reprogrammed, placed: Placed, head: Head) -> None:
        super().__init__()
        self.placed = placed
        self.mapping = model.mapping if linear_kind(model.mapping) == "top-k" else None
        self.register_buffer("weight", head.weight)
        self.register_buffer("bias", head.bias)

    weight: Tensor
    bias: Tensor

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.placed((images.float() / 255).permute(0, 3, 1, 2))
        features = features if self.mapping is None else self.mapping.inputs(features)
        logits = features @ self.weight + self.bias
        return logits.softmax(1), logits


def write_program(path: Path, model: Reprogrammed, trunk: Trunk, head: Head, facts: str) -> None:
    """Write a torch.export program (.pt2) with any batch size; `facts` stand in it as a file of their own."""
    if trunk.module is None:
        raise ReprogramError(f"{model.frozen.name} is no network of torch, so it can be no torch program; use --format onnx")
    size = model.program.image_size
    whole = _Whole(model, Placed(model.program, trunk.module), head).eval()
    example = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    try:
        with quiet(), torch.no_grad():
            batch = torch.export.Dim("n", min=1, max=2**20)
            program = torch.export.export(whole, (example,), dynamic_shapes=({0: batch},))
            write_file(path, lambda temporary: _save(program, temporary, facts))
    except OSError:
        raise
    except Exception as error:
        raise ReprogramError(
            f"{model.frozen.name} cannot be written by torch.export ({first_line(error)}); choose another model"
        ) from None


def _save(program: torch.export.ExportedProgram, path: Path, facts: str) -> None:
    with path.open("r+b") as file:
        torch.export.save(program, file, extra_files={"reprogram.json": facts})
