"""What a `LabelMapper` says about how sure it is: probabilities, and sets of labels."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reprogram.errors import ignore_evidence_warnings
from reprogram.mappings.asked import check_calibration
from reprogram.mappings.base import Mapping
from reprogram.mappings.certainty import measure_certainty


class Probabilities:
    """A part of both mappers."""

    calibration: str
    prediction_sets: bool
    mapping_: Mapping
    classes_: NDArray[Any]

    @abstractmethod
    def _scores(self, X: Any) -> NDArray[Any]:
        """Target logits (n, k_T) float64 of logits that are checked."""

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The probability of each class, (n, k_T): softmax at the temperature that `fit` has measured by leave-one-out."""
        scores = torch.from_numpy(self._scores(X))
        return np.asarray(self.mapping_.honest(scores).softmax(1))

    def predict_set(
        self, X: Any, coverage: float = 0.9, *, per_class: bool = False, strict: bool = False
    ) -> list[NDArray[Any]]:
        """For each sample the labels that may be true, the likeliest first; see `reprogram.mappings.prediction_sets`.

        Args:
            X: logits (n, k_S).
            coverage: how often the true label shall be among them.
            per_class: whether that shall hold for each class by itself.
            strict: take the variant with the exact guarantee, whose sets are larger.
        """
        self._scores(X)  # checks them
        logits = torch.from_numpy(np.require(X, np.float64, ["C", "W"]))
        said = self.mapping_.predict(logits, precise=True, coverage=coverage, per_class=per_class, strict=strict)
        places = {name: place for place, name in enumerate(self.mapping_.classes)}
        return [self.classes_[[places[name] for name in each]] for each in said.sets or []]

    def _certify(
        self, X: NDArray[Any], numbers: Tensor, weights: NDArray[Any] | None = None, groups: Tensor | None = None
    ) -> Self:
        """Measure how sure the mapping may be."""
        if check_calibration(self.calibration) != "none" and not self.mapping_.learned:
            samples = (torch.from_numpy(np.require(X, requirements=["C", "W"])), numbers, groups, _tensor(weights))
            with ignore_evidence_warnings():
                measure_certainty(self.mapping_, samples, sets=bool(self.prediction_sets))
        return self


def _tensor(values: NDArray[Any] | None) -> Tensor | None:
    return None if values is None else torch.from_numpy(values)
