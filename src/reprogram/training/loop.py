"""`fit`: one loop for every program and mapping. The four steps of the paper's Algorithm 1 stand in `_train_epoch`."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.data.dataset import DataSet, Split
from reprogram.data.decode import Decoding
from reprogram.devices import autocast, choose_precision
from reprogram.errors import ReprogramError
from reprogram.progress import Progress
from reprogram.randomness import generator
from reprogram.reprogrammed import Reprogrammed
from reprogram.training.result import FitResult
from reprogram.training.settings import TrainingSettings
from reprogram.training.state import FitState, pixel_sizes

OnEpoch = Callable[[list[dict[str, Any]], int], object]


def fit(
    model: Reprogrammed,
    data: DataSet,
    settings: TrainingSettings | None = None,
    *,
    checkpoint: str | Path | None = None,
    decoding: Decoding | None = None,
    progress: Progress | None = None,
    on_epoch: OnEpoch | None = None,
    **overrides: Any,
) -> FitResult:
    """Train the program and estimate the mapping, in place.

    Args:
        model: left at the epoch with the best validation accuracy, or at the last one without a validation set.
        data: its validation split is used to select the epoch; see `DataSet.with_validation`.
        settings: how to train; single settings may also be given by keyword: `fit(model, data, epochs=5)`.
        checkpoint: a file that is replaced after each epoch. If it exists, the fit continues from it, to the bit; it must
            have been made with the same settings, program, mapping, source model and data. More epochs than it was made
            with are trained in addition.
        decoding: how images are decoded, and what becomes of bad ones.
        progress: where to show progress; silent by default.
        on_epoch: called after each epoch with all records so far and the number of epochs to come to.
        **overrides: fields of `TrainingSettings`.
    """
    settings = TrainingSettings.read({**(settings or TrainingSettings()).model_dump(), **overrides})
    settings = settings.model_copy(update={"precision": choose_precision(model.device, settings.precision)})
    progress = progress or Progress()
    if model.classes != data.classes:
        raise ReprogramError(
            f"the model has the classes {', '.join(model.classes[:3])} ... ({len(model.classes)}), but the data "
            f"{', '.join(data.classes[:3])} ... ({len(data.classes)}); make the model with data.classes"
        )
    sizes = pixel_sizes(model.program, settings.augment)  # decode first: bad files stop the fit early
    data, skipped = (decoding or Decoding()).decode(data, sizes, model.program.interpolation, progress)
    state = FitState(model, settings, data.train.labels, skipped=tuple(skipped))
    # Prepared now or never: an evaluation in the middle must not change what a resumed fit does.
    model.accelerated = None
    passes = state.epochs * len(data.train) + len(data.test) + (0 if data.val is None else len(data.val))
    progress.say(f"network: {model.accelerate(passes)}")
    checkpoint = None if checkpoint is None else Path(checkpoint)
    origin = _origin(model, data, settings)
    if checkpoint is not None and checkpoint.exists():
        state.restore(checkpoint, origin)
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False):
        _run_epochs(state, data, checkpoint, origin, progress, on_epoch)
        return state.finish(data.test, progress)


def _origin(model: Reprogrammed, data: DataSet, settings: TrainingSettings) -> dict[str, Any]:
    """What a checkpoint must agree with to be continued."""
    return {
        "settings": settings.model_dump(exclude={"epochs"}),
        "program": model.program.config(),
        "mapping": model.mapping.config(),
        "source": model.frozen.fingerprint,
        "data": data.digest(),
    }


def _run_epochs(
    state: FitState,
    data: DataSet,
    checkpoint: Path | None,
    origin: dict[str, Any],
    progress: Progress,
    on_epoch: OnEpoch | None,
) -> None:
    for epoch in range(len(state.records), state.epochs):
        started = time.perf_counter()
        change = _refresh_mapping(state, data.train, epoch, progress)
        outcome = _train_epoch(state, data.train, epoch, progress) if state.model.trainable else _NOTHING_TRAINED
        accuracy: dict[str, float | None] = {"train": outcome.accuracy}
        due = (epoch + 1) % state.settings.evaluate_every == 0 or epoch + 1 == state.epochs
        for name, split in (("val", data.val), ("test", data.test)):
            accuracy[name] = state.evaluate(split, progress, name).accuracy if due and split is not None else None
        state.records.append(
            {
                "epoch": epoch + 1,
                "loss": outcome.loss,
                "accuracy": accuracy,
                "mapping_change": change,
                "seconds": round(time.perf_counter() - started, 3),
                "images_per_second": outcome.images_per_second,
            }
        )
        if due:
            state.keep_if_selected(accuracy["val"])
        if checkpoint is not None:
            state.store(checkpoint, origin)
        if on_epoch is not None:
            on_epoch(state.records, state.epochs)


def _refresh_mapping(state: FitState, train: Split, epoch: int, progress: Progress) -> float | None:
    """Estimate ω from the statistics that the refresh schedule prescribes; return how much it changed."""
    mapping = state.model.mapping
    if mapping.statistics is None:
        return None
    if epoch == 0 or mapping.refresh == "fresh":
        state.gathered = state.new_statistics()
        with torch.inference_mode():
            order = torch.arange(len(train))
            for images, labels, indices in state.batches(train, order, progress, "estimating the mapping"):
                with autocast(state.model.device, state.settings.precision):
                    logits = state.model.source_logits(images)
                state.count(state.gathered, logits, labels, indices)
    elif mapping.refresh == "never":
        return 0.0
    return mapping.estimate(*state.gathered)


@dataclass(frozen=True)
class _Outcome:
    loss: float | None
    accuracy: float | None
    images_per_second: float | None


_NOTHING_TRAINED = _Outcome(None, None, None)


def _train_epoch(state: FitState, train: Split, epoch: int, progress: Progress) -> _Outcome:
    """One pass over the training set: Algorithm 1; with `reuse`, the outputs of step 1 also serve the next step 2."""
    model, settings, mapping = state.model, state.settings, state.model.mapping
    gathered = state.new_statistics() if mapping.statistics is not None and mapping.refresh == "reuse" else []
    losses: list[Tensor] = []
    hits: list[Tensor] = []
    order = torch.randperm(len(train), generator=generator(settings.seed, "order", epoch))
    started = _clock(model.device)
    views = generator(settings.seed, "augmentation", epoch)
    what = f"epoch {epoch + 1} of {state.epochs}"
    for step, (images, labels, indices) in enumerate(state.batches(train, order, progress, what, views)):
        state.set_learning_rate(epoch, step)
        with autocast(model.device, settings.precision):
            logits = model.source_logits(images)  # step 1: outputs of the frozen model under the program
        predicted = mapping(logits, state.fold_of(indices))  # step 3: target logits
        loss = F.cross_entropy(predicted, labels)
        state.step(loss)  # step 4: the program follows the gradient
        if gathered:
            state.count(gathered, logits.detach(), labels, indices)  # step 2 for the coming epoch: the mapping's statistics
        losses.append(loss.detach() * len(labels))  # read after the epoch, so that no step waits for its numbers
        hits.append((predicted.argmax(1) == labels).sum())
    seconds = _clock(model.device) - started
    state.gathered = gathered or state.gathered
    mean_loss = float(torch.stack(losses).cpu().double().sum()) / len(train)
    if not math.isfinite(mean_loss):
        raise ReprogramError(f"the loss became {mean_loss} in epoch {epoch + 1}; lower lr = {settings.lr:g} or use fp32")
    return _Outcome(mean_loss, int(torch.stack(hits).sum()) / len(train), round(len(train) / seconds, 2))


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()
