"""Which rows are set aside to measure on: a rule that looks at a row alone, so that the sharding cannot matter."""

import hashlib
import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from reprogram.answers.block import Block
from reprogram.answers.labels import test_rows


@dataclass(frozen=True)
class HoldOut:
    """A rule that sets rows aside.

    `none` keeps all rows and `all` none; `split` sets aside those that name the split `test`; `share` sets aside that share
    of them by a hash of the seed and the row's image name. So a row is on the same side in every shard and order, and two
    rows of the same image are on the same side. Without a name, logits stand for the image. Top-K answers cannot: many
    images get the very same one, and with all copies on one side the mapping would be measured on answers that it has never
    seen. There, the row's number among all rows is hashed, which depends on the order of the files but not on their cuts.
    """

    rule: Literal["none", "all", "split", "share"]
    share: float = 0.0
    seed: int = 0

    def __call__(self, block: Block, start: int = 0) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Which rows of a block are set aside, if its first one has the number `start` among all rows."""
        if self.rule in ("none", "all"):
            return np.full(block.rows, self.rule == "all")
        if self.rule == "split":
            return test_rows(block)
        limit = round(self.share * 2**64)
        return np.array([self._number(block, row, start + row) < limit for row in range(block.rows)], dtype=bool)

    def told(self) -> str:
        """The rule in words."""
        words = {"none": "no row", "all": "the test files", "split": "the rows of the split test"}
        return words.get(self.rule) or f"about {100 * self.share:g} % of the rows, drawn by a hash of each row"

    def _number(self, block: Block, row: int, place: int) -> int:
        digest = hashlib.blake2b(str(self.seed).encode(), digest_size=8)
        for part in _identity(block, row, place):
            digest.update(struct.pack("<Q", len(part)) + part)
        return int.from_bytes(digest.digest(), "big")


def _identity(block: Block, row: int, place: int) -> list[Any]:
    if block.images is not None and block.images[row]:
        return [block.images[row].encode(errors="surrogateescape")]
    label = block.labels[row] if block.labels is not None else ""
    if block.logits is not None:
        return [label.encode(errors="surrogateescape"), block.logits[row].astype("<f8").tobytes()]
    return [b"row", struct.pack("<Q", place)]
