"""The choice of a mapping for a model and its training images, before anything is trained."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reprogram.data.dataset import Split
from reprogram.devices import Precision
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.selection import Block, Blocks, Selection, select
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed
from reprogram.training.evaluation import source_features

_LARGEST_GRID = 10**10  # images × source labels × classes: all 79 candidates take about two minutes of a core


def select_mapping(
    model: Reprogrammed,
    train: Split,
    *,
    methods: Sequence[str] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    batch_size: int = 64,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
) -> Selection:
    """Choose a mapping for a model by the logits of its training images under the program as it is now.

    Args:
        model: its program and frozen model make the logits.
        train: the images.
        methods: which mappings to try; see `select`, also for `grid`.
        grid: the values to try.
        batch_size: images that go through the model at once.
        precision: of the frozen model.
        progress: who is told how far it is.
        ranks: the processes that share the images out, and choose alike.
    """
    how: dict[str, Any] = {"batch_size": batch_size, "precision": precision, "progress": progress, "ranks": ranks}
    with kept_logits(model, train, **how, what="choosing the mapping") as blocks:
        return select_from(blocks, model, len(train), methods=methods, grid=grid, ranks=ranks)


def select_from(
    blocks: Blocks,
    model: Reprogrammed,
    n: int,
    *,
    methods: Sequence[str] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    ranks: Ranks = ALONE,
) -> Selection:
    """The same by logits that are there already, of `n` images.

    Where all values of a grid would take too long, only the defaults of blm and blm+ are tried, unless values are given;
    the notes say so. Of several processes, all compare, and the first one's choice is that of all.
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


@contextmanager
def kept_logits(
    model: Reprogrammed,
    split: Split,
    *,
    batch_size: int = 64,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    what: str = "reading logits",
    ranks: Ranks = ALONE,
) -> Iterator[Blocks]:
    """Send the images of a split through the model once, and give a function that starts a pass over (logits, labels).

    Where the images have groups, the blocks have these as their third part.

    The logits, or the features that they are a linear function of, lie on disk until the end, so that their number does not
    matter. Several processes share the images out, and each then has the logits of all.
    """
    with tempfile.TemporaryDirectory(prefix="reprogram-") as folder:
        size = max(1, min(2048, (1 << 22) // model.frozen.k_source))
        start, kept, file = ranks.rows(len(split), batch_size).start, np.empty((0, 0)), Path(folder) / "features"
        for values, _ in source_features(
            model, split, batch_size=batch_size, precision=precision, progress=progress, what=what, ranks=ranks
        ):
            if not kept.size:
                kept = np.memmap(file, dtype=np.float32, mode="w+", shape=(len(split), values.shape[1]))
            kept[start : start + len(values)] = values.numpy()
            start += len(values)
        (width,), _ = ranks.told(lambda: ([kept.shape[1]], {}))
        if not kept.size and width:  # a process without an image of its own
            kept = np.memmap(file, dtype=np.float32, mode="w+", shape=(len(split), width))
        ranks.sum(torch.from_numpy(kept))

        groups = split.group_numbers()

        def blocks() -> Iterator[Block]:
            for start in range(0, len(split), size):
                values = torch.from_numpy(np.array(kept[start : start + size]))
                logits = model.frozen.from_features(values.to(model.device)).cpu()
                block = logits, split.labels[start : start + size]
                yield block if groups is None else (*block, groups[start : start + size])

        yield blocks
