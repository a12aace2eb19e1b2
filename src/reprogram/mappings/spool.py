"""Rows that come in blocks, kept on disk, so that any of them can be had again and their number does not matter."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import torch
from torch import Tensor

from reprogram.errors import ReprogramError


class Spool:
    """Columns of rows in a folder that goes away with this context.

    >>> with Spool() as spool:
    ...     spool.add("logits", torch.zeros(2, 3))
    ...     spool.add("logits", torch.ones(1, 3))
    ...     spool.tensor("logits")[1:].tolist()
    [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._columns: dict[str, tuple[IO[bytes], np.dtype[Any], tuple[int, ...]]] = {}
        self._rows: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def add(self, name: str, rows: Tensor) -> None:
        """Append rows to a column; all of them have the type and the shape of the first."""
        values = rows.detach().cpu().numpy()
        if name not in self._columns:
            if not self._columns:
                self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="reprogram-")))
            opened = self._stack.enter_context((self._folder / name).open("wb"))
            self._columns[name], self._rows[name] = (opened, values.dtype, values.shape[1:]), 0
        file, dtype, shape = self._columns[name]
        if values.shape[1:] != shape:
            raise ReprogramError(
                f"a block of {name} has rows of shape {values.shape[1:]}, but the first one had {shape}; give alike blocks"
            )
        file.write(np.ascontiguousarray(values, dtype=dtype).tobytes())
        self._rows[name] += len(values)

    def tensor(self, name: str) -> Tensor:
        """All rows of a column, mapped into memory."""
        if not self._rows.get(name):
            raise ReprogramError("no sample was given; give at least two of each class")
        file, dtype, shape = self._columns[name]
        file.flush()
        return torch.from_numpy(np.memmap(self._folder / name, dtype, mode="c", shape=(self._rows[name], *shape)))
