"""BLM and BLM+: Bayes' rule on counts, or on summed top-K probabilities."""

from collections.abc import Sequence

from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.mappings.evidence import Evidence, evidence_matrix, warn_about
from reprogram.mappings.linear import LinearMapping
from reprogram.mappings.settings import LARGEST_SMOOTHING, BayesSettings, MappingSettings, TopKBayesSettings
from reprogram.statistics.base import Statistics
from reprogram.statistics.joint import JointStatistics, top_count


def bayes(evidence: Evidence, smoothing: float = 1.0, *, classes: Sequence[str] | None = None) -> Tensor:
    """BLM and BLM+, Eq. 5 with Eqs. 6–7 or 8–9: ω ∝ J / (row sums of J + λ), every column scaled to sum 1.

    Args:
        evidence: J, (k_S, k_T), counts for BLM or summed top-K probabilities for BLM+.
        smoothing: λ ≥ 0, added to the row sums only.
        classes: target class names for the warning about classes without evidence.

    Returns:
        ω (k_S, k_T) float32. A class without evidence gets a uniform column, with a warning. The factors 1/n and
        n + k_S·λ of the equations are the same for a whole column and cancel.

    >>> import torch
    >>> bayes(torch.tensor([[0, 2], [0, 1], [1, 0]])).tolist()   # the paper's dogs and cat, λ = 1
    [[0.0, 0.5714285969734192], [0.0, 0.4285714328289032], [1.0, 0.0]]
    """
    check_smoothing(smoothing)
    matrix = evidence_matrix(evidence)
    rows = matrix.sum(1, keepdim=True) + smoothing
    conditional = matrix / rows.where(rows > 0, 1)
    mass = conditional.sum(0)
    empty = mass <= 0
    warn_about(empty, classes, "there is no evidence for target {}: a uniform column is used")
    omega = conditional / mass.where(~empty, 1)
    omega[:, empty] = 1 / len(matrix)
    return omega.float()


def check_smoothing(smoothing: float) -> None:
    """Raise unless λ is a number of at least 0, and not so large that evidence over λ is nothing."""
    if not (isinstance(smoothing, (int, float)) and 0 <= smoothing <= LARGEST_SMOOTHING):
        raise ReprogramError(
            f"smoothing λ = {smoothing!r} was given, but a number from 0 to {LARGEST_SMOOTHING:g} is expected "
            "(the paper has 1)"
        )


class BayesMapping(LinearMapping):
    """BLM: J counts (best source label, class) pairs."""

    settings: BayesSettings

    @override
    def empty_statistics(self) -> Statistics:
        return self.joint_statistics()

    @override
    def rule(self, statistics: Statistics) -> Tensor:
        assert isinstance(statistics, JointStatistics)
        return bayes(statistics, self.settings.smoothing, classes=self.classes)


class TopKBayesMapping(BayesMapping):
    """BLM+: J adds up the probabilities of each sample's K best source labels."""

    settings: TopKBayesSettings

    @override
    def empty_statistics(self) -> Statistics:
        settings = self.settings
        top_k = settings.top_k or top_count(settings.top_ratio, self.k_target, self.k_source)
        return self.joint_statistics(min(top_k, self.k_source))

    @override
    def fixed_settings(self) -> MappingSettings:
        assert isinstance(self.statistics, JointStatistics)
        return self.settings.model_copy(update={"top_k": self.statistics.top_k})
