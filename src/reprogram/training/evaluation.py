"""Predictions → numbers with their uncertainty: accuracy, interval, per class, calibration."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from reprogram.data.load import Split
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.scores import accuracy_interval as accuracy_interval

Precision = Literal["auto", "fp32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("auto", "fp32", "bf16", "fp16")
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_precision(device: torch.device, precision: Precision) -> Precision:
    """Read `auto`: bf16 where the device multiplies matrices of it in hardware, fp32 elsewhere.

    Emulated bf16 is far slower than fp32: a hundred times on a CPU that has AVX2 alone.
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        native = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        checks = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
        native = device.type == "cpu" and any(check() for check in checks if check is not None)
    return "bf16" if native else "fp32"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Run the frozen model in a lower precision; the mapping and all statistics stay in float32 and float64."""
    precision = choose_precision(device, precision)
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, _DTYPES[precision])


@dataclass(frozen=True)
class Evaluation:
    """The outcome on one split.

    Attributes:
        labels: (n,) true target labels.
        predicted: (n,) predicted target labels.
        confidence: (n,) the probability that the model gave its prediction.
        classes: the target class names.
    """

    labels: Tensor
    predicted: Tensor
    confidence: Tensor
    classes: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many images were classified."""
        return len(self.labels)

    @property
    def correct(self) -> int:
        """How many of them rightly."""
        return int((self.labels == self.predicted).sum())

    @property
    def accuracy(self) -> float:
        """The share of images classified rightly."""
        return self.correct / max(self.n, 1)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy."""
        return accuracy_interval(self.correct, self.n)

    def per_class(self) -> list[tuple[str, int, int]]:
        """(class name, images, correct) for every class, also for those without an image."""
        total = torch.bincount(self.labels, minlength=len(self.classes)).tolist()
        right = torch.bincount(self.labels[self.labels == self.predicted], minlength=len(self.classes)).tolist()
        return list(zip(self.classes, total, right, strict=True))

    def calibration_error(self, bins: int = 15) -> float:
        """Expected calibration error: the mean distance of confidence and accuracy over equally wide bins."""
        place = (self.confidence.double() * bins).long().clamp(0, bins - 1)
        hit = (self.labels == self.predicted).double()
        gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, self.confidence.double() - hit)
        return float(gap.abs().sum() / max(self.n, 1))


@torch.no_grad()
def source_features(
    model: Reprogrammed,
    split: Split,
    *,
    batch_size: int = 256,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    what: str = "reading features",
) -> Iterator[tuple[Tensor, Tensor]]:
    """What `frozen.from_features` makes logits of, and the labels (N,), of a split under the program, in CPU batches."""
    pixels = split.pixels(model.program.image_size, model.program.interpolation, progress)
    model.accelerate(len(split))
    batches = list(zip(pixels.split(batch_size), split.labels.split(batch_size), strict=True))
    for images, labels in (progress or Progress()).track(batches, what):
        with autocast(model.device, precision):
            features = model.source_features(images)
        yield features.float().cpu(), labels


def evaluate(
    model: Reprogrammed,
    split: Split,
    *,
    batch_size: int = 256,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    what: str = "evaluating",
) -> Evaluation:
    """Classify a split."""
    pixels = split.pixels(model.program.image_size, model.program.interpolation, progress)
    predicted, confidence = [], []
    model.accelerate(len(split))
    for batch in (progress or Progress()).track(pixels.split(batch_size), what):
        with torch.inference_mode():
            with autocast(model.device, precision):
                logits = model(batch)
            best = logits.argmax(1, keepdim=True)
            predicted.append(best.flatten().cpu())
            confidence.append(logits.softmax(1).gather(1, best).flatten().cpu())
    return Evaluation(split.labels, torch.cat(predicted), torch.cat(confidence), model.classes)
