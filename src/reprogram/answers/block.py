"""Rows of a shard, whatever file they come from: a label, and either all logits or a ranked list of (label, score)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from reprogram.errors import ReprogramError, first_line

Array = np.ndarray[Any, Any]
#: The columns that count, by the names under which files may hold them; everything else in a file is ignored.
COLUMNS = {
    "label": ("label",),
    "logits": ("logits",),
    "topk_labels": ("topk_labels",),
    "topk_scores": ("topk_scores",),
    "image": ("image", "name"),
    "split": ("split",),
}


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

    def place(self, row: int) -> str:
        """Where a row of this block is, for an error message."""
        return f"row {self.first_row + row} of {str(self.path)!r}"


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
        raw: the columns: `label`, `image` and `split` with one plain value per row, `logits` as an array or as rows of
            numbers, `topk_labels` and `topk_scores` with one sequence (or None) per row.
        k_source: the number of logits that every row must have; None for top-K answers.
        columns: the names of the logits.
    """
    texts = {name: [_text(value) for value in raw[name]] for name in ("label", "image", "split") if name in raw}
    logits = top_labels = top_scores = None
    if "logits" in raw:
        assert k_source is not None
        logits = _logits(path, first_row, raw["logits"], k_source)
    elif "topk_labels" in raw:
        top_labels, top_scores = _answers(path, first_row, raw["topk_labels"], raw.get("topk_scores"))
    return Block(
        path, first_row, rows, texts.get("label"), k_source, logits, columns, top_labels, top_scores,
        texts.get("image"), texts.get("split"),
    )  # fmt: skip


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
        held = ", ".join(header[:8]) + (" ..." if len(header) > 8 else "")
        raise ReprogramError(
            f"shard {str(path)!r} holds {held or 'nothing'}, but {'only one' if both else 'one'} of logits, topk_labels "
            f"(with or without topk_scores){also} is expected beside label; rename what holds the answers"
        )


def unreadable(path: Path, reason: BaseException | str, remedy: str) -> ReprogramError:
    """The error for a file that is not what its name says."""
    text = first_line(reason) if isinstance(reason, BaseException) else reason
    return ReprogramError(f"shard {str(path)!r} cannot be read ({text}); {remedy}")


def _text(value: Any) -> str:
    """A label or name as text: a class number that a table holds as 3.0 is `3`, and a missing one is empty."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bytes):
        raise ReprogramError(f"label {value!r} is bytes, but text or numbers are expected; decode the labels as UTF-8 first")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
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
        except (TypeError, ValueError) as error:
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
        except (TypeError, ValueError) as found:
            return ReprogramError(
                f"row {first_row + row} of {str(path)!r} has a logit that is no number ({found}); write plain numbers"
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
        row_labels, row_scores = [], []
        for name, score in zip(names, given, strict=True):
            text = _text(name)
            if text in ("", "-1"):
                continue
            try:
                number = math.nan if score is None or score == "" else float(score)
            except (TypeError, ValueError):
                raise ReprogramError(
                    f"row {first_row + row} of {str(path)!r} has the score {score!r}, but a number is expected; "
                    "leave unknown scores empty"
                ) from None
            row_labels.append(text)
            row_scores.append(number)
        kept_labels.append(row_labels)
        kept_scores.append(row_scores)
    return kept_labels, kept_scores


def parse_json(text: str, what: str, remedy: str) -> Any:
    """The value of a JSON text, or our error: what it is not, why, and what to do."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReprogramError(f"{what} ({first_line(error)}); {remedy}") from None
