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
    """
    what = "choosing the mapping"
    with kept_logits(model, train, batch_size=batch_size, precision=precision, progress=progress, what=what) as blocks:
        return select_from(blocks, model, len(train), methods=methods, grid=grid)


def select_from(
    blocks: Blocks,
    model: Reprogrammed,
    n: int,
    *,
    methods: Sequence[str] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
) -> Selection:
    """The same by logits that are there already, of `n` images.

    Where all values of a grid would take too long, only the defaults of blm and blm+ are tried, unless values are given;
    the notes say so.
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
    return replace(found, notes=(*notes, *found.notes))


@contextmanager
def kept_logits(
    model: Reprogrammed,
    split: Split,
    *,
    batch_size: int = 64,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    what: str = "reading logits",
) -> Iterator[Blocks]:
    """Send the images of a split through the model once, and give a function that starts a pass over (logits, labels).

    Where the images have groups, the blocks have these as their third part.

    The logits, or the features that they are a linear function of, lie on disk until the end, so that their number does not
    matter.
    """
    with tempfile.TemporaryDirectory(prefix="reprogram-") as folder:
        start, kept, size = 0, np.empty((0, 0)), max(1, min(2048, (1 << 22) // model.frozen.k_source))
        for values, _ in source_features(
            model, split, batch_size=batch_size, precision=precision, progress=progress, what=what
        ):
            if not start:
                shape = (len(split), values.shape[1])
                kept = np.memmap(Path(folder) / "features", dtype=np.float32, mode="w+", shape=shape)
            kept[start : start + len(values)] = values.numpy()
            start += len(values)

        groups = split.group_numbers()

        def blocks() -> Iterator[Block]:
            for start in range(0, len(split), size):
                values = torch.from_numpy(np.array(kept[start : start + size]))
                logits = model.frozen.from_features(values.to(model.device)).cpu()
                block = logits, split.labels[start : start + size]
                yield block if groups is None else (*block, groups[start : start + size])

        yield blocks
