"""f_in: the trainable program on the input. Images in [0, 1] go in, what the frozen model eats comes out.

θ holds exactly the free pixels and is the only parameter in the whole library's forward pass (learned mappings aside).
"""

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self, get_args

import torch
from torch import Tensor, nn
from typing_extensions import override

from reprogram.errors import ReprogramError, unknown
from reprogram.images.pictures import ChannelValues, Interpolation, as_rgb, channel_values, resize
from reprogram.programs.registry import PROGRAMS


class Program(nn.Module, ABC):
    """Base of the programs: brings images to RGB and to `image_size`, then lets the subclass place them.

    A program works in the units of one frozen model. `Reprogrammed` binds it to that model's normalisation; until then it
    gives pixels as they are.

    Args:
        canvas: side of the square that the frozen model receives.
        image_size: side of the image on that square.
        interpolation: how an image of another size is brought to `image_size`.
    """

    name: ClassVar[str]
    mean: Tensor
    std: Tensor
    free: Tensor

    def __init__(self, canvas: int, image_size: int, interpolation: Interpolation = "bilinear") -> None:
        super().__init__()
        if not 1 <= image_size <= canvas:
            raise ReprogramError(
                f"image size {image_size} does not fit on a canvas of {canvas}; give an image size from 1 to {canvas}"
            )
        self.canvas, self.image_size, self.interpolation = canvas, image_size, interpolation
        self.bound = False
        self.register_buffer("mean", torch.zeros(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.ones(3, 1, 1), persistent=False)

    def bind(self, mean: ChannelValues, std: ChannelValues) -> Self:
        """Work in the units of a frozen model from now on: per-channel mean and deviation, for pixels in [0, 1]."""
        given = [channel_values(values).to(self.mean.device) for values in (mean, std)]
        if self.bound and not all(torch.equal(old, new) for old, new in zip((self.mean, self.std), given, strict=True)):
            raise ReprogramError(
                "this program belongs to a model with another normalisation already; make a new one for each model"
            )
        self.mean.copy_(given[0])
        self.std.copy_(given[1])
        self.bound = True
        return self

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

    def untrained(self) -> dict[str, Any] | None:
        """What its canvases are made by as long as θ is zero, as plain JSON values; None once θ is not.

        Of programs that say the same, and are bound to the same model, the canvases are the same to the bit.
        """
        if any(bool(part.any()) for part in self.parameters()):
            return None
        kind = type(self)
        if "begins_as" in vars(kind):
            return self.begins_as()
        # a class may inherit name and settings of another one, and make other canvases of them
        return {**self.config(), "class": f"{kind.__module__}.{kind.__qualname__}"}

    def begins_as(self) -> dict[str, Any]:
        """The `config` of a simpler program that makes the same canvases, to the bit, as this one does while θ is zero.

        Believed only of the very class that says it: one that inherits may change more than how it places images.
        """
        return self.config()

    def speaks_for_itself(self, method: str) -> bool:
        """Whether a method was written knowing how images are placed: not above the class that says how."""

        def depth(name: str) -> int:
            return next(depth for depth, kind in enumerate(type(self).__mro__) if name in vars(kind))

        return depth(method) <= min(depth("place"), depth("forward"))

    @property
    def free_parameters(self) -> int:
        """How many numbers of θ the training may choose."""
        return sum(parameter.numel() for parameter in self.parameters())

    def config(self) -> dict[str, Any]:
        """Everything but θ that `make_program` needs to build this program again, as plain JSON values."""
        return {"name": self.name, "canvas": self.canvas, "interpolation": self.interpolation, **self.own_settings()}

    def own_settings(self) -> dict[str, Any]:
        """The values of the program's own settings class."""
        return {}

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


class NoProgram(Program):
    """No program at all: the image resized to the canvas and normalised. Nothing to train.

    >>> NoProgram(224).free_parameters
    0
    """

    name = "none"

    def __init__(self, canvas: int, interpolation: Interpolation = "bilinear") -> None:
        super().__init__(canvas, canvas, interpolation)

    @override
    def place(self, images: Tensor) -> Tensor:
        return self._normalise(images)

    @override
    def begins_as(self) -> dict[str, Any]:
        return self.config()


def make_program(name: str, canvas: int, *, interpolation: Interpolation = "bilinear", **settings: Any) -> Program:
    """Build a program by its name; the inverse of `Program.config`.

    Args:
        name: padding, watermark, none, or one that was registered.
        canvas: side of the square that the frozen model receives.
        interpolation: how images are brought to the size that the program gives them.
        settings: the program's own, such as `image_size` of padding or `frame` of watermark.

    >>> make_program("watermark", canvas=96, frame=8).config()["frame"]
    8
    """
    if interpolation not in get_args(Interpolation):
        raise unknown("interpolation", str(interpolation), get_args(Interpolation))
    kind = PROGRAMS[name]
    own = PROGRAMS.read(name, settings).model_dump(exclude_none=True)
    maker = kind.load()
    for needed, parameter in inspect.signature(maker).parameters.items():
        if needed in kind.settings.model_fields and needed not in own and parameter.default is inspect.Parameter.empty:
            raise ReprogramError(f"program {name!r} was given no {needed}, but needs it; give a number")
    program: Program = maker(canvas, interpolation=interpolation, **own)
    return program
