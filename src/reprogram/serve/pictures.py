"""Uploaded bytes as pixels for a way through the model; what is no image, or too large a one, is refused by its head."""

import io

import numpy as np

from reprogram.errors import ReprogramError
from reprogram.images.decoding import Pixels, TooManyPixels, looks_like_an_image, read_pixels
from reprogram.serve.limits import Limits, Refusal
from reprogram.serve.tasks import Way


def decoded(content: bytes, name: str, way: Way, limits: Limits) -> Pixels:
    """An encoded image as uint8 (3, S, S), or a refusal that names it.

    Args:
        content: the bytes of the file.
        name: what the client calls it.
        way: which has the size and the interpolation.
        limits: which have the pixels.
    """
    if not looks_like_an_image(content[:16]):
        found = "is empty" if not content else "is no image of a kind that is read here"
        raise Refusal(415, f"image {name} {found}; send a JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or PPM file")
    try:
        return read_pixels(io.BytesIO(content), way.image_size, way.interpolation, name, most_pixels=limits.pixels)
    except TooManyPixels:
        raise Refusal(413, f"image {name} has more than {limits.pixels:,} pixels; make it smaller") from None
    except ReprogramError as error:
        reason = str(error).partition("(")[2].partition(")")[0].partition(" <")[0]  # without an address in memory
        raise Refusal(
            422, f"image {name} cannot be decoded ({reason or 'it is damaged'}); send it again, or another one"
        ) from None


def from_array(array: Pixels, way: Way, limits: Limits) -> list[Pixels]:
    """Images of an array (N, 3, H, W) or (N, H, W, 3), uint8 or floating point in [0, 1], each (3, S, S)."""
    if array.ndim != 4 or 0 in array.shape:
        raise Refusal(422, f"a tensor of shape {list(array.shape)} was sent, but (N, 3, H, W) is expected; reshape it")
    if len(array) > limits.images:
        raise Refusal(413, f"{len(array):,} images were sent, but at most {limits.images:,} are taken at once; send fewer")
    if array.shape[1] * array.shape[2] * array.shape[3] > 4 * limits.pixels:
        raise Refusal(413, f"an image of shape {list(array.shape[1:])} was sent; {limits.pixels:,} pixels are the most")
    try:
        array = np.ascontiguousarray(array)
        if array.dtype == np.uint8 and array.shape[1:] == (3, way.image_size, way.image_size):
            return list(array)
        return way.fit(array)
    except ReprogramError as error:
        raise Refusal(422, str(error)) from None
