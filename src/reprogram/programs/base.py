"""f_in: the trainable program on the input. Images in [0, 1] go in, what the frozen model eats comes out.

θ holds exactly the free pixels and is the only parameter in the whole library's forward pass (learned mappings aside).
To add a program, write a subclass of `Program` here and name it in `PROGRAMS`.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from reprogram.errors import ReprogramError, unknown
from reprogram.images.pictures import ChannelValues, Interpolation, as_rgb, channel_values, resize


class Program(nn.Module, ABC):
    """Base of the programs: brings images to RGB and to `image_size`, then lets the subclass place them.

    Args:
        canvas: side of the square that the frozen model receives.
        image_size: side of the image on that square.
        mean: per-channel mean of the frozen model's input normalisation, for pixels in [0, 1].
        std: per-channel deviation of the same.
        interpolation: how an image of another size is brought to `image_size`.
    """

    name: ClassVar[str]
    mean: Tensor
    std: Tensor
    free: Tensor

    def __init__(
        self,
        canvas: int,
        image_size: int,
        mean: ChannelValues = (0.0, 0.0, 0.0),
        std: ChannelValues = (1.0, 1.0, 1.0),
        interpolation: Interpolation = "bilinear",
    ) -> None:
        super().__init__()
        if not 1 <= image_size <= canvas:
            raise ReprogramError(
                f"image size {image_size} does not fit on a canvas of {canvas}; give an image size from 1 to {canvas}"
            )
        self.canvas, self.image_size, self.interpolation = canvas, image_size, interpolation
        self.register_buffer("mean", channel_values(mean), persistent=False)
        self.register_buffer("std", channel_values(std), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1], or uint8, to the frozen model's input (N, 3, canvas, canvas)."""
        return self.place(self._sized(images))

    @abstractmethod
    def place(self, images: Tensor) -> Tensor:
        """Map float images (N, 3, image_size, image_size) to the normalised canvas (N, 3, canvas, canvas)."""

    def carrier(self) -> Tensor | None:
        """What θ puts on every canvas alike, (1, 3, canvas, canvas): its gradient is that of the canvases, added up.

        None for a program that cannot say it: then gradients go through the canvases. What is said here and by `window` is
        believed only of the class that says it: a subclass with a `place` of its own says it anew.
        """
        return None

    def window(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The rows and the columns of the canvas, from and up to, outside of which all samples have `shared_canvas`.

        None for a program whose canvases may differ anywhere.
        """
        return None

    def shared_canvas(self) -> Tensor:
        """What all samples have outside `window`, (1, 3, canvas, canvas), normalised; without meaning inside."""
        raise NotImplementedError

    def inside(self, images: Tensor) -> Tensor:
        """What each sample has inside `window`, normalised, (N, 3, height, width)."""
        raise NotImplementedError

    @property
    def free_parameters(self) -> int:
        """How many numbers of θ the training may choose."""
        return sum(parameter.numel() for parameter in self.parameters())

    def config(self) -> dict[str, Any]:
        """Everything but θ that is needed to build this program again, as plain JSON values."""
        return {
            "name": self.name,
            "canvas": self.canvas,
            "image_size": self.image_size,
            "mean": self.mean.flatten().tolist(),
            "std": self.std.flatten().tolist(),
            "interpolation": self.interpolation,
        }

    def _sized(self, images: Tensor) -> Tensor:
        return resize(as_rgb(images), self.image_size, self.interpolation)

    def _normalise(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std

    def _make_theta(self, mask: Tensor) -> None:
        """Create θ (3, free pixels) at zero, for the True pixels of a (canvas, canvas) mask."""
        self.register_buffer("free", mask.flatten().nonzero().squeeze(1), persistent=False)
        self.theta = nn.Parameter(torch.zeros(3, len(self.free)))

    def _on_canvas(self, values: Tensor) -> Tensor:
        """Lay one value per free pixel (3, free) on a canvas (3, canvas, canvas) that is zero elsewhere."""
        blank = values.new_zeros(3, self.canvas * self.canvas)
        return blank.index_copy(1, self.free, values).view(3, self.canvas, self.canvas)


class Padding(Program):
    """A trainable border around an untouched image: sigmoid(θ) outside, the image inside, then normalised.

    θ = 0 starts the border at grey 0.5. The left and top borders are floor((canvas − size + 1)/2) wide.

    >>> Padding(canvas=224, image_size=128).free_parameters
    101376
    >>> Padding(224, 32)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 3, 224, 224])
    """

    name = "padding"

    def __init__(
        self,
        canvas: int,
        image_size: int,
        mean: ChannelValues = (0.0, 0.0, 0.0),
        std: ChannelValues = (1.0, 1.0, 1.0),
        interpolation: Interpolation = "bilinear",
    ) -> None:
        super().__init__(canvas, image_size, mean, std, interpolation)
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


class Watermark(Program):
    """A trainable pattern added to the whole image, or to an outer frame of it: normalise(image) + θ, no clamp.

    Args:
        canvas: side of the square; the image is resized to it.
        frame: width in pixels of the outer frame that is free; None frees every pixel.
        mean: see `Program`.
        std: see `Program`.
        interpolation: see `Program`.

    >>> Watermark(224).free_parameters, Watermark(224, frame=30).free_parameters
    (150528, 69840)
    """

    name = "watermark"

    def __init__(
        self,
        canvas: int,
        frame: int | None = None,
        mean: ChannelValues = (0.0, 0.0, 0.0),
        std: ChannelValues = (1.0, 1.0, 1.0),
        interpolation: Interpolation = "bilinear",
    ) -> None:
        super().__init__(canvas, canvas, mean, std, interpolation)
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
    def config(self) -> dict[str, Any]:
        config = super().config() | {"frame": self.frame}
        del config["image_size"]
        return config


class Resize(Program):
    """No program at all: the image resized to the canvas and normalised. Nothing to train.

    >>> Resize(224).free_parameters
    0
    """

    name = "none"

    def __init__(
        self,
        canvas: int,
        mean: ChannelValues = (0.0, 0.0, 0.0),
        std: ChannelValues = (1.0, 1.0, 1.0),
        interpolation: Interpolation = "bilinear",
    ) -> None:
        super().__init__(canvas, canvas, mean, std, interpolation)

    @override
    def place(self, images: Tensor) -> Tensor:
        return self._normalise(images)

    @override
    def config(self) -> dict[str, Any]:
        config = super().config()
        del config["image_size"]
        return config


PROGRAMS: dict[str, type[Program]] = {kind.name: kind for kind in (Padding, Watermark, Resize)}


def make_program(name: str, **settings: Any) -> Program:
    """Build a program by its name with the arguments of its class; the inverse of `Program.config`.

    >>> make_program("watermark", canvas=96, frame=8).config()["frame"]
    8
    """
    if name not in PROGRAMS:
        raise unknown("program", name, PROGRAMS)
    return PROGRAMS[name](**settings)
