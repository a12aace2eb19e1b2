"""Rows of a shard, whatever file they come from: a label, and either all logits or a ranked list of (label, score)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from reprogram.errors import ReprogramError, first_line, short, shown
from reprogram.files.foreign import is_text
from reprogram.names import LONGEST_NAME

Array = np.ndarray[Any, Any]
#: The columns that count, by the names under which files may hold them; everything else in a file is ignored.
COLUMNS = {
    "label": ("label",),
    "logits": ("logits",),
    "topk_labels": ("topk_labels",),
    "topk_scores": ("topk_scores",),
    "image": ("image", "name"),
    "split": ("split",),
    "group": ("group",),
}
#: How many logits, or places for labels of answers, a block may have at the most; a single row may always be one.
BLOCK_VALUES = 2_000_000
#: How many logits a row may have, and how many labels an answer.
MOST_LOGITS = BLOCK_VALUES
MOST_LABELS = 100_000
_PER_ROW = ("labels", "top_labels", "top_scores", "images", "splits", "groups", "truths")
_NO_NAMES = (list, tuple, dict, set, np.ndarray, np.void)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one shard.

    Attributes:
        path: the file.
        first_row: the number of the first row in it, from 1.
        rows: how many rows.
        labels: their target labels as text, "" where one is missing; None where the file has no labels.
        k_source: how many logits each row has; None where the rows are top-K answers.
        logits: (rows, k_S) floating point; None for top-K answers, or where only the other columns were asked for.
        columns: the source labels of the logits, where the file names them.
        top_labels: for each row, the source labels of its answer as text, the best first.
        top_scores: for each row, their scores; NaN where one is missing.
        images: what each row's image is called, if the file tells.
        splits: the split of each row, if the file tells.
        groups: the group of each row, such as the video that its image is a frame of, if the file tells; "" for none.
        percent: whether the scores are known to run from 0 to 100.
        numbers: the number of each row in the file, where rows between them are left out.
        truths: the row of a table of labels that each label comes from, −1 where that has none.
    """

    path: Path
    first_row: int
    rows: int
    labels: list[str] | None = None
    k_source: int | None = None
    logits: Array | None = None
    columns: tuple[str, ...] | None = None
    top_labels: list[list[str]] | None = None
    top_scores: list[list[float]] | None = None
    images: list[str] | None = None
    splits: list[str] | None = None
    groups: list[str] | None = None
    percent: bool = False
    numbers: list[int] | None = None
    truths: list[int] | None = None

    def chosen(self, rows: Sequence[int]) -> "Block":
        """Some of the rows."""
        parts = {name: getattr(self, name) for name in _PER_ROW}
        kept: dict[str, Any] = {name: None if part is None else [part[row] for row in rows] for name, part in parts.items()}
        logits = None if self.logits is None else self.logits[np.array(rows, dtype=np.int64)]
        return replace(self, rows=len(rows), logits=logits, numbers=[self.number(row) for row in rows], **kept)

    def number(self, row: int) -> int:
        """The number of a row of this block in the file."""
        return self.first_row + row if self.numbers is None else self.numbers[row]

    def place(self, row: int) -> str:
        """Where a row of this block is, for an error message."""
        return f"row {self.number(row)} of {str(self.path)!r}"

    def image(self, row: int) -> str:
        """What the image of a row is called; one without a name by its file and number."""
        return (self.images[row] if self.images else "") or f"{self.path}:{self.number(row)}"


def make_block(
    path: Path,
    first_row: int,
    rows: int,
    raw: Mapping[str, Any],
    k_source: int | None = None,
    columns: tuple[str, ...] | None = None,
) -> Block:
    """Check raw columns and bring them to the one form of a `Block`.

    Args:
        path: the file they come from.
        first_row: the number of the first row, from 1.
        rows: how many there are.
        raw: the columns: `label`, `image`, `split` and `group` with one plain value per row, `logits` as an array or as
            rows of numbers, `topk_labels` and `topk_scores` with one sequence (or None) per row.
        k_source: the number of logits that every row must have; None for top-K answers.
        columns: the names of the logits.
    """
    texts = {
        name: [_text(path, first_row + row, value, name) for row, value in enumerate(raw[name])]
        for name in ("label", "image", "split", "group")
        if name in raw
    }
    logits = top_labels = top_scores = None
    if "logits" in raw:
        assert k_source is not None
        logits = _logits(path, first_row, raw["logits"], k_source)
    elif "topk_labels" in raw:
        top_labels, top_scores = _answers(path, first_row, raw["topk_labels"], raw.get("topk_scores"))
    return Block(
        path, first_row, rows, texts.get("label"), k_source, logits, columns, top_labels, top_scores,
        texts.get("image"), texts.get("split"), texts.get("group"),
    )  # fmt: skip


def make_blocks(
    path: Path,
    first_row: int,
    rows: int,
    raw: Mapping[str, Any],
    k_source: int | None = None,
    columns: tuple[str, ...] | None = None,
) -> Iterator[Block]:
    """`make_block`, in several parts where one long answer would make a place for every row too many."""
    start = longest = 0
    for row, names in enumerate(raw.get("topk_labels", ())):
        count = len(names) if isinstance(names, (list, tuple, np.ndarray)) else 0
        longest = max(longest, count)
        if row > start and longest * (row + 1 - start) > BLOCK_VALUES:
            part: Mapping[str, Any] = {name: values[start:row] for name, values in raw.items()}
            yield make_block(path, first_row + start, row - start, part, k_source, columns)
            start, longest = row, count
    part = {name: values[start:] for name, values in raw.items()} if start else raw
    yield make_block(path, first_row + start, rows - start, part, k_source, columns)


def check_columns(path: Path, found: Mapping[str, Any], header: Sequence[str], also: str = "") -> None:
    """Raise unless a file holds logits or top-K answers, and not both.

    Args:
        path: the file.
        found: what was recognised of it.
        header: all that it holds, by its own names.
        also: under which further names the format takes answers, for the message.
    """
    both = "logits" in found and "topk_labels" in found
    if both or not ("logits" in found or "topk_labels" in found):
        held = ", ".join(map(short, header[:8])) + (" ..." if len(header) > 8 else "")
        raise ReprogramError(
            f"shard {str(path)!r} holds {held or 'nothing'}, but {'only one' if both else 'one'} of logits, topk_labels "
            f"(with or without topk_scores){also} is expected beside label; rename what holds the answers"
        )


def check_once(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    """Raise where a file has two columns of one of these names: nobody can tell which is meant."""
    for name in names:
        if header.count(name) > 1:
            raise ReprogramError(
                f"shard {str(path)!r} has {header.count(name)} columns {short(name)}, but one is expected; rename the others"
            )


def too_many_labels(path: Path, count: int) -> ReprogramError:
    """The error for answers that are no longer the best few labels."""
    return ReprogramError(
        f"shard {str(path)!r} has an answer of {count} labels, but {MOST_LABELS} are the most; keep the best of them, "
        "or give all scores as logits"
    )


def too_many_logits(path: Path, count: int) -> ReprogramError:
    """The error for rows that no model gives."""
    return ReprogramError(
        f"shard {str(path)!r} has {count} logits per row, but {MOST_LOGITS} are the most; check how it was written"
    )


def unreadable(path: Path, reason: BaseException | str, remedy: str) -> ReprogramError:
    """The error for a file that is not what its name says."""
    text = first_line(reason) if isinstance(reason, BaseException) else reason
    return ReprogramError(f"shard {str(path)!r} cannot be read ({text}); {remedy}")


def _text(path: Path, row: int, value: Any, what: str) -> str:
    """A label or name as text: a class number that a table holds as 3.0 is `3`, and a missing one is empty."""
    if type(value) is str and len(value) <= LONGEST_NAME and value.isascii():  # as nearly all are
        return value.strip()
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    problem = ""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            problem = "which is not UTF-8"
    if isinstance(value, _NO_NAMES):
        problem = "which is no name"
    elif isinstance(value, str) and not is_text(value):
        problem = "which holds half a character"
    elif isinstance(value, str) and len(value) > LONGEST_NAME:
        problem = f"of {len(value)} letters, where {LONGEST_NAME} are the most"
    if problem:
        raise ReprogramError(
            f"row {row} of {str(path)!r} has the {what} {shown(value)}, {problem}; write a plain text or number"
        )
    return str(value).strip()


def _logits(path: Path, first_row: int, values: Any, k_source: int) -> Array:
    if not isinstance(values, np.ndarray):
        for row, numbers in enumerate(values):
            count = len(numbers) if isinstance(numbers, (list, tuple, np.ndarray)) else 0
            if count != k_source:
                raise ReprogramError(
                    f"row {first_row + row} of {str(path)!r} has {count} logits, but its first row has {k_source}; "
                    "give every row one logit per source label"
                )
        try:
            values = np.array(values, dtype=np.float64).reshape(len(values), k_source)
        except (TypeError, ValueError, OverflowError) as error:
            raise _at_row(path, first_row, values, error) from None
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise ReprogramError(
            f"row {first_row + int(np.argmin(finite))} of {str(path)!r} holds NaN or infinity, but finite logits are "
            "expected; mend or remove that row"
        )
    return cast(Array, values)


def _at_row(path: Path, first_row: int, rows: Sequence[Any], error: Exception) -> ReprogramError:
    """Find the row that is no row of numbers."""
    for row, numbers in enumerate(rows):
        try:
            np.array(numbers, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as found:
            return ReprogramError(
                f"row {first_row + row} of {str(path)!r} has a logit that is no number ({short(first_line(found))}); "
                "write plain numbers"
            )
    return unreadable(path, error, "write plain numbers")


def _answers(path: Path, first_row: int, labels: Any, scores: Any) -> tuple[list[list[str]], list[list[float]]]:
    """Top-K answers without their empty places ("" or −1), and a score for each label, NaN where there is none."""
    kept_labels, kept_scores = [], []
    for row, names in enumerate(labels):
        names = [] if names is None else names
        given = None if scores is None else scores[row]
        given = [None] * len(names) if given is None or len(given) == 0 else given
        if len(given) != len(names):
            raise ReprogramError(
                f"row {first_row + row} of {str(path)!r} has {len(names)} labels but {len(given)} scores; give one score "
                "for each label, or none at all"
            )
        if len(names) > MOST_LABELS:
            raise too_many_labels(path, len(names))
        row_labels, row_scores = [], []
        for name, score in zip(names, given, strict=True):
            text = _text(path, first_row + row, name, "source label")
            if text in ("", "-1"):
                continue
            try:
                number = math.nan if score is None or score == "" else float(score)
            except (TypeError, ValueError, OverflowError):
                raise ReprogramError(
                    f"row {first_row + row} of {str(path)!r} has the score {shown(score)}, but a number is expected; "
                    "leave unknown scores empty"
                ) from None
            row_labels.append(text)
            row_scores.append(number)
        kept_labels.append(row_labels)
        kept_scores.append(row_scores)
    return kept_labels, kept_scores
