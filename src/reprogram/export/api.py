"""`export_run`: a run becomes a folder with one file that classifies, its card, and the list of their SHA-256."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reprogram.errors import ReprogramError, first_line, unknown
from reprogram.export.adapters import Array, import_onnxruntime, write_adapter
from reprogram.export.card import card
from reprogram.export.comparison import Answers, Comparison, Material, checked, compare, live_answers, material
from reprogram.export.facts import described, with_comparison
from reprogram.export.graphs import backbone_graph, is_pattern, pattern_of, serialized, whole_graph
from reprogram.export.networks import import_onnx, network, quiet, traced
from reprogram.export.programs import Placed, write_program
from reprogram.export.session import Backbone, check_backbone
from reprogram.export.settings import (
    ADAPTER,
    BACKBONE,
    BIAS,
    CARD,
    FORMATS,
    IMAGES,
    LIMIT,
    LOGITS,
    METADATA,
    MODEL,
    PATTERN,
    PROBABILITIES,
    PROGRAM,
    VERSION,
    WEIGHT,
)
from reprogram.export.trunk import Trunk, cut, folded, linear_kind
from reprogram.files import sha256, write_file, write_folder
from reprogram.files.foreign import absolute, expanded
from reprogram.files.listings import EXPORTED, write_listing
from reprogram.mappings.top_k import TopKGaussianMapping
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.frozen import Frozen
from reprogram.text import json_text

IMAGES_COMPARED = 100


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        folder: where.
        format: which of `FORMATS`.
        sizes: bytes of the files by name; of a backbone that stands elsewhere, by its path.
        comparison: how far it is from the live model.
    """

    folder: Path
    format: str
    sizes: dict[str, int]
    comparison: Comparison


def export_run(
    run: str | Path,
    out: str | Path,
    *,
    format: str = "onnx",  # noqa: A002  # as the command line has it
    backbone: str | Path | None = None,
    frozen: Frozen | None = None,
    weights: str | Path | None = None,
    replace: bool = False,
    images: int = IMAGES_COMPARED,
    progress: Progress | None = None,
) -> Export:
    """Write a run's model as files that need no `reprogram`; nothing is there unless it agrees with the live model.

    Args:
        run: a run folder or an artefact folder.
        out: the folder to write.
        format: `onnx`, `onnx-adapter` or `torch`.
        backbone: for `onnx-adapter`, the file that tasks share. It is written if it is not there, and else must be of the
            same model and canvas. By default, `backbone.onnx` in the folder.
        frozen: the source model, where it is a module of your own.
        weights: where the source model's weights file is now, if it has moved.
        replace: whether an export that stands in `out` is replaced.
        images: how many of the run's images are compared.
        progress: where to show progress.

    Raises:
        ReprogramError: the model cannot be written that way, or what was written would answer otherwise.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if backbone is not None and format != "onnx-adapter":
        raise ReprogramError(f"a backbone was given with format {format!r}, but it goes with onnx-adapter; leave it out")
    run, out, progress = expanded(run), absolute(expanded(out)), progress or Progress()
    check_place(out, replace=replace)
    if format != "torch":
        import_onnx()
        import_onnxruntime()
    model = Reprogrammed.load(run, frozen, weights=weights).to(torch.device("cpu")).eval()
    model.precision = "fp32"  # as what is written computes, and is compared with
    progress.say("comparing on images of the run")
    shown = material(run, model, images)
    job = _Job(run, out, format, model, shown, live_answers(model, shown.pixels), progress)
    with torch.no_grad():
        if format == "onnx":
            return job.onnx(replace=replace)
        if format == "torch":
            return job.torch(replace=replace)
        return job.adapter(None if backbone is None else absolute(expanded(backbone)), replace=replace)


def check_place(out: Path, *, replace: bool) -> None:
    """Raise unless a folder can be written there: nothing is, or an export that may be replaced."""
    if not os.path.lexists(out):
        return
    if not (out / EXPORTED).is_file():
        raise ReprogramError(f"{str(out)!r} exists already and is no export; choose another --out")
    if not replace:
        raise ReprogramError(f"{str(out)!r} holds an export already; choose another --out, or add --replace")


@dataclass(frozen=True)
class _Job:
    run: Path
    out: Path
    format: str
    model: Reprogrammed
    images: Material
    live: tuple[Array, Array]
    progress: Progress

    def onnx(self, *, replace: bool) -> Export:
        """One file; where folding costs too many digits, with the source logits inside."""
        for fold in (True, False):
            trunk = cut(self.model, fold=fold)
            head = folded(self.model.mapping, trunk)
            facts = self._facts(trunk)
            self.progress.say("writing the frozen model as ONNX")
            model = whole_graph(self._network(trunk), self.model.program, head, _metadata(facts), self._top_k)
            content = serialized(model)
            found = compare(_answers(content), self.live, self.images)
            if found.probability <= LIMIT or trunk.weight is None:
                break
        checked(found, "the ONNX file")
        return self._written({MODEL: content}, with_comparison(facts, found), found, replace=replace)

    def torch(self, *, replace: bool) -> Export:
        """One program of torch.export, compared as it was read back."""
        trunk = cut(self.model)
        facts, head = self._facts(trunk), folded(self.model.mapping, trunk)
        found: list[Comparison] = []

        def fill(folder: Path) -> None:
            write_program(folder / PROGRAM, self.model, trunk, head, json_text(facts, ascii_only=True))
            with quiet():
                program = torch.export.load(folder / PROGRAM).module()
            found.append(checked(compare(_torch_answers(program), self.live, self.images), "the torch program"))
            self._finish(folder, with_comparison({**facts, "backbone": None}, found[0]))

        write_folder(self.out, fill, lambda: check_place(self.out, replace=replace))
        return self._export(found[0])

    def adapter(self, backbone: Path | None, *, replace: bool) -> Export:
        """What belongs to the task alone, and the backbone if it is not there yet."""
        model = self.model
        if self._top_k is not None or not is_pattern(model.program):
            what = f"mapping {model.mapping.name!r}" if self._top_k is not None else f"program {model.program.name!r}"
            raise ReprogramError(f"{what} is more than numbers for a common backbone; use --format onnx")
        trunk = cut(model)
        head = folded(model.mapping, trunk)
        key = backbone_key(trunk, model)
        inside = backbone is None or backbone.parent == self.out
        place = self.out / BACKBONE if backbone is None else backbone
        content = b""
        if place.exists() and not inside:
            shared = check_backbone(Backbone(place), key, str(self.run))
            content = place.read_bytes()
            digest = shared.sha256
        else:
            self.progress.say("writing the frozen model as ONNX")
            about = {METADATA: {"version": VERSION, "key": key, "canvas": model.program.canvas, "width": len(head.weight)}}
            content = serialized(backbone_graph(self._network(trunk), model.program, len(head.weight), about))
            digest = ""
        arrays = {WEIGHT: head.weight.numpy(), BIAS: head.bias.numpy()}
        if (pattern := pattern_of(model.program)) is not None:
            arrays[PATTERN] = pattern.numpy()
        found = checked(compare(_answers(content, arrays), self.live, self.images), "the adapter")
        if not inside and not digest:
            write_file(place, lambda temporary: temporary.write_bytes(content))

        def fill(folder: Path) -> None:
            if inside:
                write_file(folder / place.name, lambda temporary: temporary.write_bytes(content))
            write_file(folder / ADAPTER, lambda temporary: write_adapter(temporary, arrays))
            named = place.name if inside else os.path.relpath(place, self.out)
            facts = {
                **self._facts(trunk),
                "backbone": {"path": named, "sha256": sha256(folder / named if inside else place)},
            }
            self._finish(folder, with_comparison(facts, found))

        write_folder(self.out, fill, lambda: check_place(self.out, replace=replace))
        return self._export(found, () if inside else (place,))

    @property
    def _top_k(self) -> TopKGaussianMapping | None:
        mapping = self.model.mapping
        return mapping if isinstance(mapping, TopKGaussianMapping) and linear_kind(mapping) == "top-k" else None

    def _facts(self, trunk: Trunk) -> dict[str, Any]:
        return described(self.run, self.model, trunk, self.format, backbone_key(trunk, self.model))

    def _network(self, trunk: Trunk) -> Any:
        program, frozen = self.model.program, self.model.frozen
        if is_pattern(program):
            return network(frozen, trunk, program.canvas)
        if trunk.module is None:
            raise ReprogramError(f"program {program.name!r} before an ONNX file cannot be exported; use padding or none")
        return traced(Placed(program, trunk.module).eval(), frozen.name, program.image_size)

    def _written(self, files: dict[str, bytes], facts: dict[str, Any], found: Comparison, *, replace: bool) -> Export:
        def fill(folder: Path) -> None:
            for name, content in files.items():
                write_file(folder / name, lambda temporary, content=content: temporary.write_bytes(content))  # type: ignore[misc]
            self._finish(folder, {**facts, "backbone": None})

        write_folder(self.out, fill, lambda: check_place(self.out, replace=replace))
        return self._export(found)

    def _finish(self, folder: Path, facts: dict[str, Any]) -> None:
        """The card, and then the list."""
        digests = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
        text = card(facts, digests).encode("utf-8", "replace")
        write_file(folder / CARD, lambda temporary: temporary.write_bytes(text))
        write_listing(folder, facts)

    def _export(self, found: Comparison, more: tuple[Path, ...] = ()) -> Export:
        sizes = {path.name: path.stat().st_size for path in sorted(self.out.iterdir()) if path.is_file()}
        return Export(self.out, self.format, {**sizes, **{str(path): path.stat().st_size for path in more}}, found)


def backbone_key(trunk: Trunk, model: Reprogrammed) -> str:
    """What identifies a backbone: model, normalisation and canvas."""
    return hashlib.sha256(f"{trunk.key} {model.program.canvas}".encode()).hexdigest()


def _metadata(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the ONNX file: all of it under one key, and the labels by themselves."""
    return {METADATA: facts, "labels": facts["labels"]}


def _answers(content: bytes, more: Mapping[str, Array] | None = None) -> Answers:
    """What an ONNX file answers, with the arrays of an adapter if there are any."""
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own types, which have no common base
        raise ReprogramError(
            f"onnxruntime does not take the ONNX file ({first_line(error)}); choose another model"
        ) from None

    def run(pixels: Array) -> tuple[Array, Array]:
        try:
            shares, logits = session.run([PROBABILITIES, LOGITS], {IMAGES: pixels, **(more or {})})
        except Exception as error:
            raise ReprogramError(
                f"the ONNX file cannot answer {len(pixels)} images ({first_line(error)}); choose another model"
            ) from None
        return shares, logits

    return run


def _torch_answers(program: nn.Module) -> Answers:
    def run(pixels: Array) -> tuple[Array, Array]:
        with torch.no_grad():
            shares, logits = program(torch.from_numpy(pixels))
        return shares.numpy(), logits.numpy()

    return run
