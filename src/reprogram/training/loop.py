"""`fit`: one loop for every program and mapping. The four steps of the paper's Algorithm 1 stand in `_train_epoch`."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reprogram.acceleration.accelerate import worth_preparing
from reprogram.acceleration.precision import network_line
from reprogram.data.dataset import DataSet, Split
from reprogram.data.decode import Decoding
from reprogram.devices import clock
from reprogram.errors import NonFiniteError, ReprogramError
from reprogram.progress import Progress
from reprogram.randomness import generator
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed
from reprogram.training.budget import Budget, planned
from reprogram.training.kept import KeptLogits, keep_logits
from reprogram.training.result import Diverged, FitResult
from reprogram.training.settings import TrainingSettings
from reprogram.training.state import FitState, pixel_sizes
from reprogram.training.stopping import Enough, enough_after
from reprogram.training.views import check_views, count_images, view_settings

OnEpoch = Callable[[list[dict[str, Any]], int], object]
_LOOK = 16  # steps between two looks at the loss: to read a number makes a GPU wait
_FIRST_SCALE = 2.0**16  # what a GradScaler begins with; it halves it where the gradients of a step overflow fp16
_LEAST_SCALE = 2.0**-10  # below, no scale will help
_FEW_LABELS = 8192  # of which logits are kept; those of more are computed again
_NO_STEP = "the gradients overflow fp16 at every step"


def fit(
    model: Reprogrammed,
    data: DataSet,
    settings: TrainingSettings | None = None,
    *,
    checkpoint: str | Path | None = None,
    decoding: Decoding | None = None,
    progress: Progress | None = None,
    on_epoch: OnEpoch | None = None,
    on_plan: Callable[[int], None] | None = None,
    enough: Enough | None = None,
    spent: float = 0.0,
    known: KeptLogits | None = None,
    ranks: Ranks = ALONE,
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
        on_plan: called once before the first epoch, also where a fit is continued, with the number of epochs to come to.
        enough: told all records so far, before each epoch but the first, whether to end here. It must say the same about
            the same records, or a fit that is continued ends otherwise. By default, what `patience` says.
        spent: seconds of `minutes` that were gone before this was called; where a checkpoint says so, those that were gone
            when the training began, so that a fit that is continued ends where an undisturbed one does.
        known: the source logits of the training images as they were given by a pass before, if there are: where they are, to
            the bit, those under the program as it is now, they spare the pass for the first ω. They are let go here.
        ranks: the processes that train together (see `joined`) and that all call this with the same arguments: each batch is
            shared out, and gradients and statistics are summed, so that their number does not matter. Only the first one
            reads and writes the checkpoint.
        **overrides: fields of `TrainingSettings`.

    Raises:
        Diverged: a loss, the program or the mapping is no longer finite; what was completed before is kept.
    """
    began = time.monotonic() - spent
    settings = TrainingSettings.read({**(settings or TrainingSettings()).model_dump(), **overrides})
    precision = model.choose_precision(settings.precision)
    settings = settings.model_copy(update={"precision": precision.precision})
    model.precision = precision.precision
    progress = progress or Progress()
    if not isinstance(data, DataSet):
        raise ReprogramError(f"data of type {type(data).__name__} were given, but a DataSet is expected; use load_data(...)")
    if model.classes != data.classes:
        raise ReprogramError(
            f"the model has the classes {', '.join(model.classes[:3])} ... ({len(model.classes)}), but the data "
            f"{', '.join(data.classes[:3])} ... ({len(data.classes)}); make the model with data.classes"
        )
    check_views(model, settings.views)
    model.check_gradient()
    if enough is None and settings.patience is not None and model.trainable:
        if data.val is None:
            raise ReprogramError(
                f"patience = {settings.patience} was given, but there are no validation images to tell when to end; leave "
                "it out, or set images aside (val_fraction, DataSet.with_validation)"
            )
        enough = enough_after(settings.patience)
    sizes = pixel_sizes(model.program, settings.augment)  # decode first: bad files stop the fit early
    data, skipped = (decoding or Decoding()).decode(data, sizes, model.program.interpolation, progress)
    state = FitState(model, settings, data.train.labels, skipped=tuple(skipped), groups=data.train.group_numbers())
    state.ranks, state.known, state.spent = ranks, known, spent
    checkpoint = None if checkpoint is None else Path(checkpoint)
    origin = _origin(model, data, settings)
    ranks.agree(origin)
    found, _ = ranks.told(lambda: (checkpoint is not None and checkpoint.exists(), {}))
    if checkpoint is not None and found:
        state.restore(checkpoint, origin)
    # Prepared now or never: an evaluation in the middle must not change what a resumed fit does.
    model.accelerated = None
    progress.say(network_line(model.accelerate(_passes(state, data)), precision))
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False):
        _keep_what_stays(state, data.train, sizes["train"], progress)
        enough = _within_budget(state, data, began, enough, progress)
        if on_plan is not None:
            on_plan(state.epochs)
        _run_epochs(state, data, checkpoint, origin, progress, on_epoch, enough)
        return state.finish(data, progress)


def _passes(state: FitState, data: DataSet) -> int:
    """How many images will go through the model, about."""
    return (state.epochs if state.model.moves else 1) * len(data.train) + len(data.test) + len(data.val or ())


def _within_budget(state: FitState, data: DataSet, began: float, enough: Enough | None, progress: Progress) -> Enough | None:
    """With `minutes`, let the epochs be as many as fit, and the fit end before them if the machine has become slower."""
    if state.settings.minutes is None or not state.model.trainable:
        return enough
    seconds = 60 * state.settings.minutes

    def spent() -> float:
        return time.monotonic() - began

    if not state.records:
        (state.epochs, state.spent), _ = state.ranks.told(
            lambda: ([planned(state, data, seconds, spent, progress), spent()], {})
        )
        if not worth_preparing(_passes(state, data), state.model.program):  # as in a fit of that many epochs
            state.model.accelerated = None
            progress.say("network: as it is after all, as so few images do not repay preparing it")
    budget = Budget(seconds, state.spent, state.settings.evaluate_every)
    here, known = time.monotonic(), len(state.records)

    def over(records: list[dict[str, Any]]) -> bool:
        if enough is not None and enough(records):
            return True
        own = [record["seconds"] for record in records[known:]]
        between = max(time.monotonic() - here - sum(own), 0.0) / max(len(own), 1)  # such as to write a checkpoint
        used, _ = state.ranks.told(lambda: (budget.used_up(records, between), {}))
        if used:
            done = f"{len(records)} of {state.epochs} epochs (minutes = {state.settings.minutes:g})"
            progress.say(f"time is up after {done}; epochs = {state.epochs} trains them all")
        return bool(used)

    return over


def _origin(model: Reprogrammed, data: DataSet, settings: TrainingSettings) -> dict[str, Any]:
    """What a checkpoint must agree with to be continued."""
    return {
        "settings": settings.model_dump(exclude={"epochs", "minutes", "calibration"}),
        "program": model.program.config(),
        "mapping": model.mapping.config(),
        "source": model.frozen.fingerprint,
        "data": data.digest(),
    }


def _keep_what_stays(state: FitState, train: Split, pixels: int, progress: Progress) -> None:
    """Where only a mapping is trained and images stay as they are, send each through the model once, for all epochs."""
    model, settings = state.model, state.settings
    if model.trainable and not model.moves and settings.augment == "none" and model.frozen.k_source <= _FEW_LABELS:
        how: dict[str, Any] = {"batch_size": settings.batch_size, "precision": settings.precision, "pixels": pixels}
        how |= {"progress": progress, "ranks": state.ranks, "what": "sending images through the model"}
        state.kept_logits = keep_logits(model, train, **how)


def _run_epochs(
    state: FitState,
    data: DataSet,
    checkpoint: Path | None,
    origin: dict[str, Any],
    progress: Progress,
    on_epoch: OnEpoch | None,
    enough: Enough | None,
) -> None:
    given = {} if state.records else {key: tensor.detach().clone() for key, tensor in state.model.state_dict().items()}
    for epoch in range(len(state.records), state.epochs):
        if enough is not None and state.records and enough(state.records):
            return
        try:
            record = _epoch(state, data, epoch, progress)
        except NonFiniteError as error:
            raise _diverged(state, data, given, error.found, progress) from None
        state.records.append(record)
        validated = any(each["accuracy"]["val"] is not None for each in state.records)
        if record["accuracy"]["test"] is not None or not validated:  # what is good is kept until something is selected
            state.keep_if_selected(record["accuracy"]["val"])
        if checkpoint is not None and state.ranks.leads:
            state.store(checkpoint, origin)
        if on_epoch is not None:
            on_epoch(state.records, state.epochs)


def _epoch(state: FitState, data: DataSet, epoch: int, progress: Progress) -> dict[str, Any]:
    """Estimate, train, evaluate where it is due; the epoch's record."""
    started = time.perf_counter()
    change = _refresh_mapping(state, data.train, epoch, progress)
    state.align()
    outcome = _train_epoch(state, data.train, epoch, progress) if state.model.trainable else _NOTHING_TRAINED
    if state.model.trainable and state.model.mapping.refresh == "after":
        change = _refresh_mapping(state, data.train, epoch, progress, after=True)
    accuracy: dict[str, float | None] = {"train": outcome.accuracy}
    due = (epoch + 1) % state.settings.evaluate_every == 0 or epoch + 1 == state.epochs
    for name, split in (("val", data.val), ("test", data.test)):
        accuracy[name] = state.evaluate(split, progress, name).accuracy if due and split is not None else None
    return {
        "epoch": epoch + 1,
        "loss": outcome.loss,
        "accuracy": accuracy,
        "mapping_change": change,
        "seconds": round(time.perf_counter() - started, 3),
        "images_per_second": outcome.images_per_second,
    }


def _diverged(state: FitState, data: DataSet, given: dict[str, Tensor], found: str, progress: Progress) -> Diverged:
    """The error about an epoch that cannot be completed; the model goes back to what was good."""
    settings, model, done = state.settings, state.model, state.records
    trained = any(not torch.equal(value, given.get(key, value)) for key, value in model.named_parameters())
    rates = {"program": f"lr = {settings.lr:g}", "mapping": f"mapping_lr = {settings.mapping_lr:g}"}
    remedies = [f"lower {' and '.join(rates[name] for name in state.optimizers)}"] if state.optimizers else []
    if found == _NO_STEP:
        remedies.clear()
    if settings.precision != "fp32":
        remedies.append(f"use precision = fp32 instead of {settings.precision}")
    if not (done or trained) or not remedies:
        remedies = [*remedies[1:], "check the images and the source model"]
    epoch = f"epoch {len(done) + 1} of {state.epochs}"
    before = f" (its loss was {done[-1]['loss']:.4g} before)" if done and done[-1]["loss"] is not None else ""
    what = f"{found} in {epoch}{before}; {' or '.join(remedies)}"
    if not done:
        model.load_state_dict(given)
        return Diverged(f"{what}: no epoch was completed and the model is left as it was given")
    result = state.finish(data, progress)
    share = f"{100 * result.test.accuracy:.1f} % on test"
    return Diverged(f"{what}: the model of epoch {result.selected_epoch} is kept ({share})", result)


def _refresh_mapping(state: FitState, train: Split, epoch: int, progress: Progress, *, after: bool = False) -> float | None:
    """Estimate ω from the statistics that the refresh schedule prescribes; return how much it changed."""
    mapping, settings = state.model.mapping, state.settings
    if mapping.statistics is None or not settings.views:  # 0: no image counts, and the mapping stays as it was made
        return None
    if epoch == 0 or mapping.refresh == "fresh" or after:
        order = state.begin_pass(train)
        kept = not state.model.trainable and settings.calibration != "none"
        if kept and len(mapping.source_labels) <= _FEW_LABELS:
            start = int(order[0]) if len(order) else 0
            state.kept_logits = KeptLogits(len(train), len(mapping.source_labels), state.groups, start)
        known = state.known_logits(train)
        with torch.inference_mode(), state.ranks.held():
            for images, labels, indices, _ in state.batches(train, order, progress, "estimating the mapping"):
                logits = None if known is None else known.rows(indices).to(state.model.device)
                if settings.views > 1:
                    parts = (state.model, images, labels, state.gathered[0])
                    logits = count_images(*parts, **view_settings(settings), known=logits)
                else:
                    if logits is None:
                        logits = state.model.source_logits(images, settings.precision)
                    state.count(state.gathered, logits, labels, indices)
                    state.remember(logits, indices)
                if state.kept_logits is not None:
                    state.kept_logits.add(logits, labels)
        state.end_pass()
        state.let_go()
    elif mapping.refresh != "reuse":
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
    state.begin_epoch()
    order = torch.randperm(len(train), generator=generator(settings.seed, "order", epoch))
    started = clock(model.device)
    views = generator(settings.seed, "augmentation", epoch)
    what = f"epoch {epoch + 1} of {state.epochs}"
    for step, (images, labels, indices, share) in enumerate(state.batches(train, order, progress, what, views)):
        state.set_learning_rate(epoch, step)
        logits = state.source_logits(images)  # step 1: outputs of the frozen model under the program
        predicted = mapping(logits, state.fold_of(indices))  # step 3: target logits
        loss = state.loss(predicted, labels, share)
        state.step(loss, share)  # step 4: the program follows the gradient
        own = slice(share.count)
        if gathered:
            state.count(gathered, logits.detach()[own], labels[own], indices[own])  # step 2 for the coming epoch
        losses.append(loss.detach() * share.count)  # read later, so that no step waits for its numbers
        hits.append((predicted.argmax(1) == labels)[own].sum())
        if (step + 1) % _LOOK == 0:
            _check_finite(state, torch.stack(losses[-_LOOK:]))
    state.count_all(gathered)
    seconds = clock(model.device) - started
    mean_loss = _check_finite(state, torch.stack(losses)) / len(train)
    state.gathered = state.summed(gathered) or state.gathered
    state.end_epoch()
    _check_model(state, epoch)
    right = int(state.ranks.sum(torch.stack(hits).sum()))
    return _Outcome(mean_loss, right / len(train), round(len(train) / seconds, 2))


def _check_finite(state: FitState, losses: Tensor) -> float:
    """The sum of these losses of all processes, or an error if it is not finite or if no step can be made in fp16."""
    state.ranks.settle()
    total, scaler = float(state.ranks.sum(losses.cpu().double().sum())), state.scaler
    if not math.isfinite(total):
        raise NonFiniteError(f"the loss became {total}")
    if scaler.is_enabled() and scaler.get_scale() < _LEAST_SCALE:
        raise NonFiniteError(_NO_STEP)
    return total


def _check_model(state: FitState, epoch: int) -> None:
    """Raise where an epoch has left θ or ω not finite, or where the whole fit has not made one step."""
    for name, tensor in state.model.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise NonFiniteError(f"{name} became NaN or infinite")
    never = _FIRST_SCALE * 0.5 ** (state.steps * (epoch + 1))
    if epoch + 1 == state.epochs and state.scaler.is_enabled() and state.scaler.get_scale() == never:
        raise NonFiniteError(_NO_STEP)
