"""A mapping: statistics become ω."""

from torch import Tensor

from reprogram.mappings import LinearMapping
from reprogram.statistics import JointStatistics, Statistics
from reprogram_example.registration import ShareSettings


class ShareMapping(LinearMapping):
    """ω[s, t] ∝ p(best source label s | class t) ** power: like BLM, but without asking how usual a label is.

    Every column sums to 1; a class that was never seen keeps the uniform column that it starts with.
    """

    settings: ShareSettings

    def empty_statistics(self) -> Statistics:
        """Counts of (best source label, class)."""
        return self.joint_statistics()

    def rule(self, statistics: Statistics) -> Tensor:
        """ω (k_S, k_T) of these counts."""
        assert isinstance(statistics, JointStatistics)
        evidence = statistics.matrix.double() ** self.settings.power
        total = evidence.sum(0)
        return (evidence / total.where(total > 0, 1)).where(total > 0, self.first_weights().to(evidence))
