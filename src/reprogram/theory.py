"""How right a label mapping is by the paper's own measure: its expected accuracy, Eq. 10, and what the lemmas compare.

A joint distribution of source labels s and classes t is a k_S × k_T matrix of probabilities p(s, t); a mapping is a matrix
of that shape. All functions take many at once, along leading axes. docs/theory.md derives what holds, and what does not.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reprogram.errors import ReprogramError, shown

__all__ = ["deterministic", "expected_accuracy", "least_accurate"]

_ROUNDING = 1e-9


def expected_accuracy(joint: ArrayLike, mapping: ArrayLike) -> NDArray[np.float64]:
    """Acc = Σ_t p(t) Σ_s p(s | t) · ω_st = Σ_st p(s, t) · ω_st: Eq. 10 as the proofs of Appendix E use it.

    Eq. 10 as printed has p(s) in the place of p(s | t): it is this function of labels that are independent, with
    p(s, t) = p(s) · p(t), and so knows nothing of how source labels and classes belong together.

    Args:
        joint: p(s, t), (..., k_S, k_T), not negative, each matrix with sum 1.
        mapping: ω_st, (..., k_S, k_T), "the probability that s is mapped to t" (Definitions E.1 and E.2).

    Returns:
        One number for each matrix, (...).

    >>> joint = [[0.4, 0.1], [0.2, 0.3]]
    >>> expected_accuracy(joint, deterministic([0, 1], 2)).round(3).tolist()   # identity: 0.4 + 0.3
    0.7
    >>> expected_accuracy(joint, [[0.5, 0.5], [0.5, 0.5]]).round(3).tolist()
    0.5
    """
    p, omega = _joint(joint), np.asarray(mapping, dtype=np.float64)
    if omega.shape[-2:] != p.shape[-2:]:
        raise ReprogramError(
            f"a mapping of shape {omega.shape} was given, but the joint distribution has {p.shape}; make one of its shape"
        )
    return np.asarray((p * omega).sum((-2, -1)))


def deterministic(rule: Sequence[int], classes: int) -> NDArray[np.float64]:
    """The matrix (k_S, k_T) of a rule that sends each source label s to the class `rule[s]` (Definition E.2).

    >>> deterministic([1, 0], 2).tolist()   # the flip mapping
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if not all(0 <= target < classes for target in rule):
        raise ReprogramError(
            f"the rule {shown(list(rule))} was given, but classes from 0 to {classes - 1} are expected; change it"
        )
    return np.eye(classes)[np.asarray(rule, dtype=np.int64)]


def least_accurate(joint: ArrayLike, mapping: ArrayLike) -> NDArray[np.bool_]:
    """Whether every mapping whose columns sum to 1 is at least as accurate as this one: what Lemmas E.3 and E.4 conclude.

    It is so if and only if each class rests on its least likely source labels: ω_st > 0 only where
    p(s, t) = min_s' p(s', t).

    Args:
        joint: p(s, t), (..., k_S, k_T).
        mapping: ω_st, (..., k_S, k_T), not negative, whose columns sum to 1, such as identity or flip.

    Returns:
        One answer for each matrix, (...).

    >>> joint = [[0.1, 0.3], [0.4, 0.2]]   # the condition of Lemma E.3
    >>> least_accurate(joint, deterministic([0, 1], 2)).tolist(), least_accurate(joint, deterministic([1, 0], 2)).tolist()
    (True, False)
    """
    p, omega = _joint(joint), np.asarray(mapping, dtype=np.float64)
    if omega.shape[-2:] != p.shape[-2:] or not (omega >= 0).all() or not np.allclose(omega.sum(-2), 1):
        raise ReprogramError(
            f"a mapping of shape {omega.shape} was given, but one is expected that is not negative, has columns with sum 1 "
            f"and fits a joint distribution of shape {p.shape}; scale its columns"
        )
    return np.asarray(((p <= p.min(-2, keepdims=True)) | (omega == 0)).all((-2, -1)))


def _joint(joint: ArrayLike) -> NDArray[np.float64]:
    p = np.asarray(joint, dtype=np.float64)
    if p.ndim < 2 or not (p >= 0).all() or not np.allclose(p.sum((-2, -1)), 1, rtol=0, atol=_ROUNDING):
        raise ReprogramError(
            f"a joint distribution of shape {p.shape} was given, but a k_S × k_T matrix of probabilities with sum 1 is "
            "expected; divide counts by their sum"
        )
    return p
