"""Which class gains most from more samples: each class's own curve, as far as its few samples tell it from the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reprogram.mappings.learning_curve import Measured
from reprogram.mappings.tail import Tail
from reprogram.randomness import generator

_TRIALS = 4000
# Which samples a class happens to have moves its share of right answers, both now and later: by so much of what as many
# answers, each right by chance, would vary.
_LUCK = 0.3
_OFF = 0.15  # by how much a class at half the size may lie off its law, relative to the mean error


@dataclass(frozen=True)
class ClassGain:
    """What a class would gain.

    Attributes:
        name: of the class.
        samples: how many it has.
        accuracy: the share of its samples that are classified rightly now, drawn towards that of all classes.
        gain: how much more of them with the first factor's samples.
        low: where the gain's interval begins, with the luck of which samples come.
        high: where it ends.
        first: how likely it is that no other class gains more, that luck apart.
    """

    name: str
    samples: int
    accuracy: float
    gain: float
    low: float
    high: float
    first: float


def class_gains(
    curve: Sequence[Measured],
    targets: Tensor,
    classes: Sequence[str],
    tail: Tail,
    scales: Tensor,
    covariance: Tensor,
    factor: float,
    level: float,
    seed: int,
) -> list[ClassGain]:
    """The gains of all classes with at least two samples, the largest first.

    A class's error at a scale s is e + b · (s^(−c) − 1), with the c of all classes. e is drawn towards the mean of all
    classes, and b towards the share of e that is reducible on average, by as much as the class's own samples leave open.

    Args:
        curve: measured for all classes together.
        targets: (n,) the classes of the samples.
        classes: their names.
        tail: the laws of the error of all classes.
        scales: (J,) the sizes of the curve, over the size at hand.
        covariance: (J, J) of the errors along the curve, of which the correlations are taken.
        factor: how many times the samples.
        level: how often an interval is to hold the truth.
        seed: of the draws from what is left open.
    """
    counts = torch.bincount(targets, minlength=len(classes))
    judged = (counts > 1).nonzero().flatten()
    rates = torch.stack([_rates(part, targets, len(classes)) for part in curve])[:, judged]  # (J, C) errors
    members = counts[judged].double()
    overall = (rates * members).sum(1, keepdim=True) / members.sum()
    smooth = (rates * members + 2 * overall + 0.1) / (members + 2.2)
    deviation = (smooth * (1 - smooth) / members).sqrt()  # (J, C)
    scale = covariance.diagonal().sqrt()
    correlation = covariance / scale / scale[:, None]

    speed, reducible = tail.mean(tail.speeds), tail.mean(tail.reducible)
    design = torch.stack([torch.ones_like(scales), scales.pow(-speed) - 1], dim=1)  # (J, 2)
    mean_error, last = float(overall[-1]), rates[-1]
    between = max(float(last.var()) - float(deviation[-1].square().mean()), 1e-4) if len(last) > 1 else 1e-4
    spread = (0.5 * reducible * max(mean_error, 0.01)) ** 2
    # the prior of (e, b): e about the mean of all, b = reducible · e + its own
    prior = torch.tensor(
        [[between, reducible * between], [reducible * between, reducible**2 * between + spread]], dtype=torch.float64
    )
    centre = torch.tensor([mean_error, reducible * mean_error], dtype=torch.float64)
    drawn = generator(seed, "class gains")
    laws = torch.multinomial(tail.weights, _TRIALS, replacement=True, generator=drawn)
    factors = 1 - torch.tensor(factor, dtype=torch.float64).pow(-tail.speeds[laws])
    trials, errors = [], []
    for index in range(len(judged)):
        noise = correlation * deviation[:, index] * deviation[:, index, None]
        off = (_OFF * mean_error * scales.log2()).square()
        weight = prior @ design.T @ torch.linalg.inv(design @ prior @ design.T + noise + torch.diag(off + 1e-8))
        found = centre + weight @ (rates[:, index] - design @ centre)
        left = prior - weight @ design @ prior
        root = torch.linalg.cholesky((left + left.T) / 2 + 1e-12 * torch.eye(2, dtype=torch.float64))
        sample = found[:, None] + root @ torch.randn(2, _TRIALS, generator=drawn, dtype=torch.float64)
        error = sample[0].clamp(0, 1)
        trials.append((sample[1] * factors).minimum(error).maximum(error - 1))
        errors.append(float(found[0].clamp(0, 1)))
    table = torch.stack(trials)  # (C, trials)
    first = torch.bincount(table.argmax(0), minlength=len(judged)).double() / _TRIALS
    shares = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    luck = (_LUCK * (1 + 1 / factor)) ** 0.5 * deviation[-1]
    varied = table + luck[:, None] * torch.randn(table.shape, generator=drawn, dtype=torch.float64)
    bounds = varied.quantile(shares, dim=1)
    gains = [
        ClassGain(
            classes[int(place)],
            int(counts[place]),
            1 - errors[index],
            float(table[index].mean()),
            float(bounds[0, index]),
            float(bounds[1, index]),
            float(first[index]),
        )
        for index, place in enumerate(judged)
    ]
    return sorted(gains, key=lambda gain: -gain.gain)


def _rates(part: Measured, targets: Tensor, k_target: int) -> Tensor:
    """The error of each class, (k_T,)."""
    tests = torch.bincount(targets, part.tests, minlength=k_target)
    return 1 - torch.bincount(targets, part.hits, minlength=k_target) / tests.where(tests > 0, 1)
