"""How sure the model of a fit may be: measured at its end, on images that it was not made from, or on each without it."""

import errno
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.data.dataset import DataSet, Split
from reprogram.devices import autocast
from reprogram.images.views import centre_view
from reprogram.mappings.certainty import measure_certainty
from reprogram.mappings.selection import Block
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed
from reprogram.training.settings import TrainingSettings


class KeptLogits:
    """Logits of images, kept on disk until the end of a fit, so that their number does not matter.

    Args:
        n: how many images there will be.
        width: how many logits each has.
        groups: (n,) their groups, where they have any.
        start: the place of the first image that this process adds.
    """

    def __init__(self, n: int, width: int, groups: Tensor | None = None, start: int = 0) -> None:
        self._groups = groups
        self._n, self._place, self._done = n, start, False
        # the file loses its name at once, and its place on disk with the last reference to the array
        with tempfile.TemporaryDirectory(prefix="reprogram-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "logits"
            with path.open("wb") as file:
                file.truncate(4 * max(n, 1) * width)
                try:  # a full disk is an error now, and not a signal when it is written to
                    os.posix_fallocate(file.fileno(), 0, 4 * max(n, 1) * width)
                except (AttributeError, OSError) as error:  # no such call here, or on this file system
                    if getattr(error, "errno", None) == errno.ENOSPC:
                        raise
            self._kept = np.memmap(path, dtype=np.float32, mode="r+", shape=(n, width))
        self._labels: list[Tensor] = []

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Take in the next images."""
        self._kept[self._place : self._place + len(logits)] = logits.float().cpu().numpy()
        self._place += len(logits)
        self._labels.append(labels.cpu())

    def complete(self, ranks: Ranks) -> "KeptLogits":
        """Say that all images were added, and take in what other processes have."""
        ranks.sum(torch.from_numpy(self._kept))  # zeros where they have any
        self._labels = [ranks.gather(self._labels, torch.empty(0, dtype=torch.int64))]
        self._done = True
        return self

    @property
    def whole(self) -> bool:
        """Whether all images are there."""
        return self._done

    def rows(self, indices: Tensor) -> Tensor:
        """The logits of these images."""
        return torch.from_numpy(self._kept[indices.numpy()])

    def blocks(self) -> Iterator[Block]:
        """One pass."""
        (labels,) = self._labels
        return _blocks(torch.from_numpy(self._kept), labels, self._groups)


def _blocks(logits: Tensor, labels: Tensor, groups: Tensor | None) -> Iterator[Block]:
    """One pass over a table of logits, some rows at a time."""
    size = max(1, min(2048, (1 << 22) // logits.shape[1]))
    for start in range(0, len(logits), size):
        part = slice(start, start + size)
        rows = logits[part].clone()
        yield (rows, labels[part]) if groups is None else (rows, labels[part], groups[part])


@torch.no_grad()
def logits_of(
    model: Reprogrammed,
    split: Split,
    pixels: int,
    settings: TrainingSettings,
    progress: Progress,
    ranks: Ranks = ALONE,
    what: str = "measuring how sure it may be",
) -> KeptLogits:
    """Those of a split, whose images are decoded to squares of so many pixels."""
    size = settings.batch_size
    kept = KeptLogits(len(split), model.frozen.k_source, split.group_numbers(), ranks.rows(len(split), size).start)
    images = split.pixels(pixels, model.program.interpolation)
    batches = list(zip(ranks.batches(images, size), ranks.batches(split.labels, size), strict=True))
    for batch, labels in progress.track(batches, what):
        with autocast(model.device, settings.precision):
            logits = model.source_logits(centre_view(batch, model.program.image_size).to(model.device))
        kept.add(logits, labels)
    return kept.complete(ranks)


def certify(
    model: Reprogrammed,
    data: DataSet,
    sizes: dict[str, int],
    settings: TrainingSettings,
    kept: KeptLogits | None,
    seen: Tensor | None,
    progress: Progress,
    ranks: Ranks = ALONE,
) -> None:
    """Measure how sure the model may be and hang it on its mapping.

    Where something was trained, its training images have shaped the program, which no leaving out undoes: validation images
    are taken, if there are any. Where nothing was trained, each training image, or each group of them, is judged by the
    mapping without it; of several views of each image, by that of the centre ones.

    Args:
        model: as the fit leaves it.
        data: decoded.
        sizes: the side that each split was decoded to.
        settings: of the fit; `calibration` none measures nothing.
        kept: the logits of the training images, where they are at hand.
        seen: the logits of all validation images, where they are.
        progress: where to show progress.
        ranks: the processes that share the images out; each then measures the same.
    """
    mapping = model.mapping
    mapping.certainty = None
    if settings.calibration == "none" or not settings.views:  # 0: no image shall tell anything
        return
    options: dict[str, Any] = {"log_probabilities": model.frozen.log_probabilities}
    if model.trainable and data.val is not None and len(data.val):
        if seen is None:
            held = logits_of(model, data.val, sizes["val"], settings, progress, ranks).blocks
        else:
            held = partial(_blocks, seen, data.val.labels, data.val.group_numbers())
        measure_certainty(mapping, held, held_out=True, what="validation images", **options)
    elif not mapping.learned:
        if kept is None or not kept.whole:
            kept = logits_of(model, data.train, sizes["train"], settings, progress, ranks)
        measure_certainty(mapping, kept.blocks, **options)
    if mapping.certainty is not None:
        progress.say(str(mapping.certainty))
        for note in mapping.certainty.notes:
            progress.say(f"note: {note}")
