"""An audit in one call: of images under a frozen model, of files of answers, or of logits in memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from reprogram.answers.labels import Rows
from reprogram.answers.shards import Files
from reprogram.answers.truth import LabelTable
from reprogram.audit.classes import confusions, small_classes
from reprogram.audit.duplicates import find_duplicates
from reprogram.audit.judging import judge
from reprogram.audit.material import Material, from_arrays, from_files, from_images
from reprogram.audit.report import Audit, ordered
from reprogram.audit.views import OfAnswers, OfLogits, View
from reprogram.data.decode import Decoding
from reprogram.data.load import load_data
from reprogram.data.splits import PARTS
from reprogram.devices import choose_device
from reprogram.errors import ReprogramError, unknown
from reprogram.mappings.base import Mapping
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.mappings.selection import select
from reprogram.programs.base import NoProgram
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import load_frozen
from reprogram.sources.registry import find_source
from reprogram.statistics.answers import TopK

#: Which rows are audited: of one split, or all.
Audited = Literal["train", "val", "test", "all"]
DEFAULT_MODEL = "bundled:efficientnet_lite0"


def audit_logits(
    logits: Any,
    labels: Sequence[Any],
    *,
    mapping: str = "gaussian",
    classes: Sequence[str] | None = None,
    source_labels: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
    split: Audited = "all",
    duplicates: bool = True,
    **settings: Any,
) -> Audit:
    """Judge the labels of rows of logits.

    Args:
        logits: (n, k_S) what a frozen model answered.
        labels: n class names, or numbers.
        mapping: the mapping that judges, or `auto` for the best by leave-one-out.
        classes: the class names that numbers mean; by default the labels that there are, sorted.
        source_labels: k_S names.
        names: n names of the rows; by default their numbers.
        splits: n words train, val or test; by default all are train.
        split: which rows are audited; the mapping is that of train in any case.
        duplicates: whether to look for images that are the same.
        settings: of the mapping; see `make_mapping`.

    >>> draw = torch.Generator().manual_seed(0)
    >>> labels = ["cat", "dog"] * 50
    >>> logits = 4 * torch.eye(2)[[0, 1] * 50] + torch.randn(100, 2, generator=draw)
    >>> labels[7] = "cat"
    >>> found = next(audit_logits(logits, labels).suspicious(1))
    >>> found.place, found.given, found.suggested
    (7, 'cat', 'dog')
    """
    material = from_arrays(logits, labels, classes=classes, source_labels=source_labels, names=names, splits=splits)
    return audited(material, mapping, settings, split=split, duplicates=duplicates)


def audit_files(
    files: Files,
    *,
    mapping: str | None = None,
    classes: Sequence[str] | None = None,
    source_labels: Sequence[str] | None = None,
    scores: Literal["fraction", "percent"] = "fraction",
    labels: str | Path | LabelTable | None = None,
    split: Audited = "all",
    duplicates: bool = True,
    progress: Progress | None = None,
    **settings: Any,
) -> Audit:
    """Judge the labels of shards of answers; rows that name no split are train.

    Args:
        files: shards, as `fit_files` takes them.
        mapping: the mapping that judges, or `auto`; by default `gaussian`, or what takes top-K answers best.
        classes: see `fit_files`, also for `source_labels` and `scores`.
        source_labels: the labels that the model answers with.
        scores: the range of the scores of top-K answers.
        labels: a table of the labels to be judged, for files that have none; see `LabelTable`.
        split: which rows are audited; the mapping is that of train in any case.
        duplicates: whether to look for images that are the same.
        progress: where to show progress.
        settings: of the mapping.
    """
    given: dict[str, Any] = {"classes": classes, "source_labels": source_labels, "labels": labels}
    shards = from_files(files, **given, percent=scores == "percent", progress=progress)
    with shards as material:
        return audited(material, mapping, settings, split=split, duplicates=duplicates)


def audit_data(
    data: Any,
    model: str | Frozen | Reprogrammed = DEFAULT_MODEL,
    *,
    mapping: str = "gaussian",
    split: Audited = "all",
    canvas: int | None = None,
    duplicates: bool = True,
    decoding: Decoding | None = None,
    batch_size: int = 64,
    device: str = "auto",
    progress: Progress | None = None,
    **settings: Any,
) -> Audit:
    """Judge the labels of images by what a frozen model says of them.

    Args:
        data: all that `load_data` takes.
        model: a name that `load_frozen` takes, a frozen model, or one under a program, whose own mapping does not matter.
        mapping: the mapping that judges, or `auto` for the best by leave-one-out.
        split: which images are audited; the mapping is that of train in any case.
        canvas: side of the square that a model without a program receives; by default its own.
        duplicates: whether to look for images that are the same.
        decoding: how images are decoded, and what becomes of bad ones.
        batch_size: images per step.
        device: where a model that is given by its name computes.
        progress: where to show progress.
        settings: of the mapping.
    """
    loaded = load_data(data)
    if isinstance(model, str):
        needed = loaded.classes if find_source(model)[0].kind.needs_classes else None
        model = load_frozen(model, classes=needed, progress=progress).to(choose_device(device))
    if isinstance(model, Frozen):
        program = NoProgram(canvas or model.input_size, model.program_interpolation)
        nothing = make_mapping("blm", model.labels, loaded.classes)
        model = Reprogrammed(program, model, nothing).to(model.mean.device)
        model.check_canvas()
    elif canvas is not None:
        raise ReprogramError(f"canvas {canvas} was given, but the model's program has one of its own; leave it out")
    decoded, skipped = (decoding or Decoding(cache=False)).decode(
        loaded,
        dict.fromkeys(loaded.splits, model.program.image_size),
        model.program.interpolation,
        progress,
    )
    material = from_images(model, decoded, batch_size=batch_size, progress=progress)
    notes = tuple(f"skipped: {text}" for text in skipped)
    return audited(material, mapping, settings, split=split, duplicates=duplicates, notes=notes)


def audited(
    material: Material,
    mapping: str | None,
    settings: dict[str, Any],
    *,
    split: Audited = "all",
    duplicates: bool = True,
    notes: tuple[str, ...] = (),
) -> Audit:
    """The audit of rows, wherever they come from."""
    chosen = _chosen_rows(material, split)
    made, found = _mapping(material, mapping, {name: value for name, value in settings.items() if value is not None})
    kind: type[View] = OfLogits if material.answers is None else OfAnswers
    tuned = mapping in (None, "gaussian") and settings.get("shrinkage") is None
    view = kind(made, log_probabilities=material.log_probabilities, tuned=tuned)
    judged = judge(material, view)
    trusted = chosen & judged.judged & (judged.wrong <= 0.5)
    train = material.splits == 0
    rows = chosen & train & judged.judged
    pairs = find_duplicates(material) if duplicates else []
    return Audit(
        material.classes,
        material.source_labels,
        _described(made, tuned),
        view.how,
        material.names,
        material.splits,
        material.labels,
        judged,
        ordered(judged, chosen),
        [pair for pair in pairs if bool(chosen[pair.first] | chosen[pair.second])],
        confusions(material.classes, material.labels[trusted], judged.suggested[trusted]),
        small_classes(
            material.classes,
            torch.bincount(material.labels[train], minlength=len(material.classes)),
            material.labels[rows],
            judged.suggested[rows],
        ),
        (*material.notes, *found, *notes),
    )


def _chosen_rows(material: Material, split: str) -> torch.Tensor:
    if split not in (*PARTS, "all"):
        raise ReprogramError(f"split {split!r} was given, but train, val, test or all is expected; choose one of them")
    if len(material.classes) < 2:
        raise ReprogramError(f"the rows have {len(material.classes)} classes, but at least 2 are expected; check the labels")
    if int((material.splits == 0).sum()) < 2:
        raise ReprogramError(
            "fewer than 2 rows are of the split train, which the mapping is estimated from; give more of it"
        )
    chosen = torch.ones(len(material), dtype=torch.bool) if split == "all" else material.splits == PARTS.index(split)
    if not bool(chosen.any()):
        raise ReprogramError(f"the data have no {split} split; choose another one with --split")
    return chosen


def _given(rows: Rows, k_source: int) -> Tensor | TopK:
    """The logits or answers of rows."""
    if rows.logits is not None:
        return rows.logits
    assert rows.indices is not None
    return TopK.of(rows.indices, rows.probabilities, k_source)


def _mapping(material: Material, name: str | None, settings: dict[str, Any]) -> tuple[Mapping, list[str]]:
    """The mapping that judges, with nothing counted, and what is to be said about its choice."""
    notes: list[str] = []
    if name is None:
        name = "gaussian" if material.answers is None else "gaussian+"
    if name == AUTO:
        if settings:
            raise ReprogramError(f"mapping 'auto' chooses {', '.join(sorted(settings))} by itself; leave it out")
        train = material.splits == 0
        selection = select(
            lambda: ((_given(rows, len(material.source_labels)), rows.targets) for _, rows in material.only(train)),
            len(material.classes),
            span=material.span,
            log_probabilities=material.log_probabilities,
        )
        name, settings = selection.choice.mapping, selection.choice.settings
        notes = [f"chosen {selection}", *selection.notes]
    if name not in MAPPINGS:
        raise unknown("mapping", name, (*MAPPINGS, AUTO))
    has_k = "top_k" in MAPPINGS[name].settings.model_fields
    if material.answers and has_k and not {"top_k", "top_ratio"} & settings.keys():
        settings = {**settings, "top_k": material.answers}
    mapping = make_mapping(name, material.source_labels, material.classes, span=material.span, **settings)
    if material.answers is not None and not mapping.takes_answers:
        raise ReprogramError(
            f"mapping {name!r} with these options needs all logits, but top-K answers were given; choose gaussian+ or blm+"
        )
    if mapping.learned or mapping.statistics is None:
        raise ReprogramError(f"mapping {name!r} is not estimated from statistics, so it cannot judge labels; choose another")
    return mapping, notes


def _described(mapping: Mapping, tuned: bool) -> str:
    summary = MAPPINGS[mapping.name].summary
    shrinkage = getattr(mapping.settings, "shrinkage", None)
    return f"{mapping.name} ({summary}{f', shrinkage {shrinkage}' if tuned and shrinkage is not None else ''})"
