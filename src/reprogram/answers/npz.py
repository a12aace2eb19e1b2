"""Shards as `.npz` files: the arrays inside the archive are read in blocks of rows, never as a whole, never unpickled.

What an archive declares is checked before anything is allocated for it: the size of every array against that of its
member, and that against the archive.
"""

import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from reprogram.answers.block import (
    BLOCK_VALUES,
    COLUMNS,
    MOST_LABELS,
    MOST_LOGITS,
    Array,
    Block,
    check_columns,
    make_blocks,
    too_many_labels,
    too_many_logits,
    unreadable,
)
from reprogram.errors import ReprogramError
from reprogram.files.foreign import LARGEST_ROW, MIB, is_unicode, opened

_REMEDY = "save plain number and text arrays with np.savez"
_AGAIN = "write it again"
_BLOCK_BYTES = LARGEST_ROW
_DEFLATE = 1100  # how many bytes one byte can become; deflate's limit is 1,032
_LARGEST_WHOLE = 64 * MIB
_LONGEST_HEADER = 10_000
_TWO_DIMENSIONAL = ("logits", "topk_labels", "topk_scores")
#: The kinds of numpy's types that a column may have: numbers, texts and bytes that are texts.
_KINDS = {"logits": "fiu", "topk_scores": "fiuUS"}
_ANY_KIND = "fiubUS"
_ENTRY = (
    r"(?:['\"]descr['\"]\s*:\s*['\"](?P<descr{0}>[<>|=]?[a-zA-Z]\d{{0,9}})['\"]"
    r"|['\"]fortran_order['\"]\s*:\s*(?P<fortran{0}>True|False)"
    r"|['\"]shape['\"]\s*:\s*\((?P<shape{0}>[\dL,\s]*)\))\s*"
)
# What numpy writes is a dictionary as Python writes it; we need no more of it than this, and evaluate nothing.
_HEADER = re.compile(r"\{\s*" + r",\s*".join(_ENTRY.format(place) for place in range(3)) + r",?\s*\}\s*")
_LENGTHS = {b"\x01\x00": 2, b"\x02\x00": 4}


def read_npz(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read an archive of the arrays `label` (or `labels`) and `logits`, or `topk_labels` and perhaps `topk_scores`.

    `image` (or `name`), `split` and `group` may be there too. All have one row per image. Numbers or texts; −1, "" and NaN
    are empty places of an answer.
    """
    with ExitStack() as stack:
        file = stack.enter_context(opened(path, "shard", _AGAIN))
        size = os.fstat(file.fileno()).st_size
        try:
            archive = stack.enter_context(zipfile.ZipFile(file))
            members = _members(path, archive)
            names = COLUMNS | {"label": ("label", "labels")}
            found = {
                column: members[alias]
                for column, aliases in names.items()
                for alias in reversed(aliases)
                if alias in members
            }
            check_columns(path, found, list(members))
            arrays = {
                column: _Rows(stack.enter_context(_opened_member(path, archive, member, size)), path, member, size)
                for column, member in found.items()
            }
            yield from _blocks(path, arrays, logits)
        except ReprogramError:
            raise
        except (
            zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError, RuntimeError, IndexError,
            KeyError, TypeError, AttributeError, OverflowError,
        ) as error:  # fmt: skip  # whatever the reader of archives is led into
            raise unreadable(path, error, _REMEDY) from None


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in found:
            raise unreadable(path, f"{info.filename[:80]!r} is in it twice", _AGAIN)
        if name != info.filename:
            found[name] = info
    return found


def _opened_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> IO[bytes]:
    """One array of the archive, if it can be as large as it says."""
    if member.flag_bits & 1:
        raise unreadable(path, f"{member.filename} is encrypted", _REMEDY)
    most = {zipfile.ZIP_STORED: size, zipfile.ZIP_DEFLATED: _DEFLATE * min(member.compress_size, size) + _DEFLATE}
    if member.compress_type not in most:  # others can need gigabytes for a few bytes
        raise unreadable(path, f"{member.filename} is packed by a method that numpy does not use", _REMEDY)
    if not 0 <= member.file_size <= most[member.compress_type]:
        raise unreadable(path, f"{member.filename} claims {member.file_size} bytes, which cannot be in it", _AGAIN)
    return archive.open(member)


def _blocks(path: Path, arrays: dict[str, "_Rows"], with_logits: bool) -> Iterator[Block]:
    for column, array in arrays.items():
        wanted = 2 if column in _TWO_DIMENSIONAL else 1
        if len(array.shape) != wanted:
            raise ReprogramError(
                f"array {column!r} of shard {str(path)!r} has shape {array.shape}, but "
                f"{'(rows, k)' if wanted == 2 else '(rows,)'} is expected; reshape it"
            )
        if array.dtype.kind not in _KINDS.get(column, _ANY_KIND):
            kinds = "numbers are" if column in _KINDS else "numbers or texts are"
            raise ReprogramError(f"array {column!r} of shard {str(path)!r} is {array.dtype}, but {kinds} expected")
    counts = {array.rows for array in arrays.values()}
    if len(counts) > 1:
        told = ", ".join(f"{column} {array.rows}" for column, array in arrays.items())
        raise ReprogramError(
            f"the arrays of shard {str(path)!r} have different numbers of rows ({told}); save them together"
        )
    total = counts.pop()
    k_source = arrays["logits"].shape[1] if "logits" in arrays else None
    if k_source is not None and (k_source > MOST_LOGITS or (total and not k_source)):
        raise too_many_logits(path, k_source) if k_source else unreadable(path, "its rows have no logit", _AGAIN)
    if total and not any(array.row_bytes for array in arrays.values()):
        raise unreadable(path, f"its {total} rows hold nothing", _AGAIN)
    widest = max((array.shape[1] for column, array in arrays.items() if column.startswith("topk")), default=0)
    if widest > MOST_LABELS:
        raise too_many_labels(path, widest)
    if k_source is not None and not with_logits:
        del arrays["logits"]
    row_bytes = sum(array.row_bytes for array in arrays.values())
    if row_bytes > LARGEST_ROW:
        raise unreadable(path, f"each of its rows takes {row_bytes} bytes, where {LARGEST_ROW} are the most", _REMEDY)
    step = max(1, min(4096, BLOCK_VALUES // max(k_source or widest, 1), _BLOCK_BYTES // max(row_bytes, 1)))
    for start in range(0, total, step):
        rows = min(step, total - start)
        raw: dict[str, Any] = {column: array.take(rows) for column, array in arrays.items()}
        yield from make_blocks(path, start + 1, rows, raw, k_source)


class _Rows:
    """The rows of one `.npy` file inside an archive, one after another.

    Args:
        file: the member, open.
        path: of the archive.
        member: what the archive says about it.
        size: bytes of the archive.
    """

    def __init__(self, file: IO[bytes], path: Path, member: zipfile.ZipInfo, size: int) -> None:
        self.file, self.path, self.member = file, path, member.filename
        self.shape, fortran, self.dtype, header = self._header()
        self.rows = self.shape[0] if self.shape else 0
        items = math.prod(self.shape[1:])
        self.row_bytes = items * self.dtype.itemsize
        total = math.prod(self.shape) * self.dtype.itemsize
        if total + header != member.file_size:
            short = total + header > member.file_size
            said = "ends too early" if short else "is longer than the array in it"
            raise unreadable(path, f"{self.member} {said}: {self.dtype} of shape {self.shape}"[:160], _AGAIN)
        self._whole: Array | None = None
        if fortran and len(self.shape) > 1:  # column after column: rows cannot be had without reading it all
            if total > max(_LARGEST_WHOLE, 4 * size):
                raise unreadable(path, f"{self.member} stands column after column", "save np.ascontiguousarray of it")
            self._whole = self._array(self._read(total)).reshape(self.shape, order="F")
        self._taken = 0

    def take(self, rows: int) -> Array:
        """The next rows."""
        self._taken += rows
        if self._whole is not None:
            return self._whole[self._taken - rows : self._taken]
        if not self.row_bytes:
            return np.zeros((rows, *self.shape[1:]), self.dtype)
        return self._array(self._read(rows * self.row_bytes)).reshape(rows, *self.shape[1:])

    def _array(self, content: bytes) -> Array:
        if not is_unicode(content, self.dtype):
            raise unreadable(self.path, f"{self.member} holds numbers that are no characters", _AGAIN)
        return np.frombuffer(content, self.dtype)

    def _header(self) -> tuple[tuple[int, ...], bool, "np.dtype[Any]", int]:
        """Shape, whether columns come first, type, and how many bytes have told so."""
        magic = self._read(8)
        if magic[:6] != b"\x93NUMPY" or magic[6:] not in _LENGTHS:
            raise unreadable(self.path, f"{self.member} is no array in the format 1.0 or 2.0", _REMEDY)
        digits = _LENGTHS[magic[6:]]
        length = int.from_bytes(self._read(digits), "little")
        if length > _LONGEST_HEADER:
            raise unreadable(self.path, f"{self.member} has a header of {length} bytes", _REMEDY)
        parts = _HEADER.fullmatch(self._read(length).decode("latin-1"))
        found = {name[:-1]: value for name, value in (parts.groupdict() if parts else {}).items() if value is not None}
        if len(found) < 3:
            raise unreadable(self.path, f"{self.member} does not say what a plain array says of itself", _REMEDY)
        words = [word.strip().removesuffix("L") for word in found["shape"].split(",")]
        if words[-1] == "":
            words.pop()
        if not all(word.isdecimal() and len(word) < 19 for word in words):
            raise unreadable(self.path, f"{self.member} has the shape ({found['shape'][:80]})", _REMEDY)
        dtype = np.dtype(found["descr"])
        if dtype.hasobject:
            raise unreadable(self.path, f"{self.member} holds Python objects, which only a pickle can store", _REMEDY)
        return tuple(map(int, words)), found["fortran"] == "True", dtype, 8 + digits + length

    def _read(self, wanted: int) -> bytes:
        content = self.file.read(wanted)
        if len(content) < wanted:
            raise unreadable(self.path, f"{self.member} ends too early", _AGAIN)
        return content
