"""J: what a stream of (source logits, target label) pairs says about the two label sets, as one k_S × k_T matrix.

Every gradient-free mapping is a function of this matrix alone, and the matrix is a plain sum over samples. So it can be
gathered in any order, in pieces, on many machines, and samples can be taken out of it again. Memory is O(k_S · k_T).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import torch
from torch import Tensor, nn

from reprogram.errors import ReprogramError, unknown
from reprogram.storage import read_tensors, write_tensors

Kind = Literal["counts", "probabilities"]
_DTYPES = {"counts": torch.int64, "probabilities": torch.float64}


class JointStatistics(nn.Module):
    """The sufficient statistic of all mappings: `matrix[s, t]` is the evidence for source label s on target class t.

    Make one with `JointStatistics.counts` (BLM, ILM, FLM; Eq. 6 times n) or `JointStatistics.probabilities` (BLM+; Eq. 8
    times n). The matrix is int64 or float64 whatever the precision of the logits, and it is a buffer.

    Attributes:
        matrix: (k_S, k_T) evidence.
        samples: (k_T,) int64, how many samples of each target class were counted.
    """

    matrix: Tensor
    samples: Tensor

    def __init__(self, kind: Kind, k_source: int, k_target: int, top_k: int = 1) -> None:
        super().__init__()
        if kind not in _DTYPES:
            raise unknown("kind of statistics", kind, _DTYPES)
        if k_source < 1 or k_target < 1:
            raise ReprogramError(
                f"k_S = {k_source} and k_T = {k_target} were given; both label sets need at least one label"
            )
        if not 1 <= top_k <= k_source:
            raise ReprogramError(f"top_k = {top_k} was given, but it must lie between 1 and k_S = {k_source}")
        self.kind, self.k_source, self.k_target, self.top_k = kind, k_source, k_target, top_k
        self.register_buffer("matrix", torch.zeros(k_source, k_target, dtype=_DTYPES[kind]))
        self.register_buffer("samples", torch.zeros(k_target, dtype=torch.int64))

    @classmethod
    def counts(cls, k_source: int, k_target: int) -> Self:
        """Count (argmax source label, target label) pairs: Eq. 6 and Algorithm 4.

        The paper's appendix: three dogs and a cat, seen as two Cocker spaniels, an English springer, an Egyptian cat.

        >>> seen = torch.eye(3)[[0, 0, 1, 2]]               # logits of x1..x4 over the three source labels
        >>> cat, dog = 0, 1
        >>> statistics = JointStatistics.counts(k_source=3, k_target=2)
        >>> joint = statistics.update(seen, torch.tensor([dog, dog, dog, cat])).joint()
        >>> joint[:, dog].tolist(), joint[:, cat].tolist()  # p(Y_T, Y_S | X_T)
        ([0.5, 0.25, 0.0], [0.0, 0.0, 0.25])
        >>> joint.sum(1).tolist()                           # p(Y_S | X_T)
        [0.5, 0.25, 0.25]
        """
        return cls("counts", k_source, k_target)

    @classmethod
    def probabilities(cls, k_source: int, k_target: int, top_k: int) -> Self:
        """Add up the softmax probabilities of each sample's `top_k` source labels, not renormalised: Eq. 8, Algorithm 8.

        >>> statistics = JointStatistics.probabilities(k_source=3, k_target=2, top_k=2)
        >>> logits = torch.tensor([[0.7, 0.2, 0.1]]).log()
        >>> statistics.update(logits, torch.tensor([1])).matrix.round(decimals=6).tolist()
        [[0.0, 0.7], [0.0, 0.2], [0.0, 0.0]]
        """
        return cls("probabilities", k_source, k_target, top_k)

    @property
    def n(self) -> int:
        """How many samples were counted."""
        return int(self.samples.sum())

    def joint(self) -> Tensor:
        """The estimate of p(Y_T, Y_S | X_T), (k_S, k_T) float64: the matrix over n (Eq. 6, Eq. 8)."""
        return self.matrix.double() / max(self.n, 1)

    @torch.no_grad()
    def update(self, logits: Tensor, targets: Tensor) -> Self:
        """Count a batch of any size.

        Args:
            logits: (N, k_S) source logits in any floating type. Equal logits are ranked by their index.
            targets: (N,) integer target labels below k_T.
        """
        if logits.ndim != 2 or logits.shape[1] != self.k_source:
            raise ReprogramError(f"logits have shape {tuple(logits.shape)}, but (N, {self.k_source}) is expected")
        logits = logits.to(self.matrix.device)
        targets = self._checked(targets, len(logits))
        if not bool(logits.isfinite().all()):
            raise ReprogramError(
                "the logits hold NaN or infinity, but finite numbers are expected; check the input, lower the lr or use fp32"
            )
        if self.kind == "counts":
            return self._add(logits.argmax(1, keepdim=True), None, targets)
        logits = logits.double()
        top, labels = _stable_top_k(logits, self.top_k)
        return self._add(labels, (top - logits.logsumexp(1, keepdim=True)).exp(), targets)

    @torch.no_grad()
    def update_top_k(self, indices: Tensor, probabilities: Tensor | None, targets: Tensor) -> Self:
        """Count a batch of answers that come as ranked lists, as an API gives them.

        Args:
            indices: (N, k) source labels of each answer; −1 marks an empty place.
            probabilities: (N, k) their probabilities; counts need none and then take the first label as the best one.
            targets: (N,) integer target labels.

        Of each answer the best `top_k` labels count (one for counts); a shorter answer counts as far as it goes.
        """
        if indices.ndim != 2 or (probabilities is not None and probabilities.shape != indices.shape):
            shapes = f"{tuple(indices.shape)} and {None if probabilities is None else tuple(probabilities.shape)}"
            raise ReprogramError(f"indices and probabilities have shapes {shapes}, but both must be (N, k)")
        if indices.is_floating_point():
            raise ReprogramError(f"source labels are {indices.dtype}, but integers are expected")
        indices = indices.to(self.matrix.device, torch.int64)
        targets = self._checked(targets, len(indices))
        if indices.numel() and not (int(indices.min()) >= -1 and int(indices.max()) < self.k_source):
            raise ReprogramError(
                f"source labels from {int(indices.min())} to {int(indices.max())} were given, "
                f"but 0 to {self.k_source - 1} (or -1 for none) is expected"
            )
        if probabilities is None:
            if self.kind == "probabilities":
                raise ReprogramError(
                    "no probabilities were given, but these statistics add them up; give them or use counts"
                )
            scores = torch.arange(indices.shape[1], 0, -1, device=indices.device).double().expand_as(indices)
        else:
            scores = probabilities.to(self.matrix.device).double()
            if not bool(((scores >= 0) & (scores <= 1 + 1e-6)).logical_or(indices < 0).all()):
                raise ReprogramError("probabilities outside [0, 1] were given; pass softmax outputs, not logits")
        scores, order = _stable_top_k(scores.masked_fill(indices < 0, -1.0), min(self.top_k, indices.shape[1]))
        return self._add(indices.gather(1, order), scores, targets)

    def merge(self, other: "JointStatistics") -> Self:
        """Add what another process or shard has counted."""
        self.check_alike(other)
        self.matrix += other.matrix.to(self.matrix.device)
        self.samples += other.samples.to(self.samples.device)
        return self

    def subtract(self, other: "JointStatistics") -> Self:
        """Take samples out again: the result equals statistics that never saw them (exact for counts)."""
        self.check_alike(other)
        gone, gone_samples = other.matrix.to(self.matrix.device), other.samples.to(self.samples.device)
        left, left_samples = self.matrix - gone, self.samples - gone_samples
        floor = self.matrix.double() * self.samples * 2.0**-52  # the rounding that so many float64 additions may have left
        if bool((left_samples < 0).any()) or bool((left.double() < -floor).any()):
            raise ReprogramError(
                "these statistics do not contain all samples that are to be subtracted; nothing was changed"
            )
        left[(left.double() <= floor) | (left_samples == 0)] = 0
        self.matrix.copy_(left)
        self.samples.copy_(left_samples)
        return self

    def all_reduce(self, group: "torch.distributed.ProcessGroup | None" = None) -> Self:
        """Sum over all processes of an initialised `torch.distributed` group; alone, do nothing."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for part in (self.matrix, self.samples):
                torch.distributed.all_reduce(part, group=group)
        return self

    def reset(self) -> Self:
        """Forget everything."""
        self.matrix.zero_()
        self.samples.zero_()
        return self

    def check_alike(self, other: "JointStatistics") -> None:
        """Raise unless the other statistics are of the same kind, shape and top_k, so that the two can be added."""
        if self.config() != other.config():
            raise ReprogramError(f"statistics {other.config()} cannot be combined with {self.config()}; they must be alike")

    def config(self) -> dict[str, str | int]:
        """What besides the tensors makes these statistics, as plain JSON values."""
        return {"kind": self.kind, "k_source": self.k_source, "k_target": self.k_target, "top_k": self.top_k}

    def save(self, path: str | Path) -> None:
        """Write one safetensors file."""
        write_tensors(Path(path), self.state_dict(), {"joint_statistics": self.config()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        try:
            tensors, header = read_tensors(Path(path), "file")
            statistics = cls(**header["joint_statistics"])
            statistics.load_state_dict(tensors)
        except (ReprogramError, RuntimeError, TypeError, KeyError):
            raise ReprogramError(f"{str(path)!r} does not hold joint statistics; give a file that save() wrote") from None
        return statistics

    def _checked(self, targets: Tensor, count: int) -> Tensor:
        if targets.shape != (count,) or targets.is_floating_point():
            raise ReprogramError(
                f"targets are {targets.dtype} of shape {tuple(targets.shape)}, but {count} integer labels are expected"
            )
        targets = targets.to(self.matrix.device, torch.int64)
        if count and not (int(targets.min()) >= 0 and int(targets.max()) < self.k_target):
            raise ReprogramError(
                f"target labels from {int(targets.min())} to {int(targets.max())} were given, "
                f"but 0 to {self.k_target - 1} is expected; k_T counts all classes, also absent ones"
            )
        return targets

    def _add(self, labels: Tensor, evidence: Tensor | None, targets: Tensor) -> Self:
        columns = targets[:, None].expand_as(labels)
        present = labels >= 0
        if evidence is None or self.kind == "counts":
            evidence = torch.ones_like(labels)
        # index_put_ sorts on CUDA and runs in order on the CPU: the same sum every time, unlike atomic additions
        self.matrix.index_put_((labels[present], columns[present]), evidence[present].to(self.matrix.dtype), accumulate=True)
        self.samples += torch.bincount(targets, minlength=self.k_target)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Only the device may change: half-precision sums would be wrong, and MPS has no float64 at all.
        device = fn(torch.empty(0, device=self.matrix.device)).device
        if device.type != "mps":
            self.matrix, self.samples = self.matrix.to(device), self.samples.to(device)
        return self


def _stable_top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row with their indices; among equal values at the edge the lowest index wins.

    `torch.topk` leaves open which of several equal values it returns, so rows with a tie at the edge are sorted.
    """
    top, indices = values.topk(k, dim=1)
    tied = (values >= top[:, -1:]).sum(1) > k
    if bool(tied.any()):
        order = values[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
        top[tied], indices[tied] = values[tied].gather(1, order), order
    return top, indices
