"""Shards as JSON lines: one answer per image, as a script that asks a service writes them."""

from collections.abc import Iterator
from pathlib import Path

from reprogram.answers.block import Block
from reprogram.answers.rows import RowBlocks
from reprogram.answers.services import row_of
from reprogram.files import parse_json
from reprogram.files.foreign import Lines, opened_text


def read_json_lines(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read objects with the key `label` and one of several forms of answers.

    `logits`, a list of numbers; `topk_labels` and perhaps `topk_scores`, two lists; a list of objects such as
    `{"name": "Tabby", "score": 0.91}` or of plain names under `labels`, `tags`, `labelAnnotations` or `predictions`; or what
    a tool says about one image, as it comes: see `reprogram.answers.services`.
    """
    rows = RowBlocks(path, logits=logits)
    with opened_text(path, "shard", "save it as JSON lines in UTF-8") as file:
        lines = Lines(file, path, "shard")
        for number, line in enumerate(lines, start=1):
            letters = lines.end_row()
            if line.strip():
                what = f"row {number} of {str(path)!r} is no JSON"
                values, percent = row_of(path, number, parse_json(line, what, "write one object per line", finite=False))
                yield from rows.add(number, values, letters, percent=percent)
        yield from rows.rest()
