"""Statistics that are plain sums over samples: they can be gathered in pieces, merged in any order, and taken apart."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from reprogram.errors import NonFiniteError, ReprogramError
from reprogram.files import read_tensors, write_tensors

#: Of logits whose squares are needed: the largest of float32, which masked labels have, and which mappings compute in.
LARGEST_LOGIT = float(torch.finfo(torch.float32).max)
#: Of what logits deviate by, where weights of about 1/z are needed, which leave float32 for larger ones.
LARGEST_DEVIATION = 1e30
SMALLEST_LOGIT = 1 / LARGEST_DEVIATION
#: Of sample weights, so that their squares times those of logits stay in float64.
LARGEST_WEIGHT = 1e100
_UNIT = 2.0**-52  # of float64
_WHOLE = 2.0**49  # from here on, sums in float64 are often whole numbers by rounding alone
_SHARE = 2.0**-44  # relative, of a softmax over logits below 256 that is computed in another order


class Statistics(nn.Module, ABC):
    """Buffers that are sums over samples, in int64 or float64 whatever the precision of the logits.

    Attributes:
        samples: (k_T,) how many samples of each target class were counted, or their summed weights.
        counted: (k_T,) int64, how many samples of each class were counted, whatever their weights; none of weight 0.
        rounding: (k_T,) float64, by how much more than their additions alone the sums may be off since samples were taken
            out again, in units of `samples`; 0 where nothing was.
    """

    header: ClassVar[str]
    samples: Tensor
    counted: Tensor
    rounding: Tensor
    k_source: int
    k_target: int

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What besides the tensors makes these statistics, as plain JSON values."""

    @abstractmethod
    def update(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None, *, log_probabilities: bool = False
    ) -> Self:
        """Count a batch of any size.

        Args:
            logits: (N, k_S) source logits in any floating type.
            targets: (N,) integer target labels below k_T.
            weights: (N,) weights of the samples; a weight of 2 is the sample twice.
            log_probabilities: the logits are logarithms of probabilities, which need not add up to 1: statistics that add
                up probabilities take them as they are instead of a softmax.
        """

    @abstractmethod
    def with_classes(self, kept: Sequence[int | None]) -> Self:
        """Statistics whose class i is the old class `kept[i]`, or a new and empty one where that is None."""

    def update_top_k(
        self, indices: Tensor, probabilities: Tensor | None, targets: Tensor, weights: Tensor | None = None
    ) -> Self:
        """Count a batch of answers that come as ranked lists, as an API gives them.

        Args:
            indices: (N, K) source labels of each answer; −1 marks an empty place.
            probabilities: (N, K) their probabilities, or None.
            targets: (N,) integer target labels.
            weights: (N,) weights of the samples.
        """
        raise ReprogramError(
            "top-K answers were given, but this mapping needs all logits; give shards of logits, or choose gaussian+"
        )

    def with_sources(self, kept: Sequence[int | None]) -> Self:
        """Statistics whose source label i is the old one `kept[i]`, or a new one that was never named where that is None."""
        raise ReprogramError("these statistics need all logits, so their source labels cannot change; fit the mapping again")

    def shares(self, target: int) -> bool:
        """Whether samples of this class are part of what all classes share, so that it cannot be dropped by itself."""
        return False

    @property
    def n(self) -> int:
        """How many samples were counted."""
        return int(self.counted.sum())

    @property
    def weight(self) -> float:
        """The summed weights of all samples; without weights, how many there are."""
        return float(self.samples.sum())

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
        """Take samples out again, with the weights they had: the result equals statistics that never saw them.

        Counts are exact. In floating point, what is left below the rounding of the sums is nothing, and a class of which all
        samples are gone is exactly empty.
        """
        self.check_alike(other)
        taken = {name: part.to(self.samples.device) for name, part in other.named_buffers()}
        left = {name: part - taken[name] for name, part in self.named_buffers()}
        rounding = self.rounding + taken["rounding"] + self.samples * _UNIT
        rounding += _of_additions(self.samples, self.counted) + _of_additions(taken["samples"], taken["counted"])
        inexact = _inexact(self.samples, self.rounding) | _inexact(taken["samples"], taken["rounding"])
        bound, weights, gone = rounding.where(inexact, 0), left["samples"], left["counted"] == 0
        strange = (left["counted"] < 0) | (weights < -bound) | (gone & (weights > bound))
        weights[weights <= bound] = 0
        left["rounding"] = (rounding - _of_additions(weights, left["counted"])).where(~gone, 0)
        if bool(strange.any()) or not self._settle(left, taken, rounding):
            raise ReprogramError(
                "these statistics do not contain all samples that are to be subtracted; nothing was changed"
            )
        for name, part in self.named_buffers():
            part.copy_(left[name])
        return self

    def as_views(self, views: int) -> Self:
        """Say that what was counted are so many views of each sample, which weigh 1 together: each sample counts once."""
        if views < 1 or bool((self.counted % views).any()):
            raise ReprogramError(f"{self.n} samples were counted, which are not {views} views of each; count all of them")
        self.counted //= views
        self.samples.copy_(self.counted)
        return self

    def all_reduce(self, group: "torch.distributed.ProcessGroup | None" = None) -> Self:
        """Sum over all processes of an initialised `torch.distributed` group; alone, do nothing."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._reduce(group)
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

    @abstractmethod
    def _settle(self, left: dict[str, Tensor], taken: dict[str, Tensor], rounding: Tensor) -> bool:
        """Clean what a subtraction of `taken` would leave, in place; False if that cannot be sums of samples.

        `left["samples"]` is clean already; `rounding` (k_T,) is what the other sums may be off by, in units of samples.
        """

    def _reduce(self, group: "torch.distributed.ProcessGroup | None") -> None:
        for part in self.buffers():
            torch.distributed.all_reduce(part, group=group)

    def _register_counts(self, k_target: int, weighted: bool) -> None:
        """The buffers that all statistics have."""
        self.register_buffer("samples", torch.zeros(k_target, dtype=torch.float64 if weighted else torch.int64))
        self.register_buffer("counted", torch.zeros(k_target, dtype=torch.int64))
        self.register_buffer("rounding", torch.zeros(k_target, dtype=torch.float64))

    def _checked_logits(self, logits: Tensor, largest: float = math.inf) -> Tensor:
        if logits.ndim != 2 or logits.shape[1] != self.k_source:
            raise ReprogramError(f"logits have shape {tuple(logits.shape)}, but (N, {self.k_source}) is expected")
        check_finite(logits, largest)
        return logits.to(self.samples.device)

    def _checked_targets(self, targets: Tensor, count: int) -> Tensor:
        return checked_targets(targets.to(self.samples.device), count, self.k_target)

    def _checked_weights(self, weights: Tensor | None, count: int, weighted: bool) -> Tensor | None:
        if weights is None:
            return None
        if not weighted:
            raise ReprogramError("sample weights were given to statistics that count; make them with weighted=True")
        if weights.shape != (count,) or not bool((weights.isfinite() & (weights >= 0)).all()):
            raise ReprogramError(
                f"sample weights of shape {tuple(weights.shape)} were given, but {count} finite numbers ≥ 0 are expected"
            )
        return checked_weights(weights.to(self.samples.device, torch.float64))

    def _count(self, targets: Tensor, weights: Tensor | None) -> None:
        """Count a batch, after its sums were added."""
        if weights is None:
            added = counted = torch.bincount(targets, minlength=self.k_target)
        else:
            added = torch.bincount(targets, weights, minlength=self.k_target)
            counted = torch.bincount(targets[weights > 0], minlength=self.k_target)
        self.samples.add_(added)
        self.counted.add_(counted)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Only the device may change: half-precision sums would be wrong, and MPS has no float64 at all.
        device = fn(torch.empty(0, device=self.samples.device)).device
        if device.type != "mps":
            for name, part in list(self.named_buffers()):
                setattr(self, name, part.to(device))
        return self


def check_finite(logits: Tensor, largest: float = math.inf) -> None:
    """Raise where logits are not finite, or beyond ±`largest`."""
    # a sum is finite unless something in it is not: one quick pass, and a closer look only where it is not
    total = float(logits.sum(dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32))
    if not (math.isfinite(total) or bool(logits.isfinite().all())):
        raise NonFiniteError(
            "the logits hold NaN or infinity, but finite numbers are expected; check the input, lower the lr or use fp32"
        )
    if math.isfinite(largest) and logits.numel():
        low, high = (float(bound) for bound in logits.aminmax())
        if not max(-low, high) <= largest:
            raise NonFiniteError(
                f"the logits go up to ±{max(-low, high):.3g}, but at most ±{largest:g} can be squared and summed up; "
                "scale them down, or leave out the columns of labels that are masked"
            )


def check_size(size: float) -> None:
    """Raise where the largest of all logits, or what they deviate by, is so small that squares vanish; 0 is nothing."""
    if 0 < size < SMALLEST_LOGIT:
        raise NonFiniteError(
            f"the logits are at most {size:.3g} in size, but at least {SMALLEST_LOGIT:g} is expected where they are "
            "squared; multiply them by a constant"
        )


def check_deviation(size: float) -> None:
    """Raise where logits deviate by so much that the weights of a mapping on them leave float32."""
    if not size <= LARGEST_DEVIATION:
        raise NonFiniteError(
            f"the logits deviate by up to ±{size:.3g}, but at most ±{LARGEST_DEVIATION:g} is expected where they are "
            "squared; scale them down, or leave out the columns of labels that are masked"
        )


def checked_weights(weights: Tensor) -> Tensor:
    """Weights that are 0 or of a size that can be squared and summed up, or an error.

    A lighter one beside one that is more than 2^64 times as heavy counts as 0, which it is in a sum of the two.
    """
    light = (weights < 1 / LARGEST_WEIGHT) & (weights > 0)
    if bool(light.any()) and float(weights.max()) >= 2.0**64 / LARGEST_WEIGHT:
        weights = weights.masked_fill(light, 0)
    heavy = weights[weights > 0]
    if heavy.numel() and not (float(heavy.min()) >= 1 / LARGEST_WEIGHT and float(heavy.max()) <= LARGEST_WEIGHT):
        raise ReprogramError(
            f"sample weights from {float(heavy.min()):.3g} to {float(heavy.max()):.3g} were given, but 0 or "
            f"{1 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g} is expected; scale them so that 2 is a sample that counts twice"
        )
    return weights


def checked_targets(targets: Tensor, count: int, k_target: int) -> Tensor:
    """Labels of any integer type as int64, or an error unless these are `count` labels below `k_target`."""
    if targets.shape != (count,) or targets.is_floating_point():
        raise ReprogramError(
            f"targets are {targets.dtype} of shape {tuple(targets.shape)}, but {count} integer labels are expected"
        )
    targets = targets.long()
    if count and not (int(targets.min()) >= 0 and int(targets.max()) < k_target):
        raise ReprogramError(
            f"target labels from {int(targets.min())} to {int(targets.max())} were given, "
            f"but 0 to {k_target - 1} is expected; k_T counts all classes, also absent ones"
        )
    return targets


def _inexact(samples: Tensor, rounding: Tensor) -> Tensor:
    """Which sums of weights may have been rounded, (k_T,): those of whole numbers are exact, as counts always are.

    Large sums are whole numbers by rounding alone, and so is what was left of them.
    """
    if not samples.is_floating_point():
        return torch.zeros_like(samples, dtype=torch.bool)
    return (samples != samples.round()) | (samples >= _WHOLE) | (rounding >= _WHOLE * _SHARE)


def _of_additions(samples: Tensor, counted: Tensor) -> Tensor:
    """By how much sums of these samples may be off, (k_T,): each addition rounds, and so does each sample's own share."""
    return samples * (counted * _UNIT + _SHARE)


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
