"""The choice of a mapping for a model and its training images, before anything is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.selection import Blocks, Selection, select
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed

_LARGEST_GRID = 10**10  # images × source labels × classes: all 79 candidates take about two minutes of a core


def select_from(
    blocks: Blocks,
    model: Reprogrammed,
    n: int,
    *,
    methods: Sequence[str] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    ranks: Ranks = ALONE,
) -> Selection:
    """Choose a mapping for a model by logits of `n` training images under the program as it is now.

    Where all values of a grid would take too long, only the defaults of blm and blm+ are tried, unless values are given;
    the notes say so. Of several processes, all compare, and the first one's choice is that of all.

    Args:
        blocks: the logits with their labels, as `KeptLogits.blocks` gives them.
        model: whose logits these are.
        n: how many images.
        methods: which mappings to try; see `select`, also for `grid`.
        grid: the values to try.
        ranks: the processes that choose alike.
    """
    span, frozen, notes = model.frozen.span, model.frozen, []
    if grid is None and n * frozen.k_source * len(model.classes) > _LARGEST_GRID:
        grid = {name: [getattr(MAPPINGS.read("blm+", {}), name)] for name in ("smoothing", "normalize", "top_ratio")}
        notes = [f"of blm and blm+ only the defaults were tried, as {frozen.k_source} labels × {len(model.classes)} classes"]
        notes[0] += f" × {n} images are many"
    found = select(
        blocks,
        len(model.classes),
        methods=methods,
        grid=grid,
        span=None if span is None else span.cpu(),
        log_probabilities=frozen.log_probabilities,
    )
    (name, settings), _ = ranks.told(lambda: ([found.choice.mapping, found.choice.settings], {}))
    table = sorted(found.table, key=lambda row: (row.candidate.mapping, row.candidate.settings) != (name, settings))
    return replace(found, table=table, notes=(*notes, *found.notes))
