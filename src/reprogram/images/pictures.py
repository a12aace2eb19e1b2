"""Pictures as tensors: any mode or dtype in, RGB out; and the two resizes that the library uses.

Files and PIL pictures are resized by PIL, which rounds to whole grey levels; tensors and arrays by torch, which does
not. Both antialias, and the same picture differs by one grey level at the most (tests hold them to two).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from reprogram.errors import ReprogramError
from reprogram.images.decoding import CROP, MAX_PIXELS, pixels_of, placement, read_pixels, worth_resizing
from reprogram.images.decoding import Interpolation as Interpolation

ChannelValues = Sequence[float] | Tensor
# Half a grey level is 1/510, so a pixel this little outside [0, 1] is no other pixel in 8 bits: it comes from rounding in
# a resize (1 + 2.4e-7) or in half precision, whose next number above 1 is 1.00098.
_ROUNDING = 1e-3


def channel_values(values: ChannelValues) -> Tensor:
    """One number per colour channel, such as a mean, as a float32 tensor (3, 1, 1) that broadcasts over images."""
    return torch.as_tensor(values, dtype=torch.float32).reshape(3, 1, 1).clone()


def as_rgb(images: Tensor) -> Tensor:
    """Turn a batch of any channel count or pixel type into float32 RGB in [0, 1].

    Args:
        images: (N, C, H, W) with C = 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha). uint8 counts as 0..255,
            floating point as 0..1. Transparent pixels are laid over white.

    Returns:
        (N, 3, H, W) float32.

    Raises:
        ReprogramError: the shape is another one, or a pixel is NaN or more than 0.001 outside [0, 1]; less than that is
            rounding, and is clamped.

    >>> as_rgb(torch.full((2, 1, 4, 4), 255, dtype=torch.uint8)).shape
    torch.Size([2, 3, 4, 4])
    """
    if images.ndim != 4 or images.shape[1] not in (1, 2, 3, 4) or 0 in images.shape[2:]:
        raise ReprogramError(
            f"images have shape {tuple(images.shape)}, but a batch (N, C, H, W) with 1 to 4 channels is expected; "
            "add the batch dimension or move the channels to the second place"
        )
    if images.dtype == torch.uint8:
        images = images.float() / 255
    elif images.is_floating_point():
        images = images.float()
        if images.numel():
            low, high = (bound.item() for bound in torch.aminmax(images))
            if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
                found = "NaN" if low != low else f"values from {low:g} to {high:g}"
                raise ReprogramError(
                    f"images hold {found}, but pixels in [0, 1] (or uint8 in 0..255) are expected; "
                    "scale them, and leave the normalisation to the program"
                )
            images = images.clamp(0, 1) if low < 0 or high > 1 else images
    else:
        raise ReprogramError(f"images are {images.dtype}, but uint8 or floating point is expected; convert them first")
    channels = images.shape[1]
    if channels in (2, 4):
        colour, alpha = images[:, :-1], images[:, -1:]
        images = colour * alpha + (1 - alpha)
    return images.expand(-1, 3, -1, -1) if channels < 3 else images


def resize(images: Tensor, size: int, interpolation: Interpolation = "bilinear") -> Tensor:
    """Bring a float batch to `size` × `size`; the right size passes through untouched.

    `bilinear` and `bicubic` stretch both sides, so the aspect is not kept. `bilinear-crop` and `bicubic-crop` bring the
    shorter side to `size` and cut the middle out of the longer one, as CLIP does.
    """
    if images.shape[-2:] == (size, size):
        return images
    across, down = worth_resizing(images.shape[-2], images.shape[-1], size, interpolation)
    images = images[..., slice(*across), slice(*down)]
    height, width, top, left = placement(images.shape[-2], images.shape[-1], size, interpolation)
    how = interpolation.removesuffix(CROP)
    resized = F.interpolate(images, (height, width), mode=how, antialias=True, align_corners=False)
    return resized[..., top : top + size, left : left + size].clamp(0, 1)  # bicubic overshoots


def read_image(
    source: str | Path | BinaryIO,
    size: int | None = None,
    interpolation: Interpolation = "bilinear",
    name: str | None = None,
    most_pixels: int = MAX_PIXELS,
) -> Tensor:
    """Decode one file as an RGB uint8 tensor (3, H, W), upright, and `size` × `size` where a size is given.

    Args:
        source: a path, or an open file such as the bytes of an image in memory.
        size: side of the result; by default the image's own size.
        interpolation: how it is resized.
        name: what an error calls the image; by default its path.
        most_pixels: how many it may have, told before anything is decoded.

    Raises:
        TooManyPixels: it has more than that.
        ReprogramError: it cannot be decoded.
    """
    return torch.from_numpy(read_pixels(source, size, interpolation, name, most_pixels=most_pixels))


def pil_to_tensor(picture: Image.Image, size: int | None = None, interpolation: Interpolation = "bilinear") -> Tensor:
    """Convert a PIL image of any mode to an RGB uint8 tensor (3, H, W); EXIF rotation applied, alpha over white."""
    return torch.from_numpy(pixels_of(picture, size, interpolation))
