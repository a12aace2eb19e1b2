"""A run folder: config.json, environment.json, first.json, metrics.jsonl, checkpoint/, result.json, artefact/ and others."""

import copy
import os
import platform
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from typing_extensions import override

from reprogram.data.dataset import DataSet
from reprogram.errors import ReprogramError
from reprogram.files import (
    claimed_folder,
    fitting,
    is_leftover,
    lines_of,
    locked,
    read_bytes,
    read_sealed,
    refuse_links,
    remove_leftovers,
    sealed_line,
    sealed_text,
    settle_folder,
    sha256,
    write_sealed,
    write_text,
)
from reprogram.mappings.artefact import FILES, read_artefact, read_description
from reprogram.mappings.registry import AUTO
from reprogram.mappings.selection import Selection
from reprogram.programs.base import Program
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks, Told
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import Prepared, check_precision, prepare
from reprogram.run.config import GIVEN, REFERENCE, REFERENCE_SETTINGS, FitConfig
from reprogram.run.first import FirstAnswer, StoredAnswer
from reprogram.run.history import HISTORY, NO_HISTORY, ProgramHistory, read_history, write_history
from reprogram.run.shared import SharedBook, checkpoint_of
from reprogram.run.steps import Book, carry_out, trainable
from reprogram.sources.frozen import Frozen
from reprogram.text import csv_cell, csv_line, finite
from reprogram.training.checkpoint import REMEDY, part, read_checkpoint
from reprogram.training.evaluation import Evaluation
from reprogram.training.result import Diverged, FitResult

SEEN = "images.txt"
FIRST = "first.json"
#: What a reference method has learned, where a run of `reprogram fit` has its artefact.
WEIGHTS = "weights.safetensors"
#: Does the work of a run; writes what it learned, and tells what `result.json` has besides.
Work = Callable[[Prepared], FitResult]
Keep = Callable[[FitResult], dict[str, Any]]
_FIRST_AGAIN = "remove it and resume the run, which makes it again"
_PACKAGES = (
    "reprogram",
    "torch",
    "numpy",
    "timm",
    "torchvision",
    "open_clip_torch",
    "scikit-learn",
    "pillow",
    "safetensors",
)


def run_fit(
    config: FitConfig,
    folder: Path,
    *,
    data: DataSet | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    memory: Path | None = None,
    ranks: Ranks = ALONE,
) -> FitResult:
    """Carry out a run and fill its folder.

    What is wrong with the configuration, the data or the model leaves no folder behind. After
    a kill or an interrupt, the same call with `resume=True` ends with the same numbers as an undisturbed run.

    Args:
        config: what to do; it is stored with all defaults filled in.
        folder: the run folder.
        data: the data set, where the configuration does not name one that can be loaded.
        resume: continue the run in the folder, if there is one.
        progress: where to show progress.
        memory: a folder by which runs share their first passes; see `reprogram.sources.memory.PassMemory`.
        ranks: the processes that carry it out together and all call this; only the first one touches the folder.
    """
    progress = progress or Progress()
    folder = folder.expanduser()
    if not ranks.leads:
        return _follow(folder, data, progress, memory, ranks)
    continued_run(config, folder, resume)  # what stands there is ours, or stays untouched
    with claimed_folder(folder), locked_run(folder):
        return _fill(config, folder, data, resume, progress, memory, ranks)


def _follow(folder: Path, data: DataSet | None, progress: Progress, memory: Path | None, ranks: Ranks) -> FitResult:
    """What the processes do that do not lead: the same work, of which they write nothing."""
    settings, _ = ranks.told(lambda: ({}, {}))
    prepared = prepare(FitConfig.read(settings), data, progress, memory, ranks)
    try:
        result = carry_out(prepared, SharedBook(Book(), ranks, folder), progress)
    except Diverged as error:
        if error.result is not None:
            ranks.settle()  # who ends before the first one has written ends that, too
        raise
    ranks.settle()
    return replace(result, skipped=prepared.skipped)


def locked_run(folder: Path) -> AbstractContextManager[None]:
    """Keep other processes from changing a run folder."""
    return locked(folder / ".lock", f"the run folder {str(folder)!r}", remedy=", or choose another folder")


def _fill(
    config: FitConfig,
    folder: Path,
    data: DataSet | None,
    resume: bool,
    progress: Progress,
    memory: Path | None,
    ranks: Ranks,
) -> FitResult:
    config, given = continued_run(config, folder, resume)
    remove_leftovers(folder)
    ranks.told(lambda: (config.model_dump(exclude_unset=True), {}))
    prepared = prepare(config, data, progress, memory, ranks)
    book = FolderBook(folder, given, ranks.size)
    shared = SharedBook(book, ranks, folder)

    def keep(result: FitResult) -> dict[str, Any]:
        result.model.save(folder / "artefact")
        return {}

    try:
        result = fill_folder(prepared, book, progress, lambda ready: carry_out(ready, shared, progress), keep)
    except Diverged as error:
        if error.result is not None:
            ranks.settle()  # the others wait until all is written
        raise
    ranks.settle()
    return result


def fill_folder(prepared: Prepared, book: "FolderBook", progress: Progress, work: Work, keep: Keep) -> FitResult:
    """Write all that stands in the folder of a run: settings, machine, images, epochs, predictions, result.

    Args:
        prepared: what can begin.
        book: of the folder, which is claimed and locked.
        progress: where to show progress.
        work: does what is to be done.
        keep: writes what was learned, and gives what `result.json` has besides, or has otherwise.
    """
    folder, data = book.folder, prepared.data
    book.write_config(prepared.config)
    write_sealed(folder / "environment.json", environment(prepared.model.device, book.processes))
    seen = [mark for name, split in data.splits.items() if name != "test" for mark in split.fingerprints()]
    write_seen(folder, seen)
    again = data.test.count_among(set(seen))
    if again:
        data = replace(
            data,
            notes=(*data.notes, f"{again} of {len(data.test)} test images are training images, too: the accuracy flatters"),
        )
    for note in (*data.notes, *(f"skipped: {text}" for text in prepared.skipped[:5])):
        progress.say(f"note: {note}")

    stopped: Diverged | None = None
    try:
        result = work(replace(prepared, data=data))
    except Diverged as error:
        if error.result is None:
            raise
        stopped, result = error, error.result
    result = replace(result, skipped=prepared.skipped)
    data = replace(data, notes=(*data.notes, *result.notes))
    for note in result.notes:
        progress.say(f"note: {note}")
    book.write_records(result.records)  # a kill may have come between the last checkpoint and its line
    reason = {} if stopped is None else {"stopped": str(stopped)}
    sections = keep(result)
    write_text(folder / "predictions.csv", predictions_csv(result.test))
    files = {name: sha256(folder / name) for name in ("predictions.csv", WEIGHTS) if (folder / name).exists()}
    told = {**finite(summary(result, data)), **sections, "skipped": list(result.skipped), "files": files, **reason}
    write_sealed(folder / "result.json", told)
    if stopped is not None:
        raise stopped
    return result


def stored_config(folder: Path) -> FitConfig:
    """The configuration that a run folder was made with, everything decided; it allows no download by itself."""
    return FitConfig.read({**_stored(folder)[0], "download": False})


def stored_reference(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """Which reference method a run folder holds, with the settings of that; None of a run of `reprogram fit`."""
    content = _content(folder)
    return None if content.get(REFERENCE) is None else (content[REFERENCE], content[REFERENCE_SETTINGS])


def _stored(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run folder says about its run: everything decided, and what of it was given."""
    content = _content(folder)
    apart = (GIVEN, REFERENCE, REFERENCE_SETTINGS)
    return {name: value for name, value in content.items() if name not in apart}, content[GIVEN]


def _content(folder: Path) -> dict[str, Any]:
    return read_sealed(folder / "config.json", "run configuration", _Stored, remedy="make the run again")


class _Stored(BaseModel):
    """What a stored configuration has beside its settings."""

    given: dict[str, Any]
    reference: str | None = None
    reference_settings: dict[str, Any] = {}


class FolderBook(Book):
    """A run's folder, as its steps see it.

    Args:
        folder: of the run.
        given: what was said of it.
        processes: how many carry it out together.
    """

    def __init__(self, folder: Path, given: dict[str, Any], processes: int = 1) -> None:
        self.folder, self.given, self.processes = folder, given, processes
        self.checkpoint: Path = checkpoint_of(folder)

    @override
    def write_config(self, config: FitConfig) -> None:
        write_sealed(self.folder / "config.json", {**config.model_dump(), GIVEN: self.given})

    @override
    def write_selection(self, selection: Selection) -> None:
        write_sealed(self.folder / "selection.json", selection.to_json())

    @override
    def write_records(self, records: list[dict[str, Any]]) -> None:
        write_text(self.folder / "metrics.jsonl", "".join(sealed_line(finite(record)) for record in records))

    @override
    def write_program(self, epoch: int, program: Program) -> None:
        if program.free_parameters:
            write_history(self.folder / HISTORY, self._history().with_epoch(epoch, program))

    @override
    def catch_up(self, program: Program) -> None:
        if self.checkpoint.exists() and program.free_parameters:
            tensors, header = read_checkpoint(self.checkpoint)
            done, state = len(header["records"]), part(tensors, "model")
            if done and done not in self._history().epochs:
                stored = copy.deepcopy(program)
                own = {key.removeprefix("program."): value for key, value in state.items() if key.startswith("program.")}
                stored.load_state_dict(fitting(own, stored.state_dict(), f"checkpoint {str(self.checkpoint)!r}", REMEDY))
                self.write_program(done, stored)

    def _history(self) -> ProgramHistory:
        path = self.folder / HISTORY
        return read_history(path) if path.exists() else NO_HISTORY

    @override
    def write_first(self, first: FirstAnswer, *, usable: bool) -> FirstAnswer:
        if usable and first.model is not None:
            first.model.save(self.folder / "artefact")
            first = replace(first, digest=read_description(self.folder / "artefact")["files"][FILES[1]])
        write_sealed(self.folder / FIRST, finite(first.to_json()))  # last: what it tells of is there
        return first

    @override
    def read_first(self) -> FirstAnswer | None:
        if not (self.folder / FIRST).exists():
            return None
        return FirstAnswer.from_json(read_sealed(self.folder / FIRST, "first answer", StoredAnswer, remedy=_FIRST_AGAIN))

    @override
    def first_model(self, first: FirstAnswer, frozen: Frozen) -> Reprogrammed | None:
        found = self.first_artefact(first)
        return None if found is None else Reprogrammed.restored(*found, self.folder / "artefact", frozen)

    @override
    def first_artefact(self, first: FirstAnswer) -> Told | None:
        folder = self.folder / "artefact"
        if not folder.is_dir() or read_description(folder)["files"].get(FILES[1]) != first.digest:
            return None
        return read_artefact(folder)


def seen_images(folder: Path) -> set[str]:
    """The fingerprints of all images that a run has used; empty where the folder does not tell."""
    for path in (folder / SEEN, folder.absolute().parent / SEEN):  # of a run folder, or of the artefact in one
        if path.is_file():
            return set(read_seen(path))
    return set()


def read_seen(path: Path) -> list[str]:
    """The fingerprints in a run's list of images."""
    marks = lines_of(read_bytes(path, "list of images", most=2**30).decode("utf-8", "replace"))
    if marks is None:
        raise ReprogramError(
            f"list of images {str(path)!r} has changed since it was written (its SHA-256 differs); take it from a backup, "
            "or remove it to do without"
        )
    return marks


def write_seen(folder: Path, fingerprints: Iterable[str]) -> None:
    """Write the list of images that a run has used."""
    write_text(folder / SEEN, sealed_text(fingerprints))


def continued_run(
    config: FitConfig, folder: Path, resume: bool, reference: str | None = None
) -> tuple[FitConfig, dict[str, Any]]:
    """What to do in this folder, and what of it was given: a new run, or the one that is there, perhaps for longer.

    Args:
        config: what is to be done.
        folder: the run folder.
        resume: whether the run in it may be continued.
        reference: the reference method, where it is one.
    """
    if not (folder / "config.json").exists():
        if folder.exists() and (not folder.is_dir() or not all(map(is_leftover, folder.iterdir()))):
            raise ReprogramError(f"{str(folder)!r} already exists and is not a run; choose another --out")
        return config, config.given
    refuse_links(folder, ("artefact", "checkpoint"))
    if not resume:
        raise ReprogramError(f"{str(folder)!r} already holds a run; add --resume to continue it, or choose another --out")
    method = (stored_reference(folder) or (None,))[0]
    if method != reference:
        there = "a run of reprogram fit" if method is None else f"the reference {method}"
        raise ReprogramError(f"{str(folder)!r} holds {there}, so nothing else can go on there; choose another --out")
    stored, given = _stored(folder)
    settle_folder(folder / "artefact")
    if (folder / "artefact").is_dir() and _updates(folder):
        raise ReprogramError(
            f"the model in {str(folder)!r} was changed by reprogram update, which training on would undo; start a new run"
        )
    by_itself = ("program", "mapping") if stored.get("protocol") != "paper" else ()  # auto where nothing was said
    by_clock = stored.get("minutes") is not None  # its time may have been up before its last epoch, or before the first
    planned = not by_clock or checkpoint_of(folder).exists()
    for name, value in config.given.items():
        before, said = stored.get(name), given.get(name, AUTO if name in by_itself else None)
        if name == "download" or value in (before, said) or (name == "epochs" and (value > stored["epochs"] or not planned)):
            continue
        flag = f"--{name.replace('_', '-')}"
        there = f"was made without {flag}" if before is None else f"has {before}"
        raise ReprogramError(
            f"{flag} {value} was given, but the run in {str(folder)!r} {there}; resume it as it was, or choose another --out"
        )
    stored["download"] = config.download  # what a folder says asks for no network; what is said now does
    longer: dict[str, Any] = {}
    wanted = config.given.get("epochs", 0)
    again = by_clock and "minutes" in config.given and wanted == given.get("epochs")  # the same command
    if wanted and not again and (wanted > stored["epochs"] or not planned or (by_clock and wanted == stored["epochs"])):
        longer = {"epochs": config.epochs, "minutes": None}  # what is said now, and no longer by the clock
    config = FitConfig.read(stored | longer)
    check_precision(config, given, folder)
    return config, {name: value for name, value in (given | longer).items() if value is not None}


def _updates(folder: Path) -> Any:
    """What was done to the model of a run since it was trained."""
    try:
        return read_description(folder / "artefact").get("updates")
    except ReprogramError as error:
        reason = str(error).rpartition("; ")[0]
        raise ReprogramError(
            f"{reason}; remove the folder {str(folder / 'artefact')!r} and resume again, which makes it as it was trained "
            "(what reprogram update did to it is lost), or take it from a backup"
        ) from None


def summary(result: FitResult, data: DataSet) -> dict[str, Any]:
    """The content of `result.json`."""
    model = result.model
    return {
        "accuracy": result.accuracy,
        "interval_95": list(result.test.score.interval),
        "selected_epoch": result.selected_epoch,
        "epochs": len(result.records),
        "steps": list(result.steps),
        "chance": 1 / data.k_target,
        "calibration_error": result.test.calibration_error(),
        "reliability": {
            name: None if found is None else found.to_json()
            for name, found in (("plain", result.test.raw), ("calibrated", result.test.honest))
        },
        "per_class": {name: {"images": s.n, "correct": s.correct} for name, s in result.test.per_class().items()},
        "images": {"train": len(data.train), "val": len(data.val) if data.val else 0, "test": len(data.test)},
        "labels": {"source": model.frozen.k_source, "target": data.k_target},
        "parameters": {"free": trainable(model), "frozen": model.frozen.parameter_count},
        "source_fingerprint": model.frozen.fingerprint,
        "seconds": result.seconds,
        "notes": list(data.notes),
        **_groups(result.test, data),
    }


def _groups(test: Evaluation, data: DataSet) -> dict[str, Any]:
    """How many groups of images there are, and how many single test images tell as much as those of the test split."""
    counts = {name: len(set(split.groups)) for name, split in data.splits.items() if split.groups is not None}
    return {"groups": {**counts, "effective_test_images": test.score.effective or len(test.labels)}} if counts else {}


def predictions_csv(evaluation: Evaluation) -> str:
    """Name, true class, predicted class and confidence of each image."""
    lines = [csv_line(["image", "label", "predicted", "confidence"])]
    columns = (evaluation.labels.tolist(), evaluation.predicted.tolist(), evaluation.confidence.tolist())
    for name, label, predicted, confidence in zip(evaluation.names, *columns, strict=True):
        texts = (name, evaluation.classes[label], evaluation.classes[predicted])
        lines.append(csv_line([*map(csv_cell, texts), f"{confidence:.6f}"]))
    return "".join(lines)


def environment(device: torch.device, processes: int = 1) -> dict[str, Any]:
    """Versions and machine, for whoever repeats the run."""
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        **({"processes": processes} if processes > 1 else {}),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "packages": versions,
    }
