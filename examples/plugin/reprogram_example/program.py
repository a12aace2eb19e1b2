"""A program: images become canvases, with a trainable part."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.images.pictures import Interpolation
from reprogram.programs import Program


class Corner(Program):
    """The image in the upper left corner, sigmoid(θ) in a band beside and below it, then normalised."""

    name = "corner"

    def __init__(self, canvas: int, band: int, interpolation: Interpolation = "bilinear") -> None:
        super().__init__(canvas, canvas - band, interpolation)
        self.band = band
        free = torch.ones(canvas, canvas, dtype=torch.bool)
        free[: self.image_size, : self.image_size] = False
        self._make_theta(free)

    def place(self, images: Tensor) -> Tensor:
        """Map float images (N, 3, image_size, image_size) to the normalised canvas (N, 3, canvas, canvas)."""
        widths = (0, self.band, 0, self.band)
        return self._normalise(F.pad(images, widths) + self._on_canvas(self.theta.sigmoid()))

    def own_settings(self) -> dict[str, Any]:
        """What `CornerSettings` holds."""
        return {"band": self.band}
