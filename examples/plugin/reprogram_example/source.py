"""A model source: a name becomes a frozen classifier."""

import torch
from torch import Tensor, nn

from reprogram.errors import unknown
from reprogram.sources import Frozen
from reprogram.sources.request import Request
from reprogram.sources.settings import SourceOptions

COLOURS = {
    "black": (0.0, 0.0, 0.0),
    "white": (1.0, 1.0, 1.0),
    "red": (1.0, 0.0, 0.0),
    "green": (0.0, 1.0, 0.0),
    "blue": (0.0, 0.0, 1.0),
    "yellow": (1.0, 1.0, 0.0),
    "orange": (1.0, 0.5, 0.0),
    "violet": (0.5, 0.0, 1.0),
}


class Nearest(nn.Module):
    """Logits: how near the mean colour of the image is to each of the known ones."""

    def __init__(self, colours: Tensor) -> None:
        super().__init__()
        self.colours = nn.Parameter(colours)

    def forward(self, images: Tensor) -> Tensor:
        """Map pixels (N, 3, S, S) to logits (N, k_S)."""
        return -4 * (images.mean((2, 3))[:, None] - self.colours).square().sum(2)


def names() -> list[str]:
    """The models of this source."""
    return ["eight"]


def load(request: Request[SourceOptions]) -> Frozen:
    """Make the model that was asked for."""
    if request.architecture not in names():
        raise unknown("colours model", request.architecture, names())
    return Frozen(Nearest(torch.tensor(list(COLOURS.values()))), input_size=32, labels=list(COLOURS))
