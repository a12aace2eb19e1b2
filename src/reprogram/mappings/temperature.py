"""The temperature that makes the softmax of target logits honest, from sums over samples that the mapping does not know.

Target logits of different mappings have scales of their own: the Gaussian's are log-densities in a thousand dimensions,
those of BLM are averages of logits. T minimises the negative log-likelihood of softmax(scores / T) and a prior on log T,
which keeps few samples from saying too much:

    Σ_i w_i · −log softmax(s_i / T)[y_i] + ½ · STRENGTH · (log T − log T₀)²,  T₀ = CENTRE · spread of the scores / log k_T

Where no sample could be judged, T is T₀, or 1 if that is larger: without evidence, nothing is made sharper than it was.
Both numbers of the prior were chosen by a look at four real sets (`benchmarks/certainty.py`). With n in the hundreds it no
longer matters.

The likelihood and its first two derivatives are summed up on fixed nodes of log T, and between nodes the derivative is
a cubic: no score is kept, and in what order or in how many parts the samples come does not matter.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from reprogram.mappings.reliability import BINS, Reliability, bins, of_sums

STEP = 0.25  # of log T between two nodes
REACH = 20  # nodes on either side of the scale of the first scores: factors of e^±5
CENTRE = 1.7  # T₀ over the spread of a sample's scores, times log k_T
ROUNDING = 2.0**-22  # of the largest score: what is nearer to it is equal, as single precision, which answers, shows no more
LARGEST_GAP = 1e150  # between scores; the square of more leaves float64
STRENGTH = 10.0  # of the prior: a factor of e away from T₀ costs 5
_LOSS, _SLOPE, _CURVE, _REST = 0, 1, 2, 3  # columns of the sums; the rest is what a Reliability needs


class TemperatureSums:
    """What a temperature is found from.

    Attributes:
        n: how many samples were judged.

    >>> scores = torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 9.0]]).double()
    >>> sums = TemperatureSums()
    >>> sums.add(scores.repeat(500, 1), torch.tensor([0, 1, 0]).repeat(500))  # 2 of 3 are right: p = 2/3
    >>> round(9 / sums.temperature(), 1)  # log(2/3 / 1/3) = 0.69
    0.7
    """

    def __init__(self) -> None:
        self.n, self._k_target = 0, 2
        self._first: int | None = None  # the number of the first node; node j is log T = j · STEP
        self._nodes = torch.zeros(2 * REACH + 1, _REST + 1 + BINS, dtype=torch.float64)
        self._raw = torch.zeros(2 + BINS, dtype=torch.float64)  # at T = 1
        self._flat = torch.zeros(2 + BINS, dtype=torch.float64)  # of samples whose scores are all equal, at any T
        self._weight = self._squares = 0.0  # Σw and Σw² of the judged ones
        self._spread = self._spread_weight = 0.0  # Σ w · variance of the scores, of all, and their Σw

    def add(self, scores: Tensor, targets: Tensor, judged: Tensor | None = None, weights: Tensor | None = None) -> None:
        """Take in samples.

        Args:
            scores: (N, k_T) target logits by a mapping that does not know the sample.
            targets: (N,) the true classes.
            judged: (N,) which of them count; the scores of the others only tell how scores spread.
            weights: (N,) of the samples.
        """
        scores, targets = scores.detach().cpu().double(), targets.cpu()
        each = torch.ones(len(targets), dtype=torch.float64) if weights is None else weights.cpu().double()
        self._k_target = scores.shape[1]
        size = scores.abs().amax(1, keepdim=True)
        scores = (scores - scores.amax(1, keepdim=True)).clamp_min(-LARGEST_GAP)
        # a temperature that was measured on rounding errors would make them certain
        scores = scores.where(-scores.amin(1, keepdim=True) > ROUNDING * size, 0.0)
        variance = scores.var(1, correction=0)
        self._spread += float((each * variance).sum())
        self._spread_weight += float(each.sum())
        counts = each > 0 if judged is None else (each > 0) & judged.cpu()
        scores, targets, each, variance = scores[counts], targets[counts], each[counts], variance[counts]
        self.n += len(targets)
        self._weight += float(each.sum())
        self._squares += float(each.square().sum())
        self._raw += _sums(scores, targets, each)
        flat = variance <= 0
        self._flat += _sums(scores[flat], targets[flat], each[flat])
        scores, targets, each = scores[~flat], targets[~flat], each[~flat]
        if not len(targets):
            return
        if self._first is None:
            self._first = round(math.log(float(variance[~flat].mean().sqrt())) / STEP) - REACH
        for place in range(len(self._nodes)):
            inverse = math.exp(-STEP * (self._first + place))
            self._nodes[place] += _with_derivatives(scores * inverse, targets, each)

    def merge(self, other: "TemperatureSums") -> None:
        """Add what another process or shard has summed up."""
        self._k_target = max(self._k_target, other._k_target)
        for name in ("n", "_raw", "_flat", "_weight", "_squares", "_spread", "_spread_weight"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if self._first is None or other._first is None:
            self._first = other._first if self._first is None else self._first
            self._nodes = self._nodes + other._nodes
            return
        first, last = (choose(self._first, other._first) for choose in (max, min))  # the nodes that both have
        width = last + len(self._nodes) - first
        both = (self._nodes[first - self._first :], other._nodes[first - other._first :])
        if width < 4:
            raise ValueError("the scores of the two parts have scales too far from each other")
        self._nodes, self._first = both[0][:width] + both[1][:width], first

    def temperature(self) -> float:
        """T; the default where no sample was judged, and 1 where there was not one score that could tell."""
        found = self._found()
        return math.exp(found) if found is not None else 1.0

    def before(self) -> Reliability | None:
        """How good the plain softmax is; None where nothing was judged."""
        return of_sums(self._raw, self._weight) if self.n else None

    def after(self) -> Reliability | None:
        """How good the softmax at the temperature is; between nodes it is interpolated."""
        found = self._found()
        if not self.n or found is None or self._first is None:
            return self.before()
        place = found / STEP - self._first
        start = min(max(math.floor(place) - 1, 0), len(self._nodes) - 4)
        parts = torch.zeros_like(self._nodes[0])
        for node in range(start, start + 4):  # a cubic through four nodes
            others = [other for other in range(start, start + 4) if other != node]
            parts += self._nodes[node] * math.prod((place - other) / (node - other) for other in others)
        sums = torch.cat((parts[_LOSS : _LOSS + 1], parts[_REST:])) + self._flat
        return of_sums(sums, self._weight)

    def _found(self) -> float | None:
        """Log T."""
        spread = math.sqrt(self._spread / self._spread_weight) if self._spread_weight > 0 else 0.0
        if spread <= 0:
            return None
        centre = math.log(CENTRE * spread / math.log(max(self._k_target, 2)))
        if self._first is None:
            return centre if self.n else max(centre, 0.0)
        # weights below 1 do not make the samples fewer, see `GaussianStatistics.effective_size`
        scale = max(1.0, self._weight / self._squares)
        logs = (self._first + torch.arange(len(self._nodes), dtype=torch.float64)) * STEP
        total = scale * self._nodes[:, _LOSS] + STRENGTH / 2 * (logs - centre).square()
        slope = -scale * self._nodes[:, _SLOPE] + STRENGTH * (logs - centre)
        curve = scale * self._nodes[:, _CURVE] + STRENGTH
        best = int(total.argmin())
        left = best - 1 if float(slope[best]) > 0 else best
        if left < 0 or left + 1 >= len(logs):
            return float(logs[best])
        ends = [float(part[place]) for part in (slope, curve) for place in (left, left + 1)]
        inside = _root(_cubic(*ends))
        return float(logs[left]) + STEP * inside


def _with_derivatives(scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """At one temperature, of scores over it whose largest is 0: the summed loss, its derivatives by −log T, and the rest."""
    powers = scores.exp()
    total = powers.sum(1)
    own = scores.gather(1, targets[:, None]).flatten()
    weighted = powers * scores
    mean = weighted.sum(1) / total
    variance = ((weighted * scores).sum(1) / total - mean**2).clamp_min(0)
    slope = mean - own
    logs = total.log()
    squares = powers.square().sum(1) / total**2 - 2 * (own - logs).exp() + 1
    result = torch.zeros(_REST + 1 + BINS, dtype=torch.float64)
    for place, values in enumerate((logs - own, slope, slope + variance, squares)):
        result[place] = values @ weights
    sure = 1 / total
    return result.index_add_(0, bins(sure) + _REST + 1, (sure - (own >= 0).double()) * weights)


def _sums(scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """The same without the derivatives."""
    found = _with_derivatives(scores, targets, weights)
    return torch.cat((found[_LOSS : _LOSS + 1], found[_REST:]))


def _cubic(low: float, high: float, low_slope: float, high_slope: float) -> Callable[[float], float]:
    """The cubic on [0, 1] with these values and slopes at its ends; the slopes are per unit of log T."""
    low_slope, high_slope = low_slope * STEP, high_slope * STEP
    bend, twist = 3 * (high - low) - 2 * low_slope - high_slope, 2 * (low - high) + low_slope + high_slope
    return lambda place: low + place * (low_slope + place * (bend + place * twist))


def _root(function: Callable[[float], float]) -> float:
    """Where a function that is negative at 0 and positive at 1 is 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2
