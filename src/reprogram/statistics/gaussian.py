"""What the Gaussian mapping is estimated from: n_t, Σz of each class, and the scatter of z about the class means.

The scatter is kept about the means, not as Σzzᵀ, whose digits a common offset of the logits would use up. Sums about means
add up, too: with means m and m' of n and n' samples of one class, the scatter of all of them about their common mean is

    W + W' + n·n' / (n + n') · (m − m')(m − m')ᵀ
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.statistics.base import LARGEST_LOGIT, Statistics, check_size, rearranged

LARGEST_COVARIANCE = 8192  # 512 MB; logits of more labels are handled in the span of their features, or not at all


class GaussianStatistics(Statistics):
    """What the Gaussian mapping needs to know about a stream of (logits, target label) pairs.

    Args:
        k_source: the number of coordinates: of source labels, or of the span that the logits lie in.
        k_target: the number of target classes, also of absent ones.
        span: (labels, k_S) orthonormal columns; logits over more labels are brought to these coordinates before counting.
        span_digest: what identifies the span, where it is known without the span itself, as in a file.

    Attributes:
        samples: (k_T,) float64, how many samples of each class were counted, or their summed weights.
        counted: (k_T,) and rounding: (k_T,), see `Statistics`.
        squared_weights: (k_T,) float64, the summed squares of the weights of each class.
        sums: (k_S, k_T) float64, the summed logits of each class.
        within: (k_S, k_S) float64, Σ (z − m_t)(z − m_t)ᵀ over all samples, with m_t the mean of the sample's class.
        removed: (k_S,) float64, Σz² of all samples that were taken out again: what rounding may have left of each coordinate
            is measured by it.

    >>> statistics = GaussianStatistics(k_source=2, k_target=2)
    >>> logits = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 5.0]])
    >>> statistics = statistics.update(logits, torch.tensor([0, 0, 1, 1]))
    >>> statistics.sums.tolist(), statistics.within.tolist()
    ([[4.0, 0.0], [0.0, 6.0]], [[2.0, 0.0], [0.0, 8.0]])
    """

    header: ClassVar[str] = "gaussian_statistics"
    kind: ClassVar[str] = "gaussian"
    squared_weights: Tensor
    sums: Tensor
    within: Tensor
    removed: Tensor

    def __init__(self, k_source: int, k_target: int, *, span: Tensor | None = None, span_digest: str | None = None) -> None:
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
        self.span, self._span_digest = None if span is None else span.double(), span_digest
        self._register_counts(k_target, weighted=True)
        self.register_buffer("squared_weights", torch.zeros(k_target, dtype=torch.float64))
        self.register_buffer("sums", torch.zeros(k_source, k_target, dtype=torch.float64))
        self.register_buffer("within", torch.zeros(k_source, k_source, dtype=torch.float64))
        self.register_buffer("removed", torch.zeros(k_source, dtype=torch.float64))

    @property
    def effective_size(self) -> float:
        """How many samples of weight 1 tell as much: max(Σw, (Σw)² / Σw²).

        A weight of 2 is the sample twice, as everywhere. But weights below 1, such as shares that sum to 1, do not make the
        samples fewer: of those only the unevenness counts (Kish's effective sample size), not the scale.
        """
        total, squares = self.weight, float(self.squared_weights.sum())
        return max(total, total**2 / squares) if squares > 0 else total

    @override
    def config(self) -> dict[str, Any]:
        if self.span is not None and self._span_digest is None:
            self._span_digest = hashlib.sha256(self.span.cpu().numpy().tobytes()).hexdigest()
        shape = {"k_source": self.k_source, "k_target": self.k_target}
        return shape if self._span_digest is None else {**shape, "span_digest": self._span_digest}

    @override
    def empty(self) -> Self:
        return self._empty(self.k_target)

    @torch.no_grad()
    @override
    def update(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None, *, log_probabilities: bool = False
    ) -> Self:
        if self.span is not None and logits.ndim == 2 and logits.shape[1] == len(self.span):
            logits = logits.to(self.span.device).double() @ self.span
        logits = self._checked_logits(logits, LARGEST_LOGIT).double()
        targets = self._checked_targets(targets, len(logits))
        weights = self._checked_weights(weights, len(logits), weighted=True)
        classes, members = targets.unique(return_inverse=True)
        weighted = logits if weights is None else logits * weights[:, None]
        # sorting on CUDA and running in order on the CPU, this adds in the same order every time
        added = torch.zeros(len(classes), self.k_source, dtype=torch.float64, device=logits.device)
        added.index_put_((members,), weighted, accumulate=True)
        found = torch.bincount(members, weights, minlength=len(classes)).double()
        before, sums = self.samples[classes], self.sums.T[classes]
        # With m of the n samples before and m' of the n' of this batch, the scatter about c = (1 − a)·m' + a·m, where
        # a² = n / (n + n'), is W' + n'·a²·(m − m')(m − m')ᵀ: all that this batch adds, without a product of its own.
        total = before + found
        share = (before / total.where(total > 0, 1)).sqrt()
        centre = added * ((1 - share) / found.where(found > 0, 1))[:, None]
        centre.addcmul_(sums, (share / before.where(before > 0, 1))[:, None])
        about = centre[members]
        torch.sub(logits, about, out=about)
        self._add_products(about if weights is None else about * weights[:, None], about)
        self.sums.T[classes] = sums.add_(added)
        self._count(targets, weights)
        squares = None if weights is None else weights.square()
        self.squared_weights += torch.bincount(targets, squares, minlength=self.k_target)
        return self

    @override
    def as_views(self, views: int) -> Self:
        super().as_views(views)
        self.squared_weights.copy_(self.counted)
        return self

    @override
    def shares(self, target: int) -> bool:
        return float(self.samples[target]) > 0

    @override
    def merge(self, other: Statistics) -> Self:
        self.check_alike(other)
        assert isinstance(other, GaussianStatistics)
        theirs = other.samples.to(self.samples.device), other.sums.to(self.samples.device)
        between = _between((self.samples, self.sums), theirs)
        super().merge(other)
        self.within += between
        return self

    def noise(self) -> Tensor:
        """Below so much, summed squares are rounding, (k_S,): of the samples, and of those taken out again."""
        return self.mean_square() * (self.weight * 2.0**-44) + self.removed * 2.0**-40

    def check_size(self) -> None:
        """Raise where the logits are so small that their squares vanish."""
        size = max(float(_means(self.samples, self.sums).abs().max()), float(self.mean_square().max()) ** 0.5)
        check_size(size)

    def mean_square(self) -> Tensor:
        """The mean of z² over all samples, for each coordinate: (k_S,)."""
        return _square_sums(self.within, self.samples, self.sums) / (self.weight or 1.0)

    @override
    def with_classes(self, kept: Sequence[int | None]) -> Self:
        """As in `Statistics`; a class with samples cannot be dropped, as the scatter is that of all: subtract them first."""
        dropped = [index for index in sorted(set(range(self.k_target)).difference(kept)) if self.shares(index)]
        if dropped:
            raise ReprogramError(
                f"class number {dropped[0]} still has samples in the covariance that all classes share; "
                "subtract the statistics of its samples first"
            )
        fresh = self._empty(len(kept))
        for name, part in self.named_buffers():
            shared = name in ("within", "removed")
            fresh.get_buffer(name).copy_(part if shared else rearranged(part, kept, dim=part.ndim - 1))
        return fresh

    @override
    def _settle(self, left: dict[str, Tensor], taken: dict[str, Tensor], rounding: Tensor) -> bool:
        gone = left["samples"] == 0
        left["sums"][:, gone] = 0
        left["squared_weights"].clamp_min_(0)[gone] = 0
        left["within"] -= _between((left["samples"], left["sums"]), (taken["samples"], taken["sums"]))
        left["removed"] = self.removed + taken["removed"] + _square_sums(taken["within"], taken["samples"], taken["sums"])
        if bool(gone.all()):
            left["removed"].zero_()
        if bool((left["counted"] <= 1).all()):  # single samples do not scatter, whatever rounding has left
            left["within"].zero_()
        bound = 4 * self.mean_square() * rounding.sum()
        return bool((left["within"].diagonal() >= -bound).all())

    @override
    def _reduce(self, group: "torch.distributed.ProcessGroup | None") -> None:
        mine = self.samples.clone(), self.sums.clone()
        for name, part in self.named_buffers():
            if name != "within":
                torch.distributed.all_reduce(part, group=group)
        away = _means(*mine) - _means(self.samples, self.sums)  # of this process's class means from those of all
        self.within.addmm_(away * mine[0], away.T)
        torch.distributed.all_reduce(self.within, group=group)

    def _add_products(self, weighted: Tensor, rows: Tensor) -> None:
        """Add Σ w z zᵀ of rows (N, k_S) to the scatter; it is symmetric, so a quarter of the products is a copy."""
        half = self.k_source // 2
        self.within[:half].addmm_(weighted[:, :half].T, rows)
        self.within[half:, half:].addmm_(weighted[:, half:].T, rows[:, half:])
        self.within[half:, :half] = self.within[:half, half:].T

    def _empty(self, k_target: int) -> Self:
        digest = self.config().get("span_digest")
        return type(self)(self.k_source, k_target, span=self.span, span_digest=digest).to(self.samples.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.span = None if self.span is None else self.span.to(self.samples.device)
        return self


def _square_sums(within: Tensor, samples: Tensor, sums: Tensor) -> Tensor:
    """Σz² over all samples, for each coordinate: (k_S,)."""
    return within.diagonal() + (sums * _means(samples, sums)).sum(1)


def _means(samples: Tensor, sums: Tensor) -> Tensor:
    """The class means (k_S, k_T), 0 where there is no sample."""
    return sums / samples.where(samples > 0, 1)


def _between(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    """Σ_t n·n' / (n + n') · (m − m')(m − m')ᵀ of two parts, each given by its samples (k_T,) and sums (k_S, k_T)."""
    (n, sums), (more, others) = one, other
    shared = ((n > 0) & (more > 0)).nonzero().flatten()
    n, more = n[shared], more[shared]
    apart = sums[:, shared] / n - others[:, shared] / more
    return (apart * (n * more / (n + more))) @ apart.T
