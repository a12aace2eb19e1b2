"""Shards as `.npz` files: the arrays inside the archive are read in blocks of rows, never as a whole, never unpickled."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from reprogram.answers.block import COLUMNS, Array, Block, check_columns, make_block, unreadable
from reprogram.errors import ReprogramError

_REMEDY = "save plain number and text arrays with np.savez"
_BLOCK_VALUES = 2_000_000


def read_npz(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read an archive of the arrays `label` (or `labels`) and `logits`, or `topk_labels` and perhaps `topk_scores`.

    `image` (or `name`) and `split` may be there too. All have one row per image. Numbers or texts; −1, "" and NaN are
    empty places of an answer.
    """
    try:
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(path))
            members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
            names = COLUMNS | {"label": ("label", "labels")}
            found = {
                column: members[alias]
                for column, aliases in names.items()
                for alias in reversed(aliases)
                if alias in members
            }
            check_columns(path, found, list(members))
            arrays = {
                column: _Rows(stack.enter_context(archive.open(member)), path, member) for column, member in found.items()
            }
            yield from _blocks(path, arrays, logits)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError) as error:
        if isinstance(error, ReprogramError):
            raise
        raise unreadable(path, error, _REMEDY) from None


def _blocks(path: Path, arrays: dict[str, "_Rows"], with_logits: bool) -> Iterator[Block]:
    counts = {array.rows for array in arrays.values()}
    if len(counts) > 1:
        told = ", ".join(f"{column} {array.rows}" for column, array in arrays.items())
        raise ReprogramError(
            f"the arrays of shard {str(path)!r} have different numbers of rows ({told}); save them together"
        )
    for column, array in arrays.items():
        wanted = 2 if column in ("logits", "topk_labels", "topk_scores") else 1
        if len(array.shape) != wanted:
            raise ReprogramError(
                f"array {column!r} of shard {str(path)!r} has shape {array.shape}, but "
                f"{'(rows, k)' if wanted == 2 else '(rows,)'} is expected; reshape it"
            )
    k_source = arrays["logits"].shape[1] if "logits" in arrays else None
    if k_source is not None and arrays["logits"].dtype.kind not in "fiu":
        raise ReprogramError(f"array 'logits' of shard {str(path)!r} is {arrays['logits'].dtype}, but numbers are expected")
    if k_source is not None and not with_logits:
        del arrays["logits"]
    total = counts.pop()
    step = max(1, min(4096, _BLOCK_VALUES // max(k_source or 1, 1)))
    for start in range(0, total, step):
        rows = min(step, total - start)
        raw: dict[str, Any] = {column: array.take(rows) for column, array in arrays.items()}
        yield make_block(path, start + 1, rows, raw, k_source)


class _Rows:
    """The rows of one `.npy` file inside an archive, one after another."""

    def __init__(self, file: IO[bytes], path: Path, member: str) -> None:
        self.file, self.path, self.member = file, path, member
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            header = np.lib.format.read_array_header_2_0(file)
        else:
            raise unreadable(path, f"{member} has the format {version}", _REMEDY)
        self.shape, fortran, self.dtype = header
        if self.dtype.hasobject:
            raise unreadable(path, f"{member} holds Python objects, which only a pickle can store", _REMEDY)
        self.rows = self.shape[0] if self.shape else 0
        self._row_items = int(np.prod(self.shape[1:]))
        self._whole: Array | None = None
        if fortran and len(self.shape) > 1:  # column after column: rows cannot be had without reading it all
            values = np.frombuffer(self._read(self.rows * self._row_items), self.dtype)
            self._whole = values.reshape(self.shape, order="F")
        self._taken = 0

    def take(self, rows: int) -> Array:
        """The next rows."""
        self._taken += rows
        if self._whole is not None:
            return self._whole[self._taken - rows : self._taken]
        return np.frombuffer(self._read(rows * self._row_items), self.dtype).reshape(rows, *self.shape[1:])

    def _read(self, items: int) -> bytes:
        wanted = items * self.dtype.itemsize
        content = self.file.read(wanted)
        if len(content) < wanted:
            raise unreadable(self.path, f"{self.member} ends too early", "write it again")
        return content
