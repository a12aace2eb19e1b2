"""What the rows themselves hint at: that some of those measured on are views of ones that were fitted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from reprogram.answers.counting import Plan, sided_rows
from reprogram.mappings.neighbours import MOST_FITTED, MOST_MEASURED, missing_groups


def groups_hint(plan: Plan, shards: Sequence[Path], tests: Sequence[Path]) -> str | None:
    """A hint where rows seem to have groups that nobody told; reads no more than the first rows of either side.

    Frames of a video stand together in most files, so the first rows of both sides are more likely to be of the same videos
    than any others.

    Args:
        plan: tells the sides of the rows.
        shards: those that are fitted, and measured on if there are no others.
        tests: others that are measured on.
    """
    fitted = _first_rows(plan, shards, 0, MOST_FITTED)
    if tests:
        measured = _first_rows(replace(plan, rule=replace(plan.rule, kind="all")), tests, 1, MOST_MEASURED)
    else:
        measured = _first_rows(plan, shards, 1, MOST_MEASURED)
    return None if fitted is None or measured is None else missing_groups(fitted, measured, "rows")


def _first_rows(plan: Plan, shards: Sequence[Path], side: int, most: int) -> Tensor | None:
    """Logits of the first rows that are fitted (side 0) or measured on (side 1)."""
    found: list[Tensor] = []
    count = 0
    for path in shards:
        for rows, *masks in sided_rows(plan, path):
            part = rows.where(masks[side])
            if part.logits is None:
                return None
            found.append(part.logits[: most - count].float())
            count += len(found[-1])
            if count == most:
                return torch.cat(found)
    return torch.cat(found) if count else None
