"""Multinomial logistic regression with an L2 penalty, by L-BFGS in double precision.

    min over W, b:  (1/n) Σ_i −log softmax(x_i W + b)[y_i]  +  λ/2 · Σ W²

x are standardised features, b is not penalised. This is scikit-learn's `LogisticRegression` with C = 1 / (n λ).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.errors import ReprogramError
from reprogram.mappings.affine import Affine

_BLOCK = 4096  # rows at a time: what a step needs beside the features does not grow with them
_MOST_STEPS = 300
_SMALL_GRADIENT = 1e-7
_UNSEEN = 20.0  # how far below all others the bias of a class lies that has no sample


@dataclass(frozen=True)
class Logistic:
    """A solution.

    Attributes:
        weight: W (d, k_T) float64, of standardised features.
        bias: b (k_T,) float64.
        mean: (d,) float64, subtracted from features.
        deviation: (d,) float64, which they are divided by then; 1 for a feature that never varies.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    deviation: Tensor

    def logits(self, features: Tensor) -> Tensor:
        """Features (N, d) to logits (N, k_T) float64."""
        return torch.cat(
            [((part.double() - self.mean) / self.deviation) @ self.weight + self.bias for part in features.split(_BLOCK)]
        )

    def log_loss(self, features: Tensor, labels: Tensor) -> float:
        """The mean of −log p(label)."""
        return float(F.cross_entropy(self.logits(features), labels))

    @property
    def affine(self) -> Affine:
        """The same as one affine function in float32."""
        return Affine(self.weight, self.mean, self.deviation, self.bias).to(torch.float32)


def fit_logistic(
    features: Tensor, labels: Tensor, classes: int, strength: float, *, start: Logistic | None = None
) -> Logistic:
    """Solve it for one strength.

    Args:
        features: (n, d).
        labels: (n,) class numbers.
        classes: k_T. A class without a sample is never the answer.
        strength: λ, above 0.
        start: a solution of the same samples to begin with, such as that of a larger λ.

    >>> x, y = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]]), torch.tensor([0, 0, 1, 1])
    >>> fit_logistic(x, y, 2, 0.1).logits(x).argmax(1).tolist()
    [0, 0, 1, 1]
    """
    if not strength > 0 or not len(labels):
        raise ReprogramError(
            f"strength = {strength} and {len(labels)} samples were given, but a number above 0 and at least one sample are "
            "expected"
        )
    seen = torch.bincount(labels, minlength=classes) > 0
    places = torch.cumsum(seen, 0) - 1
    targets, n, width = places[labels], len(labels), features.shape[1]
    mean, deviation = _moments(features) if start is None else (start.mean, start.deviation)
    weight = torch.zeros(width, int(seen.sum()), dtype=torch.float64, device=features.device)
    bias = torch.zeros(int(seen.sum()), dtype=torch.float64, device=features.device)
    if start is not None:
        weight.copy_(start.weight[:, seen])
        bias.copy_(start.bias[seen])
    weight.requires_grad_()
    bias.requires_grad_()
    solver = torch.optim.LBFGS(
        [weight, bias],
        max_iter=_MOST_STEPS,
        tolerance_grad=_SMALL_GRADIENT,
        tolerance_change=1e-14,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        solver.zero_grad()
        total = strength / 2 * weight.square().sum()
        total.backward()
        value = total.detach()
        for block, wanted in zip(features.split(_BLOCK), targets.split(_BLOCK), strict=True):
            rows = (block.double() - mean) / deviation
            loss = F.cross_entropy(rows @ weight + bias, wanted, reduction="sum") / n
            loss.backward()
            value = value + loss.detach()
        return value

    solver.step(closure)
    whole = torch.zeros(width, classes, dtype=torch.float64, device=features.device)
    offset = (bias.detach().min() - _UNSEEN).repeat(classes)
    whole[:, seen], offset[seen] = weight.detach(), bias.detach()
    return Logistic(whole, offset, mean, deviation)


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each feature, (d,) float64 both, in two passes over blocks."""
    n = len(features)
    mean = torch.stack([part.double().sum(0) for part in features.split(_BLOCK)]).sum(0) / n
    squares = torch.stack([(part.double() - mean).square().sum(0) for part in features.split(_BLOCK)]).sum(0) / n
    deviation = squares.sqrt()
    return mean, deviation.where(deviation > 1e-6 * mean.abs(), 1.0)  # what varies less is rounding


@dataclass(frozen=True)
class Tried:
    """A strength, and what it brought on samples that were not fitted: their log-loss, and how many of them were right."""

    strength: float
    log_loss: float
    correct: int
    n: int


#: The strengths that are tried, the largest first: each solution is the start of the next one.
STRENGTHS = tuple(10.0 ** (exponent / 2) for exponent in range(2, -11, -1))
#: How many strengths may be worse than the best one before the smaller ones are left alone.
PATIENCE = 2


def path(
    parts: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]], classes: int, strengths: Sequence[float] = STRENGTHS
) -> list[Tried]:
    """Try strengths, the largest first, until the log-loss of the samples that are not fitted rises.

    Args:
        parts: features and labels that are fitted, and features and labels that judge: one such part, or one for each fold.
        classes: k_T.
        strengths: λs, falling.
    """
    found: list[Tried] = []
    starts: list[Logistic | None] = [None] * len(parts)
    for strength in strengths:
        loss, right, n = 0.0, 0, 0
        for number, (features, labels, others, truths) in enumerate(parts):
            solved = fit_logistic(features, labels, classes, strength, start=starts[number])
            starts[number] = solved
            logits = solved.logits(others)
            loss += float(F.cross_entropy(logits, truths, reduction="sum"))
            right, n = right + int((logits.argmax(1) == truths).sum()), n + len(truths)
        found.append(Tried(strength, loss / n, right, n))
        if found.index(best(found)) + PATIENCE < len(found):
            break
    return found


def best(tried: Sequence[Tried]) -> Tried:
    """The one of the smallest log-loss; the larger strength among equals."""
    return min(tried, key=lambda one: one.log_loss if math.isfinite(one.log_loss) else math.inf)
