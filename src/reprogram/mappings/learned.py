"""The paper's "Deep" mapping: a weight matrix without bias, trained by its own optimiser; optionally squashed."""

from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from reprogram.errors import NonFiniteError, ReprogramError
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.linear import LinearMapping
from reprogram.randomness import generator
from reprogram.statistics.base import Statistics

_BATCH = 256
LARGEST_RATE = 1e37  # Adam's first steps are up to ten times as long, and beyond that leave float32


class LearnedMapping(LinearMapping):
    """ω is a parameter; data are only counted where the logits are to be normalised."""

    general = True
    learned = True

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        values = torch.rand(self.k_source, self.k_target, generator=torch.Generator().manual_seed(self.seed))
        self.matrix = nn.Parameter((2 * values - 1) * self.k_source**-0.5)

    @override
    def start(self) -> Affine:
        normalising = super().start()
        return Affine(None, normalising.shift, normalising.scale)  # type: ignore[arg-type]

    @property
    @override
    def weights(self) -> Tensor:
        return self.matrix

    @property
    @override
    def takes_answers(self) -> bool:
        return False  # weights of both signs make no shares of the few probabilities that an answer names

    @override
    def rule(self, statistics: Statistics) -> Tensor:
        return self.weights.detach()


class SigmoidMapping(LearnedMapping):
    """The same with every weight between 0 and 1."""

    general = False

    @property
    @override
    def weights(self) -> Tensor:
        return self.matrix.sigmoid()


def relative_weights(weights: Tensor) -> Tensor:
    """Sample weights (N,) float64 for weighted means in float32, whatever their size: over a power of 2, to keep all digits.

    >>> relative_weights(torch.tensor([3e-100, 1e-100], dtype=torch.float64)).sum() > 0.3
    tensor(True)
    """
    return torch.ldexp(weights, -torch.frexp(weights.max()).exponent).float()


def check_learning(rate: Any, passes: Any) -> None:
    """Raise unless a learning rate is a number that float32 can hold and the passes are a whole number."""
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 < float(rate) <= LARGEST_RATE:
        raise ReprogramError(
            f"learning_rate = {rate!r} was given, but a number above 0 and up to {LARGEST_RATE:g} is expected"
        )
    if isinstance(passes, bool) or not isinstance(passes, Integral) or passes < 0:
        raise ReprogramError(f"max_iter = {passes!r} was given, but a whole number of at least 0 is expected")


def descend(
    mapping: Mapping,
    optimizer: torch.optim.Optimizer,
    samples: tuple[Tensor, Tensor, Tensor],
    *,
    first: int,
    passes: int,
) -> None:
    """Passes over samples on the cross-entropy, in batches whose order the mapping's seed decides; all of them or none.

    Args:
        mapping: a learned one.
        optimizer: of its parameters.
        samples: logits (n, k_S), class numbers (n,) and weights (n,).
        first: how many passes there were before.
        passes: how many to make.
    """
    logits, targets, weights = samples
    inputs, each = mapping.affine.normalised(logits).detach(), relative_weights(weights)
    parameters = list(mapping.parameters())
    before = [part.detach().clone() for part in parameters]
    for number in range(first, first + passes):
        order = torch.randperm(len(logits), generator=generator(mapping.seed, "order", number))
        for batch in order.split(_BATCH):
            losses = F.cross_entropy(inputs[batch] @ mapping.weights, targets[batch], reduction="none")
            optimizer.zero_grad()
            (losses @ each[batch] / each[batch].sum().clamp_min(1e-30)).backward()
            optimizer.step()
        if not all(bool(part.isfinite().all()) for part in (losses.detach(), *parameters)):
            optimizer.state.clear()
            for part, good in zip(parameters, before, strict=True):
                part.data.copy_(good)
            raise NonFiniteError(
                f"the weights of method {mapping.name!r} became NaN or infinite in pass {number + 1}, so nothing was "
                f"changed; lower learning_rate = {optimizer.param_groups[0]['lr']:g}, or take normalize = 'standardise'"
            )
