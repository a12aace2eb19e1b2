"""Source logits that an evaluation has met, so that another one of the same program needs no pass."""

import torch
from torch import Tensor

_MOST = 2**27  # bytes: more is computed again


class Seen:
    """The source logits of those images of a split that this process runs: a `watch` for `evaluate`.

    Args:
        n: how many images the split has.
        k_source: how many logits each has.

    >>> seen = Seen(3, 2)
    >>> seen(torch.zeros(2, 2)); seen(torch.ones(1, 2))
    >>> seen.logits(torch.float32).shape, Seen(10**9, 1000).logits(torch.float32)
    (torch.Size([3, 2]), None)
    """

    def __init__(self, n: int, k_source: int) -> None:
        self._room, self._width = 4 * n * k_source <= _MOST, k_source
        self._parts: list[Tensor] = []

    def __call__(self, logits: Tensor) -> None:
        """Take in the next batch, if there is room for all."""
        if self._room:
            self._parts.append(logits.detach().cpu())

    def logits(self, dtype: torch.dtype | None = None) -> Tensor | None:
        """All of them one after the other, as they came or in another type; None where there was no room."""
        if not self._room:
            return None
        whole = torch.cat(self._parts) if self._parts else torch.empty(0, self._width)
        return whole if dtype is None else whole.to(dtype)
