"""Arrays of an `.npz` file whose sizes were checked first: a few hundred bytes can claim any shape."""

import ast
import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np

from reprogram.errors import ReprogramError, first_line
from reprogram.files.foreign import is_unicode

_GIB = 2**30
# What a file may unpack to: real images hardly shrink, but a drawing or a mask does.
_UNPACKED, _RATIO = _GIB, 100
_HEADER = 100_000  # bytes; numpy's own are below 200
_DEFLATE = 1032  # no byte that was packed by this method becomes more


def read_npz(path: Path, wanted: Collection[str]) -> tuple[dict[str, "np.ndarray[Any, Any]"], list[str]]:
    """Read some arrays of an `.npz` file.

    Each array's declared shape must be what its part of the file holds, before memory is taken for it. Arrays of Python
    objects are refused: they are pickles, and a pickle from elsewhere can run any code.

    Args:
        path: of the file.
        wanted: the names of the arrays to read, where they are there.

    Returns:
        The arrays by name, and the names of all that the file holds.
    """
    named = f"array file {str(path)!r}"
    remedy = "save plain number and text arrays with np.savez"
    if not path.is_file():
        reason = "is no plain file; copy it to a disk" if path.exists() else "does not exist; check the path"
        raise ReprogramError(f"{named} {reason}")
    try:
        with path.open("rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise ReprogramError(f"{named} holds one array; save images and labels with np.savez")
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            read = {name: info for name, info in members.items() if name in wanted}
            total, limit = sum(info.file_size for info in read.values()), _UNPACKED + _RATIO * path.stat().st_size
            if total > limit:
                raise ReprogramError(
                    f"{named} unpacks to {total / _GIB:.1f} GiB, but {limit / _GIB:.1f} GiB are the most for its size; "
                    "save it with np.savez, which does not pack"
                )
            return {name: _array(archive, info) for name, info in read.items()}, list(members)
    except ReprogramError:
        raise
    except Exception as error:  # a damaged archive fails in many ways, all meaning the same to the caller
        raise ReprogramError(f"{named} cannot be read ({first_line(error)}); {remedy}") from None


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> "np.ndarray[Any, Any]":
    if info.file_size > _DEFLATE * (info.compress_size + 1):
        raise ValueError(f"{info.filename} claims more bytes than it can hold")
    with archive.open(info) as member:
        kind, shape, column_major, begin = _header(member)
        size = math.prod(shape) * kind.itemsize
        if begin + size != info.file_size or not (kind.itemsize or math.prod(shape) <= info.file_size):
            raise ValueError(f"{info.filename} claims shape {str(shape)[:60]} of {kind}, but holds {info.file_size:,} bytes")
        content = member.read()  # to its end, where the checksum is compared
    if not is_unicode(content, kind):
        raise ValueError(f"{info.filename} holds text that is no Unicode")
    flat = np.frombuffer(content, kind, math.prod(shape))
    return flat.reshape(shape, order="F" if column_major else "C").copy()


def _header(member: IO[bytes]) -> tuple["np.dtype[Any]", tuple[int, ...], bool, int]:
    """The kind of number, the shape, whether columns come first, and where the numbers begin."""
    start = member.read(8)
    if len(start) < 8 or start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise ValueError("it holds something else than arrays")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(member.read(width), "little")
    if length > _HEADER:
        raise ValueError(f"an array begins with {length:,} bytes of description")
    text = member.read(length).decode("latin1" if start[6] < 3 else "utf-8")
    described = ast.literal_eval(text)  # reads constants alone
    shape, kind = described["shape"], np.lib.format.descr_to_dtype(described["descr"])
    if not (isinstance(shape, tuple) and all(type(side) is int and side >= 0 for side in shape)):
        raise ValueError("an array has no shape")
    if kind.hasobject or kind.kind not in "biufU":
        raise ValueError(f"an array of {str(kind)[:60]} instead of numbers or text")
    return kind, shape, described["fortran_order"] is True, 8 + width + length
