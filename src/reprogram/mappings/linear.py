"""Mappings that are ω and nothing else: the base of all that the paper has."""

from abc import abstractmethod

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.settings import NormalizedSettings
from reprogram.statistics.base import Statistics
from reprogram.statistics.joint import JointStatistics


class LinearMapping(Mapping):
    """A mapping that is ω and nothing else (Eq. 2), unless it is asked to normalise the logits; a family gives its rule."""

    settings: NormalizedSettings

    @abstractmethod
    def rule(self, statistics: Statistics) -> Tensor:
        """ω (k_S, k_T) of these statistics."""

    @override
    def empty_statistics(self) -> Statistics | None:
        # what needs no data for ω still needs the means and deviations that it normalises by
        return self.joint_statistics() if self._moments else None

    @override
    def start(self) -> Affine:
        shift = torch.zeros(self.k_source) if self._moments else None
        scale = torch.ones(self.k_source) if self.settings.normalize == "standardise" else None
        return Affine(self.first_weights(), shift, scale)

    def first_weights(self) -> Tensor:
        """ω before anything was counted: every class has a uniform column."""
        return torch.full((self.k_source, self.k_target), 1 / self.k_source)

    @override
    def solve(self, statistics: Statistics) -> Affine:
        omega = self.rule(statistics).float()
        if not self._moments:
            return Affine(omega)
        assert isinstance(statistics, JointStatistics)
        mean, deviation = statistics.moments_of_logits()
        scale = deviation.where(deviation > 0, 1).float() if self.settings.normalize == "standardise" else None
        return Affine(omega, mean.float(), scale)

    @property
    @override
    def takes_answers(self) -> bool:
        return not self._moments

    @property
    def _moments(self) -> bool:
        return self.settings.normalize != "none"

    def joint_statistics(self, top_k: int | None = None) -> JointStatistics:
        """J as counts, or as the summed probabilities of the `top_k` best labels."""
        kind, count = ("counts", 1) if top_k is None else ("probabilities", top_k)
        return JointStatistics(
            kind,  # type: ignore[arg-type]
            self.k_source,
            self.k_target,
            count,
            moments=self._moments,
            weighted=self.weighted,
        )
