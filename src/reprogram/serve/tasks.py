"""Tasks over one frozen model: who shares a pass with whom, which are in memory, and which wait on the disk.

What computes is elsewhere, `torch_tasks` or `onnx_tasks`; nothing here imports torch.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from reprogram.errors import ReprogramError
from reprogram.images.decoding import Interpolation, Pixels
from reprogram.mappings.places import FILES, artefact_folder, holds_artefact
from reprogram.serve.limits import Refusal
from reprogram.serve.metrics import Metrics

Stamp = tuple[int, int, int]


class Said(Protocol):
    """What answers are made from; `reprogram.mappings.predictions.Predictions` is one."""

    @property
    def labels(self) -> Sequence[str]:
        """N class names."""

    @property
    def probabilities(self) -> Any:
        """(N, k_T)."""

    @property
    def confidence(self) -> Any:
        """(N,) the probability of the class that is named."""

    @property
    def evidence(self) -> Sequence[Sequence[Any]]:
        """For each sample, contributions of source labels."""

    @property
    def sets(self) -> Any:
        """For each sample the classes that may be true; None if that was not asked."""

    @property
    def typicality(self) -> Any:
        """(N,), or None if that was not asked."""

    @property
    def unlike(self) -> Any:
        """(N,), or None if that was not asked."""


class Mapped(Protocol):
    """What turns the output of a way into answers; `reprogram.mappings.base.Mapping` is one."""

    @property
    def classes(self) -> Sequence[str]:
        """The names of the classes."""

    @property
    def predict(self) -> Callable[..., Said]:
        """Rows of the way's output, `evidence=` and what else is asked to what is said of them."""


class Way(ABC):
    """One way through a frozen model: under one program. Tasks with the same program have the same one.

    Attributes:
        key: the same for programs that do the same.
        image_size: side of the images that it takes.
        interpolation: how images are brought to it.
        program_name: what its program is called.
    """

    key: str
    image_size: int
    interpolation: Interpolation
    program_name: str

    @property
    def prepared(self) -> bool:
        """Whether there is nothing to prepare (any more)."""
        return True

    @abstractmethod
    def prepare(self) -> str:
        """Prepare it for many images, which may take seconds; say what was chosen."""

    @abstractmethod
    def fit(self, array: Pixels) -> list[Pixels]:
        """Images (N, C, H, W) or (N, H, W, C), uint8 or in [0, 1], as the way takes them: (3, S, S) each."""

    @abstractmethod
    def __call__(self, images: list[Pixels]) -> Any:
        """What the model makes of images (3, S, S): rows that the mappings of its tasks read."""

    @abstractmethod
    def joined(self, parts: list[Any]) -> Any:
        """Some rows of that as one."""


@dataclass(frozen=True)
class Task:
    """A task in memory: its mapping, and the way that its images go.

    Attributes:
        name: what clients call it.
        mapping: what makes answers.
        way: through the model.
        size: bytes that it takes.
        whole: whether prediction sets and "none of these" can be asked of it.
        details: what clients are told of it beside what is told of one that is not in memory.
    """

    name: str
    mapping: Mapped
    way: Way
    size: int
    whole: bool
    details: dict[str, Any]


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
    facts: dict[str, Any]
    stamp: Stamp


class Tasks(ABC):
    """All tasks, by name.

    Args:
        memory: bytes that tasks may take in memory; those that were used longest ago leave it first.
        metrics: where it is counted.

    Attributes:
        entries: what is known of each.
        threads: how many threads may compute at once.
        notes: what whoever starts the service should know of them.
    """

    threads = 1

    def __init__(self, memory: int, metrics: Metrics | None = None) -> None:
        self.memory = memory
        self.metrics = metrics or Metrics()
        self.entries: dict[str, Entry] = {}
        self.notes: set[str] = set()
        self._resident: OrderedDict[tuple[str, bool], Task] = OrderedDict()
        self._bytes = 0
        self._ways: WeakValueDictionary[str, Way] = WeakValueDictionary()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    @abstractmethod
    def models(self) -> int:
        """How many frozen models are in memory."""

    @abstractmethod
    def _load(self, name: str, path: Path, *, whole: bool, new_model: bool = False) -> tuple[Task, dict[str, Any]]:
        """A task of a folder that `place` gave, and what clients are told of it."""

    @abstractmethod
    def begin_thread(self, *, alone: bool) -> None:
        """Called within each thread that computes, before it does.

        Args:
            alone: whether there is no other one.
        """

    def is_task(self, folder: Path) -> bool:
        """Whether a folder is an artefact, or a run with one."""
        return holds_artefact(folder)

    def place(self, folder: Path) -> Path:
        """The folder of a task's files: itself, or a part of it."""
        return artefact_folder(folder)

    def stamp(self, path: Path) -> Stamp:
        """By which a change of such a folder is seen: of its JSON file, which is written last."""
        return stamp_of(path / FILES[0])

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
        path = self.place(folder)
        stamp = self.stamp(path)
        with self._lock:
            read = self._load(name, path, whole=False, new_model=new_model)
            return self.admit(Read(*read, stamp), folder, uploaded=uploaded)

    def read(self, name: str, path: Path) -> Read:
        """An artefact folder that could be served under this name from now on; or an error."""
        with self._lock:
            return Read(*self._load(name, path, whole=False), self.stamp(path))

    def admit(self, read: Read, folder: Path, *, uploaded: bool) -> Entry:
        """Serve what was read, which lies in this folder by now."""
        task = read.task
        with self._lock:
            entry = Entry(task.name, folder, read.stamp, uploaded, read.facts)
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
                task, _ = self._load(name, self.place(entry.folder), whole=whole)
            except (ReprogramError, OSError):
                raise Refusal(
                    503, f"task {name!r} cannot be read from the disk now; tell whoever runs this service"
                ) from None
            self._keep(task)
            return task

    def is_resident(self, name: str, *, whole: bool = False) -> bool:
        """Whether a task is in memory, so that `get` waits for no disk."""
        return (name, whole) in self._resident

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


def stamp_of(file: Path) -> Stamp:
    """By which a change of a file is seen."""
    about = file.stat()
    return about.st_mtime_ns, about.st_size, about.st_ino


def unknown_task(name: str) -> Refusal:
    """The answer about a task that is not there; the names of others are not told."""
    return Refusal(404, f"there is no task {name[:100]!r}; GET /v1/tasks lists those that there are")
