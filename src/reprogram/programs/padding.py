"""A trainable border around an untouched image."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from reprogram.images.pictures import Interpolation
from reprogram.programs.base import Program


class Padding(Program):
    """A trainable border around an untouched image: sigmoid(θ) outside, the image inside, then normalised.

    θ = 0 starts the border at grey 0.5. The left and top borders are floor((canvas − size + 1)/2) wide.

    >>> Padding(canvas=224, image_size=128).free_parameters
    101376
    >>> Padding(224, 32)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 3, 224, 224])
    """

    name = "padding"

    def __init__(self, canvas: int, image_size: int, interpolation: Interpolation = "bilinear") -> None:
        super().__init__(canvas, image_size, interpolation)
        self.before = (canvas - image_size + 1) // 2
        self.after = (canvas - image_size) // 2
        mask = torch.ones(canvas, canvas, dtype=torch.bool)
        inside = slice(self.before, self.before + image_size)
        mask[inside, inside] = False
        self._make_theta(mask)

    def border(self) -> Tensor:
        """The border as pixels in [0, 1], (3, canvas, canvas), zero where the image goes."""
        return self._on_canvas(self.theta.sigmoid())

    @override
    def window(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        place = (self.before, self.before + self.image_size)
        return (place, place) if self.image_size < self.canvas else None

    @override
    def shared_canvas(self) -> Tensor:
        return self._normalise(self.border())[None]

    @override
    def inside(self, images: Tensor) -> Tensor:
        return self._normalise(self._sized(images))

    @override
    def carrier(self) -> Tensor:
        return self.shared_canvas()

    @override
    def place(self, images: Tensor) -> Tensor:
        widths = (self.before, self.after, self.before, self.after)
        return self._normalise(F.pad(images, widths) + self.border())

    @override
    def own_settings(self) -> dict[str, Any]:
        return {"image_size": self.image_size}
