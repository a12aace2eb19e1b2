"""A run's mapping with images added or taken out and classes removed, under its program and its frozen model."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from reprogram.answers.update import Change, Samples, change_mapping
from reprogram.data.dataset import Split
from reprogram.data.decode import Decoding
from reprogram.data.folders import load_labelled
from reprogram.data.load import load_data
from reprogram.data.registry import given_path
from reprogram.data.splits import split_of
from reprogram.devices import choose_device
from reprogram.errors import ReprogramError
from reprogram.images.views import centre_view
from reprogram.mappings.artefact import artefact_folder, changing, read_description
from reprogram.mappings.base import Mapping
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import decoding_of
from reprogram.run.config import FitConfig
from reprogram.run.folder import seen_images, stored_config, write_seen
from reprogram.statistics.base import Statistics
from reprogram.training.state import pixel_sizes
from reprogram.training.views import count_images, view_settings


def update_run(
    folder: Path,
    *,
    add: str | None = None,
    forget: str | None = None,
    remove: Sequence[str] = (),
    samples: str | None = None,
    out: Path | None = None,
    weights: str | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Change:
    """Change the mapping of a run by labelled images; see `change_mapping`.

    The program stays as it was trained, and so do the run's files about its training. What was done is recorded in the
    artefact, in the section `updates`.

    Args:
        folder: the run, or an artefact with a model.
        add: images to add: a folder of class folders, or whatever `load_data` takes, without its test images.
        forget: images to take out, given the same way.
        remove: names of classes to remove.
        samples: all images of these, given the same way.
        out: where the changed artefact goes; by default it takes the place of the old one.
        weights: where the source model's weights file is now, if that has moved.
        device: where the frozen model computes.
        progress: where to show progress.
    """
    with changing(folder, out):
        return _update(folder, add, forget, remove, samples, out, weights, device, progress or Progress())


def _update(
    folder: Path,
    add: str | None,
    forget: str | None,
    remove: Sequence[str],
    samples: str | None,
    out: Path | None,
    weights: str | None,
    device: str,
    progress: Progress,
) -> Change:
    path = artefact_folder(folder)
    model = Reprogrammed.load(path, weights=weights).to(choose_device(device))
    if model.program.free_parameters and (forget is not None or samples is not None):
        raise ReprogramError(
            f"the program {model.program.name!r} of this run was trained while its mapping was counted, so images cannot be "
            "taken out of the mapping exactly; remove whole classes with --remove, or fit again without them"
        )
    if model.program.free_parameters and add is not None:
        progress.say("note: new images are counted under the program as it is now, the others were while it was trained")
    if model.precision_note is not None:
        progress.say(f"note: {model.precision_note}")
    images = _Images(model, stored_config(folder) if (folder / "config.json").exists() else None, progress)
    given = [None if spec is None else images.samples(spec) for spec in (add, forget, samples)]
    seen, new = seen_images(folder), set() if add is None else images.fingerprints(add)
    if again := len(new & seen):
        progress.say(
            f"note: {again} of these {len(new)} images were used in this run; what its training counted counts twice"
        )
    before = read_description(path).get("updates") or []
    change = change_mapping(model.mapping, add=given[0], forget=given[1], remove=remove, samples=given[2], earlier=before)
    model.mapping = change.mapping
    known = seen | new
    if out is None and known != seen:  # before the artefact: an image too many among those that are known does no harm
        write_seen(folder, sorted(known))
    model.save(path if out is None else out, updates=[*before, change.record])
    if out is None and seen and forget is not None:
        write_seen(folder, sorted(known - images.fingerprints(forget)))
    return change


class _Images:
    """Labelled images by their specifications, as a run's training has seen them."""

    def __init__(self, model: Reprogrammed, config: FitConfig | None, progress: Progress) -> None:
        self.model, self.config, self.progress = model, config, progress
        self.decoding = Decoding() if config is None else decoding_of(config)
        self.size = model.program.image_size
        if (
            config is not None and model.program.free_parameters
        ):  # training images leave room for random crops, of which the middle is counted
            self.size = pixel_sizes(model.program, config.augment)["train"]
        # in the model's own precision, which a device without it does not emulate
        self.views = {} if config is None else {**view_settings(config), "precision": None}
        self.loaded: dict[str, tuple[list[Split], tuple[str, ...]]] = {}

    def samples(self, spec: str) -> Samples:
        """The images of a specification, to be counted."""
        splits, classes = self._load(spec)
        present = sorted({label for split in splits for label in split.labels.unique().tolist()})

        def count(mapping: Mapping, only: str | None) -> Statistics:
            statistics = mapping.new_statistics()
            for split in splits:
                chosen = split if only is None else split.subset((split.labels == _place(classes, only)).nonzero().flatten())
                if len(chosen):
                    self._count(chosen, classes, mapping, statistics)
            return statistics

        marks = [
            f"{mark} {classes[label]}\n"
            for split in splits
            for mark, label in zip(split.fingerprints(), split.labels.tolist(), strict=True)
        ]
        content = hashlib.sha256("".join(sorted(marks)).encode(errors="surrogateescape"))
        return Samples(f"data {spec!r}", tuple(classes[label] for label in present), content.hexdigest(), count)

    def fingerprints(self, spec: str) -> set[str]:
        """Which images these are."""
        return {mark for split in self._load(spec)[0] for mark in split.fingerprints()} - {""}

    @torch.no_grad()
    def _count(self, split: Split, classes: tuple[str, ...], mapping: Mapping, statistics: Statistics) -> None:
        model, program = self.model, self.model.program
        split, _ = self.decoding.decode(split, self.size, program.interpolation, self.progress)
        model.accelerate(len(split))
        numbers = torch.tensor([_place(mapping.classes, name) for name in classes])
        batch_size = 64 if self.config is None else self.config.batch_size
        pixels = split.pixels(self.size, program.interpolation)
        batches = list(zip(pixels.split(batch_size), split.labels.split(batch_size), strict=True))
        for images, labels in self.progress.track(batches, "counting images"):
            middle = centre_view(images, program.image_size)
            count_images(model, middle, numbers[labels], statistics, **self.views)

    def _load(self, spec: str) -> tuple[list[Split], tuple[str, ...]]:
        """The splits that are meant, and the classes that their labels are numbers of."""
        if spec not in self.loaded:
            folder = given_path(spec)
            if folder.is_dir():
                names = self.model.classes
                classes = (*names, *(name for name in _class_folders(folder) if name not in names))
                self.loaded[spec] = [load_labelled(folder, "train", classes)], classes
            else:
                data = load_data(spec, root="data" if self.config is None else self.config.data_root)
                self.loaded[spec] = [split for name, split in data.splits.items() if name != "test"], data.classes
        return self.loaded[spec]


def _class_folders(folder: Path) -> list[str]:
    """The names of the class folders; those of the training split where a folder has splits."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    splits = {split_of(name): name for name in names if split_of(name) is not None}
    if not splits:
        return names
    if "train" not in splits:
        raise ReprogramError(
            f"folder {str(folder)!r} has {splits.popitem()[1]}/ but no train split; give a folder of class folders"
        )
    return _class_folders(folder / splits["train"])


def _place(classes: Sequence[str], name: str) -> int:
    return classes.index(name) if name in classes else -1
