"""What can be wrong with a command that uses runs, found before torch is imported: paths, and where results go."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reprogram.cli.arguments import spell
from reprogram.cli.checks import check_artefact, check_folder, check_place, check_record, exists, no_file
from reprogram.cli.commands import (
    EvaluateCommand,
    ExportCommand,
    FigureCommand,
    PredictCommand,
    ReportCommand,
    ServeCommand,
)
from reprogram.data.registry import check_data_spec
from reprogram.errors import ReprogramError, shown
from reprogram.figures.registry import FIGURES, FigureKind, check_count, check_suffix, find_figure
from reprogram.files.foreign import expanded, is_file, is_folder, listed
from reprogram.files.listings import EXPORTED
from reprogram.files.tables import form_of
from reprogram.mappings.places import holds_artefact, refuse_reference, runs_inside
from reprogram.predict.output import refuse_output
from reprogram.predict.words import LIST, Meant, is_pattern

if TYPE_CHECKING:  # which imports numpy
    from reprogram.predict.paths import Overlooked

_FILES = (".onnx", ".onnx_adapter", ".pt2", ".pt", ".zip")  # that an export may be expected to be


def check_run(command: EvaluateCommand) -> EvaluateCommand:
    """The run is there, and so is the data; a file for the mistakes can be one."""
    check_folder(command.run)
    if command.out is not None:
        path = expanded(command.out, "--out")
        if command.format is None and path.suffix.lower() not in (".json", ".csv"):
            raise ReprogramError(
                f"--out {shown(command.out)} is neither .json nor .csv; name it so, or say it with --format"
            )
        check_place(command.out)
    elif command.format is not None:
        raise ReprogramError(f"--format {command.format} goes with --out; name the file that the mistakes shall go to")
    if command.data is not None:
        check_data_spec(command.data, expanded(command.data_root or "data", "--data-root"), command.group)
    elif command.group is not None:
        raise ReprogramError(
            f"--group {shown(command.group)} goes with --data; the run's own data have the groups of the run"
        )
    check_artefact(command.run)
    return command


@dataclass(frozen=True)
class PredictPlan:
    """What `reprogram predict` shall do.

    Attributes:
        command: what was given.
        images: that the words mean, one after the other; there is one, unless all are to come from a list.
        overlooked: told what the words mean besides, on the way.
    """

    command: PredictCommand
    images: Iterator[Meant]
    overlooked: "Overlooked"


def check_predict(command: PredictCommand) -> PredictPlan:
    """The run is there, what was said about the output fits together, and the words mean an image."""
    check_folder(command.run)
    if not command.images:
        raise ReprogramError("no image was given to predict; write reprogram predict RUN PATH [PATH ...]")
    _check_output(command)
    for name in ("address", "processes"):
        if getattr(command, name) is not None and command.engine != "ray":
            raise ReprogramError(f"{spell(name, getattr(command, name))} goes with --engine ray; add that, or leave it out")
    if command.images.count(LIST) > 1:
        raise ReprogramError("- was given twice, but standard input holds one list; give it once")
    if command.null and LIST not in command.images:
        raise ReprogramError("--null goes with a list on standard input; give - for that")
    for word in command.images:
        path = expanded(word, "image")
        if word == LIST or is_file(path) or is_folder(path) or (not exists(path) and is_pattern(word)):
            continue
        if "://" in word:
            raise ReprogramError(
                f"image {shown(word)} is an address, but nothing is fetched; save it as a file and give that"
            )
        raise ReprogramError(f"image {shown(word)} {no_file(path)}")
    _check_order(command)
    check_artefact(command.run)
    from reprogram.predict.paths import Overlooked, meant_images, some_images

    overlooked = Overlooked()
    listed = getattr(sys.stdin, "buffer", None)
    images = meant_images(command.images, listed=listed, null=command.null, overlooked=overlooked)
    if LIST not in command.images:  # which may be long in coming
        images = some_images(command.images, images, overlooked)
    return PredictPlan(command, images, overlooked)


def _check_order(command: PredictCommand) -> None:
    """Raise where the run stands among the images."""
    if holds_artefact(expanded(command.run)):
        return
    for word in command.images:
        if word != LIST and holds_artefact(expanded(word)):
            raise ReprogramError(
                f"{shown(command.run)} is no run, but {shown(word)} is one; give the run first, then images"
            )


@dataclass(frozen=True)
class FigurePlan:
    """What `reprogram figure` shall do: list what there is (without a kind), or draw one.

    Attributes:
        command: what was given.
        runs: the folders.
        kind: which figure.
        out: where it goes.
    """

    command: FigureCommand
    runs: list[str]
    kind: FigureKind | None = None
    out: Path | None = None


def check_figure(command: FigureCommand) -> FigurePlan:
    """The runs are there, the figure is known, and it can be written as that."""
    if not command.words:
        raise ReprogramError("no run was given to draw; write reprogram figure RUN NAME --out FILE")
    runs, kind = list(command.words), None
    if len(runs) > 1 and (runs[-1] in FIGURES or not is_folder(expanded(runs[-1], "run"))):
        kind = find_figure(runs.pop())
    for run in runs:
        check_folder(run)
    if kind is None:
        if len(runs) > 1 or command.out is not None:
            raise ReprogramError(
                f"no figure was named after {shown(runs[-1])}; write one of {', '.join(FIGURES)} after the folders"
            )
        check_record(runs[0])
        return FigurePlan(command, runs)
    check_count(kind, runs)
    if command.classes and kind.name != "labels":
        raise ReprogramError(f"--classes was given, but figure {kind.name!r} shows all of them; it goes with labels")
    if command.out is None:
        raise ReprogramError(f"where figure {kind.name!r} shall go was not said; add --out {kind.name}.png")
    check_suffix(Path(command.out).suffix, f"--out {shown(command.out)}")
    out = expanded(command.out, "--out")
    if is_folder(out):
        raise ReprogramError(f"--out {shown(command.out)} is a folder; name a file")
    for run in runs:
        check_record(run)
    return FigurePlan(command, runs, kind, out)


def check_report(command: ReportCommand) -> ReportCommand:
    """The runs are there, and the page can have a place."""
    if not command.runs:
        raise ReprogramError("no run was given to report on; write reprogram report RUN [RUN ...]")
    for run in command.runs:
        check_folder(run)
    if command.text and command.out is not None:
        raise ReprogramError(f"--text prints a table and writes no file, but --out {shown(command.out)} was given; give one")
    if command.out is not None and is_folder(expanded(command.out, "--out")):
        raise ReprogramError(f"--out {shown(command.out)} is a folder, but the report is a file; name it report.html there")
    if command.out is not None and not command.out.lower().endswith((".html", ".htm")):
        raise ReprogramError(
            f"--out {shown(command.out)} was given, but the report is a page that a browser opens; let the name end in .html"
        )
    for run in command.runs:
        check_record(run)
    return command


def _check_output(command: PredictCommand) -> None:
    """What was said about where the rows go."""
    if command.out is None:
        for name in ("resume", "replace", "save_every"):
            if name in command.model_fields_set and getattr(command, name):
                raise ReprogramError(f"--{name.replace('_', '-')} goes with --out; name a file, or leave it out")
        if command.format == "parquet":
            raise ReprogramError("--format parquet is no text; name a file for it with --out")
        return
    if command.resume and command.replace:
        raise ReprogramError("--resume and --replace were both given; continue, or begin anew")
    if command.format == "text":
        raise ReprogramError("--format text is for standard output; choose csv, jsonl or parquet for --out")
    out = expanded(command.out, "--out")
    if command.format is None:
        form_of(out)
    refuse_output(out, resume=command.resume, replace=command.replace)


def check_serve(command: ServeCommand) -> ServeCommand:
    """There is something to serve, the token is a file, and the backend can do what is asked of it."""
    if not command.runs:
        raise ReprogramError("no run was given to serve; write reprogram serve RUN [RUN ...], or a folder of runs")
    for run in command.runs:
        check_folder(run)
        refuse_reference(expanded(run))
    if command.token is not None and not is_file(path := expanded(command.token, "--token")):
        raise ReprogramError(f"--token {shown(command.token)} {no_file(path)}")
    if command.backend == "onnxruntime" and command.allow_upload:
        raise ReprogramError(
            "--allow-upload was given with --backend onnxruntime, which takes no artefacts from clients; put exported "
            "folders into the folder that is served, or choose --backend torch"
        )
    if command.backend == "onnxruntime" and command.device not in ("auto", "cpu"):
        raise ReprogramError(
            f"--device {shown(command.device)} was given with --backend onnxruntime, which computes on the CPU; leave it "
            "out, or choose --backend torch"
        )
    _check_some_task(command)
    return command


def _check_some_task(command: ServeCommand) -> None:
    """Raise where no folder is a task or holds one, and say what it holds instead."""
    places = [expanded(run) for run in command.runs]
    inside = [inner for place in places for inner in (place, *_folders(place))]
    if any(map(holds_artefact, inside)):
        return
    exports = any(is_file(inner / EXPORTED) for inner in inside)
    if exports and command.backend == "onnxruntime":
        return
    first = shown(command.runs[0])
    if exports:
        raise ReprogramError(f"{first} holds exports and no run; add --backend onnxruntime to serve those, or give runs")
    if deeper := [place for place in places if runs_inside(place)]:
        inner = deeper[0] / Path(runs_inside(deeper[0])[0]).parent
        raise ReprogramError(f"{first} holds no run itself, but {shown(str(inner))} does; give that")
    raise ReprogramError(f"{first} holds no run and no artefact; give a run, or a folder of runs")


def _folders(folder: Path) -> list[Path]:
    return [path for path in listed(folder) if is_folder(path) and not path.name.startswith(".")]


def check_export(command: ExportCommand) -> ExportCommand:
    """The run is there, and the place for the export is free."""
    check_folder(command.run)
    if command.backbone is not None and command.format != "onnx-adapter":
        raise ReprogramError(
            f"--backbone {shown(command.backbone)} goes with --format onnx-adapter, but the format is {command.format}; "
            "leave it out, or add that"
        )
    if command.backbone is not None and is_folder(expanded(command.backbone, "--backbone")):
        raise ReprogramError(
            f"--backbone {shown(command.backbone)} is a folder, but an ONNX file is expected; name the file"
        )
    name = Path(os.path.abspath(expanded(command.run))).name  # noqa: PTH100  # without . and .., which are no names
    out = expanded(command.out or f"exported/{name}", "--out")
    if not exists(out) and out.suffix.lower() in _FILES:
        raise ReprogramError(
            f"--out {shown(str(command.out))} ends like a file, but an export is a folder of several; name a folder"
        )
    if command.weights is not None and not is_file(path := expanded(command.weights, "--weights")):
        raise ReprogramError(f"--weights {shown(command.weights)} {no_file(path)}")
    if exists(out) and not is_file(out / EXPORTED):
        raise ReprogramError(f"--out {shown(str(out))} exists already and is no export; choose another one")
    if exists(out) and not command.replace:
        raise ReprogramError(f"--out {shown(str(out))} holds an export already; choose another one, or add --replace")
    check_artefact(command.run)
    return command.model_copy(update={"out": str(out)})
