"""The tail of a learning curve: which power laws the measured errors allow, and what these say about larger sizes.

With n samples at hand, the error at m samples is e · (1 − r + r · (m / n)^(−c)): e is the error at n, the share r of it goes
away with ever more samples, and c is how fast. All laws of a grid are weighed by how well they agree with what was measured
(a Bayesian posterior), so that few or noisy points leave many laws standing, and a wide interval. Beyond n the curve may
also bend away from its law: what a law takes off the error may be more or less by a factor.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_ERRORS = 61
_REDUCIBLE = torch.linspace(0.0, 1.0, 31, dtype=torch.float64)
_SPEEDS = torch.linspace(math.log(0.1), math.log(1.6), 21, dtype=torch.float64).exp()
#: The prior: how much of an error is reducible (a beta density), and how fast (log-normal).
BETA = (2.0, 1.0)
SPEED, SPREAD = 0.5, 0.4
#: By how much the error at half the size may lie off any power law, relative to itself; at a quarter twice as much.
OFF = 0.08
#: The standard deviation of the logarithm of that factor; three points with these weights stand for the normal density.
BEND = 0.35
_POINTS, _WEIGHTS = (-math.sqrt(3), 0.0, math.sqrt(3)), (1 / 6, 2 / 3, 1 / 6)


@dataclass(frozen=True)
class Tail:
    """Power laws with their weights.

    Attributes:
        errors: (G,) e, the error at the size at hand.
        reducible: (G,) r.
        speeds: (G,) c.
        bends: (G,) the factor by which more or less than that is taken off the error beyond the size at hand.
        weights: (G,) they sum to 1.
    """

    errors: Tensor
    reducible: Tensor
    speeds: Tensor
    bends: Tensor
    weights: Tensor

    @classmethod
    def of(cls, scales: Tensor, errors: Tensor, covariance: Tensor) -> "Tail":
        """Weigh all laws.

        Args:
            scales: (J,) measured sizes, over the size at hand.
            errors: (J,) measured errors.
            covariance: (J, J) of these.
        """
        off = (OFF * errors.clamp_min(0.02) * scales.log2()).square()
        precision = torch.linalg.inv(covariance + torch.diag(off) + 1e-10 * torch.eye(len(errors), dtype=torch.float64))
        largest = int(scales.argmax())
        about, spread = float(errors[largest]), float(covariance[largest, largest].clamp_min(1e-8).sqrt())
        reach = 5 * spread + 0.3 * about + 0.02
        grid = torch.linspace(max(about - reach, 1e-4), min(about + reach, 1.0), _ERRORS, dtype=torch.float64)
        level, share, speed = (part.flatten() for part in torch.meshgrid(grid, _REDUCIBLE, _SPEEDS, indexing="ij"))
        beside = level[:, None] * _shape(share[:, None], speed[:, None], scales) - errors
        likelihood = -(beside @ precision * beside).sum(1) / 2
        inside = share.clamp(0.5 / len(_REDUCIBLE), 1 - 0.5 / len(_REDUCIBLE))
        prior = (BETA[0] - 1) * inside.log() + (BETA[1] - 1) * (1 - inside).log()
        prior = prior - ((speed / SPEED).log() / SPREAD).square() / 2
        weights = (likelihood + prior).softmax(0)
        kept = weights > 1e-9  # the others are as good as none, and most of the grid
        level, share, speed, weights = (part[kept] for part in (level, share, speed, weights))
        bends = torch.tensor([math.exp(BEND * point) for point in _POINTS], dtype=torch.float64)
        chances = torch.tensor(_WEIGHTS, dtype=torch.float64) / weights.sum()
        return cls(
            level.repeat(len(bends)),
            share.repeat(len(bends)),
            speed.repeat(len(bends)),
            bends.repeat_interleave(len(level)),
            (chances[:, None] * weights).flatten(),
        )

    def at(self, scale: float) -> Tensor:
        """The error of each law at so many times the size at hand, (G,)."""
        shape = _shape(self.reducible, self.speeds, torch.tensor(scale, dtype=torch.float64))
        return self.errors * (shape if scale <= 1 else (1 - self.bends * (1 - shape)).clamp_min(0))

    def mean(self, values: Tensor) -> float:
        """Of something that each law says, (G,)."""
        return float(values @ self.weights)

    def quantiles(self, values: Tensor, *shares: float) -> list[float]:
        """Of something that each law says, (G,)."""
        order = values.argsort()
        below = self.weights[order].cumsum(0)
        places = torch.searchsorted(below, torch.tensor(shares, dtype=torch.float64)).clamp_max(len(order) - 1)
        return [float(value) for value in values[order][places]]


def _shape(reducible: Tensor, speeds: Tensor, scales: Tensor) -> Tensor:
    return 1 - reducible + reducible * scales.pow(-speeds)
