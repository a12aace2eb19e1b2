"""Predictions → numbers with their uncertainty: accuracy, interval, per class, calibration."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reprogram.data.dataset import Split
from reprogram.data.decode import Decoding
from reprogram.devices import Precision
from reprogram.errors import NonFiniteError, ReprogramError
from reprogram.mappings.asked import Asked
from reprogram.mappings.reliability import Reliability, ReliabilitySums
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed
from reprogram.scores import Score, grouped_score
from reprogram.training.mistakes import ConfusedClass, Mistake, confused_classes


@dataclass(frozen=True)
class Evaluation:
    """The outcome on one split.

    Attributes:
        labels: (n,) true target labels.
        predicted: (n,) predicted target labels.
        confidence: (n,) the probability that the model gave its prediction.
        classes: the target class names.
        names: n names of the images.
        skipped: what was wrong with each image that was left out.
        groups: n names of the groups of the images, where they have any: intervals then count these.
        raw: how good the plain softmax is.
        honest: the same of the probabilities that the model gives, by the temperature that was measured for it.
        covered: (n,) whether the prediction set of an image holds its class; None if no coverage was asked for.
        set_sizes: (n,) how many classes the set has.
    """

    labels: Tensor
    predicted: Tensor
    confidence: Tensor
    classes: tuple[str, ...]
    names: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    raw: Reliability | None = None
    honest: Reliability | None = None
    covered: Tensor | None = None
    set_sizes: Tensor | None = None

    @property
    def score(self) -> Score:
        """How many of the images were classified rightly."""
        return self._counted(self.labels == self.predicted)

    @property
    def coverage(self) -> Score | None:
        """How many prediction sets hold the class of their image; None if no coverage was asked for."""
        return None if self.covered is None else self._counted(self.covered)

    def _counted(self, right: Tensor) -> Score:
        """Where images are in groups, these are what the interval counts."""
        if self.groups is not None:
            return grouped_score(right.tolist(), self.groups)
        return Score(int(right.sum()), len(right))

    @property
    def accuracy(self) -> float:
        """The share of images classified rightly."""
        return self.score.accuracy

    def per_class(self) -> dict[str, Score]:
        """The score of every class, also of those without an image."""
        total = torch.bincount(self.labels, minlength=len(self.classes)).tolist()
        right = torch.bincount(self.labels[self.labels == self.predicted], minlength=len(self.classes)).tolist()
        return {name: Score(hits, n) for name, hits, n in zip(self.classes, right, total, strict=True)}

    def confusions(self) -> list[ConfusedClass]:
        """The classes with mistakes and what their images were taken for, the surely worst class first."""
        return confused_classes(self.labels, self.predicted, self.classes)

    def mistakes(self) -> list[Mistake]:
        """The images that were classified wrongly, those that the model was surest of first."""
        wrong = (self.labels != self.predicted).nonzero().flatten()
        wrong = wrong[self.confidence[wrong].argsort(descending=True, stable=True)]
        names = self.names or tuple(map(str, range(len(self.labels))))
        return [
            Mistake(names[place], self.classes[label], self.classes[other], sure)
            for place, label, other, sure in zip(
                *(column.tolist() for column in (wrong, self.labels[wrong], self.predicted[wrong], self.confidence[wrong])),
                strict=True,
            )
        ]

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from reprogram.training.cards import evaluation_card

        return evaluation_card(self)

    def calibration_error(self, bins: int = 15) -> float:
        """Expected calibration error: the mean distance of confidence and accuracy over equally wide bins."""
        place = (self.confidence.double() * bins).long().clamp(0, bins - 1)
        hit = (self.labels == self.predicted).double()
        gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, self.confidence.double() - hit)
        return float(gap.abs().sum() / max(len(self.labels), 1))


class Glimpse:
    """The source logits of some images of a split, a few of each batch: a `watch` for `evaluate`.

    Args:
        n: how many images the split has.
        batch_size: images per step.
        most: about how many to keep.
    """

    def __init__(self, n: int, batch_size: int, most: int) -> None:
        self._room = most * batch_size // max(n, 1) + 1  # of each batch, so that all are among them
        self._seen: list[Tensor] = []

    def __call__(self, logits: Tensor) -> None:
        """Keep some of the next batch."""
        self._seen.append(logits[: self._room].float().cpu())

    def logits(self, ranks: Ranks, k_source: int) -> Tensor:
        """Those that all processes have kept, (N, k_S)."""
        return ranks.gather(self._seen, torch.empty(0, k_source))


@torch.no_grad()
def source_features(
    model: Reprogrammed,
    split: Split,
    *,
    batch_size: int = 64,
    precision: Precision | None = None,
    progress: Progress | None = None,
    what: str = "reading features",
    ranks: Ranks = ALONE,
) -> Iterator[tuple[Tensor, Tensor]]:
    """What `frozen.from_features` makes logits of, and the labels (N,), of a split under the program, in CPU batches.

    Of several processes, each has those of its own `Ranks.rows`.
    """
    pixels = split.pixels(model.program.image_size, model.program.interpolation, progress)
    model.accelerate(len(split))
    batches = list(zip(ranks.batches(pixels, batch_size), ranks.batches(split.labels, batch_size), strict=True))
    for images, labels in (progress or Progress()).track(batches, what):
        features = model.source_features(images, precision)
        yield features.float().cpu(), labels


def evaluate(
    model: Reprogrammed,
    split: Split,
    *,
    classes: tuple[str, ...] | None = None,
    batch_size: int = 64,
    precision: Precision | None = None,
    decoding: Decoding | None = None,
    progress: Progress | None = None,
    what: str = "evaluating",
    watch: Callable[[Tensor], object] | None = None,
    known: Tensor | None = None,
    ranks: Ranks = ALONE,
    **asked: Any,
) -> Evaluation:
    """Classify a split.

    Args:
        model: the classifier.
        split: labelled images, `data.test` for example.
        classes: the class names that the labels of the split are numbers of, `data.classes`; they must be the model's.
        batch_size: images per step.
        precision: of the frozen model; by default that of the model, where it is in hardware.
        decoding: how the images are decoded, and what becomes of bad ones.
        progress: where to show progress.
        what: what progress calls it.
        watch: is given the source logits (N, k_S) of each batch that this process runs.
        known: the source logits of the images that this process runs, all one after the other, if they are at hand: then no
            image is decoded or goes through the model.
        ranks: the processes that share the batches out, and that all call this; each has the whole outcome.
        asked: `calibration`, `coverage`, `per_class` and `strict`; see `reprogram.mappings.asked.Asked`.
    """
    wanted = Asked.read(asked)
    if not isinstance(split, Split):
        raise ReprogramError(f"{type(split).__name__} was given, but a split is expected; give data.test, for example")
    told = classes if classes is not None else split.classes
    if told is not None and tuple(told) != model.classes:
        raise ReprogramError(
            f"the images have the classes {_few(told)}, but the model has {_few(model.classes)}; "
            "evaluate on data with the same classes"
        )
    if len(split) and int(split.labels.max()) >= len(model.classes):
        raise ReprogramError(
            f"the images have labels up to {int(split.labels.max())}, but the model has {len(model.classes)} classes; "
            "evaluate on data with the same classes"
        )
    size, how = model.program.image_size, model.program.interpolation
    skipped: list[str] = []
    if known is None:
        split, skipped = (decoding or Decoding()).decode(split, size, how, progress)
        model.accelerate(len(split))
        batches = ranks.batches(split.pixels(size, how), batch_size)
    else:
        batches = known.split(batch_size) if len(known) else ()
    predicted, confidence, raw, honest = [], [], ReliabilitySums(), ReliabilitySums()
    covered: list[Tensor] = []
    sizes: list[Tensor] = []
    start = ranks.rows(len(split), batch_size).start
    for batch in (progress or Progress()).track(batches, what):
        with torch.inference_mode():
            source = model.source_logits(batch, precision) if known is None else batch.to(model.device)
            logits = model.mapping(source)
            if watch is not None:
                watch(source)
            best = logits.argmax(1, keepdim=True)
            predicted.append(best.flatten().cpu())
            scores = model.mapping.honest(logits, wanted)
            sure = scores.softmax(1).gather(1, best).flatten()
            confidence.append(sure.where(logits.isfinite().all(1), torch.nan).float().cpu())
            labels = split.labels[start : start + len(batch)]
            start += len(batch)
            raw.add(logits, labels)
            honest.add(scores, labels)
            if wanted.coverage is not None:
                sets = model.mapping.predict(source.float(), **asked).sets or []
                names = [model.classes[number] for number in labels.tolist()]
                covered.append(torch.tensor([name in each for name, each in zip(names, sets, strict=True)]))
                sizes.append(torch.tensor([len(each) for each in sets]))
    whole, numbers = ranks.gather(confidence, torch.empty(0)), torch.empty(0, dtype=torch.int64)
    if bad := int(whole.isnan().sum()):
        raise NonFiniteError(
            f"the scores of {bad} of {len(whole)} images are NaN or infinite, but finite numbers are expected; "
            "check the images and the source model, or use fp32"
        )
    return Evaluation(
        split.labels,
        ranks.gather(predicted, numbers),
        whole,
        model.classes,
        tuple(split.names),
        tuple(skipped),
        None if split.groups is None else tuple(split.groups),
        raw.all_reduce(ranks).mean(),
        honest.all_reduce(ranks).mean(),
        None if wanted.coverage is None else ranks.gather(covered, numbers.bool()),
        None if wanted.coverage is None else ranks.gather(sizes, numbers),
    )


def _few(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:4]) + (f" ... ({len(classes)} in all)" if len(classes) > 4 else "")
