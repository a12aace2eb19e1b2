"""A run folder: config.json, environment.json, metrics.jsonl, checkpoint/, result.json, artefact/, predictions.csv."""

import csv
import io
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from reprogram.data.load import DataSet, Split, cache_folder, decode_data
from reprogram.errors import ReprogramError
from reprogram.files import claimed_folder, read_json, remove_leftovers, write_json, write_text
from reprogram.mappings.selection import Candidate
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.config import FitConfig
from reprogram.training.choice import select_mapping
from reprogram.training.evaluation import Evaluation, accuracy_interval
from reprogram.training.loop import FitResult, fit, pixel_sizes
from reprogram.training.settings import TrainingSettings

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


def run_fit(config: FitConfig, folder: Path, *, resume: bool = False, progress: Progress | None = None) -> FitResult:
    """Carry out a run and fill its folder.

    Everything that can be wrong with the configuration, the data and the model is found before the folder is made. After
    a kill or an interrupt, the same call with `resume=True` ends with the same numbers as an undisturbed run.
    """
    progress = progress or Progress()
    if (folder / "config.json").exists():
        _check_continuation(config, folder, resume)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReprogramError(f"{str(folder)!r} already exists and is not a run; choose another --out")
    with claimed_folder(folder):
        remove_leftovers(folder)
        data = config.load_data()
        frozen = config.load_frozen(data, progress)
        model = config.build(frozen, data)
        settings = config.training_settings(data)
        data, skipped = decode_data(
            data,
            pixel_sizes(model.program, settings.augment),
            model.program.interpolation,
            cache=cache_folder() if config.cache else None,
            skip_bad=config.skip_bad,
            processes=os.cpu_count() or 1,
            progress=progress,
        )
        write_json(folder / "config.json", config.model_dump())
    write_json(folder / "environment.json", environment(model.device))
    if config.mapping == "auto":
        model = config.build(frozen, data, _chosen_mapping(model, data, settings, folder, progress))
    progress.say(describe(model, data))
    for note in (*data.notes, *(f"skipped: {text}" for text in skipped[:5])):
        progress.say(f"note: {note}")

    def on_epoch(records: list[dict[str, Any]], epochs: int) -> None:
        write_text(folder / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records))
        progress.say(epoch_line(records[-1], epochs))

    checkpoint = folder / "checkpoint" / "state.safetensors"
    result = fit(model, data, settings, checkpoint=checkpoint, progress=progress, on_epoch=on_epoch)
    write_text(folder / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in result.records))
    model.save(folder / "artefact")
    write_text(folder / "predictions.csv", predictions_csv(result.test, data.test))
    write_json(folder / "result.json", summary(result, model, data) | {"skipped": skipped, "notes": list(data.notes)})
    return result


def _chosen_mapping(
    model: Reprogrammed, data: DataSet, settings: TrainingSettings, folder: Path, progress: Progress
) -> Candidate:
    """Choose a mapping for the untrained program, once in the life of a run folder."""
    path = folder / "selection.json"
    if not path.exists():
        options = {"batch_size": settings.batch_size, "precision": settings.precision, "progress": progress}
        selection = select_mapping(model, data.train, **options)  # type: ignore[arg-type]
        write_json(path, selection.to_json())
        progress.say(f"chosen {selection}")
    chosen = dict(read_json(path, "selection")["choice"])
    return Candidate(chosen.pop("mapping"), chosen)


def summary(result: FitResult, model: Reprogrammed, data: DataSet) -> dict[str, Any]:
    """The content of `result.json`."""
    return {
        "accuracy": result.accuracy,
        "interval_95": list(result.interval),
        "selected_epoch": result.selected_epoch,
        "epochs": len(result.records),
        "chance": 1 / data.k_target,
        "calibration_error": result.test.calibration_error(),
        "per_class": {name: {"images": n, "correct": correct} for name, n, correct in result.test.per_class()},
        "images": {"train": len(data.train), "val": len(data.val) if data.val else 0, "test": len(data.test)},
        "labels": {"source": model.frozen.k_source, "target": data.k_target},
        "parameters": {"free": sum(p.numel() for p in model.parameters()), "frozen": model.frozen.parameter_count},
        "source_fingerprint": model.frozen.fingerprint,
        "seconds": result.seconds,
    }


def describe(model: Reprogrammed, data: DataSet) -> str:
    """What is trained on what, in two lines."""
    free, total = sum(p.numel() for p in model.parameters()), model.frozen.parameter_count
    program, canvas = model.program, model.program.canvas
    inside = (
        f" ({program.image_size} px image on a {canvas} px canvas)" if program.image_size < canvas else f" ({canvas} px)"
    )
    val = f" / {len(data.val)} val" if data.val is not None else ""
    return (
        f"{model.frozen.name} ({model.frozen.k_source} labels) -> {data.name} ({data.k_target} classes, "
        f"{len(data.train)} train{val} / {len(data.test)} test images)\n"
        f"program {program.name}{inside}, mapping {model.mapping.name}, on {model.device}: "
        f"{free:,} trainable and {total:,} frozen parameters"
    )


def epoch_line(record: dict[str, Any], epochs: int) -> str:
    """One epoch for a reader."""
    parts = [f"epoch {record['epoch']}/{epochs}"]
    if record["loss"] is not None:
        parts.append(f"loss {record['loss']:.4f}")
    parts += [f"{name} {100 * value:.1f} %" for name, value in record["accuracy"].items() if value is not None]
    if record["mapping_change"] is not None:
        parts.append(f"mapping change {record['mapping_change']:.3f}")
    parts.append(f"{record['seconds']:.1f} s")
    if record["images_per_second"] is not None:
        parts.append(f"{record['images_per_second']:.0f} images/s")
    return "  ".join(parts)


def predictions_csv(evaluation: Evaluation, split: Split) -> str:
    """Name, true class, predicted class and confidence of each image."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "label", "predicted", "confidence"])
    columns = (evaluation.labels.tolist(), evaluation.predicted.tolist(), evaluation.confidence.tolist())
    for name, label, predicted, confidence in zip(split.names, *columns, strict=True):
        writer.writerow([name, evaluation.classes[label], evaluation.classes[predicted], f"{confidence:.6f}"])
    return text.getvalue()


def environment(device: torch.device) -> dict[str, Any]:
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
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "packages": versions,
    }


def stored_config(folder: Path) -> FitConfig:
    """The configuration that a run folder was made with."""
    return FitConfig.read(read_json(folder / "config.json", "run configuration"))


def format_accuracy(correct: int, n: int) -> str:
    """An accuracy with its 95 % interval.

    >>> format_accuracy(90, 100)
    '90.0 % (95 % interval 82.6 to 94.5 %, 90 of 100)'
    """
    low, high = accuracy_interval(correct, n)
    return f"{100 * correct / max(n, 1):.1f} % (95 % interval {100 * low:.1f} to {100 * high:.1f} %, {correct} of {n})"


def _check_continuation(config: FitConfig, folder: Path, resume: bool) -> None:
    if not resume:
        raise ReprogramError(f"{str(folder)!r} already holds a run; add --resume to continue it, or choose another --out")
    stored, given = stored_config(folder).model_dump(), config.model_dump()
    for name, value in given.items():
        if value != stored[name]:
            raise ReprogramError(
                f"--{name.replace('_', '-')} {value} was given, but the run in {str(folder)!r} has {stored[name]}; "
                "resume it as it was, or choose another --out"
            )
