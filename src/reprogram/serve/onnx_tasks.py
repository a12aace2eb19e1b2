"""Tasks whose model runs in onnxruntime: what `reprogram export` wrote, and runs that are exported as the service starts.

Torch is imported for the latter alone. Source logits are never computed here, so there is no evidence in source labels, and
nothing to make prediction sets and "none of these" from.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.export.session import Backbone, Exported, load_exported
from reprogram.export.settings import BIAS, FEATURES, IMAGES, LOGITS, MODEL, PATTERN, WEIGHT
from reprogram.files import read_sealed, sha256
from reprogram.files.listings import EXPORTED, read_listing
from reprogram.images.decoding import Pixels, pixels_of
from reprogram.mappings.places import FILES, artefact_folder, holds_artefact
from reprogram.serve.metrics import Metrics
from reprogram.serve.tasks import Stamp, Task, Tasks, Way, stamp_of
from reprogram.threads import granted_cpus

NO_EVIDENCE = "not computed by the backend onnxruntime, so the list is always empty"
_NO_MORE = "are not known to the backend onnxruntime; leave {} out, or ask a service with --backend torch"
_OVERHEAD = 16 * 2**10  # bytes that a task takes beside its numbers
_ROUNDING = 1e-3  # as `reprogram.images.pictures` has it


@dataclass(frozen=True)
class Answers:
    """What was said about N images; see `reprogram.serve.tasks.Said`."""

    labels: list[str]
    probabilities: Pixels
    confidence: Pixels
    evidence: list[list[Any]]
    sets: None = None
    typicality: None = None
    unlike: None = None


@dataclass(frozen=True)
class Head:
    """A task's own part: from what the way gives to answers.

    Attributes:
        classes: the names of the classes.
        arrays: of an adapter, `weight` and `bias`; empty where the way gives target logits.
        temperature: that is within them.
    """

    classes: tuple[str, ...]
    arrays: dict[str, Pixels]
    temperature: float

    def predict(self, rows: Pixels, /, *, evidence: int = 0, **asked: Any) -> Answers:
        """Classes and probabilities; what else is asked for is refused, and evidence is empty."""
        del evidence
        if asked.get("coverage") is not None:
            raise ReprogramError("prediction sets " + _NO_MORE.format("coverage"))
        if asked.get("unlike") is not None:
            raise ReprogramError('the marks "none of these" ' + _NO_MORE.format("unlike"))
        scores = rows @ self.arrays[WEIGHT] + self.arrays[BIAS] if self.arrays else rows
        if asked.get("calibration") == "none":
            scores = scores * np.float32(self.temperature)
        powers = np.exp(scores - scores.max(1, keepdims=True))
        shares = powers / powers.sum(1, keepdims=True)
        if not bool(np.isfinite(shares).all()):
            raise ReprogramError("the model gives NaN or infinity for one of these images; send another one")
        best = scores.argmax(1)
        labels = [self.classes[index] for index in best]
        return Answers(labels, shares, np.take_along_axis(shares, best[:, None], 1)[:, 0], [[] for _ in labels])


class OnnxWay(Way):
    """A way through a session of onnxruntime.

    Args:
        task: one of those that go this way.
        key: the same for all of them.
    """

    def __init__(self, task: Exported, key: str) -> None:
        self.session, self.pattern, self.key = task.session, task.pattern, key
        self.image_size, self.interpolation = task.image_size, task.interpolation  # type: ignore[assignment]
        self.program_name = str(_part(task.facts, "program").get("name", ""))
        self.output = FEATURES if isinstance(self.session, Backbone) else LOGITS

    @override
    def prepare(self) -> str:
        return "onnxruntime"

    @override
    def fit(self, array: Pixels) -> list[Pixels]:
        """The same as uint8: an exported model takes whole grey levels, and it is PIL that resizes."""
        if array.shape[1] in (1, 2, 3, 4):
            array = array.transpose(0, 2, 3, 1)
        elif array.shape[3] not in (1, 2, 3, 4):
            raise ReprogramError(f"images have shape {array.shape}, but 1 to 4 channels are expected; reshape them")
        if array.dtype != np.uint8:
            if not bool(((array >= -_ROUNDING) & (array <= 1 + _ROUNDING)).all()):
                raise ReprogramError(
                    "images hold NaN or values outside [0, 1], but pixels in [0, 1] are expected; scale them"
                )
            array = (array.clip(0, 1) * 255).round().astype(np.uint8)
        modes = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
        mode = modes[array.shape[3]]
        rows = [np.ascontiguousarray(image[..., 0] if mode == "L" else image) for image in array]
        pictures = (Image.frombytes(mode, (row.shape[1], row.shape[0]), row.tobytes()) for row in rows)
        return [pixels_of(picture, self.image_size, self.interpolation) for picture in pictures]

    @override
    def __call__(self, images: list[Pixels]) -> Pixels:
        """Features (N, d) under the program or, of a model that has its task within it, target logits (N, k_T)."""
        feeds = {IMAGES: np.ascontiguousarray(np.stack(images).transpose(0, 2, 3, 1))}
        if self.pattern is not None:
            feeds[PATTERN] = self.pattern
        return self.session.run([self.output], feeds)[0]

    @override
    def joined(self, parts: list[Any]) -> Pixels:
        return np.concatenate(parts)


class OnnxTasks(Tasks):
    """All tasks, by name, over sessions of onnxruntime: one for each backbone, whatever the number of tasks.

    Args:
        memory: bytes that tasks may take in memory; those that were used longest ago leave it first.
        cache: a folder where runs are exported to, for as long as the service lives.
        metrics: where it is counted.
    """

    def __init__(self, memory: int, cache: Path, metrics: Metrics | None = None) -> None:
        super().__init__(memory, metrics)
        self.cache, self.threads = cache, granted_cpus()
        self.backbones: dict[str, Backbone] = {}
        self._whole: dict[str, Exported] = {}  # of --format onnx, by the SHA-256 of its listing: each is a model of its own

    @property
    @override
    def models(self) -> int:
        return len(self.backbones) + len(self._whole)

    @override
    def begin_thread(self, *, alone: bool) -> None:
        del alone  # the sessions have one thread each, whoever calls them

    @override
    def is_task(self, folder: Path) -> bool:
        return (folder / EXPORTED).is_file() or holds_artefact(folder)

    @override
    def place(self, folder: Path) -> Path:
        return folder if (folder / EXPORTED).is_file() else artefact_folder(folder)

    @override
    def stamp(self, path: Path) -> Stamp:
        return stamp_of(path / EXPORTED if (path / EXPORTED).is_file() else path / FILES[0])

    @override
    def _load(self, name: str, path: Path, *, whole: bool, new_model: bool = False) -> tuple[Task, dict[str, Any]]:
        if not (path / EXPORTED).is_file():
            path = self._exported(name, path, new_model=new_model)
        task = self._task(name, path, new_model=new_model)
        facts = task.facts
        digest = hashlib.sha256(json.dumps([task.session.sha256, task.image_size, task.interpolation]).encode())
        if task.pattern is not None:
            digest.update(np.ascontiguousarray(task.pattern).tobytes())
        key = digest.hexdigest()
        way = self._ways.get(key)
        if way is None:
            self._ways[key] = way = OnnxWay(task, key)
        calibration, program = _part(facts, "calibration"), _part(facts, "program")
        source, mapping, run = (_part(facts, part) for part in ("source", "mapping", "run"))
        temperature = calibration.get("temperature")
        if temperature is not None and not (isinstance(temperature, float) and 0 < temperature < float("inf")):
            raise ReprogramError(f"{str(path / EXPORTED)!r} tells a temperature that is none; export it again")
        head = Head(
            task.classes,
            {key: task.arrays[key] for key in (WEIGHT, BIAS) if key in task.arrays},
            temperature or 1.0,
        )
        self.metrics.loads.inc()
        size = _OVERHEAD + sum(array.nbytes for array in task.arrays.values())
        details = {
            "class_names": list(task.classes),
            "source_labels": source.get("labels"),
            "temperature": temperature,
        }
        told = {
            "name": name,
            "classes": len(task.classes),
            "mapping": mapping.get("name"),
            "program": program.get("name"),
            "image_size": task.image_size,
            "model": source.get("model"),
            "model_fingerprint": source.get("fingerprint"),
            "artefact": run.get("artefact"),
            "backend": "onnxruntime",
            "evidence": NO_EVIDENCE,
        }
        return Task(name, head, way, size, whole, details), told

    def _task(self, name: str, path: Path, *, new_model: bool) -> Exported:
        """An exported folder, on the session that is there already."""
        listed = read_listing(path)
        if MODEL in listed["files"]:
            digest = sha256(path / EXPORTED)
            if digest not in self._whole:
                self._check_new(name, new_model=new_model)
                self._whole[digest] = load_exported(path, threads=1)
            return self._whole[digest]
        source = listed.get("source")
        key = str(source.get("key")) if isinstance(source, dict) else ""
        found = load_exported(path, self.backbones[key]) if key in self.backbones else None
        if found is None:
            self._check_new(name, new_model=new_model)
            found = load_exported(path, threads=1)
            assert isinstance(found.session, Backbone)
            self.backbones[found.session.key] = found.session
        return found

    @staticmethod
    def _check_new(name: str, *, new_model: bool) -> None:
        if not new_model:
            raise ReprogramError(
                f"task {name!r} was made for a model that is not in memory here; start the service with a task of that "
                "model, too"
            )

    def _exported(self, name: str, artefact: Path, *, new_model: bool) -> Path:
        """A run as an adapter on the backbone of its model and canvas, compared with the live model as every export is."""
        content = read_sealed(artefact / FILES[0], "artefact")
        place = self.cache / sha256(artefact / FILES[0])
        if place.is_dir():
            return place
        if not new_model:  # it takes seconds, in which nobody would be answered
            raise ReprogramError(
                f"task {name!r} is a run, and runs are exported only as the service starts; give what reprogram export "
                "--format onnx-adapter makes of it"
            )
        from reprogram.export.api import export_run

        about = json.dumps([content.get("frozen"), content.get("program", {}).get("canvas")], sort_keys=True)
        backbone = self.cache / f"{hashlib.sha256(about.encode()).hexdigest()}.onnx"
        run = artefact.parent if artefact.name == "artefact" else artefact
        export_run(run, place, format="onnx-adapter", backbone=backbone)
        return place


def _part(facts: dict[str, Any], key: str) -> dict[str, Any]:
    """A part of what an export tells of itself; empty where it is none."""
    found = facts.get(key)
    return found if isinstance(found, dict) else {}
