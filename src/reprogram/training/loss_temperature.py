"""What target logits are divided by before the loss of the program is taken.

Mappings have scales of their own. The Gaussian's target logits are log-densities in as many dimensions as there are source
labels: most differences are so large that the softmax is 0 or 1, and the few images that are wrong are all that is left of
the loss. At the temperature that makes the softmax honest, every image has its part in the gradient.
"""

import torch
from torch import Tensor

from reprogram.mappings.temperature import TemperatureSums
from reprogram.training.settings import LossTemperatureSetting

_LOOK = 16  # steps between two looks at scores: to read them makes a GPU wait


class LossTemperature:
    """Divides target logits by a temperature.

    With "auto" it is the one that calibrates the scores that images had in the epoch before, in which a mapping with folds
    does not know them; in the first epoch, the scores so far. So it needs no pass of its own.

    Args:
        setting: "none" for 1, a number, or "auto".

    Attributes:
        measured: with "auto", the temperature of the last completed epoch; None before there is one.

    >>> LossTemperature(4.0)(torch.tensor([[8.0, 0.0]])).tolist()
    [[2.0, 0.0]]
    """

    def __init__(self, setting: LossTemperatureSetting) -> None:
        self._setting = setting
        self.measured: float | None = None
        self._sums = TemperatureSums()
        self._waiting: list[tuple[Tensor, Tensor]] = []

    @property
    def looks(self) -> bool:
        """Whether it has to see scores."""
        return self._setting == "auto"

    def look(self, scores: Tensor, labels: Tensor) -> None:
        """Take notice of the scores (N, k_T) of a whole batch, before they are divided."""
        self._waiting.append((scores.detach(), labels))
        if self.measured is None or len(self._waiting) == _LOOK:
            self._look()

    def __call__(self, scores: Tensor) -> Tensor:
        """What to take the loss of, (N, k_T)."""
        if self._setting == "none":
            return scores
        if self._setting != "auto":
            return scores / self._setting
        return scores / (self._sums.temperature() if self.measured is None else self.measured)

    def end_epoch(self) -> None:
        """What was seen decides the next epoch."""
        if self._setting == "auto":
            self._look()
            self.measured = self._sums.temperature()
            self._sums = TemperatureSums()

    def _look(self) -> None:
        if self._waiting:
            scores, labels = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
            finite = scores.isfinite().all(1)  # of the others the loss will tell
            if bool(finite.any()):
                self._sums.add(scores[finite], labels[finite])
        self._waiting = []
