"""A network as a list of steps over numbered slots: what `builder` makes and every batch runs."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass
class Step:
    """One operator: reads slots, writes one, and lets go of those that nobody reads any more."""

    run: Callable[[list[Any]], Any]
    reads: frozenset[int]
    writes: int
    frees: tuple[int, ...] = ()


@dataclass
class Schedule:
    """The steps of a network.

    Attributes:
        steps: in order.
        weights: the constants and their slots.
        multiplied: the slots of the weights that lower precision is meant for: those of convolutions and linear layers.
        size: the number of slots.
        inputs: the slots of the canvas and its carrier, or of the shared frame and the images.
        output: the slot of the logits.
        cost: what the cost model says one sample costs, in floating point operations.
        windowed: whether it takes a shared frame and images.
        framed: how many operators run on shared map and patch.
        operators: how many there are.
        last: a description of the last operator that does.
        normalises: whether a batch norm or instance norm is left in it.
    """

    steps: list[Step]
    weights: dict[int, Tensor]
    multiplied: frozenset[int]
    size: int
    inputs: tuple[int, int]
    output: int
    cost: float
    windowed: bool
    framed: int
    operators: int
    last: str
    normalises: bool = False
    _lowered: dict[torch.dtype, dict[int, Tensor]] = field(default_factory=dict)

    def to(self, dtype: torch.dtype) -> "Schedule":
        """The same steps on weights of another type."""
        weights = {slot: weight.to(dtype) if weight.is_floating_point() else weight for slot, weight in self.weights.items()}
        return replace(self, weights=weights, _lowered={})

    def run(self, *inputs: Tensor | None) -> Tensor:
        """Compute logits.

        Args:
            inputs: the canvas (N, 3, S, S) and its carrier (1, 3, S, S) or None; with a shared frame, that frame
                (1, 3, S, S) and the images (N, 3, s, s).
        """
        slots: list[Any] = [None] * self.size
        for slot, weight in self._weights().items():
            slots[slot] = weight
        for slot, value in zip(self.inputs, inputs, strict=True):
            slots[slot] = value
        del inputs
        for step in self.steps:
            slots[step.writes] = step.run(slots)
            for slot in step.frees:
                slots[slot] = None
        return slots[self.output]  # type: ignore[no-any-return]

    def _weights(self) -> dict[int, Tensor]:
        """The weights, under autocast in its type: it would convert frozen ones again in every step."""
        device = next((weight.device.type for weight in self.weights.values()), "cpu")
        if not torch.is_autocast_enabled(device):
            return self.weights
        dtype = torch.get_autocast_dtype(device)
        if dtype not in self._lowered:
            with torch.inference_mode(False):
                lowered = {slot: self.weights[slot].to(dtype) for slot in self.multiplied}
            self._lowered[dtype] = self.weights | lowered
        return self._lowered[dtype]
