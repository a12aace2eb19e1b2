"""`probe`: the penultimate features of every image once, and a logistic regression on them."""

import time
from typing import Any

import torch
from torch import Tensor

from reprogram.acceleration.precision import Chosen, network_line
from reprogram.data.dataset import DataSet, Split
from reprogram.data.decode import Decoding
from reprogram.data.splits import stratified_folds
from reprogram.mappings.certainty import measure_certainty
from reprogram.progress import Progress
from reprogram.references.logistic import Tried, best, fit_logistic, path
from reprogram.references.models import Head, ReferenceModel
from reprogram.references.settings import ProbeSettings
from reprogram.run.build import Prepared
from reprogram.run.config import FitConfig
from reprogram.run.folder import FolderBook
from reprogram.run.steps import epoch_line
from reprogram.training.evaluation import evaluate, source_features
from reprogram.training.result import FitResult

_FOLDS = 5
#: λ where nothing is there to choose it by: one training image of a class.
_UNJUDGED = 0.1


def fit_probe(prepared: Prepared, settings: ProbeSettings, book: FolderBook, progress: Progress) -> FitResult:
    """Fit it; its one record counts as one epoch, and nothing is left over from a run that was interrupted.

    λ is chosen by the log-loss of the validation images; without these, of the training images on five folds. The probe
    itself is fitted to the training images alone, as everything that it is compared with.
    """
    started = time.perf_counter()
    model, config, data = prepared.model, prepared.config, prepared.data
    assert isinstance(model, ReferenceModel)
    assert isinstance(model.mapping, Head)
    passes = sum(map(len, data.splits.values()))
    progress.say(network_line(model.accelerate(passes), Chosen(config.precision)))
    before = time.perf_counter()
    features = _features(model, data.train, config, progress, "train")
    speed = len(data.train) / max(time.perf_counter() - before, 1e-6)
    labels, classes = data.train.labels, data.k_target
    held = None if data.val is None else (_features(model, data.val, config, progress, "val"), data.val.labels)
    strength, steps = _strength(settings, features, held, data, config.seed)
    solved = None
    for tried in [*(step["strength"] for step in steps if step["strength"] > strength), strength]:
        solved = fit_logistic(features, labels, classes, tried, start=solved)  # the same way as they were tried
    assert solved is not None
    model.mapping.fill(solved.affine)
    if held is not None and config.calibration != "none":
        progress.say(str(measure_certainty(model.mapping, held, held_out=True, sets=False, what="validation images")))
    tested = evaluate(
        model,
        data.test,
        batch_size=config.batch_size,
        precision=config.precision,
        decoding=Decoding(cache=False),
        progress=progress,
        what="testing on test",
    )
    seconds = round(time.perf_counter() - started, 3)
    record = {
        "epoch": 1,
        "loss": solved.log_loss(features, labels),
        "accuracy": {
            "train": _accuracy(model, features, labels),
            "val": None if held is None else _accuracy(model, *held),
            "test": tested.accuracy,
        },
        "mapping_change": None,
        "seconds": seconds,
        "images_per_second": round(speed, 2),
    }
    book.write_records([record])
    progress.say(epoch_line(record, 1))
    accuracy = {
        "last": tested.accuracy,
        "selected": None if held is None else tested.accuracy,
        "best_on_test": tested.accuracy,
    }
    return FitResult(model, accuracy, 1, [record], tested, seconds, steps=tuple(steps))


def _features(model: ReferenceModel, split: Split, config: FitConfig, progress: Progress, name: str) -> Tensor:
    """(n, d) float32, on the CPU."""
    what = f"features of {name}"
    batches = source_features(
        model, split, batch_size=config.batch_size, precision=config.precision, progress=progress, what=what
    )
    return torch.cat([features for features, _ in batches])


@torch.no_grad()
def _accuracy(model: ReferenceModel, features: Tensor, labels: Tensor) -> float:
    said = torch.cat([model.mapping(part.to(model.device)).argmax(1).cpu() for part in features.split(4096)])
    return int((said == labels).sum()) / max(len(labels), 1)


def _strength(
    settings: ProbeSettings, features: Tensor, held: tuple[Tensor, Tensor] | None, data: DataSet, seed: int
) -> tuple[float, list[dict[str, Any]]]:
    """λ, and what was tried to find it."""
    if settings.strength is not None:
        return settings.strength, [_step(Tried(settings.strength, 0.0, 0, 0), "given", kept=True)]
    labels = data.train.labels
    if held is not None and len(held[1]):
        parts, how = [(features, labels, *held)], "validation images"
    else:
        folds = stratified_folds(labels, _FOLDS, seed, data.train.group_numbers())
        if folds is None or int(torch.bincount(labels, minlength=data.k_target).max()) < 2:
            return _UNJUDGED, [_step(Tried(_UNJUDGED, 0.0, 0, 0), "a default: no image is there to choose it by", kept=True)]
        each = [folds == fold for fold in range(int(folds.max()) + 1)]
        parts = [(features[~out], labels[~out], features[out], labels[out]) for out in each if bool(out.any())]
        how = f"{len(parts)} folds of the training images"
    found = path(parts, data.k_target)
    chosen = best(found)
    return chosen.strength, [_step(one, how, kept=one is chosen) for one in found]


def _step(tried: Tried, how: str, *, kept: bool) -> dict[str, Any]:
    told = f"strength {tried.strength:.3g}"
    told += f": log-loss {tried.log_loss:.4f}, {tried.correct} of {tried.n} right on {how}" if tried.n else f" ({how})"
    measured = {"log_loss": tried.log_loss, "correct": tried.correct, "n": tried.n} if tried.n else {}
    return {"strength": tried.strength, **measured, "how": how, "kept": kept, "told": told}
