"""Splits that hand out decoded pixels and labels, and the data set that ties them to its classes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.images import Interpolation, as_rgb, read_image, resize
from reprogram.progress import Progress
from reprogram.randomness import generator

ArrayLike = Tensor | np.ndarray[Any, Any] | Sequence[int]


class Split(ABC):
    """Some labelled images.

    Attributes:
        labels: (n,) int64 target labels.
        names: n names, one per image, that a person can find it by.
    """

    def __init__(self, labels: ArrayLike, names: Sequence[str]) -> None:
        labels = torch.as_tensor(labels).cpu()
        if labels.ndim != 1 or labels.is_floating_point() or len(names) != len(labels):
            raise ReprogramError(
                f"labels are {labels.dtype} of shape {tuple(labels.shape)} for {len(names)} images; "
                "give one whole number for each image"
            )
        self.labels, self.names = labels.long(), list(names)
        self._decoded: dict[tuple[int, Interpolation], Tensor] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, size: int, interpolation: Interpolation = "bilinear", progress: Progress | None = None) -> Tensor:
        """All images as uint8 (n, 3, size, size), decoded and resized once and then kept."""
        key = (size, interpolation)
        if key not in self._decoded:
            self._decoded[key] = self._decode(size, interpolation, progress or Progress())
        return self._decoded[key]

    @abstractmethod
    def subset(self, indices: Tensor) -> Self:
        """The images at these places, in this order."""

    @abstractmethod
    def native_size(self) -> int:
        """The shorter side of a typical image, in pixels."""

    @abstractmethod
    def _decode(self, size: int, interpolation: Interpolation, progress: Progress) -> Tensor: ...


class ArraySplit(Split):
    """Images that are already in memory: (n, C, H, W), uint8 or floating point in [0, 1]."""

    def __init__(self, images: ArrayLike, labels: ArrayLike, names: Sequence[str] | None = None) -> None:
        images = torch.as_tensor(images)
        super().__init__(labels, names or [str(index) for index in range(len(images))])
        self.images = images

    @override
    def subset(self, indices: Tensor) -> Self:
        return type(self)(self.images[indices], self.labels[indices], [self.names[i] for i in indices.tolist()])

    @override
    def native_size(self) -> int:
        return min(self.images.shape[-2:])

    def _decode(self, size: int, interpolation: Interpolation, progress: Progress) -> Tensor:
        return torch.cat(
            [(resize(as_rgb(part), size, interpolation) * 255).round().to(torch.uint8) for part in self.images.split(256)]
        )


class FileSplit(Split):
    """Image files, decoded by several threads when they are first needed."""

    def __init__(self, paths: Sequence[Path], labels: Tensor) -> None:
        super().__init__(labels, [str(path) for path in paths])
        self.paths = list(paths)

    @override
    def subset(self, indices: Tensor) -> Self:
        return type(self)([self.paths[i] for i in indices.tolist()], self.labels[indices])

    @override
    def native_size(self) -> int:
        middle = self.paths[:: max(1, len(self.paths) // 9)][:9]
        sizes = sorted(min(read_image(path).shape[-2:]) for path in middle)
        return sizes[len(sizes) // 2]

    def _decode(self, size: int, interpolation: Interpolation, progress: Progress) -> Tensor:
        pixels = torch.empty(len(self), 3, size, size, dtype=torch.uint8)
        failures: list[str] = []

        def decode(index: int) -> None:
            try:
                pixels[index] = read_image(self.paths[index], size, interpolation)
            except ReprogramError as error:
                failures.append(str(error))

        pool = ThreadPoolExecutor()
        try:
            futures = [pool.submit(decode, index) for index in range(len(self))]
            for future in progress.track(futures, "decoding images"):
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the images that are still queued
        if failures:
            more = f" (and {len(failures) - 1} more files like it)" if len(failures) > 1 else ""
            raise ReprogramError(min(failures) + more)
        return pixels


@dataclass(frozen=True)
class DataSet:
    """Classes and the splits of their images; a class keeps its number also where a split lacks it."""

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    val: Split | None = None

    def __post_init__(self) -> None:
        for split in filter(None, (self.train, self.val, self.test)):
            if not len(split):
                raise ReprogramError(
                    f"data set {self.name!r} has a split without images; give it some or leave the split out"
                )
            if not (int(split.labels.min()) >= 0 and int(split.labels.max()) < len(self.classes)):
                raise ReprogramError(
                    f"data set {self.name!r} has labels from {int(split.labels.min())} to {int(split.labels.max())}, "
                    f"but its {len(self.classes)} classes are numbered 0 to {len(self.classes) - 1}"
                )

    @property
    def k_target(self) -> int:
        """How many classes there are, present or not."""
        return len(self.classes)

    def with_validation(self, fraction: float, seed: int) -> "DataSet":
        """Take a stratified fraction of the training images as validation set, unless the data set brings its own."""
        if self.val is not None or fraction == 0:
            return self
        if not 0 < fraction < 1:
            raise ReprogramError(
                f"validation fraction {fraction} was given, but a number from 0 (none) to below 1 is expected"
            )
        kept, taken = stratified_split(self.train.labels, fraction, seed, "validation")
        if not len(taken):
            return self
        return replace(self, train=self.train.subset(kept), val=self.train.subset(taken))


def stratified_split(labels: Tensor, fraction: float, seed: int, purpose: str) -> tuple[Tensor, Tensor]:
    """Draw `fraction` of each class, rounded, but never all of it; return (the rest, the drawn), both ascending."""
    draw = generator(seed, "split", purpose)
    taken: list[Tensor] = []
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        count = min(round(fraction * len(members)), len(members) - 1)
        taken.append(members[torch.randperm(len(members), generator=draw)[:count]])
    chosen = torch.cat(taken).sort().values
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    return rest.nonzero().flatten(), chosen
