"""What the built-in programs can be told, and what they take where nothing is said: by the model and by the images."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import Field

from reprogram.images.settings import Augment
from reprogram.settings import Settings


@dataclass(frozen=True)
class Surroundings:
    """What a program's defaults may depend on.

    Attributes:
        canvas: side of the square that the model receives.
        native_size: shorter side of a typical image of the data.
        published_size: side of the image on a canvas of 224 that a published protocol prescribes for the data, if any.
        flip_safe: whether a mirrored image keeps its class; None where nobody has said so.
        frame: width of the outer frame that the model's makers of programs leave free, on this canvas, if any.
        as_published: whether the paper's protocol is followed to the letter.
    """

    canvas: int
    native_size: int
    published_size: int | None = None
    flip_safe: bool | None = None
    frame: int | None = None
    as_published: bool = False


class ProgramSettings(Settings):
    """Base of all programs' settings.

    Attributes:
        rate: the learning rate of θ where nothing is said, at the top of one cycle of Adam.
    """

    rate: ClassVar[float] = 0.05

    def resolved(self, around: Surroundings) -> Self:
        """The same with everything filled in that was left to the model and the data."""
        return self

    def augment(self, around: Surroundings) -> Augment:
        """How training images are varied under this program where nothing is said."""
        return "none"


class PaddingSettings(ProgramSettings):
    """Of padding."""

    rate = 0.1  # of θ before it is squashed

    image_size: int | None = Field(
        None,
        ge=1,
        description="Side of the image inside a padding program; by default 32 for tiny images, else 4/7 of the canvas.",
    )

    def resolved(self, around: Surroundings) -> Self:
        """Take the published size of the data on this canvas, or one by the size of the images."""
        if self.image_size is not None:
            return self
        if around.published_size is not None:
            return self._with(image_size=max(1, around.published_size * around.canvas // 224))
        return self._with(image_size=default_image_size(around.native_size, around.canvas))

    def _with(self, **changed: Any) -> Self:
        return self.model_copy(update=changed)


class WatermarkSettings(ProgramSettings):
    """Of watermark."""

    rate = 0.002  # of what is added to normalised pixels: a longer step drove it off at once

    frame: int | None = Field(
        None,
        ge=1,
        description="Width of a watermark's free outer frame; by default every pixel is free, or 30 of 224 for openclip.",
    )

    def resolved(self, around: Surroundings) -> Self:
        """Take the frame of the source model, if it has one."""
        return self if self.frame is not None else self.model_copy(update={"frame": around.frame})

    def augment(self, around: Surroundings) -> Augment:
        """Crop and mirror, as published, where a mirrored image keeps its meaning; a frame must keep its place."""
        if self.frame is not None or around.frame is not None:
            return "none"
        # mirrored digits and traffic signs change their meaning: only the paper's protocol mirrors them all the same
        return "flip" if around.flip_safe or around.as_published else "crop"


def default_image_size(native: int, canvas: int) -> int:
    """The paper's sizes, 32 for images of at most 32 pixels and 128 for others, carried over to a canvas other than 224.

    >>> default_image_size(32, 224), default_image_size(500, 224), default_image_size(8, 64), default_image_size(8, 48)
    (32, 128, 32, 24)
    """
    return min(32, canvas // 2) if native <= 32 else max(1, canvas * 4 // 7)
