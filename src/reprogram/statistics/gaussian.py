"""The sums that the Gaussian mapping is estimated from: n_t, Σz of each class, Σzzᵀ over all."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.statistics.base import Statistics, rearranged

LARGEST_COVARIANCE = 8192  # 512 MB; logits of more labels are handled in the span of their features, or not at all


class GaussianStatistics(Statistics):
    """What the Gaussian mapping needs to know about a stream of (logits, target label) pairs, as plain sums.

    Args:
        k_source: the number of coordinates: of source labels, or of the span that the logits lie in.
        k_target: the number of target classes, also of absent ones.
        span: (labels, k_S) orthonormal columns; logits over more labels are brought to these coordinates before counting.

    Attributes:
        samples: (k_T,) float64, how many samples of each class were counted, or their summed weights.
        sums: (k_S, k_T) float64, the summed logits of each class.
        products: (k_S, k_S) float64, the summed outer products z zᵀ over all classes.

    >>> statistics = GaussianStatistics(k_source=2, k_target=2)
    >>> logits = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    >>> statistics = statistics.update(logits, torch.tensor([0, 0, 1, 1]))
    >>> statistics.sums.tolist(), statistics.products.tolist()
    ([[4.0, 0.0], [0.0, 4.0]], [[10.0, 0.0], [0.0, 10.0]])
    """

    header: ClassVar[str] = "gaussian_statistics"
    kind: ClassVar[str] = "gaussian"
    sums: Tensor
    products: Tensor

    def __init__(self, k_source: int, k_target: int, *, span: Tensor | None = None) -> None:
        super().__init__()
        if k_source < 1 or k_target < 1:
            raise ReprogramError(
                f"k_S = {k_source} and k_T = {k_target} were given; both label sets need at least one label"
            )
        if k_source > LARGEST_COVARIANCE:
            raise ReprogramError(
                f"the Gaussian mapping of {k_source} source labels needs a covariance of {8e-9 * k_source**2:.0f} GB; give "
                f"it at most {LARGEST_COVARIANCE}, or a model that tells the span of its logits (openclip: does), or blm+"
            )
        self.k_source, self.k_target = k_source, k_target
        self.span = None if span is None else span.double()
        self.register_buffer("samples", torch.zeros(k_target, dtype=torch.float64))
        self.register_buffer("sums", torch.zeros(k_source, k_target, dtype=torch.float64))
        self.register_buffer("products", torch.zeros(k_source, k_source, dtype=torch.float64))

    @override
    def config(self) -> dict[str, Any]:
        return {"k_source": self.k_source, "k_target": self.k_target}

    @override
    def empty(self) -> Self:
        return type(self)(self.k_source, self.k_target, span=self.span).to(self.samples.device)

    @torch.no_grad()
    @override
    def update(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Self:
        if self.span is not None and logits.ndim == 2 and logits.shape[1] == len(self.span):
            logits = logits.to(self.span.device).double() @ self.span
        logits = self._checked_logits(logits).double()
        targets = self._checked_targets(targets, len(logits))
        weights = self._checked_weights(weights, len(logits), weighted=True)
        weighted = logits if weights is None else logits * weights[:, None]
        # sorting on CUDA and running in order on the CPU, this adds in the same order every time
        self.sums.T.index_put_((targets,), weighted, accumulate=True)
        self.products.addmm_(weighted.T, logits)
        self._count(targets, weights)
        return self

    @override
    def shares(self, target: int) -> bool:
        return float(self.samples[target]) > 0

    @override
    def with_classes(self, kept: Sequence[int | None]) -> Self:
        """As in `Statistics`; a class with samples cannot be dropped, because Σzzᵀ is not kept per class: subtract them."""
        dropped = [index for index in range(self.k_target) if index not in kept and self.shares(index)]
        if dropped:
            raise ReprogramError(
                f"class number {dropped[0]} still has samples in the covariance that all classes share; "
                "subtract the statistics of its samples first"
            )
        fresh = type(self)(self.k_source, len(kept), span=self.span).to(self.samples.device)
        fresh.samples.copy_(rearranged(self.samples, kept, 0))
        fresh.sums.copy_(rearranged(self.sums, kept, 1))
        fresh.products.copy_(self.products)
        return fresh

    @override
    def _possible(self, left: dict[str, Tensor]) -> bool:
        left["sums"][:, left["samples"] == 0] = 0
        if not bool((left["samples"] > 0).any()):
            left["products"].zero_()
        rounding = self.products.diagonal() * float(self.samples.sum() + 1) * 2.0**-50
        return bool((left["products"].diagonal() >= -rounding).all())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.span = None if self.span is None else self.span.to(self.samples.device)
        return self
