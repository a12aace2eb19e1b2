"""Which rows are set aside to measure on: a rule that looks at a row alone, so that the sharding cannot matter."""

import hashlib
import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.block import Block
from reprogram.data.group_patterns import GroupPattern
from reprogram.data.splits import SPLIT_WORDS
from reprogram.errors import ReprogramError, shown
from reprogram.mappings.grouping import group_hash

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

    Rows of one group, which the column `group` or a pattern on the image names tells, are on the same side: where a row has
    a group, its name is what is hashed.

    Whatever the rule, a row that names the split `test` is never fitted.

    Attributes:
        kind: see above.
        share: how large a share.
        seed: of the hash.
        grouped: whether there are groups at all.
        pattern: reads groups off image names; None takes the column `group`.
    """

    kind: Literal["none", "all", "split", "share"]
    share: float = 0.0
    seed: int = 0
    grouped: bool = False
    pattern: GroupPattern | None = None

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
            groups = row_groups(block, self.pattern)
            drawn = [self._number(block, row, start + row, groups) < limit for row in range(block.rows)]
            held = np.array(drawn, dtype=bool) & ~test
        else:
            held = test if self.kind == "split" else np.zeros(block.rows, dtype=bool)
        return ~held & ~test, held

    def __str__(self) -> str:
        words = {"none": "no row", "all": "the test files", "split": "the rows of the split test"}
        what = "group" if self.grouped else "row"
        return words.get(self.kind) or f"about {100 * self.share:g} % of the {what}s, drawn by a hash of each {what}"

    def group_numbers(self, block: Block, start: int) -> Tensor | None:
        """The groups of the rows as numbers, (rows,) int64, where there are groups; a row without one is one by itself."""
        if not self.grouped:
            return None
        groups = row_groups(block, self.pattern)
        return torch.tensor([group_hash(*_identity(block, row, start + row, groups)) for row in range(block.rows)])

    def _number(self, block: Block, row: int, place: int, groups: list[str] | None) -> int:
        digest = hashlib.blake2b(str(self.seed).encode(), digest_size=8)
        for part in _identity(block, row, place, groups):
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


def row_groups(block: Block, pattern: GroupPattern | None) -> list[str] | None:
    """The group of each row, "" for none; None if nothing tells."""
    if pattern is None:
        return block.groups
    return [pattern.group_of(image) or "" for image in block.images] if block.images is not None else None


def named_group(name: str) -> list[bytes]:
    """What a group is hashed by."""
    return [b"group", name.encode(errors="surrogateescape")]


def _identity(block: Block, row: int, place: int, groups: list[str] | None) -> list[Any]:
    if groups is not None and groups[row]:
        return named_group(groups[row])
    if block.images is not None and block.images[row]:
        return [block.images[row].encode(errors="surrogateescape")]
    label = block.labels[row] if block.labels is not None else ""
    if block.logits is not None:
        return [label.encode(errors="surrogateescape"), block.logits[row].astype("<f8").tobytes()]
    return [b"row", struct.pack("<Q", place)]
