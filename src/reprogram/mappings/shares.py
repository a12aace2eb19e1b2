"""Shares that answers give the classes, as logarithms."""

import torch
from torch import Tensor

#: Of a class in an answer: below so much, its logarithm counts as that of this number.
SMALLEST_SHARE = 1e-12


def frequencies_without(samples: Tensor, targets: Tensor) -> Tensor:
    """How many other samples of each class (k_T,) there are for each sample, (N, k_T) float64."""
    left = samples.double().expand(len(targets), -1).clone()
    left[torch.arange(len(targets), device=targets.device), targets] -= 1
    return left


def log_shares(scores: Tensor, frequencies: Tensor) -> Tensor:
    """The logarithms of the shares (N, k_T) that answers give the classes; by frequency where nothing speaks for any."""
    guessed = scores.sum(1, keepdim=True) <= 0
    shares = torch.where(guessed, frequencies, scores)
    return (shares / shares.sum(1, keepdim=True).clamp_min(1e-300)).clamp_min(SMALLEST_SHARE).log()
