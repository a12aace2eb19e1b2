"""How a program grew: small pictures of it after some of the epochs, in one file of the run folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.files import read_tensors, write_tensors
from reprogram.files.reading import check_schema
from reprogram.programs.appearance import appearance
from reprogram.programs.base import Program

HISTORY = "program.safetensors"
#: How many epochs are kept, and the side of their pictures.
MOST_EPOCHS, SIDE = 12, 112
_REMEDY = "take it from a backup, or remove it to do without"


@dataclass(frozen=True)
class ProgramHistory:
    """A program after some epochs.

    Attributes:
        epochs: which, from 1, in their order.
        frames: (n, side, side, 3) uint8: the distance from grey times `scales`, around 127.5.
        scales: n factors by which each frame was amplified, so that a faint pattern is not lost in rounding.
    """

    epochs: tuple[int, ...]
    frames: Tensor
    scales: tuple[float, ...]

    def moved(self) -> Tensor:
        """How far each pixel of a grey canvas is moved after each epoch, (n, side, side, 3) float32; 1 is black to white."""
        factors = torch.tensor(self.scales)[:, None, None, None]
        return (self.frames.float() / 127.5 - 1) / 2 / factors

    def with_epoch(self, epoch: int, program: Program) -> "ProgramHistory":
        """This history one epoch later: `kept_epochs` says which of the earlier ones stay."""
        side = min(SIDE, program.canvas)
        moved = appearance(program, side).permute(1, 2, 0)
        scale = max(1.0, 0.5 / max(float(moved.abs().max()), 1e-6))
        frame = ((2 * moved * scale + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
        kept = kept_epochs(epoch)
        alike = self.frames.shape[1:3] == (side, side)  # else it is of another program
        stay = [place for place, number in enumerate(self.epochs) if alike and number in kept and number < epoch]
        frames = [self.frames[place] for place in stay]
        return ProgramHistory(
            (*(self.epochs[place] for place in stay), epoch),
            torch.stack([*frames, frame]),
            (*(self.scales[place] for place in stay), scale),
        )


NO_HISTORY = ProgramHistory((), torch.empty(0, 1, 1, 3, dtype=torch.uint8), ())


def kept_epochs(done: int) -> set[int]:
    """Which of `done` epochs are kept: the first, the last, and evenly spread ones between; what is dropped never returns.

    >>> sorted(kept_epochs(5)), sorted(kept_epochs(30))
    ([1, 2, 3, 4, 5], [1, 4, 8, 12, 16, 20, 24, 28, 30])
    """
    stride = 1
    while done // stride > MOST_EPOCHS - (0 if stride == 1 else 2):
        stride *= 2
    return {1, done, *range(stride, done + 1, stride)} if done else set()


def write_history(path: Path, history: ProgramHistory) -> None:
    """Write it whole, or not at all."""
    header = {"epochs": list(history.epochs), "scales": list(history.scales)}
    write_tensors(path, {"frames": history.frames}, header)


def read_history(path: Path) -> ProgramHistory:
    """Read what `write_history` wrote; what is damaged or of another form is refused."""
    what = f"history of the program {str(path)!r}"
    tensors, header = read_tensors(path, "history of the program", remedy=_REMEDY)
    check_schema(header, what, _Header, _REMEDY)
    frames, epochs = tensors.get("frames"), header["epochs"]
    if (
        frames is None
        or len(tensors) != 1
        or frames.dtype != torch.uint8
        or frames.ndim != 4
        or frames.shape[1] != frames.shape[2]
        or frames.shape[1] > SIDE
        or frames.shape[3] != 3
        or not len(frames) == len(epochs) == len(header["scales"])
        or epochs != sorted(set(epochs))
    ):
        raise ReprogramError(f"{what} does not have the expected form; {_REMEDY}")
    return ProgramHistory(tuple(epochs), frames, tuple(header["scales"]))


class _Header(BaseModel):
    """What the file tells beside the pictures."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    epochs: list[int] = Field(min_length=1, max_length=MOST_EPOCHS)
    scales: list[Annotated[float, Field(ge=1)]]
