"""Tasks whose model runs in torch.

A task in memory is its mapping without what it was estimated from: ω and a few numbers. Prediction sets and "none of these"
need more of the artefact, which is read when they are asked for. Both leave memory again when others are used more.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from reprogram.acceleration.accelerate import Accelerated, accelerate
from reprogram.devices import Precision, at_hand, autocast, precision_note
from reprogram.errors import ReprogramError
from reprogram.images.batches import batches_of
from reprogram.images.decoding import Pixels
from reprogram.mappings.artefact import FILES, read_artefact
from reprogram.mappings.base import Mapping
from reprogram.programs.base import Program
from reprogram.reprogrammed import Reprogrammed
from reprogram.serve.metrics import Metrics
from reprogram.serve.tasks import Task, Tasks, Way
from reprogram.sources.frozen import Frozen
from reprogram.threads import granted_cpus

_OVERHEAD = 16 * 2**10  # bytes that a task takes beside its numbers


class Backbone:
    """A frozen model in memory, with its fingerprint, which takes a pass over all weights to compute."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen, self.fingerprint = frozen, frozen.fingerprint


class TorchWay(Way):
    """A way through a model in torch.

    Args:
        backbone: the model.
        program: bound to it.
        key: the same for programs that do the same.
        precision: of the passes.
    """

    def __init__(self, backbone: Backbone, program: Program, key: str, precision: Precision = "fp32") -> None:
        self.backbone, self.program, self.key, self.precision = backbone, program, key, precision
        self.image_size, self.interpolation, self.program_name = program.image_size, program.interpolation, program.name
        self.accelerated: Accelerated | None = None

    @property
    @override
    def prepared(self) -> bool:
        return self.accelerated is not None

    @override
    def prepare(self) -> str:
        if self.accelerated is None:
            self.accelerated = accelerate(self.backbone.frozen, self.program)
        described = self.accelerated.describe()
        return described if self.precision == "fp32" else f"{described}, in {self.precision}"

    @override
    def fit(self, array: Pixels) -> list[Pixels]:
        tensor = torch.from_numpy(array)
        if tensor.shape[1] not in (1, 2, 3, 4) and tensor.shape[3] in (1, 2, 3, 4):
            tensor = tensor.permute(0, 3, 1, 2)
        return [image.numpy() for batch in batches_of(tensor, self.image_size, self.interpolation) for image in batch]

    @override
    @torch.no_grad()
    def __call__(self, images: list[Pixels]) -> Tensor:
        """Map images (3, S, S) to source logits (N, k_S) in float32."""
        batch = stacked(images).to(self.program.mean.device)
        with autocast(batch.device, self.precision):
            if self.accelerated is not None:
                return self.accelerated(batch).float()
            return self.backbone.frozen(self.program(batch)).float()  # type: ignore[no-any-return]

    @override
    def joined(self, parts: list[Any]) -> Tensor:
        return torch.cat(parts)


class TorchTasks(Tasks):
    """All tasks, by name, over models in torch.

    Args:
        memory: bytes that tasks may take in memory; those that were used longest ago leave it first.
        device: where they compute.
        metrics: where it is counted.
    """

    def __init__(self, memory: int, device: torch.device | None = None, metrics: Metrics | None = None) -> None:
        super().__init__(memory, metrics)
        self.device = device or torch.device("cpu")
        self.threads = granted_cpus() if self.device.type == "cpu" else 1
        self.backbones: dict[str, Backbone] = {}

    @property
    @override
    def models(self) -> int:
        return len(self.backbones)

    @override
    def begin_thread(self, *, alone: bool) -> None:
        torch.set_grad_enabled(False)  # of this thread
        if not alone:
            torch.set_num_threads(1)  # of this thread: the others have the other processors

    @override
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
        if (note := precision_note(self.device, model.precision)) is not None:
            self.notes.add(note)
        way = self._way(backbone, model.program, at_hand(self.device, model.precision))
        certainty = mapping.certainty
        details = {
            "class_names": list(mapping.classes),
            "source_labels": mapping.k_source,
            "temperature": None if certainty is None else certainty.temperature,
        }
        facts = {
            "name": name,
            "classes": len(mapping.classes),
            "mapping": mapping.name,
            "program": way.program_name,
            "image_size": way.image_size,
            "model": backbone.frozen.name,
            "model_fingerprint": backbone.fingerprint,
            "artefact": content["files"].get(FILES[1]),
        }
        return Task(name, mapping, way, _size(mapping), whole, details), facts

    def _way(self, backbone: Backbone, program: Program, precision: Precision) -> Way:
        facts = [backbone.fingerprint, program.config(), *([] if precision == "fp32" else [precision])]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for key, tensor in sorted(program.state_dict().items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        key = digest.hexdigest()
        way = self._ways.get(key)
        if way is None:
            self._ways[key] = way = TorchWay(backbone, program.to(self.device), key, precision)
        return way


def stacked(images: list[Pixels]) -> Tensor:
    """Images, uint8 or floating point, as one batch of one kind."""
    if len({image.dtype for image in images}) == 1:
        return torch.from_numpy(np.stack(images))
    tensors = [torch.from_numpy(image) for image in images]
    return torch.stack([image.float() / 255 if image.dtype == torch.uint8 else image.float() for image in tensors])


def lighten(mapping: Mapping) -> None:
    """Take away what a class and its probability do not need: what the mapping was estimated and judged from."""
    mapping.statistics = None
    mapping._fold_parts = []
    if mapping.certainty is not None:
        mapping.certainty = replace(mapping.certainty, sets=None, typicality=None)


def _size(mapping: Mapping) -> int:
    held: list[Tensor] = list(mapping.state_dict().values())
    if (certainty := mapping.certainty) is not None:
        if certainty.sets is not None:
            held += [*certainty.sets.misfits, *certainty.sets.targets]
            held += [part for affine in certainty.sets.affines for part in vars(affine).values() if part is not None]
        if certainty.typicality is not None:
            held.append(certainty.typicality.distances)
    return _OVERHEAD + sum(tensor.nbytes for tensor in held)
