"""Whatever a person may hand over as images, as batches of pixels."""

import io
import os
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.images.decoding import large_images_allowed
from reprogram.images.pictures import Interpolation, as_rgb, pil_to_tensor, read_image, resize

Array = np.ndarray[Any, Any] | Tensor
Channels = Literal["first", "last"]
_CHANNELS = (1, 2, 3, 4)
_EXPECTED = "a path, a PIL image, an array, a tensor, the bytes of an image file or an open binary file"


@runtime_checkable
class Decodable(Protocol):
    """Images that decode themselves, such as a split of a data set."""

    def pixels(self, size: int, interpolation: Interpolation) -> Tensor:
        """All images as uint8 (n, 3, size, size)."""


def batches_of(images: Any, size: int, interpolation: Interpolation = "bilinear", batch_size: int = 64) -> Iterator[Tensor]:
    """Bring images of any kind to batches, one after the other, so that a generator of many is never held as a whole.

    Args:
        images: one image or several: a path; a PIL image; the bytes of an image file; an open binary file; an array
            (H, W), (H, W, C) or (C, H, W), or a batch of those; a tensor (H, W), (C, H, W) or (N, C, H, W); a split of a
            data set; or a list, generator or other iterable of any of these, in any mixture. Whole numbers count as
            0..255 (uint16 as 0..65535), floating point as 0..1.
        size: side of the result.
        interpolation: how the images are resized: by PIL if they are encoded or PIL images, else by torch.
        batch_size: images per batch; the last one may have fewer.

    Yields:
        (N, 3, size, size) with N ≤ batch_size, uint8 or float32 in [0, 1].

    Raises:
        ReprogramError: something is no image, cannot be decoded, or has a shape that can be read in two ways.

    >>> [tuple(batch.shape) for batch in batches_of((np.zeros((9, 7, 3), np.uint8) for _ in range(3)), 8, batch_size=2)]
    [(2, 3, 8, 8), (1, 3, 8, 8)]
    """
    if isinstance(images, Decodable):
        yield from images.pixels(size, interpolation).split(batch_size)
        return
    waiting: list[Tensor] = []
    for chunk in _chunks(images, size, interpolation, batch_size):
        if not waiting and len(chunk) == batch_size:
            yield chunk  # a slice of a large batch goes through without a copy
            continue
        for image in chunk:
            waiting.append(image)
            if len(waiting) == batch_size:
                yield _stacked(waiting)
                waiting = []
    if waiting:
        yield _stacked(waiting)


def channels_first(images: Array, channels: Channels | None = None) -> Tensor:
    """Bring a batch (n, H, W), (n, H, W, C) or (n, C, H, W) to (n, C, H, W), uint8 or floating point.

    Args:
        images: whole numbers in 0..255 (uint16: 0..65535), truth values, or floating point.
        channels: `first` or `last` in the three sides of an image, where the shape does not tell.
    """
    tensor = images if isinstance(images, Tensor) else _plain(images)
    if tensor.ndim == 3:
        tensor = tensor.unsqueeze(1)
    elif tensor.ndim == 4:
        if channels is None and isinstance(images, Tensor):
            channels = "first"  # as everywhere in torch
        first, last = tensor.shape[1] in _CHANNELS, tensor.shape[3] in _CHANNELS
        if first and last and channels is None:
            raise ReprogramError(
                f"images have shape {tuple(tensor.shape)}, in which the channels can be second or last; "
                "give channels='first' or channels='last'"
            )
        if last and not (first and channels == "first"):
            tensor = tensor.permute(0, 3, 1, 2)
    if tensor.ndim != 4 or tensor.shape[1] not in _CHANNELS:
        raise ReprogramError(
            f"images have shape {tuple(images.shape)}, but (n, H, W), (n, H, W, C) or (n, C, H, W) with 1 to 4 channels is "
            "expected"
        )
    if tensor.dtype == torch.bool:
        return tensor.to(torch.uint8) * 255
    if tensor.dtype == torch.uint8 or tensor.is_floating_point():
        return tensor
    if tensor.numel() and not (int(tensor.min()) >= 0 and int(tensor.max()) <= 255):
        raise ReprogramError(
            f"images are {images.dtype} with values from {int(tensor.min())} to {int(tensor.max())}, but 0 to 255 is "
            "expected; scale them, or give floating point in [0, 1]"
        )
    return tensor.to(torch.uint8)


def _plain(images: "np.ndarray[Any, Any]") -> Tensor:
    """A numpy batch as a tensor; 16 bits become 8, which is all that a cached pixel holds."""
    if images.dtype.kind == "u" and images.dtype.itemsize == 2:  # in either byte order
        images = ((images.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)
    if images.dtype.kind not in "biuf" or images.dtype.itemsize > 8:
        raise ReprogramError(f"images are {images.dtype}, but numbers are expected; give the decoded pixels")
    # the machine's own byte order, and a copy of what may not be written to, such as a PIL picture: torch wants both
    return torch.from_numpy(np.require(images, images.dtype.newbyteorder("="), ["C", "W"]))


def _chunks(images: Any, size: int, interpolation: Interpolation, batch_size: int) -> Iterator[Tensor]:
    """The images as (n, 3, size, size) with n ≤ batch_size, in their order."""
    if isinstance(images, (Tensor, np.ndarray)):
        whole = channels_first(*_as_batch(images))
        for start in range(0, len(whole), batch_size):
            yield resize(as_rgb(whole[start : start + batch_size]), size, interpolation)
    elif (decoded := _decoded(images, size, interpolation)) is not None:
        yield decoded.unsqueeze(0)
    elif isinstance(images, Iterable) and not isinstance(images, (dict, set)):
        for number, image in enumerate(images, start=1):
            if isinstance(image, (list, tuple)):
                raise ReprogramError(f"image {number} is a {type(image).__name__}, but {_EXPECTED} is expected")
            yield from _chunks(image, size, interpolation, batch_size)
    else:
        raise ReprogramError(f"images are a {type(images).__name__}, but {_EXPECTED}, or a list of those, is expected")


def _decoded(image: Any, size: int, interpolation: Interpolation) -> Tensor | None:
    """One encoded or PIL image as uint8 (3, size, size); None for something else."""
    with large_images_allowed():
        if isinstance(image, Image.Image):
            return pil_to_tensor(image, size, interpolation)
        if isinstance(image, (str, os.PathLike)):
            return read_image(os.fspath(image), size, interpolation)
        if isinstance(image, (bytes, bytearray, memoryview)):
            return read_image(io.BytesIO(image), size, interpolation, name=f"of {len(image)} bytes")
        if callable(getattr(image, "read", None)):
            content = image.read()
            name = str(getattr(image, "name", "in an open file"))
            if not isinstance(content, bytes):
                raise ReprogramError(f"image {name!r} was opened as text; open it in binary mode, with 'rb'")
            return read_image(io.BytesIO(content), size, interpolation, name=name)
    return None


def _as_batch(images: Array) -> tuple[Array, Channels | None]:
    """One image as a batch of one, a batch as it is; and where the channels are, if that is known."""
    shape = tuple(images.shape)
    if len(shape) == 2:
        return images[None], None
    if len(shape) != 3:
        return images, None
    if isinstance(images, Tensor):
        return images[None], "first"
    first, last = shape[0] in _CHANNELS, shape[2] in _CHANNELS
    if first and (last or shape[0] in (2, 4)):
        raise ReprogramError(
            f"images have shape {shape}, which can be one image or a batch of grey ones; "
            "give (N, H, W, C), one image as (H, W, C), or a list of images"
        )
    if first or last:
        return images[None], "first" if first else "last"
    return images, None  # (N, H, W): no image has so many channels


def _stacked(images: list[Tensor]) -> Tensor:
    if len({image.dtype for image in images}) == 1:
        return torch.stack(images)
    return torch.stack([image.float() / 255 if image.dtype == torch.uint8 else image.cpu() for image in images])
