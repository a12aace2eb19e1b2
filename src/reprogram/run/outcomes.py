"""What a run said about its test images, and the numbers that pictures and reports are made of."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprogram.mappings.reliability import BINS
from reprogram.scores import Score

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class ReliabilityBins:
    """Predictions by their confidence, in equally wide bins.

    Attributes:
        edges: (bins + 1,) from 0 to 1.
        count: (bins,) how many predictions there are.
        confidence: (bins,) their mean confidence, NaN where there are none.
        accuracy: (bins,) the share of right ones, NaN where there are none.
        error: the expected calibration error: the mean distance of the two.
    """

    edges: Values
    count: Numbers
    confidence: Values
    accuracy: Values
    error: float


@dataclass(frozen=True)
class Abstention:
    """What is left, and how good it is, if predictions below a confidence are withheld.

    Attributes:
        threshold: (m,) confidences, rising: predictions of at least this confidence are given.
        coverage: (m,) the share of images that get a prediction.
        accuracy: (m,) the share of right ones among these.
    """

    threshold: Values
    coverage: Values
    accuracy: Values


@dataclass(frozen=True)
class Outcomes:
    """What was said about n test images.

    Attributes:
        classes: the class names at the time of the run, in the order of their numbers.
        names: n names of the images.
        labels: (n,) true classes.
        predicted: (n,) predicted classes.
        confidence: (n,) probability of the prediction.
    """

    classes: tuple[str, ...]
    names: tuple[str, ...]
    labels: Numbers
    predicted: Numbers
    confidence: Values

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """(n,) whether each prediction is right."""
        return np.equal(self.labels, self.predicted)

    @cached_property
    def confusion(self) -> Numbers:
        """(k_T, k_T) how often a class (row) was taken for a class (column)."""
        k = len(self.classes)
        return np.bincount(self.labels * k + self.predicted, minlength=k * k).reshape(k, k)

    def per_class(self) -> dict[str, Score]:
        """The score of every class, in their order, also of those without an image."""
        counts, hits = self.confusion.sum(1).tolist(), self.confusion.diagonal().tolist()
        return {name: Score(hit, n) for name, hit, n in zip(self.classes, hits, counts, strict=True)}

    def confused(self, most: int = 10) -> list[tuple[str, str, int, float]]:
        """The most frequent mistakes: true class, what it was taken for, how often, and as a share of the true class."""
        wrong = self.confusion.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        sizes, k = self.confusion.sum(1), len(self.classes)
        places = [(int(place) // k, int(place) % k) for place in order]
        return [
            (self.classes[row], self.classes[column], int(wrong[row, column]), float(wrong[row, column] / sizes[row]))
            for row, column in places
            if wrong[row, column]
        ]

    def reliability(self, bins: int = BINS) -> ReliabilityBins:
        """How often predictions of each confidence are right."""
        place = np.clip((self.confidence * bins).astype(np.int64), 0, bins - 1)
        count = np.bincount(place, minlength=bins)
        sure = np.bincount(place, weights=self.confidence, minlength=bins)
        hits = np.bincount(place, weights=self.right.astype(float), minlength=bins)
        some = np.where(count > 0, count, np.nan)
        error = float(np.abs(sure - hits).sum() / max(len(self), 1))
        return ReliabilityBins(np.linspace(0, 1, bins + 1), count, sure / some, hits / some, error)

    def abstention(self) -> Abstention:
        """Accuracy and coverage for every confidence that some prediction has."""
        order = np.argsort(-self.confidence, kind="stable")
        sure, hits = self.confidence[order], np.cumsum(self.right[order])
        last = np.append(sure[1:] != sure[:-1], True) if len(sure) else np.zeros(0, bool)
        given = np.flatnonzero(last) + 1
        parts = (sure[last], given / max(len(self), 1), hits[last] / given)
        return Abstention(*(part[::-1].astype(np.float64) for part in parts))

    def rows(self) -> list[dict[str, Any]]:
        """One table row for each image."""
        columns = zip(self.names, self.labels.tolist(), self.predicted.tolist(), self.confidence.tolist(), strict=True)
        return [
            {"image": name, "label": self.classes[label], "predicted": self.classes[said], "confidence": sure}
            for name, label, said, sure in columns
        ]
