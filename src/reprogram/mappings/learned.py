"""The paper's "Deep" mapping: a weight matrix without bias, trained by its own optimiser; optionally squashed."""

import torch
from torch import Tensor, nn
from typing_extensions import override

from reprogram.mappings.affine import Affine
from reprogram.mappings.linear import LinearMapping
from reprogram.statistics.base import Statistics


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
