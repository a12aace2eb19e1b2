"""Which rows are set aside to measure on: a rule that looks at a row alone, so that the sharding cannot matter."""

import hashlib
import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from reprogram.answers.block import Block
from reprogram.data.splits import SPLIT_WORDS
from reprogram.errors import ReprogramError, shown

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True)
class HoldOutRule:
    """A rule that sets rows aside.

    `none` measures on no row and `all` on every one; `split` measures on those that name the split `test`; `share` measures
    on that share of the others, by a hash of the seed and the row's image name. So a row is on the same side in every shard
    and order, and two rows of the same image are on the same side. Without a name, logits stand for the image. Top-K answers
    cannot: many images get the very same one, and with all copies on one side the mapping would be measured on answers that
    it has never seen. There, the row's number among all rows is hashed, which depends on the order of the files but not on
    their cuts.

    Whatever the rule, a row that names the split `test` is never fitted.
    """

    kind: Literal["none", "all", "split", "share"]
    share: float = 0.0
    seed: int = 0

    @property
    def refits(self) -> bool:
        """Whether the rows that were measured on are fitted in the end."""
        return self.kind == "share"

    def sides(self, block: Block, start: int) -> tuple[Mask, Mask]:
        """Which rows of a block are fitted, and which are measured on; test rows that are not measured on are neither.

        Args:
            block: the rows.
            start: the number of its first row among all rows.
        """
        test = test_rows(block)
        if self.kind == "all":
            held = np.ones(block.rows, dtype=bool)
        elif self.kind == "share":
            limit = round(self.share * 2**64)
            drawn = [self._number(block, row, start + row) < limit for row in range(block.rows)]
            held = np.array(drawn, dtype=bool) & ~test
        else:
            held = test if self.kind == "split" else np.zeros(block.rows, dtype=bool)
        return ~held & ~test, held

    def __str__(self) -> str:
        words = {"none": "no row", "all": "the test files", "split": "the rows of the split test"}
        return words.get(self.kind) or f"about {100 * self.share:g} % of the rows, drawn by a hash of each row"

    def _number(self, block: Block, row: int, place: int) -> int:
        digest = hashlib.blake2b(str(self.seed).encode(), digest_size=8)
        for part in _identity(block, row, place):
            digest.update(struct.pack("<Q", len(part)) + part)
        return int.from_bytes(digest.digest(), "big")


def test_rows(block: Block) -> Mask:
    """Which rows name the split `test`; a word that is no split is a mistake."""
    found = np.zeros(block.rows, dtype=bool)
    for row, word in enumerate(block.splits or ()):
        if word and word.lower() not in SPLIT_WORDS:
            raise ReprogramError(
                f"{block.place(row)} has the split {shown(word)}, but one of {', '.join(SPLIT_WORDS)} is expected; rename it"
            )
        found[row] = SPLIT_WORDS.get(word.lower()) == "test"
    return found


test_rows.__test__ = False  # type: ignore[attr-defined]  # a rule about rows, not a test


def _identity(block: Block, row: int, place: int) -> list[Any]:
    if block.images is not None and block.images[row]:
        return [block.images[row].encode(errors="surrogateescape")]
    label = block.labels[row] if block.labels is not None else ""
    if block.logits is not None:
        return [label.encode(errors="surrogateescape"), block.logits[row].astype("<f8").tobytes()]
    return [b"row", struct.pack("<Q", place)]
