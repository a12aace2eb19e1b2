"""Rows as a reader finds them, one after another, given on as blocks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprogram.answers.block import BLOCK_VALUES, Block, make_blocks
from reprogram.errors import ReprogramError
from reprogram.files.foreign import LARGEST_ROW

_ROWS = 1024


class RowBlocks:
    """Gathers rows and cuts them into blocks of a bounded size.

    Args:
        path: the file that they come from.
        logits: False leaves out the logits themselves.
    """

    def __init__(self, path: Path, *, logits: bool = True) -> None:
        self._path, self._logits = path, logits
        self._form: set[str] = set()
        self._k_source: int | None = None
        self._raw: dict[str, list[Any]] = {}
        self._first = self._rows = self._letters = 0
        self._percent = False

    def add(self, number: int, values: dict[str, Any], letters: int = 0, *, percent: bool = False) -> Iterator[Block]:
        """Add a row, and yield the blocks that are full.

        Args:
            number: its number in the file; a gap ends a block, so that rows keep their numbers.
            values: its columns, by the names of `reprogram.answers.block.COLUMNS`; a row may lack what another one has.
            letters: how long it was in the file.
            percent: whether its scores are known to run to 100.
        """
        answer = {"logits", "topk_labels"} & set(values)
        self._form = self._form or answer
        if answer != self._form:
            raise ReprogramError(
                f"row {number} of {str(self._path)!r} holds {min(answer)}, but the rows before hold {min(self._form)}; "
                "keep the two in different files"
            )
        if self._rows and (number != self._first + self._rows or percent != self._percent):
            yield from self.rest()
        if "logits" in values and self._k_source is None:
            self._k_source = len(values["logits"] or [])
        self._first, self._percent = self._first or number, percent
        for column in self._raw.keys() | values.keys():
            self._raw.setdefault(column, [None] * self._rows).append(values.get(column))
        self._rows += 1
        self._letters += letters
        if self._rows == _ROWS or self._letters >= LARGEST_ROW or self._rows * (self._k_source or 0) >= BLOCK_VALUES:
            yield from self.rest()

    def rest(self) -> Iterator[Block]:
        """The blocks of the rows that were not yet given on."""
        if self._rows:
            first, rows, raw, percent = self._first, self._rows, self._raw, self._percent
            self._raw, self._first, self._rows, self._letters = {}, 0, 0, 0
            if not self._logits:
                raw.pop("logits", None)
            for block in make_blocks(self._path, first, rows, raw, self._k_source):
                yield replace(block, percent=True) if percent else block
