"""J: what a stream of (source logits, target label) pairs says about the two label sets, as one k_S × k_T matrix.

Every mapping of the paper is a function of this matrix alone, and the matrix is a plain sum over samples. So it can be
gathered in any order, in pieces, on many machines, and samples can be taken out of it again. Memory is O(k_S · k_T).
"""

import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import EvidenceWarning, ReprogramError, unknown
from reprogram.statistics import moments as m
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import LARGEST_LOGIT, Statistics, rearranged
from reprogram.statistics.ranking import top_labels, top_softmax

Kind = Literal["counts", "probabilities"]
TopRatio = float | Literal["all"]
_DTYPES = {"counts": torch.int64, "probabilities": torch.float64}


class JointStatistics(Statistics):
    """The sufficient statistic of the paper's mappings: `matrix[s, t]` is the evidence for source label s on target class t.

    Make one with `JointStatistics.counts` (BLM, ILM, FLM; Eq. 6 times n) or `JointStatistics.probabilities` (BLM+; Eq. 8
    times n). The matrix is int64 or float64 whatever the precision of the logits, and it is a buffer.

    Args:
        kind: "counts" or "probabilities".
        k_source: the number of source labels.
        k_target: the number of target classes, also of absent ones.
        top_k: how many source labels of a sample count.
        moments: also gather the means and deviations of the source logits, for mappings that normalise them.
        weighted: samples may carry weights, so that counts are float64 too.

    Attributes:
        matrix: (k_S, k_T) evidence.
        samples: (k_T,) how many samples of each target class were counted, or their summed weights.
        counted: (k_T,) and rounding: (k_T,), see `Statistics`.
        sums: (k_S, k_T) float64, with `moments`: the summed logits of each class.
        spread: (k_S, k_T) float64, with `moments`: their summed squares about the means of the classes.
    """

    header: ClassVar[str] = "joint_statistics"
    matrix: Tensor
    sums: Tensor
    spread: Tensor

    def __init__(
        self,
        kind: Kind,
        k_source: int,
        k_target: int,
        top_k: int = 1,
        *,
        moments: bool = False,
        weighted: bool = False,
    ) -> None:
        super().__init__()
        if kind not in _DTYPES:
            raise unknown("kind of statistics", kind, _DTYPES)
        if k_source < 1 or k_target < 1:
            raise ReprogramError(
                f"k_S = {k_source} and k_T = {k_target} were given; both label sets need at least one label"
            )
        if not 1 <= top_k <= k_source:
            raise ReprogramError(f"top_k = {top_k} was given, but it must lie between 1 and k_S = {k_source}")
        self.kind, self.k_source, self.k_target, self.top_k = kind, k_source, k_target, top_k
        self.moments, self.weighted = moments, weighted
        evidence = torch.float64 if weighted else _DTYPES[kind]
        self.register_buffer("matrix", torch.zeros(k_source, k_target, dtype=evidence))
        self._register_counts(k_target, weighted)
        if moments:
            for name in ("sums", "spread"):
                self.register_buffer(name, torch.zeros(k_source, k_target, dtype=torch.float64))

    @classmethod
    def counts(cls, k_source: int, k_target: int, **options: bool) -> Self:
        """Count (argmax source label, target label) pairs: Eq. 6 and Algorithm 4.

        The paper's appendix: three dogs and a cat, seen as two Cocker spaniels, an English springer, an Egyptian cat.

        >>> seen = torch.eye(3)[[0, 0, 1, 2]]               # logits of x1..x4 over the three source labels
        >>> cat, dog = 0, 1
        >>> statistics = JointStatistics.counts(k_source=3, k_target=2)
        >>> joint = statistics.update(seen, torch.tensor([dog, dog, dog, cat])).joint()
        >>> joint[:, dog].tolist(), joint[:, cat].tolist()  # p(Y_T, Y_S | X_T)
        ([0.5, 0.25, 0.0], [0.0, 0.0, 0.25])
        >>> joint.sum(1).tolist()                           # p(Y_S | X_T)
        [0.5, 0.25, 0.25]
        """
        return cls("counts", k_source, k_target, **options)

    @classmethod
    def probabilities(cls, k_source: int, k_target: int, top_k: int, **options: bool) -> Self:
        """Add up the softmax probabilities of each sample's `top_k` source labels, not renormalised: Eq. 8, Algorithm 8.

        >>> statistics = JointStatistics.probabilities(k_source=3, k_target=2, top_k=2)
        >>> logits = torch.tensor([[0.7, 0.2, 0.1]]).log()
        >>> statistics.update(logits, torch.tensor([1])).matrix.round(decimals=6).tolist()
        [[0.0, 0.7], [0.0, 0.2], [0.0, 0.0]]
        """
        return cls("probabilities", k_source, k_target, top_k, **options)

    def joint(self) -> Tensor:
        """The estimate of p(Y_T, Y_S | X_T), (k_S, k_T) float64: the matrix over n or the summed weights (Eq. 6, Eq. 8)."""
        return self.matrix.double() / (self.weight or 1.0)

    @torch.no_grad()
    @override
    def update(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None, *, log_probabilities: bool = False
    ) -> Self:
        """As in `Statistics`; weights are for statistics made with `weighted`. Equal logits are ranked by their index.

        Where all logits of most samples are equal, so that their index is all there is, a warning says so.
        """
        logits = self._checked_logits(logits, LARGEST_LOGIT if self.moments else math.inf)
        targets = self._checked_targets(targets, len(logits))
        weights = self._checked_weights(weights, len(logits), self.weighted)
        evidence = self.evidence(logits, log_probabilities=log_probabilities)
        _warn_about_flat(logits)
        if self.moments:
            self._add_moments(logits.double(), targets, weights)
        return self._add(*evidence, targets, weights)

    def evidence(self, logits: Tensor, *, log_probabilities: bool = False) -> tuple[Tensor, Tensor]:
        """The `top_k` source labels of each sample and what each of them adds to J: two tables (N, top_k), in any order.

        Args:
            logits: (N, k_S).
            log_probabilities: whether these are logarithms of probabilities p, which may add up to less than 1 as the answer
                of a service does that names only its best labels: then p itself is added (Eq. 8), not a softmax.
        """
        if log_probabilities and logits.numel() and float(logits.max()) > 1e-6:
            raise ReprogramError(
                f"log-probabilities up to {float(logits.max()):g} were given, but none is above 0; "
                "pass logarithms of probabilities, or say that these are logits"
            )
        if self.kind == "counts":
            labels = top_labels(logits, 1)
            return labels, torch.ones_like(labels)
        labels = top_labels(logits, self.top_k)
        return labels, logits.gather(1, labels).double().exp() if log_probabilities else top_softmax(logits, labels)

    @torch.no_grad()
    @override
    def update_top_k(
        self, indices: Tensor, probabilities: Tensor | None, targets: Tensor, weights: Tensor | None = None
    ) -> Self:
        """Count a batch of answers that come as ranked lists, as an API gives them.

        Args:
            indices: (N, k) source labels of each answer; −1 marks an empty place.
            probabilities: (N, k) their probabilities; counts need none and then take the first label as the best one.
            targets: (N,) integer target labels.
            weights: (N,) weights of the samples, for statistics made with `weighted`.

        Of each answer the best `top_k` labels count (one for counts); a shorter answer counts as far as it goes.
        """
        if self.moments:
            raise ReprogramError("ranked answers hold no full logits, which normalising needs; use normalize = 'none'")
        answers = TopK.of(indices, probabilities, self.k_source).to(self.matrix.device)
        if probabilities is None and self.kind == "probabilities":
            raise ReprogramError("no probabilities were given, but these statistics add them up; give them or use counts")
        targets = self._checked_targets(targets, len(answers))
        weights = self._checked_weights(weights, len(answers), self.weighted)
        return self._add(*self.ranked_evidence(answers), targets, weights, ranked=True)

    def ranked_evidence(self, answers: TopK) -> tuple[Tensor, Tensor]:
        """`evidence` of answers: the best `top_k` labels of each, −1 in empty places, and what each adds to J."""
        best = answers.best(self.top_k)
        return best.indices, torch.ones_like(best.indices) if self.kind == "counts" else best.probabilities

    @override
    def with_sources(self, kept: Sequence[int | None]) -> Self:
        fresh = type(self)(**{**self.config(), "k_source": len(kept)}).to(self.samples.device)
        for name, part in self.named_buffers():
            fresh.get_buffer(name).copy_(rearranged(part, kept, dim=0) if part.ndim == 2 else part)
        return fresh

    @override
    def with_classes(self, kept: Sequence[int | None]) -> Self:
        fresh = type(self)(**{**self.config(), "k_target": len(kept)}).to(self.samples.device)
        for name, part in self.named_buffers():
            fresh.get_buffer(name).copy_(rearranged(part, kept, dim=part.ndim - 1))
        return fresh

    @override
    def config(self) -> dict[str, Any]:
        optional = {name: True for name in ("moments", "weighted") if getattr(self, name)}
        shape = {"kind": self.kind, "k_source": self.k_source, "k_target": self.k_target, "top_k": self.top_k}
        return {**shape, **optional}

    def moments_of_logits(self) -> tuple[Tensor, Tensor]:
        """The mean and the deviation of each source logit over all samples, both (k_S,) float64."""
        if not self.moments:
            raise ReprogramError("these statistics hold no means of the logits; make them with moments=True")
        return m.overall(self.samples, self.sums.T, self.spread.T)

    @override
    def merge(self, other: Statistics) -> Self:
        self.check_alike(other)
        if self.moments:
            assert isinstance(other, JointStatistics)
            samples, sums = other.samples.to(self.samples.device), other.sums.to(self.samples.device)
            self.spread += m.between(self.samples, self.sums.T, samples, sums.T).T
        return super().merge(other)

    @override
    def _settle(self, left: dict[str, Tensor], taken: dict[str, Tensor], rounding: Tensor) -> bool:
        matrix, gone = left["matrix"], left["samples"] == 0
        bound = rounding if matrix.is_floating_point() else torch.zeros_like(rounding)
        if bool(((matrix < -bound) | ((matrix > bound) & (left["counted"] == 0))).any()):
            return False
        matrix[((matrix <= bound) & (taken["matrix"] > 0)) | gone] = 0
        if self.moments:
            left["sums"][:, gone] = 0
            left["spread"] -= m.between(left["samples"], left["sums"].T, taken["samples"], taken["sums"].T).T
            left["spread"].clamp_min_(0)[:, left["counted"] <= 1] = 0  # single samples do not spread
        return True

    @override
    def _reduce(self, group: "torch.distributed.ProcessGroup | None") -> None:
        mine = self.samples.clone(), self.sums.clone() if self.moments else None
        for name, part in self.named_buffers():
            if name != "spread":
                torch.distributed.all_reduce(part, group=group)
        if mine[1] is not None:  # the means of this process lie so far from those of all
            away = mine[1] / mine[0].where(mine[0] > 0, 1) - self.sums / self.samples.where(self.samples > 0, 1)
            self.spread += away.square() * mine[0]
            torch.distributed.all_reduce(self.spread, group=group)

    def _add(
        self, labels: Tensor, evidence: Tensor, targets: Tensor, weights: Tensor | None, *, ranked: bool = False
    ) -> Self:
        columns = targets[:, None].expand_as(labels)
        if weights is not None:
            evidence = evidence * weights[:, None]
        if ranked:  # as answers that come in lists may have empty places
            present = labels >= 0
            labels, columns, evidence = labels[present], columns[present], evidence[present]
        # index_put_ sorts on CUDA and runs in order on the CPU: the same sum every time, unlike atomic additions
        self.matrix.index_put_((labels, columns), evidence.to(self.matrix.dtype), accumulate=True)
        self._count(targets, weights)
        return self

    def _add_moments(self, logits: Tensor, targets: Tensor, weights: Tensor | None) -> None:
        classes, members = targets.unique(return_inverse=True)
        found, sums, spread = m.of_groups(logits, members, len(classes), weights)
        before, known = self.samples[classes], self.sums.T[classes]
        self.spread.T[classes] += spread + m.between(before, known, found, sums)
        self.sums.T[classes] = known + sums


def _warn_about_flat(logits: Tensor) -> None:
    """Warn where most samples have one logit for all source labels, as those of a model that does not answer."""
    if logits.shape[1] > 1 and len(logits):
        maybe = logits[:, 0] == logits[:, -1]
        if 2 * int(maybe.count_nonzero()) > len(logits) and 2 * int(_flat(logits[maybe]).sum()) > len(logits):
            warnings.warn(
                f"most samples have the same logit for all {logits.shape[1]} source labels, which says nothing about their "
                "class: the first label is counted; check the source model",
                EvidenceWarning,
                stacklevel=3,
            )


def _flat(logits: Tensor) -> Tensor:
    return (logits == logits[:, :1]).all(1)


def top_count(ratio: TopRatio, k_target: int, k_source: int) -> int:
    """K = floor(α · k_T), at least 1 and at most k_S, with α read as the decimal number that was written.

    >>> top_count(0.15, 100, 1000), top_count(0.29, 100, 1000), top_count(0.15, 2, 1000), top_count("all", 10, 1000)
    (15, 29, 1, 1000)
    """
    if ratio == "all":
        return k_source
    if not isinstance(ratio, (int, float)) or not (math.isfinite(ratio) and ratio > 0):
        raise ReprogramError(
            f"top ratio {ratio!r} was given, but a positive number or 'all' is expected (the paper has 0.15)"
        )
    return min(max(int(Fraction(repr(float(ratio))) * k_target), 1), k_source)
