"""J as a checked matrix, and the warning about classes that it says nothing about."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.statistics.joint import JointStatistics
from reprogram.text import shortened

Evidence = JointStatistics | Tensor


def evidence_matrix(evidence: Evidence) -> Tensor:
    """J, (k_S, k_T) float64, from statistics or a matrix, or an error."""
    matrix = (evidence.matrix if isinstance(evidence, JointStatistics) else torch.as_tensor(evidence)).double()
    if matrix.ndim != 2 or not bool((matrix >= 0).all() and matrix.sum().isfinite()):  # NaN is not ≥ 0
        raise ReprogramError(
            f"J of shape {tuple(matrix.shape)} was given, but a (k_S, k_T) matrix of finite numbers ≥ 0 with a finite sum "
            "is expected"
        )
    return matrix


def warn_about(affected: Tensor, classes: Sequence[str] | None, message: str) -> None:
    """Warn once, with the message's {} filled by the names of the affected classes (k_T,)."""
    indices = affected.nonzero().flatten().tolist()
    if indices:
        named = ", ".join(repr(shortened(classes[i])) if classes else str(i) for i in indices[:5])
        rest = f" and {len(indices) - 5} more" if len(indices) > 5 else ""
        plural = "classes" if len(indices) > 1 else "class"
        warnings.warn(message.format(f"{plural} {named}{rest}"), EvidenceWarning, stacklevel=3)
