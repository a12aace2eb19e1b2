"""Statistics that are plain sums over samples: they can be gathered in pieces, merged in any order, and taken apart."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from reprogram.errors import ReprogramError
from reprogram.files import read_tensors, write_tensors


class Statistics(nn.Module, ABC):
    """Buffers that are sums over samples, in int64 or float64 whatever the precision of the logits.

    Attributes:
        samples: (k_T,) how many samples of each target class were counted.
    """

    header: ClassVar[str]
    samples: Tensor
    k_source: int
    k_target: int

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What besides the tensors makes these statistics, as plain JSON values."""

    @abstractmethod
    def update(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Self:
        """Count a batch of any size: logits (N, k_S), integer targets (N,) below k_T, optional sample weights (N,)."""

    @abstractmethod
    def with_classes(self, kept: Sequence[int | None]) -> Self:
        """Statistics whose class i is the old class `kept[i]`, or a new and empty one where that is None."""

    def shares(self, target: int) -> bool:
        """Whether samples of this class are part of what all classes share, so that it cannot be dropped by itself."""
        return False

    @property
    def n(self) -> int:
        """How many samples were counted."""
        return int(self.samples.sum())

    def empty(self) -> Self:
        """Statistics alike to these on the same device, with nothing counted."""
        return type(self)(**self.config()).to(self.samples.device)

    def copy(self) -> Self:
        """The same statistics, independent of these."""
        return self.empty().merge(self)

    def merge(self, other: "Statistics") -> Self:
        """Add what another process or shard has counted."""
        self.check_alike(other)
        for mine, theirs in zip(self.buffers(), other.buffers(), strict=True):
            mine += theirs.to(mine.device)
        return self

    def subtract(self, other: "Statistics") -> Self:
        """Take samples out again: the result equals statistics that never saw them (exact for counts)."""
        self.check_alike(other)
        left = {name: part - other.get_buffer(name).to(part.device) for name, part in self.named_buffers()}
        if bool((left["samples"] < 0).any()) or not self._possible(left):
            raise ReprogramError(
                "these statistics do not contain all samples that are to be subtracted; nothing was changed"
            )
        for name, part in self.named_buffers():
            part.copy_(left[name])
        return self

    def all_reduce(self, group: "torch.distributed.ProcessGroup | None" = None) -> Self:
        """Sum over all processes of an initialised `torch.distributed` group; alone, do nothing."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for part in self.buffers():
                torch.distributed.all_reduce(part, group=group)
        return self

    def reset(self) -> Self:
        """Forget everything."""
        for part in self.buffers():
            part.zero_()
        return self

    def check_alike(self, other: "Statistics") -> None:
        """Raise unless the other statistics are of the same kind and shape, so that the two can be added."""
        if type(self) is not type(other) or self.config() != other.config():
            raise ReprogramError(f"statistics {other.config()} cannot be combined with {self.config()}; they must be alike")

    def save(self, path: str | Path) -> None:
        """Write one safetensors file."""
        write_tensors(Path(path), self.state_dict(), {self.header: self.config()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        try:
            tensors, header = read_tensors(Path(path), "file")
            statistics = cls(**header[cls.header])
            statistics.load_state_dict(tensors)
        except (ReprogramError, RuntimeError, TypeError, KeyError):
            wanted = cls.header.replace("_", " ")
            raise ReprogramError(f"{str(path)!r} does not hold {wanted}; give a file that save() wrote") from None
        return statistics

    def _possible(self, left: dict[str, Tensor]) -> bool:
        """Whether sums that a subtraction would leave can be sums of samples; rounding in them may be cleaned in place."""
        return True

    def _checked_logits(self, logits: Tensor) -> Tensor:
        if logits.ndim != 2 or logits.shape[1] != self.k_source:
            raise ReprogramError(f"logits have shape {tuple(logits.shape)}, but (N, {self.k_source}) is expected")
        # a sum is finite unless something in it is not: one quick pass, and a closer look only where it is not
        total = logits.sum(dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32)
        if not (bool(total.isfinite()) or bool(logits.isfinite().all())):
            raise ReprogramError(
                "the logits hold NaN or infinity, but finite numbers are expected; check the input, lower the lr or use fp32"
            )
        return logits.to(self.samples.device)

    def _checked_targets(self, targets: Tensor, count: int) -> Tensor:
        if targets.shape != (count,) or targets.is_floating_point():
            raise ReprogramError(
                f"targets are {targets.dtype} of shape {tuple(targets.shape)}, but {count} integer labels are expected"
            )
        targets = targets.to(self.samples.device, torch.int64)
        if count and not (int(targets.min()) >= 0 and int(targets.max()) < self.k_target):
            raise ReprogramError(
                f"target labels from {int(targets.min())} to {int(targets.max())} were given, "
                f"but 0 to {self.k_target - 1} is expected; k_T counts all classes, also absent ones"
            )
        return targets

    def _checked_weights(self, weights: Tensor | None, count: int, weighted: bool) -> Tensor | None:
        if weights is None:
            return None
        if not weighted:
            raise ReprogramError("sample weights were given to statistics that count; make them with weighted=True")
        if weights.shape != (count,) or not bool((weights.isfinite() & (weights >= 0)).all()):
            raise ReprogramError(
                f"sample weights of shape {tuple(weights.shape)} were given, but {count} finite numbers ≥ 0 are expected"
            )
        return weights.to(self.samples.device, torch.float64)

    def _count(self, targets: Tensor, weights: Tensor | None) -> None:
        self.samples += torch.bincount(targets, weights, minlength=self.k_target).to(self.samples.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Only the device may change: half-precision sums would be wrong, and MPS has no float64 at all.
        device = fn(torch.empty(0, device=self.samples.device)).device
        if device.type != "mps":
            for name, part in list(self.named_buffers()):
                setattr(self, name, part.to(device))
        return self


def rearranged(table: Tensor, kept: Sequence[int | None], dim: int) -> Tensor:
    """The slices of a table along one dimension in a new order, with zeros where there was none."""
    shape = list(table.shape)
    shape[dim] = len(kept)
    fresh = table.new_zeros(shape)
    places = [(new, old) for new, old in enumerate(kept) if old is not None]
    if places:
        new, old = (torch.tensor(indices, device=table.device) for indices in zip(*places, strict=True))
        fresh.index_copy_(dim, new, table.index_select(dim, old))
    return fresh
