"""Answers that name only their best labels: what they are as numbers, and as vectors over all source labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.errors import ReprogramError
from reprogram.statistics.ranking import stable_top_k


@dataclass(frozen=True)
class TopK:
    """N answers, each a ranked list of labels with their probabilities; it stands where logits (N, k_S) may stand.

    Attributes:
        indices: (N, K) int64 source labels; −1 marks an empty place.
        probabilities: (N, K) float64, 0 in empty places; they need not add up to 1.
        k_source: how many source labels there are.

    >>> answers = TopK.of(torch.tensor([[2, 0], [1, -1]]), torch.tensor([[0.75, 0.25], [1.0, 0.0]]), k_source=3)
    >>> answers.dense().tolist()
    [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]]
    """

    indices: Tensor
    probabilities: Tensor
    k_source: int

    @classmethod
    def of(cls, indices: Tensor, probabilities: Tensor | None, k_source: int) -> "TopK":
        """Checked answers; without probabilities, ranks give the weights 1, 1/2, 1/3 ... scaled to sum 1."""
        if indices.ndim != 2 or (probabilities is not None and probabilities.shape != indices.shape):
            shapes = f"{tuple(indices.shape)} and {None if probabilities is None else tuple(probabilities.shape)}"
            raise ReprogramError(f"indices and probabilities have shapes {shapes}, but both must be (N, k)")
        if indices.is_floating_point():
            raise ReprogramError(f"source labels are {indices.dtype}, but integers are expected")
        indices = indices.long()
        if indices.numel() and not (int(indices.min()) >= -1 and int(indices.max()) < k_source):
            raise ReprogramError(
                f"source labels from {int(indices.min())} to {int(indices.max())} were given, "
                f"but 0 to {k_source - 1} (or -1 for none) is expected"
            )
        named = indices >= 0
        if probabilities is None:
            scores = named / torch.arange(1, indices.shape[1] + 1, device=indices.device, dtype=torch.float64)
            scores = scores / scores.sum(1, keepdim=True).clamp_min(1e-300)
        else:
            scores = probabilities.to(indices.device).double()
            if not bool(((scores >= 0) & (scores <= 1 + 1e-6)).logical_or(~named).all()):
                raise ReprogramError("probabilities outside [0, 1] were given; pass softmax outputs, not logits")
        return cls(indices, scores.where(named, 0), k_source)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, k_S), as of logits."""
        return len(self.indices), self.k_source

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.indices.device

    @property
    def labels(self) -> Tensor:
        """(N, K) source labels, with label 0 in empty places, whose probability is 0."""
        return self.indices.clamp_min(0)

    def __getitem__(self, rows: Any) -> "TopK":
        return TopK(self.indices[rows], self.probabilities[rows], self.k_source)

    def to(self, device: Any) -> "TopK":
        """The same on another device."""
        return TopK(self.indices.to(device), self.probabilities.to(device), self.k_source)

    def split(self, size: int) -> Iterator["TopK"]:
        """So many answers at a time."""
        return (self[start : start + size] for start in range(0, max(len(self), 1), size))

    @staticmethod
    def together(parts: "Sequence[TopK]") -> "TopK":
        """Answers one after the other; those that name fewer labels get empty places."""
        width = max(part.indices.shape[1] for part in parts)
        indices = [F.pad(part.indices, (0, width - part.indices.shape[1]), value=-1) for part in parts]
        probabilities = [F.pad(part.probabilities, (0, width - part.probabilities.shape[1])) for part in parts]
        return TopK(torch.cat(indices), torch.cat(probabilities), parts[0].k_source)

    def best(self, top_k: int | None) -> "TopK":
        """Only the most probable `top_k` labels of each answer, the first among equals; None keeps all."""
        if top_k is None or top_k >= self.indices.shape[1]:
            return self
        _, order = stable_top_k(self.probabilities.masked_fill(self.indices < 0, -1.0), top_k)
        return TopK(self.indices.gather(1, order), self.probabilities.gather(1, order), self.k_source)

    def dense(self, values: Tensor | None = None) -> Tensor:
        """Vectors over all source labels, (N, k_S) float64: probabilities, or other values (N, K); 0 for the rest."""
        values = self.probabilities if values is None else values
        found = torch.zeros(self.shape, dtype=values.dtype, device=values.device)
        return found.scatter_add_(1, self.labels, values)

    def times(self, table: Tensor, values: Tensor | None = None) -> Tensor:
        """`dense(values) @ table` for a table (k_S, m), without the vectors."""
        values = self.probabilities if values is None else values
        return F.embedding_bag(self.labels, table, per_sample_weights=values.to(table.dtype), mode="sum")


def distinct(labels: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Labels (N, K) with values of which those of a label that a row names twice stand together at its first place.

    >>> distinct(torch.tensor([[4, 7, 4]]), torch.tensor([[0.5, 0.25, 0.125]]))[1].tolist()
    [[0.625, 0.25, 0.0]]
    """
    ordered = labels.sort(1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    if not bool(twice.any()):
        return labels, values
    same = labels[twice, :, None] == labels[twice, None, :]
    first = same.int().argmax(2) == torch.arange(labels.shape[1], device=labels.device)
    together = (same * values[twice, None, :]).sum(2).to(values.dtype)
    return labels, values.index_put((twice.nonzero().flatten(),), together * first)
