"""Encoded pictures as RGB pixels in numpy: any format and mode in, upright and resized out.

Nothing here imports torch, so that a process that only decodes starts quickly and stays small.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from PIL import Image, ImageOps, features

from reprogram.errors import ReprogramError, first_line

Interpolation = Literal["bilinear", "bicubic", "bilinear-crop", "bicubic-crop"]
Pixels = np.ndarray[Any, Any]
#: How an image of each kind begins (at which byte), and the suffixes that it has.
_KINDS: dict[str, tuple[int, tuple[bytes, ...], tuple[str, ...]]] = {
    "BMP": (0, (b"BM",), (".bmp",)),
    "GIF": (0, (b"GIF87a", b"GIF89a"), (".gif",)),
    "JPEG": (0, (b"\xff\xd8\xff",), (".jpeg", ".jpg", ".jfif", ".jpe")),
    "PNG": (0, (b"\x89PNG\r\n\x1a\n",), (".png", ".apng")),
    "PPM": (
        0,
        tuple(f"P{digit}{space}".encode() for digit in "123456" for space in " \n\r\t"),
        (".pbm", ".pgm", ".pnm", ".ppm"),
    ),
    "TIFF": (0, (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), (".tif", ".tiff")),
    "WEBP": (8, (b"WEBP",), (".webp",)),
    "AVIF": (4, (b"ftypavif", b"ftypavis"), (".avif",)),
}
# Only these decoders run, whatever a file claims to be: others start programs (PostScript) or are hardly tested.
_FORMATS = tuple(kind for kind in _KINDS if kind not in ("AVIF", "WEBP") or features.check(kind.lower()))
SUFFIXES = frozenset(suffix for kind in _FORMATS for suffix in _KINDS[kind][2])
_RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
CROP = "-crop"
#: What an image may have at the most. A file of a few kilobytes can claim any size, and takes the memory for it.
MAX_PIXELS, MAX_SIDE = 2**27, 65_535
# Above this, images are decoded one at a time and converted in strips, whatever the number of threads.
LARGE = 2**25
_ONE_AT_A_TIME = threading.Lock()
_STRIP = 2**22  # pixels
_TILE_SIDES, _ORIENTATION = (322, 323), 0x0112  # tags of TIFF and EXIF


class LargeImageError(ReprogramError):
    """An image that takes much memory to decode, and so is decoded when no other one is."""


def placement(height: int, width: int, size: int, interpolation: Interpolation) -> tuple[int, int, int, int]:
    """Height and width to resize to, and the top left corner of the square in it; rounded as torchvision rounds.

    >>> placement(300, 401, 100, "bicubic-crop"), placement(300, 401, 100, "bicubic")
    ((100, 133, 0, 16), (100, 100, 0, 0))
    """
    if not interpolation.endswith(CROP):
        return size, size, 0, 0
    short = min(height, width)
    height, width = int(size * height / short), int(size * width / short)
    return height, width, round((height - size) / 2), round((width - size) / 2)


def worth_resizing(height: int, width: int, size: int, interpolation: Interpolation) -> tuple[tuple[int, int], ...]:
    """Which rows and columns are resized: all, but of a line that a crop would blow up without end only the middle.

    >>> worth_resizing(300, 400, 224, "bicubic-crop"), worth_resizing(1, 60_001, 224, "bicubic-crop")
    (((0, 300), (0, 400)), ((0, 1), (29999, 30002)))
    """
    new_height, new_width, _, _ = placement(height, width, size, interpolation)
    if new_height * new_width <= LARGE:
        return (0, height), (0, width)
    keep = 3 * min(height, width)
    return tuple(((side - kept) // 2, (side - kept) // 2 + kept) for side in (height, width) for kept in [min(side, keep)])


@contextmanager
def large_images_allowed() -> Iterator[None]:
    """Decode photographs of more than 89 megapixels without a warning; PIL still refuses twice that as a bomb.

    Warning filters belong to the whole process, so this is entered once around the threads that decode.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def read_pixels(
    source: str | Path | BinaryIO,
    size: int | None = None,
    interpolation: Interpolation = "bilinear",
    name: str | None = None,
    *,
    large: bool = True,
    most_pixels: int = MAX_PIXELS,
) -> Pixels:
    """Decode one file as RGB uint8 (3, H, W), upright, and `size` × `size` where a size is given.

    Args:
        source: a path, or an open file such as the bytes of an image in memory.
        size: side of the result; by default the image's own size.
        interpolation: how it is resized.
        name: what an error calls the image; by default its path.
        large: whether an image that takes much memory is decoded, too.
        most_pixels: how many it may have, told before anything is decoded.

    Raises:
        LargeImageError: it takes much memory, and that was not to be.
        TooManyPixels: it has more than `most_pixels`.
        ReprogramError: it cannot be decoded.
    """
    name = name or str(source)
    try:
        if isinstance(source, (str, Path)) and not Path(source).is_file() and Path(source).exists():
            if Path(source).is_dir():
                raise IsADirectoryError
            raise OSError("it is no plain file")  # a pipe or a device, which may never end
        with Image.open(source, formats=_FORMATS) as opened:
            _check_size(opened, most_pixels)
            is_large = opened.width * opened.height > LARGE
            if is_large and not large:
                raise LargeImageError(f"image {name!r} is large; decode it when no other one is")
            with _ONE_AT_A_TIME if is_large else nullcontext():
                return pixels_of(opened, size, interpolation)
    except LargeImageError:
        raise
    except (_TooLargeError, Image.DecompressionBombError) as error:
        raise TooManyPixels(
            f"image {name!r} is too large to decode ({first_line(error)}; {most_pixels:,} pixels and sides of {MAX_SIDE:,} "
            "are the most); make it smaller, or take it out of the data"
        ) from None
    except FileNotFoundError:
        raise ReprogramError(f"image {name!r} does not exist; check the path") from None
    except IsADirectoryError:
        raise ReprogramError(f"image {name!r} is a folder, but an image file is expected; name the files in it") from None
    except Exception as error:  # decoders raise whatever a damaged file leads them into
        raise ReprogramError(
            f"image {name!r} cannot be decoded ({first_line(error)}); replace it or take it out of the data"
        ) from None


class TooManyPixels(ReprogramError):  # noqa: N818  # it is told apart from its kin, not from a success
    """An image that claims more pixels than are decoded."""


class _TooLargeError(Exception):
    """An image, or a tile of it, claims more pixels than are decoded here."""


def _check_size(opened: Image.Image, most: int) -> None:
    """Refuse by what the header says, before anything is decoded."""
    tiles = getattr(opened, "tag_v2", {})
    tile = tuple(tiles.get(side, 0) for side in _TILE_SIDES)
    for width, height in (opened.size, tile):
        if not (isinstance(width, int) and isinstance(height, int)):
            raise ValueError("its tiles have no size")
        if width * height > most or max(width, height) > MAX_SIDE:
            raise _TooLargeError(f"{width:,} x {height:,} pixels")


def looks_like_an_image(start: bytes) -> bool:
    """Whether bytes begin like those of a kind of image that can be read here."""
    return any(start.startswith(beginnings, offset) for offset, beginnings, _ in (_KINDS[kind] for kind in _FORMATS))


def begins_like_an_image(path: Path) -> bool:
    """Whether the first bytes of a file are those of a kind of image that can be read here."""
    try:
        if not path.is_file():  # a pipe would keep us waiting
            return False
        with path.open("rb") as file:
            start = file.read(16)
    except OSError:
        return False
    return looks_like_an_image(start)


def pixels_of(picture: Image.Image, size: int | None = None, interpolation: Interpolation = "bilinear") -> Pixels:
    """Convert a PIL image of any mode to RGB uint8 (3, H, W); EXIF rotation applied, alpha over white."""
    picture = _upright_rgb(picture)
    if size is not None and picture.size != (size, size):
        (top, bottom), (left, right) = worth_resizing(picture.height, picture.width, size, interpolation)
        if (right - left, bottom - top) != picture.size:
            picture = picture.crop((left, top, right, bottom))
        height, width, top, left = placement(picture.height, picture.width, size, interpolation)
        picture = picture.resize((width, height), _RESAMPLING[interpolation.removesuffix(CROP)])
        picture = picture.crop((left, top, left + size, top + size)) if (width, height) != (size, size) else picture
    return np.ascontiguousarray(np.array(picture, dtype=np.uint8).transpose(2, 0, 1))


def _upright_rgb(picture: Image.Image) -> Image.Image:
    """RGB, turned as EXIF says; a large one is converted in strips, and so not in memory several times over."""
    width, height = picture.size
    if width * height <= LARGE:
        return _rgb(ImageOps.exif_transpose(picture))
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return ImageOps.exif_transpose(picture)
    orientation = picture.getexif().get(_ORIENTATION)
    rows, converted = max(1, _STRIP // width), Image.new("RGB", picture.size)
    brightest = float(np.max(picture.getextrema())) if _is_deep(picture) else None
    for top in range(0, height, rows):
        strip = (0, top, width, min(height, top + rows))
        converted.paste(_rgb(picture.crop(strip), brightest), strip)
    if orientation is not None:
        converted.getexif()[_ORIENTATION] = orientation
    return ImageOps.exif_transpose(converted)


def _is_deep(picture: Image.Image) -> bool:
    """Whether it has more than 8 bits of grey."""
    return picture.mode.startswith("I") or picture.mode == "F"


def _rgb(picture: Image.Image, brightest: float | None = None) -> Image.Image:
    """RGB; `brightest` is the highest level of the whole picture, where this is a part of one."""
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture
    if _is_deep(picture):  # PIL's own convert() would clip the levels
        levels: np.ndarray[Any, Any] = np.asarray(picture, dtype=np.float64)
        white = _white(picture.mode, levels.max(initial=0) if brightest is None else brightest)
        return Image.fromarray(np.clip(levels * (255 / white) + 0.5, 0, 255).astype(np.uint8)).convert("RGB")
    if "A" in picture.mode or "a" in picture.mode or "transparency" in picture.info:
        overlay = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", overlay.size, "white"), overlay).convert("RGB")
    return picture.convert("RGB")


def _white(mode: str, brightest: float) -> float:
    """The value that stands for white. 16-bit files say it themselves; for 32 bits nobody does, and the range tells."""
    if mode.startswith("I;16"):
        return 65535.0
    if mode == "F" and brightest <= 1:
        return 1.0
    return 255.0 if brightest <= 255 else 65535.0
