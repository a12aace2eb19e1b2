"""Where a model errs: the classes that it does worst, what it takes them for, and every image that it took for another."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from reprogram.scores import Score
from reprogram.text import csv_cell, csv_line, json_text, printable, shortened

COLUMNS = ("image", "label", "predicted", "confidence")


@dataclass(frozen=True)
class ConfusedClass:
    """A class of which some images were taken for others.

    Attributes:
        name: the class.
        score: how many of its images were classified rightly.
        others: what the others were taken for, and how many of them, the most first.
    """

    name: str
    score: Score
    others: tuple[tuple[str, int], ...]

    def taken_for(self, count: int = 3) -> str:
        """The classes that its images were taken for most often, in words for a reader.

        >>> ConfusedClass("cat", Score(5, 9), (("dog", 2), ("fox", 1), ("cow", 1))).taken_for(2)
        'dog (2), fox (1) and 1 other'
        """
        parts = ", ".join(f"{shortened(printable(name), 28)} ({images})" for name, images in self.others[:count])
        left = sum(images for _, images in self.others[count:])
        return f"{parts} and {left} other{'s' if left > 1 else ''}" if left else parts

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        taken = [{"predicted": name, "images": images} for name, images in self.others]
        return {"label": self.name, **self.score.to_json(), "taken_for": taken}


@dataclass(frozen=True)
class Mistake:
    """An image that was classified wrongly: its name or path, its class, the predicted one, and how sure the model was."""

    image: str
    label: str
    predicted: str
    confidence: float


def confused_classes(labels: Tensor, predicted: Tensor, classes: Sequence[str]) -> list[ConfusedClass]:
    """The classes with mistakes, the surely worst first: by the upper end of the 95 % interval of their accuracy.

    So one wrong image of one does not come before sixty of a hundred.
    """
    taken: dict[int, Counter[int]] = {}
    for label, other in zip(labels.tolist(), predicted.tolist(), strict=True):
        taken.setdefault(label, Counter())[other] += 1
    found = [
        ConfusedClass(
            classes[label],
            Score(counts[label], counts.total()),
            tuple((classes[other], images) for other, images in counts.most_common() if other != label),
        )
        for label, counts in sorted(taken.items())
        if counts[label] < counts.total()
    ]
    return sorted(found, key=lambda one: (one.score.interval[1], one.score.accuracy))


def mistakes_csv(mistakes: Sequence[Mistake]) -> Iterator[str]:
    """Lines of a CSV file, one for each mistake."""
    yield csv_line(COLUMNS)
    for one in mistakes:
        yield csv_line([*map(csv_cell, (one.image, one.label, one.predicted)), f"{one.confidence:.6f}"])


def mistakes_json(mistakes: Sequence[Mistake], confused: Sequence[ConfusedClass], **facts: Any) -> str:
    """A JSON object with the facts, the confused classes and the mistakes."""
    content = {
        **facts,
        "confused": [one.to_json() for one in confused],
        "mistakes": [dict(zip(COLUMNS, (m.image, m.label, m.predicted, m.confidence), strict=True)) for m in mistakes],
    }
    return json_text(content, indent=1) + "\n"
