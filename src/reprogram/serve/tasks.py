"""Tasks over one frozen model: who shares a pass with whom, which are in memory, and which wait on the disk.

A task in memory is its mapping without what it was estimated from: ω and a few numbers. Prediction sets and "none of these"
need more of the artefact, which is read when they are asked for. Both leave memory again when others are used more.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from reprogram.acceleration.accelerate import Accelerated, accelerate
from reprogram.errors import ReprogramError
from reprogram.images.pictures import Interpolation
from reprogram.mappings.artefact import FILES, artefact_folder, read_artefact
from reprogram.mappings.base import Mapping
from reprogram.programs.base import Program
from reprogram.reprogrammed import Reprogrammed
from reprogram.serve.limits import Refusal
from reprogram.serve.metrics import Metrics
from reprogram.sources.frozen import Frozen

_OVERHEAD = 16 * 2**10  # bytes that a task takes beside its numbers
Stamp = tuple[int, int, int]


class Backbone:
    """A frozen model in memory, with its fingerprint, which takes a pass over all weights to compute."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen, self.fingerprint = frozen, frozen.fingerprint


class Way:
    """One way through a frozen model: under one program. Tasks with the same program have the same one.

    Args:
        backbone: the model.
        program: bound to it.
        key: the same for programs that do the same.
    """

    def __init__(self, backbone: Backbone, program: Program, key: str) -> None:
        self.backbone, self.program, self.key = backbone, program, key
        self.accelerated: Accelerated | None = None

    @property
    def image_size(self) -> int:
        """Side of the images that it takes."""
        return self.program.image_size

    @property
    def interpolation(self) -> Interpolation:
        """How images are brought to it."""
        return self.program.interpolation

    def prepare(self) -> str:
        """Prepare it for many images, which takes seconds; say what was chosen."""
        if self.accelerated is None:
            self.accelerated = accelerate(self.backbone.frozen, self.program)
        return self.accelerated.describe()

    def __call__(self, images: Tensor) -> Tensor:
        """Map images (N, 3, S, S) to source logits (N, k_S) in float32."""
        images = images.to(self.program.mean.device)
        if self.accelerated is not None:
            return self.accelerated(images).float()
        return self.backbone.frozen(self.program(images)).float()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Task:
    """A task in memory: its mapping, and the way that its images go."""

    name: str
    mapping: Mapping
    way: Way
    size: int
    whole: bool


@dataclass(frozen=True)
class Entry:
    """What is known of a task that may be on the disk alone.

    Attributes:
        name: what clients call it.
        folder: where its artefact is; never shown to clients.
        stamp: by which a change of it is seen.
        uploaded: whether clients may replace and remove it.
        facts: what clients are told of it.
    """

    name: str
    folder: Path
    stamp: Stamp
    uploaded: bool
    facts: dict[str, Any]


@dataclass(frozen=True)
class Read:
    """What was read of an artefact."""

    task: Task
    content: dict[str, Any]
    stamp: Stamp


class Tasks:
    """All tasks, by name.

    Args:
        memory: bytes that tasks may take in memory; those that were used longest ago leave it first.
        device: where they compute.
        metrics: where it is counted.
    """

    def __init__(self, memory: int, device: torch.device | None = None, metrics: Metrics | None = None) -> None:
        self.memory, self.device = memory, device or torch.device("cpu")
        self.metrics = metrics or Metrics()
        self.backbones: dict[str, Backbone] = {}
        self.entries: dict[str, Entry] = {}
        self._resident: OrderedDict[tuple[str, bool], Task] = OrderedDict()
        self._bytes = 0
        self._ways: WeakValueDictionary[str, Way] = WeakValueDictionary()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def resident(self) -> list[Task]:
        """The tasks in memory, the one that was used last at the end."""
        with self._lock:
            return list(self._resident.values())

    def add(self, name: str, folder: Path, *, uploaded: bool = False, new_model: bool = False) -> Entry:
        """Serve a task from now on, or its new version.

        Args:
            name: what clients call it.
            folder: an artefact, or a run that contains one.
            uploaded: whether clients may replace and remove it.
            new_model: whether a model that is not in memory yet may be loaded for it: only as the service starts.

        Raises:
            ReprogramError: the artefact is damaged, or belongs to another model.
        """
        path = artefact_folder(folder)
        stamp = stamp_of(path)
        with self._lock:
            read = self._load(name, path, whole=False, new_model=new_model)
            return self.admit(Read(*read, stamp), folder, uploaded=uploaded)

    def read(self, name: str, path: Path) -> "Read":
        """An artefact folder that could be served under this name from now on; or an error."""
        with self._lock:
            return Read(*self._load(name, path, whole=False), stamp_of(path))

    def admit(self, read: "Read", folder: Path, *, uploaded: bool) -> Entry:
        """Serve what was read, which lies in this folder by now."""
        task = read.task
        with self._lock:
            entry = Entry(task.name, folder, read.stamp, uploaded, _facts(task.name, task, read.content))
            self._forget(task.name)
            self.entries[task.name] = entry
            self._keep(task)
            return entry

    def remove(self, name: str) -> None:
        """Serve a task no longer."""
        with self._lock:
            if self.entries.pop(name, None) is None:
                raise unknown_task(name)
            self._forget(name)
            self._count()

    def entry(self, name: str) -> Entry:
        """What is known of a task."""
        found = self.entries.get(name)
        if found is None:
            raise unknown_task(name)
        return found

    def get(self, name: str, *, whole: bool = False) -> Task:
        """A task in memory, read from the disk if it is not there.

        Args:
            name: of the task.
            whole: with what prediction sets and "none of these" are made from.
        """
        entry = self.entry(name)
        with self._lock:
            key = (name, whole)
            if key in self._resident:
                self._resident.move_to_end(key)
                return self._resident[key]
            try:
                task, _ = self._load(name, artefact_folder(entry.folder), whole=whole)
            except (ReprogramError, OSError):
                raise Refusal(
                    503, f"task {name!r} cannot be read from the disk now; tell whoever runs this service"
                ) from None
            self._keep(task)
            return task

    def is_resident(self, name: str, *, whole: bool = False) -> bool:
        """Whether a task is in memory, so that `get` waits for no disk."""
        return (name, whole) in self._resident

    def _load(self, name: str, path: Path, *, whole: bool, new_model: bool = False) -> tuple[Task, dict[str, Any]]:
        content, tensors = read_artefact(path)
        source = content.get("frozen")
        fingerprint = str(source.get("fingerprint")) if isinstance(source, dict) else ""
        backbone = self.backbones.get(fingerprint)
        if backbone is None and new_model:
            backbone = Backbone(Reprogrammed.load(path).frozen.to(self.device))
            self.backbones[backbone.fingerprint] = backbone
        if backbone is None:
            raise ReprogramError(
                f"task {name!r} was made with a model of fingerprint {fingerprint[:12] or 'unknown'}, which is not "
                "in memory here; start the service with a run of that model, too"
            )
        model = Reprogrammed.restored(content, tensors, path, backbone.frozen, fingerprint=backbone.fingerprint)
        mapping = model.mapping.to(self.device)
        mapping.source_labels = backbone.frozen.labels  # one list for all tasks
        if not whole:
            lighten(mapping)
        self.metrics.loads.inc()
        return Task(name, mapping, self._way(backbone, model.program), _size(mapping), whole), content

    def _way(self, backbone: Backbone, program: Program) -> Way:
        digest = hashlib.sha256(json.dumps([backbone.fingerprint, program.config()], sort_keys=True).encode())
        for key, tensor in sorted(program.state_dict().items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        key = digest.hexdigest()
        way = self._ways.get(key)
        if way is None:
            self._ways[key] = way = Way(backbone, program.to(self.device), key)
        return way

    def _keep(self, task: Task) -> None:
        self._resident[task.name, task.whole] = task
        self._bytes += task.size
        while self._bytes > self.memory and len(self._resident) > 1:
            _, old = self._resident.popitem(last=False)
            self._bytes -= old.size
        self._count()

    def _forget(self, name: str) -> None:
        for whole in (False, True):
            if (task := self._resident.pop((name, whole), None)) is not None:
                self._bytes -= task.size

    def _count(self) -> None:
        self.metrics.tasks.set(len(self.entries))
        self.metrics.resident.set(len(self._resident))
        self.metrics.bytes.set(self._bytes)


def stamp_of(path: Path) -> Stamp:
    """By which a change of an artefact folder is seen: of its JSON file, which is written last."""
    about = (path / FILES[0]).stat()
    return about.st_mtime_ns, about.st_size, about.st_ino


def lighten(mapping: Mapping) -> None:
    """Take away what a class and its probability do not need: what the mapping was estimated and judged from."""
    mapping.statistics = None
    mapping._fold_parts = []
    if mapping.certainty is not None:
        mapping.certainty = replace(mapping.certainty, sets=None, typicality=None)


def unknown_task(name: str) -> Refusal:
    """The answer about a task that is not there; the names of others are not told."""
    return Refusal(404, f"there is no task {name[:100]!r}; GET /v1/tasks lists those that there are")


def _size(mapping: Mapping) -> int:
    held: list[Tensor] = list(mapping.state_dict().values())
    if (certainty := mapping.certainty) is not None:
        if certainty.sets is not None:
            held += [*certainty.sets.misfits, *certainty.sets.targets]
            held += [part for affine in certainty.sets.affines for part in vars(affine).values() if part is not None]
        if certainty.typicality is not None:
            held.append(certainty.typicality.distances)
    return _OVERHEAD + sum(tensor.nbytes for tensor in held)


def _facts(name: str, task: Task, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "classes": len(task.mapping.classes),
        "mapping": task.mapping.name,
        "program": task.way.program.name,
        "image_size": task.way.image_size,
        "model": task.way.backbone.frozen.name,
        "model_fingerprint": task.way.backbone.fingerprint,
        "artefact": content["files"].get(FILES[1]),
    }
