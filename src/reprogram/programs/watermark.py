"""A trainable pattern added to the image."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.images.pictures import Interpolation
from reprogram.programs.base import NoProgram, Program


class Watermark(Program):
    """A trainable pattern added to the whole image, or to an outer frame of it: normalise(image) + θ, no clamp.

    Args:
        canvas: side of the square; the image is resized to it.
        frame: width in pixels of the outer frame that is free; None frees every pixel.
        interpolation: see `Program`.

    >>> Watermark(224).free_parameters, Watermark(224, frame=30).free_parameters
    (150528, 69840)
    """

    name = "watermark"

    def __init__(self, canvas: int, frame: int | None = None, interpolation: Interpolation = "bilinear") -> None:
        super().__init__(canvas, canvas, interpolation)
        mask = torch.ones(canvas, canvas, dtype=torch.bool)
        if frame is not None:
            if not 1 <= frame <= canvas // 2:
                raise ReprogramError(
                    f"a frame of {frame} px is not possible on a canvas of {canvas}; "
                    f"give a width from 1 to {canvas // 2}, or none to free every pixel"
                )
            mask[frame : canvas - frame, frame : canvas - frame] = False
        self.frame = frame
        self._make_theta(mask)

    def pattern(self) -> Tensor:
        """θ on the canvas, (3, canvas, canvas), in the frozen model's normalised units."""
        return self._on_canvas(self.theta)

    @override
    def carrier(self) -> Tensor:
        return self.pattern()[None]

    @override
    def place(self, images: Tensor) -> Tensor:
        return self._normalise(images) + self.pattern()

    @override
    def begins_as(self) -> dict[str, Any]:
        return NoProgram(self.canvas, self.interpolation).config()

    @override
    def own_settings(self) -> dict[str, Any]:
        return {"frame": self.frame}
