"""Splits that hand out decoded pixels and labels, and the data set that ties them to its classes."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from reprogram.data.cards import data_card, split_card
from reprogram.data.fingerprints import content_hash, file_fingerprint, file_key
from reprogram.data.groups import group_notes
from reprogram.data.splits import checked_classes, fewer_places, stratified_split
from reprogram.errors import ReprogramError
from reprogram.images.decoding import large_images_allowed
from reprogram.images.pictures import Interpolation, as_rgb, read_image, resize
from reprogram.mappings.grouping import group_numbers
from reprogram.progress import Progress

ArrayLike = Tensor | np.ndarray[Any, Any] | Sequence[int]
_NAMED_FAILURES = 3


class Outcome(NamedTuple):
    """What decoding some images has told: what is wrong with the bad ones, and every image's fingerprint, by place."""

    failures: dict[int, str]
    fingerprints: dict[int, str]


class Split(ABC):
    """Some labelled images.

    Attributes:
        labels: (n,) int64 target labels.
        names: n names, one per image, that a person can find it by.
        classes: the class names that the labels are numbers of, once the split is part of a data set.
        groups: n names of groups, such as videos, whose images are never divided; None if each image stands for itself.
    """

    classes: tuple[str, ...] | None = None
    groups: list[str] | None = None
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
        self._fingerprints: list[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, size: int, interpolation: Interpolation = "bilinear", progress: Progress | None = None) -> Tensor:
        """All images as uint8 (n, 3, size, size), decoded and resized once and then kept.

        This is for data that are known to be good; `reprogram.data.decode.Decoding` also leaves bad images out and keeps
        the pixels of all others in a cache.
        """
        key = (size, interpolation)
        if key not in self._decoded:
            self._decoded[key] = self._decode(size, interpolation, progress or Progress())
        return self._decoded[key]

    def is_decoded(self, size: int, interpolation: Interpolation) -> bool:
        """Whether `pixels` gives these without work."""
        return (size, interpolation) in self._decoded

    def keep(self, size: int, interpolation: Interpolation, pixels: Tensor) -> None:
        """Remember pixels that were decoded elsewhere, such as in a cache."""
        self._decoded[size, interpolation] = pixels

    def keep_fingerprints(self, fingerprints: Sequence[str]) -> None:
        """Remember fingerprints that were made elsewhere."""
        self._fingerprints = list(fingerprints)

    def fingerprints(self) -> list[str]:
        """One text for each image that says which image it is, wherever it lies and whatever it is called.

        Equal bytes have equal fingerprints: of the file for encoded images, of the array for others. Decoding makes them
        on the way and a cache keeps them, so they cost a pass over the bytes only where nothing was decoded before. An
        image that cannot be read has the empty text.
        """
        if self._fingerprints is None:
            with ThreadPoolExecutor() as pool:
                self._fingerprints = list(pool.map(self.fingerprint, range(len(self))))
        return self._fingerprints

    def count_among(self, fingerprints: Collection[str]) -> int:
        """How many of these images are among those with the given fingerprints, such as a training set's.

        >>> split = ArraySplit(torch.eye(3).view(3, 1, 1, 3), [0, 1, 0])
        >>> split.subset(torch.tensor([2, 0])).count_among(split.fingerprints()[:2])
        1
        """
        known = set(fingerprints) - {""}
        return sum(fingerprint in known for fingerprint in self.fingerprints())

    @abstractmethod
    def read(self, index: int, size: int | None, interpolation: Interpolation) -> Tensor:
        """Decode one image as uint8 (3, H, W), `size` × `size` where a size is given, or raise an error that names it."""

    @abstractmethod
    def content_key(self, index: int) -> str:
        """A text, cheap to have, that changes when the content of this image changes: what its cached pixels go by."""

    def fingerprint(self, index: int) -> str:
        """The fingerprint of one image; see `fingerprints`."""
        try:
            return content_hash(self.read(index, None, "bilinear").numpy().tobytes())
        except ReprogramError:
            return ""

    def read_marked(self, index: int, size: int, interpolation: Interpolation) -> tuple[Tensor, str]:
        """`read` and `fingerprint` of one image; a split whose images are costly to get at does both at once."""
        return self.read(index, size, interpolation), self.fingerprint(index)

    @abstractmethod
    def subset(self, indices: Tensor) -> Self:
        """The images at these places, in this order; a split of your own ends with `grouped_as(self, indices)`."""

    def with_groups(self, groups: Sequence[Any] | None) -> Self:
        """Say which group each image is of, in place; the split itself is returned."""
        if groups is not None:
            group_numbers(groups, len(self), "images")
        self.groups = None if groups is None else [str(group) for group in groups]
        return self

    def grouped_as(self, whole: "Split", indices: Tensor) -> Self:
        """For `subset`: take over the groups of the images at these places of another split."""
        return self.with_groups(None if whole.groups is None else [whole.groups[place] for place in indices.tolist()])

    def group_numbers(self) -> Tensor | None:
        """The groups as numbers from 0 in the order of their appearance, (n,)."""
        return None if self.groups is None else group_numbers(self.groups, len(self))

    def divided(self, places: Mapping[str, Tensor]) -> "dict[str, Split]":
        """Several subsets by name, such as `train` and `test`."""
        return {name: self.subset(chosen) for name, chosen in places.items()}

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return split_card(self)

    def native_size(self) -> int:
        """The shorter side of a typical image, in pixels: the median of a few that can be decoded."""
        sizes: list[int] = []
        with large_images_allowed():
            for place in range(0, len(self), max(1, len(self) // 9))[:9]:
                with suppress(ReprogramError):  # whoever decodes all of them says what is wrong with it
                    sizes.append(min(self.read(place, None, "bilinear").shape[-2:]))
        return sorted(sizes)[len(sizes) // 2] if sizes else min(self.read(0, None, "bilinear").shape[-2:])

    def _decode(self, size: int, interpolation: Interpolation, progress: Progress) -> Tensor:
        with torch.inference_mode(False):  # threads, which are not in the caller's inference mode, must be able to write
            pixels = torch.empty(len(self), 3, size, size, dtype=torch.uint8)
        outcome = self.decode_into(pixels, range(len(self)), interpolation, progress)
        if outcome.failures:
            raise bad_images(list(outcome.failures.values()), [self.names[index] for index in outcome.failures])
        self._fingerprints = list(outcome.fingerprints.values())
        return pixels

    def decode_into(
        self, pixels: Tensor, places: range, interpolation: Interpolation, progress: Progress | None = None
    ) -> Outcome:
        """Decode the images at these places into rows of `pixels`, with threads; a bad image is no error here."""
        failures: dict[int, str] = {}
        fingerprints: dict[int, str] = {}

        def decode(index: int) -> None:
            try:
                pixels[index], fingerprints[index] = self.read_marked(index, pixels.shape[-1], interpolation)
            except ReprogramError as error:
                failures[index], fingerprints[index] = str(error), self.fingerprint(index)

        pool = ThreadPoolExecutor()
        try:
            with large_images_allowed():
                futures = [pool.submit(decode, index) for index in places]
                for future in (progress or Progress()).track(futures, "decoding images"):
                    future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the images that are still queued
        return Outcome(dict(sorted(failures.items())), dict(sorted(fingerprints.items())))


def bad_images(failures: Sequence[str], names: Sequence[str]) -> ReprogramError:
    """The error that names images which cannot be decoded: what is wrong with the one, or which ones they are."""
    if len(failures) == 1:
        return ReprogramError(f"{failures[0]}, or leave it out with --skip-bad")
    short = ["/".join(Path(name).parts[-2:]) for name in names[:_NAMED_FAILURES]]
    more = f" and {len(names) - len(short)} more" if len(names) > len(short) else ""
    return ReprogramError(
        f"{len(failures)} images cannot be decoded: {', '.join(short)}{more}; replace them, take them out of the data, "
        "or leave them out with --skip-bad"
    )


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
        return self.fingerprint(index)

    @override
    def fingerprint(self, index: int) -> str:
        image = self.images[index]
        return content_hash(f"{image.dtype} {tuple(image.shape)}".encode(), image.contiguous().numpy().tobytes())

    @override
    def subset(self, indices: Tensor) -> Self:
        names = [self.names[i] for i in indices.tolist()]
        return type(self)(self.images[indices], self.labels[indices], names).grouped_as(self, indices)

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
        return file_key(self.paths[index])

    @override
    def fingerprint(self, index: int) -> str:
        return file_fingerprint(self.paths[index])

    @override
    def subset(self, indices: Tensor) -> Self:
        places = indices.tolist()
        paths, names = [self.paths[i] for i in places], [self.names[i] for i in places]
        return type(self)(paths, self.labels[indices], names).grouped_as(self, indices)


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
        batch_size: images per step that a published protocol prescribes, if any.
        flip_safe: whether a mirrored image keeps its class; None where nobody has said so.
        notes: what a reader of the results should know about it, such as counts that differ from the published ones.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    val: Split | None = None
    image_size: int | None = None
    batch_size: int | None = None
    flip_safe: bool | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split in self.splits.values():
            split.classes = self.classes
            if not len(split):
                raise ReprogramError(f"data set {self.name!r} has a split without images; give it some or leave it out")
            if not (int(split.labels.min()) >= 0 and int(split.labels.max()) < len(self.classes)):
                raise ReprogramError(
                    f"data set {self.name!r} has labels from {int(split.labels.min())} to {int(split.labels.max())}, "
                    f"but its {len(self.classes)} classes are numbered 0 to {len(self.classes) - 1}"
                )

    @classmethod
    def of_parts(
        cls, name: str, classes: Sequence[str], parts: Mapping[str, Split], *, source: str = "", notes: Sequence[str] = ()
    ) -> "DataSet":
        """Put a data set together from its splits by name, and compare the classes that these hold.

        Args:
            name: what the data set is called.
            classes: the class names, in the order of their numbers.
            parts: `train`, `test` and perhaps `val`.
            source: what an error calls the data; by default its name.
            notes: what is known about it already.

        Raises:
            ReprogramError: a class is written in one way in one split and in another way in another.
        """
        whole = cls(name, tuple(classes), train=parts["train"], test=parts["test"], val=parts.get("val"))
        labels = {part: split.labels for part, split in parts.items()}
        found = checked_classes(whole.classes, labels, source or f"data {name!r}")
        groups = {part: split.groups for part, split in parts.items() if split.groups is not None}
        return replace(whole, notes=(*notes, *found, *group_notes(whole.classes, labels, groups)))

    @property
    def splits(self) -> dict[str, Split]:
        """The splits that are there, by name."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        return {name: split for name, split in parts.items() if split is not None}

    def digest(self) -> str:
        """Which classes, which labels and which images the data set holds; names and places of files do not count.

        It is what a continued fit must agree with: an image that was replaced changes it, a folder that was moved does
        not. See `Split.fingerprints` for what it costs.
        """
        digest = hashlib.sha256(repr(self.classes).encode(errors="surrogateescape"))
        for name, split in self.splits.items():
            digest.update(repr((name, split.labels.tolist(), split.fingerprints())).encode())
            if (groups := split.group_numbers()) is not None:
                digest.update(repr(groups.tolist()).encode())
        return digest.hexdigest()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return data_card(self)

    @property
    def k_target(self) -> int:
        """How many classes there are, present or not."""
        return len(self.classes)

    def with_validation(self, fraction: float, split_seed: int = 0) -> "DataSet":
        """Take a stratified fraction of the training images as validation set, unless the data set brings its own.

        Groups stay together: a group is taken as a whole, or not at all.

        Args:
            fraction: from 0 (none) to below 1.
            split_seed: decides which ones; it is the seed of the data, not that of a run.
        """
        if self.val is not None or fraction == 0:
            return self
        if not 0 < fraction < 1:
            raise ReprogramError(f"validation fraction {fraction} was given, but a number from 0 to below 1 is expected")
        groups = self.train.group_numbers()
        kept, taken = stratified_split(self.train.labels, fraction, split_seed, "validation", groups)
        if not len(taken):
            note = "no validation images are set aside, as no class has two groups of training images"
            return self if groups is None else replace(self, notes=(*self.notes, note))
        return replace(self, train=self.train.subset(kept), val=self.train.subset(taken))

    def with_fewer(self, *, shots: int | None = None, fraction: float | None = None, seed: int = 0) -> "DataSet":
        """Keep `shots` training images of each class, or a stratified `fraction` of them (at least one of each class).

        Of groups, `shots` takes images of as many of them as it can, one of each before a second of any, as these say most;
        `fraction` keeps whole groups.

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
        kept = fewer_places(
            self.train.labels, self.classes, shots=shots, fraction=fraction, seed=seed, groups=self.train.group_numbers()
        )
        return replace(self, train=self.train.subset(kept))
