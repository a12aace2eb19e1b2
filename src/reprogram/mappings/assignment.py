"""RLM, FLM and ILM: a source label of its own for each class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.mappings.evidence import Evidence, evidence_matrix, warn_about
from reprogram.mappings.linear import LinearMapping
from reprogram.mappings.settings import OneToOneSettings
from reprogram.statistics.base import Statistics
from reprogram.statistics.joint import JointStatistics


def random(k_source: int, k_target: int, generator: torch.Generator | None = None) -> Tensor:
    """RLM, Algorithm 3: a random choice of k_T distinct source labels, one for each target class.

    >>> random(5, 3, torch.Generator().manual_seed(0)).sum(0).tolist()
    [1.0, 1.0, 1.0]
    """
    check_one_to_one(k_source, k_target)
    chosen = torch.randperm(k_source, generator=generator)[:k_target]
    return selection(chosen, k_source)


def one_to_one(evidence: Evidence, *, optimal: bool = False, classes: Sequence[str] | None = None) -> Tensor:
    """FLM and ILM, Algorithm 5: give each target class a source label of its own, the strongest pairs first.

    Args:
        evidence: J, (k_S, k_T). It is not changed.
        optimal: take the assignment with the largest total evidence instead of the greedy one as published (needs scipy).
        classes: target class names for the warning about classes without evidence.

    Returns:
        ω (k_S, k_T) float32 with a single 1 in each column, in distinct rows. Of equal entries the one with the lowest
        source label, then the lowest target label, is taken first. A class that is left without evidence gets the
        lowest free source label, with a warning.

    >>> one_to_one(torch.tensor([[5, 4], [4, 0], [0, 1]])).argmax(0).tolist()
    [0, 2]
    >>> one_to_one(torch.tensor([[5, 4], [4, 0], [0, 1]]), optimal=True).argmax(0).tolist()
    [1, 0]
    """
    matrix = evidence_matrix(evidence)
    k_source, k_target = matrix.shape
    check_one_to_one(k_source, k_target)
    table = matrix.cpu().numpy()
    if (table != np.round(table)).any():  # of weighted samples: what differs by rounding alone is equal
        table = np.round(table / table.max() * 2.0**40)
    chosen = _optimal_assignment(table) if optimal else _greedy_assignment(table)
    unsupported = torch.from_numpy(table[chosen, np.arange(k_target)] <= 0)
    warn_about(unsupported, classes, "no free source label has evidence for target {}: an arbitrary one is used")
    return selection(torch.from_numpy(chosen), k_source).to(matrix.device)


def check_one_to_one(k_source: int, k_target: int) -> None:
    """Raise unless there is a source label for each target class."""
    if k_target > k_source:
        raise ReprogramError(
            f"a one-to-one mapping cannot give {k_target} classes a source label each out of {k_source}; "
            "choose blm or blm+, or a model with more labels"
        )


def selection(chosen: Tensor, k_source: int) -> Tensor:
    """ω with a single 1 in each column, at the chosen source label."""
    omega = torch.zeros(k_source, len(chosen))
    omega[chosen, torch.arange(len(chosen))] = 1
    return omega


def _greedy_assignment(table: "np.ndarray[Any, np.dtype[np.float64]]") -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The source label of each target class. One sort of the nonzero entries replaces k_T searches of the whole matrix."""
    k_source, k_target = table.shape
    chosen = np.full(k_target, -1, dtype=np.int64)
    free = np.ones(k_source, dtype=bool)
    sources, targets = np.nonzero(table)  # in row-major order, which the stable sort keeps among equals
    left = k_target
    for place in np.argsort(-table[sources, targets], kind="stable"):
        source, target = sources[place], targets[place]
        if chosen[target] < 0 and free[source]:
            chosen[target], free[source], left = source, False, left - 1
            if not left:
                return chosen
    unmatched = chosen < 0
    chosen[unmatched] = np.flatnonzero(free)[: unmatched.sum()]
    return chosen


def _optimal_assignment(table: "np.ndarray[Any, np.dtype[np.float64]]") -> "np.ndarray[Any, np.dtype[np.int64]]":
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError:
        raise ReprogramError("the optimal assignment needs scipy; run: pip install 'reprogram[sklearn]'") from None
    targets, sources = linear_sum_assignment(table.T, maximize=True)
    chosen = np.empty(table.shape[1], dtype=np.int64)
    chosen[targets] = sources
    return chosen


class RandomMapping(LinearMapping):
    """RLM: drawn once, no data needed."""

    @override
    def first_weights(self) -> Tensor:
        return random(self.k_source, self.k_target, torch.Generator().manual_seed(self.seed))

    @override
    def rule(self, statistics: Statistics) -> Tensor:
        return self.weights


class OneToOneMapping(LinearMapping):
    """FLM and ILM: J counts (best source label, class) pairs, and each class gets a source label of its own."""

    settings: OneToOneSettings

    @override
    def empty_statistics(self) -> Statistics:
        check_one_to_one(self.k_source, self.k_target)  # what cannot work says so before any pass
        return self.joint_statistics()

    @override
    def rule(self, statistics: Statistics) -> Tensor:
        assert isinstance(statistics, JointStatistics)
        return one_to_one(statistics, optimal=self.settings.optimal, classes=self.classes)
