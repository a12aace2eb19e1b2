"""How sure a left-out judgement is, and how many labels it cannot explain.

Target logits of mappings have scales of their own. Their temperature T is fitted together with ε, the share of labels that
were given at random, by the likelihood of the labels under the left-out probabilities p (T applied):

    P(given label) = (1 − ε) · p + ε · (1 − p) / (k_T − 1)

A wrong label is one that came from the second term. A model that is often wrong but knows it has a high T and no ε; labels
against which it is sure can only be explained by ε.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_COARSE, _FINE, _SHARES = 25, 9, 32  # temperatures and ε that are tried
_ROWS = 10_000  # more say no more about two numbers
_HALF_CHI = 1.920729  # of the likelihood within a 95 % interval


@dataclass(frozen=True)
class Certainty:
    """What makes probabilities of target logits.

    Attributes:
        temperature: T, by which target logits are divided.
        noise: ε, the share of labels that are wrong.
        interval: of ε, 95 %, by the profile likelihood.
        likelihood: the mean log-likelihood of a label.
    """

    temperature: float
    noise: float
    interval: tuple[float, float]
    likelihood: float = 0.0

    def probabilities(self, scores: Tensor) -> Tensor:
        """Of target logits (N, k_T)."""
        return (scores.double() / self.temperature).softmax(1)

    def log_probability(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The logarithm of the probability of a label each, (N,)."""
        return _given(scores.double(), labels, self.temperature)

    def wrong(self, log_probability: Tensor, k_target: int) -> Tensor:
        """How probable it is that a label of this log-probability is wrong, (N,)."""
        right = (1 - self.noise) * log_probability.exp()
        random = self.noise * (-torch.expm1(log_probability)).clamp_min(0) / max(k_target - 1, 1)
        return random / (right + random).clamp_min(1e-300)


def fitted_certainty(scores: Tensor, labels: Tensor) -> Certainty:
    """T and ε of left-out target logits (N, k_T) and the labels (N,) that were given, by their likelihood.

    >>> draw = torch.Generator().manual_seed(0)
    >>> labels = torch.arange(3000) % 3
    >>> scores = 8 * torch.eye(3)[labels] + torch.randn(3000, 3, generator=draw)
    >>> given = labels.clone()
    >>> given[:300] = (given[:300] + 1) % 3
    >>> found = fitted_certainty(scores, given)
    >>> round(found.noise, 2), found.interval[0] < 0.1 < found.interval[1]
    (0.1, True)
    """
    step = -(-len(labels) // _ROWS) or 1
    scores, labels = scores[::step].double(), labels[::step]
    count, k_target = scores.shape
    spread = float((scores - scores.mean(1, keepdim=True)).square().mean().sqrt()) if count else 0.0
    if spread <= 0 or k_target < 2:
        return Certainty(1.0, 0.0, (0.0, 1.0))
    most = (k_target - 1) / k_target  # of labels that are all drawn at random
    shares = torch.cat([torch.zeros(1), torch.logspace(-4, 0, _SHARES)]).double() * most
    coarse = spread * torch.logspace(-2, 1, _COARSE).double()
    found = _likelihoods(scores, labels, coarse, shares)
    best = int(found.amax(1).argmax())
    low, high = coarse[max(best - 1, 0)], coarse[min(best + 1, _COARSE - 1)]
    fine = torch.logspace(float(low.log10()), float(high.log10()), _FINE).double()
    bounds = _within(shares, torch.cat([found, _likelihoods(scores, labels, fine, shares)]).amax(0))
    shares = torch.linspace(*bounds, _SHARES, dtype=torch.float64)
    found = _likelihoods(scores, labels, fine, shares)
    temperature, profile = fine[int(found.amax(1).argmax())], found.amax(0)
    reached = _within(shares, profile)
    noise = _refined(_given(scores, labels, float(temperature)).exp(), float(shares[int(profile.argmax())]), k_target)
    return Certainty(float(temperature), noise, (min(reached[0], noise), max(reached[1], noise)), float(found.max()) / count)


def _within(shares: Tensor, profile: Tensor) -> tuple[float, float]:
    """The values of ε next to those whose likelihood is within the interval."""
    inside = (profile >= profile.max() - _HALF_CHI).nonzero().flatten().tolist()
    return float(shares[max(inside[0] - 1, 0)]), float(shares[min(inside[-1] + 1, len(shares) - 1)])


def _refined(given: Tensor, noise: float, k_target: int) -> float:
    """ε between two values that were tried: the share that each step of EM says is wrong."""
    random = (1 - given).clamp_min(0) / (k_target - 1)
    for _ in range(20 if noise else 0):
        wrong = noise * random
        noise = float((wrong / (wrong + (1 - noise) * given).clamp_min(1e-300)).mean())
    return noise


def _likelihoods(scores: Tensor, labels: Tensor, temperatures: Tensor, shares: Tensor) -> Tensor:
    """The log-likelihood of the labels for each temperature and each ε."""
    table = torch.empty(len(temperatures), len(shares), dtype=torch.float64)
    for place, temperature in enumerate(temperatures.tolist()):
        given = _given(scores, labels, temperature).exp()
        random = (1 - given).clamp_min(0) / (scores.shape[1] - 1)
        total = torch.zeros(len(shares), dtype=torch.float64)
        for one, other in zip(given.split(2048), random.split(2048), strict=True):
            mixed = one[:, None] + shares * (other - one)[:, None]
            total += mixed.clamp_min(1e-300).log().sum(0)
        table[place] = total
    return table


def _given(scores: Tensor, labels: Tensor, temperature: float) -> Tensor:
    scaled = scores / temperature
    return scaled.gather(1, labels[:, None]).flatten() - scaled.logsumexp(1)
