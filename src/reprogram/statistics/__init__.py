"""Sums over samples that can be streamed, merged, reduced and taken apart: all that a mapping is estimated from."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.statistics.answers import TopK as TopK
    from reprogram.statistics.base import Statistics as Statistics
    from reprogram.statistics.gaussian import GaussianStatistics as GaussianStatistics
    from reprogram.statistics.joint import JointStatistics as JointStatistics
    from reprogram.statistics.top_k import TopKGaussianStatistics as TopKGaussianStatistics

_WHERE = {
    "GaussianStatistics": "reprogram.statistics.gaussian",
    "JointStatistics": "reprogram.statistics.joint",
    "Statistics": "reprogram.statistics.base",
    "TopK": "reprogram.statistics.answers",
    "TopKGaussianStatistics": "reprogram.statistics.top_k",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
