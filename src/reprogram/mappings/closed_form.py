"""The rules J → ω: pure functions of the statistics, and the ones that need no data at all."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.sources.texts import Texts
from reprogram.statistics.joint import JointStatistics

Evidence = JointStatistics | Tensor


def random(k_source: int, k_target: int, generator: torch.Generator | None = None) -> Tensor:
    """RLM, Algorithm 3: a random choice of k_T distinct source labels, one for each target class.

    >>> random(5, 3, torch.Generator().manual_seed(0)).sum(0).tolist()
    [1.0, 1.0, 1.0]
    """
    check_one_to_one(k_source, k_target)
    chosen = torch.randperm(k_source, generator=generator)[:k_target]
    return _selection(chosen, k_source)


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
    matrix = _matrix(evidence)
    k_source, k_target = matrix.shape
    check_one_to_one(k_source, k_target)
    table = matrix.cpu().numpy()
    chosen = _optimal_assignment(table) if optimal else _greedy_assignment(table)
    unsupported = torch.from_numpy(table[chosen, np.arange(k_target)] <= 0)
    warn_about(unsupported, classes, "no free source label has evidence for target {}: an arbitrary one is used")
    return _selection(torch.from_numpy(chosen), k_source).to(matrix.device)


def bayes(evidence: Evidence, smoothing: float = 1.0, *, classes: Sequence[str] | None = None) -> Tensor:
    """BLM and BLM+, Eq. 5 with Eqs. 6–7 or 8–9: ω ∝ J / (row sums of J + λ), every column scaled to sum 1.

    Args:
        evidence: J, (k_S, k_T), counts for BLM or summed top-K probabilities for BLM+.
        smoothing: λ ≥ 0, added to the row sums only.
        classes: target class names for the warning about classes without evidence.

    Returns:
        ω (k_S, k_T) float32. A class without evidence gets a uniform column, with a warning. The factors 1/n and
        n + k_S·λ of the equations are the same for a whole column and cancel.

    >>> bayes(torch.tensor([[0, 2], [0, 1], [1, 0]])).tolist()   # the paper's dogs and cat, λ = 1
    [[0.0, 0.5714285969734192], [0.0, 0.4285714328289032], [1.0, 0.0]]
    """
    check_smoothing(smoothing)
    matrix = _matrix(evidence)
    rows = matrix.sum(1, keepdim=True) + smoothing
    conditional = matrix / rows.where(rows > 0, 1)
    mass = conditional.sum(0)
    empty = mass <= 0
    warn_about(empty, classes, "there is no evidence for target {}: a uniform column is used")
    omega = conditional / mass.where(~empty, 1)
    omega[:, empty] = 1 / len(matrix)
    return omega.float()


def same_labels(source_labels: Sequence[str], classes: Sequence[str], device: torch.device | None = None) -> Tensor:
    """No mapping at all, where the label sets agree: each class takes the source label of the same name.

    Case, `_` and `-` do not matter, and one synonym of a comma-separated source label suffices. Where the source labels are
    texts about the classes, each class takes its text in the default template: CLIP's zero-shot classifier.

    >>> same_labels(["tench, Tinca tinca", "goldfish", "hen"], ["Goldfish", "tinca_tinca"]).argmax(0).tolist()
    [1, 0]
    """
    if isinstance(source_labels, Texts):
        return source_labels.zero_shot(classes).to(device)
    places: dict[str, int] = {}
    for index, label in enumerate(source_labels):
        places.setdefault(_canonical(label), index)
    for index, label in enumerate(source_labels):
        for synonym in label.split(","):
            places.setdefault(_canonical(synonym), index)
    missing = [name for name in classes if _canonical(name) not in places]
    if missing:
        raise ReprogramError(
            f"mapping 'none' needs every class among the source labels, but {missing[0]!r} "
            f"({len(missing)} of {len(classes)}) is not there; choose a mapping such as blm+"
        )
    return _selection(torch.tensor([places[_canonical(name)] for name in classes]), len(source_labels)).to(device)


def _matrix(evidence: Evidence) -> Tensor:
    matrix = (evidence.matrix if isinstance(evidence, JointStatistics) else torch.as_tensor(evidence)).double()
    if matrix.ndim != 2 or not bool((matrix.isfinite() & (matrix >= 0)).all()):
        raise ReprogramError(
            f"J of shape {tuple(matrix.shape)} was given, but a (k_S, k_T) matrix of finite numbers ≥ 0 is expected"
        )
    return matrix


def check_smoothing(smoothing: float) -> None:
    """Raise unless λ is a finite number of at least 0."""
    if not (isinstance(smoothing, (int, float)) and math.isfinite(smoothing) and smoothing >= 0):
        raise ReprogramError(
            f"smoothing λ = {smoothing!r} was given, but a number of at least 0 is expected (the paper has 1)"
        )


def check_one_to_one(k_source: int, k_target: int) -> None:
    """Raise unless there is a source label for each target class."""
    if k_target > k_source:
        raise ReprogramError(
            f"a one-to-one mapping cannot give {k_target} classes a source label each out of {k_source}; "
            "choose blm or blm+, or a model with more labels"
        )


def _selection(chosen: Tensor, k_source: int) -> Tensor:
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


def _canonical(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").replace("-", " ").split())


def warn_about(affected: Tensor, classes: Sequence[str] | None, message: str) -> None:
    """Warn once, with the message's {} filled by the names of the affected classes (k_T,)."""
    indices = affected.nonzero().flatten().tolist()
    if indices:
        named = ", ".join(repr(classes[i]) if classes else str(i) for i in indices[:5])
        rest = f" and {len(indices) - 5} more" if len(indices) > 5 else ""
        plural = "classes" if len(indices) > 1 else "class"
        warnings.warn(message.format(f"{plural} {named}{rest}"), EvidenceWarning, stacklevel=3)
