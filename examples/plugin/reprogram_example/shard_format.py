"""A shard format: a file of a model's answers becomes blocks of rows."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from reprogram.answers.block import Block, make_block

ROWS = 4096


def read(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read lines such as `warm: orange 0.9, red 0.4`, a block at a time; there are no logits to leave out."""
    with path.open(encoding="utf-8") as file:
        first = 1
        while lines := [line.strip() for line in islice(file, ROWS)]:
            labels, names, scores = [], [], []
            for line in lines:
                label, _, answer = line.partition(":")
                pairs = [pair.split() for pair in answer.split(",") if pair.strip()]
                labels.append(label)
                names.append([name for name, *_ in pairs])
                scores.append([score[0] if score else None for _, *score in pairs])
            yield make_block(path, first, len(lines), {"label": labels, "topk_labels": names, "topk_scores": scores})
            first += len(lines)
