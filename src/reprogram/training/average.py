"""The mean of what is trained over its last steps: less of the noise of single batches than where the steps have come to."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Average:
    """An exponential mean of parameters, over about the last `horizon` steps.

    While steps are made, the parameters are those that the optimiser moves; between `end` and `begin` they are their mean,
    so that whatever looks at the model there, an evaluation or a file, sees the mean. After t steps a θ of s steps ago has
    the weight e^(−s/horizon) over the sum of all t such weights: what was before the first step has none.

    Args:
        parameters: by name.
        horizon: in steps.

    Attributes:
        taken: how many steps the mean is of.
        moving: the parameters that the optimiser moves, while the model shows their mean; else empty.

    >>> theta = nn.Parameter(torch.zeros(1))
    >>> average = Average({"theta": theta}, horizon=1e9)
    >>> average.begin()
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = theta.data.fill_(value)
    ...     average.take()
    >>> average.end()
    >>> round(theta.item(), 6)
    3.0
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], horizon: float) -> None:
        self._parameters, self._horizon = dict(parameters), horizon
        self.taken = 0
        self.moving: dict[str, Tensor] = {}
        self._mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def begin(self) -> None:
        """Let the optimiser go on from where it was."""
        self._mean = {name: parameter.clone() for name, parameter in self._parameters.items()}
        for name, value in self.moving.items():
            self._parameters[name].copy_(value)
        self.moving = {}

    @torch.no_grad()
    def take(self) -> None:
        """Take in the parameters as a step has left them."""
        self.taken += 1
        share = math.expm1(-1 / self._horizon) / math.expm1(-self.taken / self._horizon)  # 1 for the first
        for name, mean in self._mean.items():
            mean.lerp_(self._parameters[name], share)

    @torch.no_grad()
    def end(self) -> None:
        """Let the model show the mean."""
        for name, parameter in self._parameters.items():
            self.moving[name] = parameter.clone()
            parameter.copy_(self._mean[name])
        self._mean = {}
