"""Splits that hand out decoded pixels and labels, and the data set that ties them to its classes."""

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.images.pictures import Interpolation, as_rgb, large_images_allowed, read_image, resize
from reprogram.progress import Progress
from reprogram.randomness import generator

ArrayLike = Tensor | np.ndarray[Any, Any] | Sequence[int]


class Split(ABC):
    """Some labelled images.

    Attributes:
        labels: (n,) int64 target labels.
        names: n names, one per image, that a person can find it by.
    """

    #: Whether handing the split to another process costs little: it holds references to images, not the images.
    cheap_to_send: ClassVar[bool] = False

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

    def keep(self, size: int, interpolation: Interpolation, pixels: Tensor) -> None:
        """Remember pixels that were decoded elsewhere, such as in a cache."""
        self._decoded[size, interpolation] = pixels

    @abstractmethod
    def read(self, index: int, size: int | None, interpolation: Interpolation) -> Tensor:
        """Decode one image as uint8 (3, H, W), `size` × `size` where a size is given, or raise an error that names it."""

    @abstractmethod
    def content_key(self, index: int) -> str:
        """A text that changes when the content of this image changes."""

    @abstractmethod
    def subset(self, indices: Tensor) -> Self:
        """The images at these places, in this order."""

    def native_size(self) -> int:
        """The shorter side of a typical image, in pixels: the median of a few."""
        places = range(0, len(self), max(1, len(self) // 9))
        with large_images_allowed():
            sizes = sorted(min(self.read(place, None, "bilinear").shape[-2:]) for place in list(places)[:9])
        return sizes[len(sizes) // 2]

    def _decode(self, size: int, interpolation: Interpolation, progress: Progress) -> Tensor:
        with torch.inference_mode(False):  # threads, which are not in the caller's inference mode, must be able to write
            pixels = torch.empty(len(self), 3, size, size, dtype=torch.uint8)
        failures = self.decode_into(pixels, range(len(self)), interpolation, progress)
        if failures:
            raise bad_images(failures)
        return pixels

    def decode_into(
        self, pixels: Tensor, places: range, interpolation: Interpolation, progress: Progress | None = None
    ) -> dict[int, str]:
        """Decode the images at these places into rows of `pixels`, with threads; return what is wrong with the bad ones."""
        failures: dict[int, str] = {}

        def decode(index: int) -> None:
            try:
                pixels[index] = self.read(index, pixels.shape[-1], interpolation)
            except ReprogramError as error:
                failures[index] = str(error)

        pool = ThreadPoolExecutor()
        try:
            with large_images_allowed():
                futures = [pool.submit(decode, index) for index in places]
                for future in (progress or Progress()).track(futures, "decoding images"):
                    future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the images that are still queued
        return dict(sorted(failures.items()))


def bad_images(failures: dict[int, str]) -> ReprogramError:
    """The error that names images which cannot be decoded."""
    first, *others = failures.values()
    more = f" (and {len(others)} more: {'; '.join(others[:4])}{' ...' if len(others) > 4 else ''})" if others else ""
    return ReprogramError(f"{first}{more}")


class ArraySplit(Split):
    """Images that are already in memory: (n, C, H, W), uint8 or floating point in [0, 1]."""

    def __init__(self, images: ArrayLike, labels: ArrayLike, names: Sequence[str] | None = None) -> None:
        images = torch.as_tensor(images)
        super().__init__(labels, names or [str(index) for index in range(len(images))])
        self.images = images

    @override
    def read(self, index: int, size: int | None, interpolation: Interpolation) -> Tensor:
        image = as_rgb(self.images[index : index + 1])
        image = image if size is None else resize(image, size, interpolation)
        return (image[0] * 255).round().to(torch.uint8)

    @override
    def content_key(self, index: int) -> str:
        return hashlib.sha256(self.images[index].contiguous().numpy().tobytes()).hexdigest()

    @override
    def subset(self, indices: Tensor) -> Self:
        return type(self)(self.images[indices], self.labels[indices], [self.names[i] for i in indices.tolist()])

    @override
    def native_size(self) -> int:
        return min(self.images.shape[-2:])

    @override
    def _decode(self, size: int, interpolation: Interpolation, progress: Progress) -> Tensor:
        return torch.cat(
            [(resize(as_rgb(part), size, interpolation) * 255).round().to(torch.uint8) for part in self.images.split(256)]
        )


class FileSplit(Split):
    """Image files."""

    cheap_to_send = True

    def __init__(self, paths: Sequence[Path], labels: ArrayLike, names: Sequence[str] | None = None) -> None:
        super().__init__(labels, names or [str(path) for path in paths])
        self.paths = list(paths)

    @override
    def read(self, index: int, size: int | None, interpolation: Interpolation) -> Tensor:
        return read_image(self.paths[index], size, interpolation)

    @override
    def content_key(self, index: int) -> str:
        path = self.paths[index].absolute()
        try:
            status = path.stat()
        except OSError:
            return f"{path} is missing"
        return f"{path} {status.st_size} {status.st_mtime_ns}"

    @override
    def subset(self, indices: Tensor) -> Self:
        places = indices.tolist()
        return type(self)([self.paths[i] for i in places], self.labels[indices], [self.names[i] for i in places])


class EncodedSplit(Split):
    """Images as the bytes of their files, such as the records of a data base."""

    def __init__(self, records: Sequence[bytes], labels: ArrayLike, names: Sequence[str]) -> None:
        super().__init__(labels, names)
        self.records = list(records)

    @override
    def read(self, index: int, size: int | None, interpolation: Interpolation) -> Tensor:
        return read_image(io.BytesIO(self.records[index]), size, interpolation, name=self.names[index])

    @override
    def content_key(self, index: int) -> str:
        return hashlib.sha256(self.records[index]).hexdigest()

    @override
    def subset(self, indices: Tensor) -> Self:
        places = indices.tolist()
        return type(self)([self.records[i] for i in places], self.labels[indices], [self.names[i] for i in places])


@dataclass(frozen=True)
class DataSet:
    """Classes and the splits of their images; a class keeps its number also where a split lacks it.

    Attributes:
        name: what the data set is called.
        classes: the class names, in the order of their numbers.
        train: training images.
        test: test images.
        val: validation images, where the data set brings them.
        image_size: side of the image on a canvas of 224 that a published protocol prescribes, if any.
        flip_safe: whether a mirrored image keeps its class; None where nobody has said so.
        notes: what a reader of the results should know about it, such as counts that differ from the published ones.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    val: Split | None = None
    image_size: int | None = None
    flip_safe: bool | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split in filter(None, (self.train, self.val, self.test)):
            if not len(split):
                raise ReprogramError(f"data set {self.name!r} has a split without images; give it some or leave it out")
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
            raise ReprogramError(f"validation fraction {fraction} was given, but a number from 0 to below 1 is expected")
        kept, taken = stratified_split(self.train.labels, fraction, seed, "validation")
        if not len(taken):
            return self
        return replace(self, train=self.train.subset(kept), val=self.train.subset(taken))

    def with_fewer(self, *, shots: int | None = None, fraction: float | None = None, seed: int = 0) -> "DataSet":
        """Keep `shots` training images of each class, or a stratified `fraction` of them (at least one of each class).

        Raises:
            ReprogramError: both were given, one is out of range, or a class has fewer images than `shots`.
        """
        if shots is None and fraction is None:
            return self
        if shots is not None and fraction is not None:
            raise ReprogramError(f"shots = {shots} and fraction = {fraction} were both given; give one of them")
        if (shots is not None and shots < 1) or (fraction is not None and not 0 < fraction <= 1):
            raise ReprogramError(
                f"shots = {shots} or fraction = {fraction} is out of range; give 1 shot or more, or a fraction in (0, 1]"
            )
        draw = generator(seed, "split", "fewer")
        kept: list[Tensor] = []
        for label in self.train.labels.unique().tolist():
            members = (self.train.labels == label).nonzero().flatten()
            count = shots if shots is not None else max(1, round((fraction or 1) * len(members)))
            if count > len(members):
                raise ReprogramError(
                    f"class {self.classes[label]!r} has {len(members)} training images, but {count} shots were asked for; "
                    "ask for fewer"
                )
            # one permutation per class: a smaller draw is a part of a larger one, so learning curves are nested
            kept.append(members[torch.randperm(len(members), generator=draw)[:count]])
        return replace(self, train=self.train.subset(torch.cat(kept).sort().values))


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
