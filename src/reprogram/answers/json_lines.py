"""Shards as JSON lines: one object per image, as a script that asks a service writes them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reprogram.answers.block import BLOCK_VALUES, COLUMNS, Block, check_columns, make_blocks
from reprogram.errors import ReprogramError, short
from reprogram.files import parse_json
from reprogram.files.foreign import LARGEST_ROW, Lines, opened_text

_ROWS = 1024
#: Under which keys services list their labels, and what they call a label and its score there; case does not matter.
LISTS = ("labels", "tags", "labelAnnotations", "predictions")
NAMES = ("name", "label", "description", "class")
SCORES = ("score", "confidence", "probability")


def read_json_lines(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """Read objects with the key `label` and one of three forms of answers.

    `logits`, a list of numbers; `topk_labels` and perhaps `topk_scores`, two lists; or a list of objects such as
    `{"name": "Tabby", "score": 0.91}` or of plain names under `labels`, `tags`, `labelAnnotations` or `predictions`.
    """
    raw: dict[str, list[Any]] = {}
    form: set[str] = set()
    first = rows = letters = 0
    k_source: int | None = None
    with opened_text(path, "shard", "save it as JSON lines in UTF-8") as file:
        lines = Lines(file, path, "shard")
        for number, line in enumerate(lines, start=1):
            letters += lines.end_row()
            if line.strip():
                values = _row(path, number, line)
                answer = {"logits", "topk_labels"} & set(values)
                form = form or answer
                if answer != form:
                    raise ReprogramError(
                        f"row {number} of {str(path)!r} holds {answer.pop()}, but the rows before hold {form.pop()}; "
                        "keep the two in different files"
                    )
                if "logits" in values and k_source is None:
                    k_source = len(values["logits"] or [])
                first = first or number
                for column in raw.keys() | values.keys():  # a row may lack what another one has
                    raw.setdefault(column, [None] * rows).append(values.get(column))
                rows += 1
            full = rows == _ROWS or letters >= LARGEST_ROW or rows * (k_source or 0) >= BLOCK_VALUES
            if first and (full or not line.strip()):
                yield from _blocks(path, first, rows, raw, k_source, logits)
                raw, first, rows, letters = {}, 0, 0, 0
        if first:
            yield from _blocks(path, first, rows, raw, k_source, logits)


def _blocks(
    path: Path, first: int, rows: int, raw: dict[str, list[Any]], k_source: int | None, logits: bool
) -> Iterator[Block]:
    if not logits:
        raw.pop("logits", None)
    yield from make_blocks(path, first, rows, raw, k_source)


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    """The columns of one object."""
    content = parse_json(line, f"row {number} of {str(path)!r} is no JSON", "write one object per line", finite=False)
    if not isinstance(content, Mapping):
        raise ReprogramError(
            f"row {number} of {str(path)!r} is a {type(content).__name__}, but an object is expected; write one per line"
        )
    values = {
        column: content[alias] for column, aliases in COLUMNS.items() for alias in reversed(aliases) if alias in content
    }
    for column in ("logits", "topk_labels", "topk_scores"):
        if not isinstance(values.get(column), (list, type(None))):
            raise ReprogramError(f"{column} in row {number} of {str(path)!r} is no list; write a list")
    if "logits" not in values and "topk_labels" not in values:
        lowered = {key.lower(): value for key, value in content.items()}
        for key in map(str.lower, LISTS):
            if key in lowered:
                values["topk_labels"], values["topk_scores"] = _service_answer(path, number, lowered[key])
                break
    check_columns(path, values, list(content), also=f", or a list under {', '.join(LISTS)}")
    return values


def _service_answer(path: Path, number: int, answer: Any) -> tuple[list[Any], list[Any]]:
    """The labels and scores of a list of objects; a missing score is None."""
    labels, scores = [], []
    for item in answer if isinstance(answer, list) else [None] * (answer is not None):
        if isinstance(item, str):
            item = {"name": item}
        lowered = {key.lower(): value for key, value in item.items()} if isinstance(item, Mapping) else {}
        name = next((lowered[key] for key in NAMES if key in lowered), None)
        if not isinstance(name, (str, int)):
            found = (
                f"holds a label with the keys {', '.join(map(short, list(lowered)[:8]))}"
                if lowered
                else "is no list of labels with names"
            )
            raise ReprogramError(
                f"the answer in row {number} of {str(path)!r} {found}, but the name is expected under one of "
                f'{", ".join(NAMES)}; write for example [{{"name": "Tabby", "score": 0.91}}]'
            )
        labels.append(name)
        scores.append(next((lowered[key] for key in SCORES if key in lowered), None))
    return labels, scores
