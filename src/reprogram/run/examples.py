"""Single images of a run, to be looked at: thumbnails, what the model saw in them, and why it decided so.

The choice is deterministic and bounded. What cannot be loaded any more (data that moved, a model from another machine) is
left out, and a note says so.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reprogram.data.dataset import DataSet, Split
from reprogram.errors import ReprogramError, first_line
from reprogram.images.pictures import Interpolation
from reprogram.mappings.predictions import Contribution
from reprogram.programs.appearance import placed
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import configured_data, divided_data
from reprogram.run.outcomes import Outcomes
from reprogram.run.record import RunRecord

Pixels = NDArray[np.uint8]
#: The side of a thumbnail, and how many images are shown at the most: of classes, right ones, and wrong ones.
SIDE, MOST_OF_CLASSES, MOST_OF_TEST = 64, 200, 24
_ON_CANVAS = 3  # images that are shown with the program on them
_OF_A_PAIR = 2  # wrong images of the same two classes
_BATCH = 16


@dataclass(frozen=True)
class SourceLogit:
    """What the frozen model says of an image under the program: a source label, its logit, its softmax probability."""

    source: str
    logit: float
    probability: float


@dataclass(frozen=True)
class Example:
    """One image.

    Attributes:
        name: what a person can find it by.
        split: "train" or "test".
        label: its true class.
        pixels: (H, W, 3) uint8, small.
        predicted: the class that the run's model gave it; None of a training image.
        confidence: how probable it said that is; None of a training image.
        evidence: the source labels that decided, the largest |weight × logit| first; empty without the model.
        top: the source labels of the largest logits; empty without the model.
    """

    name: str
    split: Literal["train", "test"]
    label: str
    pixels: Pixels
    predicted: str | None = None
    confidence: float | None = None
    evidence: tuple[Contribution, ...] = ()
    top: tuple[SourceLogit, ...] = ()

    @property
    def right(self) -> bool | None:
        """Whether the prediction is right; None where there is none."""
        return None if self.predicted is None else self.predicted == self.label


@dataclass(frozen=True)
class OnCanvas:
    """An image before the program and after it.

    Attributes:
        name: which.
        label: its class.
        before: (H, W, 3) uint8, the image as it is brought to its size on the canvas.
        after: (canvas, canvas, 3) uint8, what the frozen model is shown, without its normalisation and cut to what can be
            seen.
    """

    name: str
    label: str
    before: Pixels
    after: Pixels


@dataclass(frozen=True)
class Examples:
    """Images of a run.

    Attributes:
        classes: training images of each class, in the order of the classes; classes without any are left out.
        right: test images that were classified rightly, of as many classes as there is room for.
        wrong: test images that were not, the most confident mistakes first.
        canvases: some images with the program on them; empty without one.
        notes: what could not be had, in plain words.
    """

    classes: dict[str, tuple[Example, ...]]
    right: tuple[Example, ...] = ()
    wrong: tuple[Example, ...] = ()
    canvases: tuple[OnCanvas, ...] = ()
    notes: tuple[str, ...] = ()


def gather_examples(
    record: RunRecord,
    *,
    data: DataSet | None = None,
    model: Reprogrammed | None = None,
    per_class: int | None = None,
    evidence: int = 5,
    side: int = SIDE,
) -> Examples:
    """Choose images of a run, and ask its model about some of them.

    Args:
        record: of `read_run`.
        data: the run's data, where they were given from Python or are at hand already; else they are loaded again.
        model: the run's model, where it is at hand already; else it is loaded again.
        per_class: how many training images of each class; by default 4 of few classes, fewer of many.
        evidence: how many source labels to name for a prediction.
        side: the longer side of a thumbnail.
    """
    notes: list[str] = []
    if record.kind == "mapping" or record.config is None:
        return Examples({}, notes=("a mapping without a run tells no images, so there are no pictures of them",))
    if data is None:
        try:
            data = divided_data(record.config, configured_data(record.config))
        except (ReprogramError, OSError) as error:
            return Examples({}, notes=(f"the images cannot be loaded any more, so none are shown: {first_line(error)}",))
    shown = _Shown(record, side)
    count = per_class or max(1, min(4, MOST_OF_CLASSES // max(len(data.classes), 1)))
    classes = {
        name: found
        for number, name in enumerate(data.classes[:MOST_OF_CLASSES])
        if (found := tuple(shown.of_class(data.train, number, name, count)))
    }
    if len(data.classes) > MOST_OF_CLASSES:
        notes.append(f"images are shown of the first {MOST_OF_CLASSES} of {len(data.classes)} classes")
    right: list[Example] = []
    wrong: list[Example] = []
    if record.test is not None:
        rows = _places(record.test, data.test)
        if missing := len(record.test) - len(rows):
            notes.append(f"{missing} of {len(record.test)} test images are not among the data any more")
        right, wrong = shown.tested(data.test, record.test, rows, notes, model, evidence)
    canvases = tuple(shown.canvases(data.train))
    return Examples(classes, tuple(right), tuple(wrong), canvases, tuple(notes))


class _Shown:
    """Reads images for a record; what cannot be decoded is passed over."""

    def __init__(self, record: RunRecord, side: int) -> None:
        self.record, self.side = record, side

    def of_class(self, split: Split, number: int, name: str, count: int) -> Iterator[Example]:
        """Evenly spread images of a class."""
        places = (split.labels == number).nonzero().flatten().tolist()
        for place in places[:: max(1, len(places) // count)][:count]:
            pixels = self._thumbnail(split, place)
            if pixels is not None:
                yield Example(split.names[place], "train", name, pixels)

    def tested(
        self,
        split: Split,
        test: Outcomes,
        rows: dict[int, int],
        notes: list[str],
        model: Reprogrammed | None,
        evidence: int,
    ) -> tuple[list[Example], list[Example]]:
        """Right and wrong test images, with evidence where the model can be had."""
        chosen = [row for row in (*_right_rows(test), *_wrong_rows(test)) if row in rows]
        if not chosen:
            return [], []
        said = self._asked(split, [rows[row] for row in chosen], notes, model, evidence)
        found: tuple[list[Example], list[Example]] = ([], [])
        differing = 0
        for row in chosen:
            pixels = self._thumbnail(split, rows[row])
            if pixels is None:
                continue
            predicted = test.classes[test.predicted[row]]
            reasons, top, now = said.get(rows[row], ((), (), predicted))
            differing += now != predicted
            if now != predicted:
                reasons = ()  # they are reasons for something else
            example = Example(
                test.names[row],
                "test",
                test.classes[test.labels[row]],
                pixels,
                predicted,
                float(test.confidence[row]),
                reasons,
                top,
            )
            found[not test.right[row]].append(example)
        if differing:
            notes.append(
                f"the model or the images have changed since the run: about {differing} of {len(chosen)} images the model "
                "says something else now"
            )
        return found

    def _asked(
        self, split: Split, places: Sequence[int], notes: list[str], model: Reprogrammed | None, evidence: int
    ) -> dict[int, tuple[tuple[Contribution, ...], tuple[SourceLogit, ...], str]]:
        """What the model says about images, by their place in the split; nothing of a reference, which names no labels."""
        if self.record.kind == "reference":
            return {}
        try:
            model = model or Reprogrammed.load(self.record.folder)
        except (ReprogramError, OSError) as error:
            notes.append(f"the frozen model cannot be loaded, so nothing is said of single decisions: {first_line(error)}")
            return {}
        if model.precision_note is not None:
            notes.append(model.precision_note)
        size, how = model.program.image_size, model.program.interpolation
        read = {place: _read(split, place, size, how) for place in places}
        there = [place for place, pixels in read.items() if pixels is not None]
        answers = {}
        for start in range(0, len(there), _BATCH):
            part = there[start : start + _BATCH]
            images = torch.stack([pixels for place in part if (pixels := read[place]) is not None])
            with torch.inference_mode():
                logits = model.source_logits(images).float().cpu()
            told = model.mapping.predict(logits, evidence=evidence)
            shares = logits.softmax(1)
            best = logits.topk(min(evidence, logits.shape[1]), dim=1).indices
            for row, place in enumerate(part):
                top = tuple(
                    SourceLogit(str(model.frozen.labels[i]), float(logits[row, i]), float(shares[row, i]))
                    for i in best[row].tolist()
                )
                answers[place] = (tuple(told.evidence[row]), top, told.labels[row])
        return answers

    def canvases(self, split: Split) -> Iterator[OnCanvas]:
        """A few images with the program on them."""
        program = self.record.program
        if program is None or not program.free_parameters:
            return
        for place in range(0, len(split), max(1, len(split) // _ON_CANVAS))[:_ON_CANVAS]:
            image = _read(split, place, program.image_size, program.interpolation)
            if image is None:
                continue
            after = (placed(program, image[None])[0] * 255).round().to(torch.uint8)
            label = (split.classes or ())[int(split.labels[place])]
            yield OnCanvas(split.names[place], label, _as_picture(image), _as_picture(after))

    def _thumbnail(self, split: Split, place: int) -> Pixels | None:
        image = _read(split, place, None, "bilinear")
        return None if image is None else _as_picture(_small(image, self.side))


def _read(split: Split, place: int, size: int | None, how: Interpolation) -> Tensor | None:
    try:
        return split.read(place, size, how)
    except (ReprogramError, OSError):
        return None


def _small(image: Tensor, side: int) -> Tensor:
    """An image (3, H, W) whose longer side is `side`: averaged down, or blown up by a whole number, as it has no more."""
    longer = max(image.shape[1:])
    if longer <= side:
        factor = side // longer
        return image.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
    height, width = (max(1, round(length * side / longer)) for length in image.shape[1:])
    smaller = torch.nn.functional.interpolate(
        image[None].float(), (height, width), mode="bilinear", antialias=True, align_corners=False
    )
    return smaller[0].round().clamp(0, 255).to(torch.uint8)


def _as_picture(image: Tensor) -> Pixels:
    found: Pixels = image.permute(1, 2, 0).contiguous().numpy()
    return found


def _places(test: Outcomes, split: Split) -> dict[int, int]:
    """For each row of the outcomes its place in the split: by name and class, in their order."""
    known: dict[Any, list[int]] = {}
    classes = split.classes or ()
    for place, (name, label) in enumerate(zip(split.names, split.labels.tolist(), strict=True)):
        known.setdefault((name, classes[label]), []).append(place)
    found: dict[int, int] = {}
    for row, (name, label) in enumerate(zip(test.names, test.labels.tolist(), strict=True)):
        if places := known.get((name, test.classes[label])):
            found[row] = places.pop(0)
    return found


def _right_rows(test: Outcomes) -> list[int]:
    """Right ones of as many classes as possible: of each the one in the middle of its confidences."""
    chosen: list[int] = []
    k = len(test.classes)
    wanted = np.linspace(0, k - 1, min(k, MOST_OF_TEST)).round().astype(int).tolist()
    each = max(1, MOST_OF_TEST // max(k, 1))
    for number in wanted:
        rows = np.flatnonzero(test.right & (test.labels == number))
        order = rows[np.argsort(-test.confidence[rows], kind="stable")].tolist()
        places = [math.floor((index + 0.5) * len(order) / each) for index in range(each)]
        chosen += dict.fromkeys(order[place] for place in places if place < len(order))
    return chosen[:MOST_OF_TEST]


def _wrong_rows(test: Outcomes) -> list[int]:
    """The most confident mistakes, few of the same kind."""
    rows = np.flatnonzero(~test.right)
    chosen: list[int] = []
    seen: dict[tuple[int, int], int] = {}
    for row in rows[np.argsort(-test.confidence[rows], kind="stable")].tolist():
        pair = (int(test.labels[row]), int(test.predicted[row]))
        if seen.get(pair, 0) < _OF_A_PAIR:
            seen[pair] = seen.get(pair, 0) + 1
            chosen.append(row)
    return chosen[:MOST_OF_TEST]
