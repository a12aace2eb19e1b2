"""The choice of a mapping for a model and its training images, before anything is trained."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reprogram.data.dataset import Split
from reprogram.devices import Precision
from reprogram.mappings.selection import Block, Selection, select
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.training.evaluation import source_features


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

    The logits, or the features that they are a linear function of, are kept on disk for the time of the choice, so that
    their number does not matter.

    Args:
        model: its program and frozen model make the logits.
        train: the images.
        methods: which mappings to try; see `select`, also for `grid`.
        grid: the values to try.
        batch_size: images that go through the model at once.
        precision: of the frozen model.
        progress: who is told how far it is.
    """
    with tempfile.TemporaryDirectory(prefix="reprogram-") as folder:
        start, kept, size = 0, np.empty((0, 0)), max(1, min(2048, (1 << 22) // model.frozen.k_source))
        what = "choosing the mapping"
        for values, _ in source_features(
            model, train, batch_size=batch_size, precision=precision, progress=progress, what=what
        ):
            if not start:
                shape = (len(train), values.shape[1])
                kept = np.memmap(Path(folder) / "features", dtype=np.float32, mode="w+", shape=shape)
            kept[start : start + len(values)] = values.numpy()
            start += len(values)

        def blocks() -> Iterable[Block]:
            for start in range(0, len(train), size):
                values = torch.from_numpy(np.array(kept[start : start + size]))
                yield model.frozen.from_features(values.to(model.device)).cpu(), train.labels[start : start + size]

        span = model.frozen.span
        return select(
            blocks,
            len(model.classes),
            methods=methods,
            grid=grid,
            span=None if span is None else span.cpu(),
            log_probabilities=model.frozen.log_probabilities,
        )
