"""Means and deviations of logits by groups of samples, as sums that can be added up and taken apart.

Squares are kept about the means of the groups, not about 0, whose digits a common offset of the logits would use up.
"""

import torch
from torch import Tensor

from reprogram.statistics.base import SMALLEST_LOGIT, check_size

# a variance below this share of the squares about 0 is the rounding of float32 logits
_ROUNDING = 2.0**-46


def of_groups(values: Tensor, groups: Tensor, count: int, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Of values (N, k) float64 in groups (N,): how many or how heavy (count,), their sums and their spread (count, k).

    The spread is Σ (z − m)², with m the mean of the group.
    """
    # sorting on CUDA and running in order on the CPU, index_put_ adds in the same order every time
    empty = torch.zeros(count, values.shape[1], dtype=torch.float64, device=values.device)
    heavy = values if weights is None else values * weights[:, None]
    sums = empty.clone().index_put_((groups,), heavy, accumulate=True)
    n = torch.bincount(groups, weights, minlength=count).double()
    squares = (values - (sums / n.where(n > 0, 1)[:, None])[groups]).square_()
    if weights is not None:
        squares *= weights[:, None]
    return n, sums, empty.index_put_((groups,), squares, accumulate=True)


def between(n: Tensor, sums: Tensor, more: Tensor, others: Tensor) -> Tensor:
    """What the means of two parts of a group add to its spread, n·n' / (n + n') · (m − m')²: (groups, k)."""
    both = ((n > 0) & (more > 0))[:, None]
    n, more = n.double()[:, None], more.double()[:, None]
    apart = sums / n.where(both, 1) - others / more.where(both, 1)
    return (apart.square() * (n / (n + more).where(both, 1) * more)).where(both, 0)


def overall(n: Tensor, sums: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation (k,) of all groups together; the deviation is 0 for constant values.

    >>> values = torch.tensor([[1e5], [1e5 + 2], [1e5 + 7]], dtype=torch.float64)
    >>> mean, deviation = overall(*of_groups(values, torch.tensor([0, 0, 1]), 2))
    >>> mean.tolist(), deviation.round(decimals=6).tolist()
    ([100003.0], [2.94392])
    """
    weight = n.sum().double()
    weight = weight.where(weight > 0, 1)
    mean = sums.sum(0) / weight
    means = sums / n.where(n > 0, 1)[:, None]
    variance = (spread.sum(0) + ((means - mean).square() * n[:, None]).sum(0)) / weight
    check_size(max(float(means.abs().max()), float(variance.max()) ** 0.5))
    return mean, variance.where(variance > least_variance(mean.square() + variance), 0).sqrt()


def centred(values: Tensor, mean: Tensor) -> Tensor:
    """Values less their mean, in float64; exactly 0 where they differ by rounding alone, as a large constant does.

    >>> constant = torch.full((3, 1), -1e38, dtype=torch.float64)
    >>> centred(constant, constant.sum(0) / 3 * (1 + 2**-52)).tolist()
    [[0.0], [0.0], [0.0]]
    """
    apart = values - mean
    return apart.masked_fill_(apart.abs() <= mean.abs() * 2.0**-44, 0)


def least_variance(squares: Tensor) -> Tensor:
    """The variance that a logit must have not to be constant, by the mean of its squares about 0."""
    return (squares * _ROUNDING).clamp_min(SMALLEST_LOGIT**2)
