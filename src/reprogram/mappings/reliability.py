"""How far probabilities can be believed: log-loss, Brier score and calibration error, from sums that add up."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from reprogram.ranks import Ranks

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """How good probabilities were.

    Attributes:
        log_loss: the mean of −log p of the true class.
        brier: the mean of Σ_t (p_t − [t is true])², from 0 to 2.
        calibration_error: the mean distance of confidence and accuracy over 15 equally wide bins of confidence.
    """

    log_loss: float
    brier: float
    calibration_error: float

    def __str__(self) -> str:
        """`log-loss 0.312, Brier 0.170, calibration error 0.021`."""
        return f"log-loss {self.log_loss:.3f}, Brier {self.brier:.3f}, calibration error {self.calibration_error:.3f}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


class ReliabilitySums:
    """The sums that a `Reliability` is made of.

    >>> sums = ReliabilitySums()
    >>> sums.add(torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 0]))
    >>> print(sums.mean())
    log-loss 0.410, Brier 0.264, calibration error 0.310
    """

    def __init__(self) -> None:
        self.n = 0
        self._sums = torch.zeros(2 + BINS, dtype=torch.float64)

    def add(self, scores: Tensor, targets: Tensor) -> None:
        """Take in target logits (N, k_T), whose softmax is judged, and the true classes (N,)."""
        logs = scores.detach().cpu().double().log_softmax(1)
        targets = targets.cpu()
        own = logs.gather(1, targets[:, None]).flatten()
        squares = (2 * logs).exp().sum(1) - 2 * own.exp() + 1
        sure, best = logs.max(1)
        gaps = sure.exp() - (best == targets).double()
        self.n += len(targets)
        self._sums[0] -= own.sum()
        self._sums[1] += squares.sum()
        self._sums[2:].index_add_(0, bins(sure.exp()), gaps)

    def all_reduce(self, ranks: Ranks) -> "ReliabilitySums":
        """Add up what several processes have taken in."""
        self.n = int(ranks.sum(torch.tensor([self.n])))
        ranks.sum(self._sums)
        return self

    def mean(self) -> Reliability:
        """What they add up to."""
        return of_sums(self._sums, float(self.n))


def bins(confidence: Tensor) -> Tensor:
    """The bin of each confidence, (N,)."""
    return (confidence * BINS).long().clamp(0, BINS - 1)


def of_sums(sums: Tensor, weight: float) -> Reliability:
    """From the summed losses, squares, and gaps of each bin, (2 + BINS,)."""
    loss, squares, *gaps = (sums / max(weight, 1e-300)).tolist()
    return Reliability(loss, squares, sum(map(abs, gaps)))
