"""Source logits that were computed once and serve several times: kept on disk, so that their number does not matter."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.acceleration.accelerate import weight_places
from reprogram.data.dataset import Split
from reprogram.devices import Precision
from reprogram.errors import ReprogramError
from reprogram.images.views import centre_view
from reprogram.mappings.selection import Block
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a quota, a limit of the size of files


class KeptLogits:
    """The source logits of images, in their order, in a file that ends with the last reference to it.

    Args:
        n: how many images there will be.
        width: how many logits each has.
        groups: (n,) their groups, where they have any.
        start: the place of the first image that this process adds.
        expand: makes logits of one added batch, where what is added is not the logits themselves but shorter features.
        made: what decides them to the bit, as `conditions` gives it; None for what shall serve nobody else.
    """

    def __init__(
        self,
        n: int,
        width: int,
        groups: Tensor | None = None,
        start: int = 0,
        *,
        expand: Callable[[Tensor], Tensor] | None = None,
        made: dict[str, Any] | None = None,
    ) -> None:
        self._n, self._width, self._groups, self._place = n, width, groups, start
        self._expand, self._made = expand, made
        self._kept: np.memmap[Any, Any] | None = None
        self._dtype, self._done = torch.float32, False
        self._labels: list[Tensor] = []
        self._batch = 1

    def add(self, values: Tensor, labels: Tensor) -> None:
        """Take in the next images."""
        if self._kept is None:
            self._kept, self._dtype = _reserved(self._n, values.shape[1]), values.dtype
            self._batch = len(values)  # only the last one may be smaller
        self._kept[self._place : self._place + len(values)] = values.detach().float().cpu().numpy()
        self._place += len(values)
        self._labels.append(labels.cpu())

    def complete(self, ranks: Ranks = ALONE) -> "KeptLogits":
        """Say that all images were added, and take in what other processes have."""
        width = self._width if self._kept is None else self._kept.shape[1]
        first = [width, str(self._dtype).removeprefix("torch."), self._batch]
        (width, dtype, self._batch), _ = ranks.told(lambda: (first, {}))
        self._dtype = getattr(torch, dtype)
        if self._kept is None:  # a process without an image of its own
            self._kept = _reserved(self._n, width)
        ranks.sum(torch.from_numpy(self._kept))  # zeros where others have any
        self._labels = [ranks.gather(self._labels, torch.empty(0, dtype=torch.int64))]
        self._done = True
        return self

    def __len__(self) -> int:
        return self._n

    @property
    def whole(self) -> bool:
        """Whether all images are there."""
        return self._done

    def serves(self, made: dict[str, Any] | None) -> bool:
        """Whether a pass under these `conditions` would give the very same logits, to the bit."""
        exact = self._dtype != torch.float64  # of which only the half was kept
        return self._done and exact and made is not None and made == self._made

    def rows(self, indices: Tensor) -> Tensor:
        """The logits of these images, in the type that the model gave them."""
        assert self._kept is not None
        values = torch.from_numpy(self._kept[indices.numpy()]).to(self._dtype)
        return values if self._expand is None else self._expand(values)

    def blocks(self) -> Iterator[Block]:
        """One pass over (logits, labels), and their groups where they have any; the logits as float32, on the CPU."""
        assert self._kept is not None
        (labels,) = self._labels
        if self._expand is None:
            return logit_blocks(torch.from_numpy(self._kept), labels, self._groups)
        return self._expanded(labels)

    def _expanded(self, labels: Tensor) -> Iterator[Block]:
        """The same where logits are made anew: batch by batch as they came, as a product of other rows rounds otherwise."""
        size = -(-_rows_at_once(self._width) // self._batch) * self._batch
        for rows in torch.arange(self._n).split(size):
            logits = torch.cat([self.rows(batch).float().cpu() for batch in rows.split(self._batch)])
            yield (logits, labels[rows]) if self._groups is None else (logits, labels[rows], self._groups[rows])

    def drop(self) -> None:
        """Give the room on disk back: nobody asks again."""
        self._kept, self._done, self._labels = None, False, []


def logit_blocks(logits: Tensor, labels: Tensor, groups: Tensor | None = None) -> Iterator[Block]:
    """One pass over a table of logits, some rows at a time."""
    size = _rows_at_once(logits.shape[1])
    for start in range(0, len(logits), size):
        part = slice(start, start + size)
        rows = logits[part].clone()
        yield (rows, labels[part]) if groups is None else (rows, labels[part], groups[part])


def _rows_at_once(width: int) -> int:
    return max(1, min(2048, (1 << 22) // max(width, 1)))


def conditions(
    model: Reprogrammed, split: Split, *, pixels: int, batch_size: int, precision: Precision | None
) -> dict[str, Any] | None:
    """What decides the logits of a split to the bit in this process; None once the program is trained.

    Args:
        model: as it is prepared now, with weights that stay where they are.
        split: the images, by what is in them and in this order.
        pixels: the side that the images are decoded to.
        batch_size: images that go through the model at once.
        precision: of the frozen model.
    """
    route = model.route()
    if route is None:
        return None
    return {
        **route,
        "frozen": model.frozen,
        "weights": weight_places(model.frozen),
        "images": split.fingerprints(),
        "device": str(model.device),
        "pixels": pixels,
        "batch_size": batch_size,
        "precision": model.passes_in(precision),
    }


@torch.no_grad()
def keep_logits(
    model: Reprogrammed,
    split: Split,
    *,
    batch_size: int = 64,
    precision: Precision | None = None,
    pixels: int | None = None,
    progress: Progress | None = None,
    what: str = "reading logits",
    ranks: Ranks = ALONE,
) -> KeptLogits:
    """Send the images of a split through the model once.

    Args:
        model: prepared here, if it is not yet and if the images are many.
        split: the images.
        batch_size: images that go through the model at once.
        precision: of the frozen model; by default that of the model, where it is in hardware.
        pixels: the side that the images are decoded to, of which the middle counts; by default that of the program.
        progress: where to show progress.
        what: what progress calls it.
        ranks: the processes that share the images out; each then has the logits of all.
    """
    program = model.program
    pixels = program.image_size if pixels is None else pixels
    images = split.pixels(pixels, program.interpolation, progress)
    model.accelerate(len(split))
    how: dict[str, Any] = {"batch_size": batch_size, "precision": precision}
    kept = KeptLogits(
        len(split),
        model.frozen.k_source,
        split.group_numbers(),
        ranks.rows(len(split), batch_size).start,
        expand=_expanding(model) if model.frozen.short_features else None,
        made=conditions(model, split, pixels=pixels, **how),
    )
    batches = list(zip(ranks.batches(images, batch_size), ranks.batches(split.labels, batch_size), strict=True))
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False):  # as in training
        for batch, labels in (progress or Progress()).track(batches, what):
            values = model.source_features(centre_view(batch, program.image_size), precision)
            kept.add(values, labels)
    return kept.complete(ranks)


def _expanding(model: Reprogrammed) -> Callable[[Tensor], Tensor]:
    frozen, device = model.frozen, model.device

    @torch.no_grad()
    def expand(features: Tensor) -> Tensor:
        return frozen.from_features(features.to(device))

    return expand


def _reserved(n: int, width: int) -> "np.memmap[Any, Any]":
    """Room on disk for a table of zeros, in a file without a name: its place goes with the last reference to it."""
    length = 4 * max(n, 1) * width
    with tempfile.TemporaryFile(prefix="reprogram-") as file:
        try:  # a full disk is an error now, and not a signal when it is written to
            file.truncate(length)
            os.posix_fallocate(file.fileno(), 0, length)
        except (AttributeError, OSError) as error:  # no such call here, or on this file system
            if getattr(error, "errno", None) in _FULL:
                raise ReprogramError(
                    f"the logits of {n} images take {length / 1e6:.1f} MB, for which there is no room in "
                    f"{tempfile.gettempdir()!r}; make room there, or name another folder by TMPDIR"
                ) from None
        return np.memmap(file, dtype=np.float32, mode="r+", shape=(n, width))
