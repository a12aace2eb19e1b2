"""`fit`: one loop for every program and mapping. The four steps of the paper's Algorithm 1 stand in `_train_epoch`."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.data.load import DataSet, Split
from reprogram.data.splits import stratified_folds
from reprogram.errors import ReprogramError
from reprogram.files import read_tensors
from reprogram.images.views import Augment, centre_view, margin, random_views
from reprogram.mappings.base import LearnedMapping, Mapping
from reprogram.programs.base import Program
from reprogram.progress import Progress
from reprogram.randomness import generator
from reprogram.reprogrammed import Reprogrammed
from reprogram.statistics.base import Statistics
from reprogram.training.checkpoint import read_checkpoint, write_checkpoint
from reprogram.training.evaluation import Evaluation, accuracy_interval, autocast, choose_precision, evaluate
from reprogram.training.settings import Schedule, TrainingSettings


@dataclass(frozen=True)
class FitResult:
    """What a fit has found.

    Attributes:
        accuracy: test accuracy `last` (final epoch), `selected` (the epoch with the best validation accuracy; None without
            a validation set) and `best_on_test` (the maximum over epochs, the published protocol, an optimistic number).
        selected_epoch: the epoch that the model was left at, counted from 1.
        records: one dictionary per epoch, as in `metrics.jsonl`.
        test: the test predictions of the model as it was left.
        seconds: time of all epochs.
    """

    accuracy: dict[str, float | None]
    selected_epoch: int
    records: list[dict[str, Any]]
    test: Evaluation
    seconds: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the test accuracy of the model as it was left."""
        return accuracy_interval(self.test.correct, self.test.n)


def fit(
    model: Reprogrammed,
    data: DataSet,
    settings: TrainingSettings | None = None,
    *,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
    on_epoch: Callable[[list[dict[str, Any]], int], object] | None = None,
    **overrides: Any,
) -> FitResult:
    """Train the program and estimate the mapping, in place.

    Args:
        model: left at the epoch with the best validation accuracy, or at the last one without a validation set.
        data: its validation split is used to select the epoch; see `DataSet.with_validation`.
        settings: how to train; single settings may also be given by keyword: `fit(model, data, epochs=5)`.
        checkpoint: a file that is replaced after each epoch. If it exists, the fit continues from it, to the bit; it must
            have been made with the same settings, source model and data.
        progress: where to show progress; silent by default.
        on_epoch: called after each epoch with all records so far and the number of epochs to come to.
        **overrides: fields of `TrainingSettings`.
    """
    settings = TrainingSettings.read({**(settings or TrainingSettings()).model_dump(), **overrides})
    precision = choose_precision(model.device, settings.precision)
    settings = settings.model_copy(update={"augment": settings.augment or "none", "precision": precision})
    progress = progress or Progress()
    if model.classes != data.classes:
        raise ReprogramError(
            f"the model has the classes {', '.join(model.classes[:3])} ... ({len(model.classes)}), but the data "
            f"{', '.join(data.classes[:3])} ... ({len(data.classes)}); make the model with data.classes"
        )
    for name, size in pixel_sizes(model.program, settings.augment).items():  # decode first: bad files stop the fit early
        if (part := getattr(data, name)) is not None:
            part.pixels(size, model.program.interpolation, progress)
    run = _Run(model, settings, data.train.labels)
    # Prepared now or never: an evaluation in the middle must not change what a resumed fit does.
    model.accelerated = None
    passes = run.epochs * len(data.train) + len(data.test) + (0 if data.val is None else len(data.val))
    progress.say(f"network: {model.accelerate(passes)}")
    checkpoint = None if checkpoint is None else Path(checkpoint)
    origin = {"settings": settings.model_dump(), "source": model.frozen.fingerprint, "data": data.digest()}
    if checkpoint is not None and checkpoint.exists():
        run.restore(checkpoint, origin)
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False):
        _run_epochs(run, data, checkpoint, origin, progress, on_epoch)
        return run.finish(data.test, progress)


def pixel_sizes(program: Program, augment: Augment | None) -> dict[str, int]:
    """The side that each split's images are decoded to: training images leave room for random crops."""
    size = program.image_size
    return {"train": size + margin(augment or "none", size), "val": size, "test": size}


def _run_epochs(
    run: "_Run",
    data: DataSet,
    checkpoint: Path | None,
    origin: dict[str, Any],
    progress: Progress,
    on_epoch: Callable[[list[dict[str, Any]], int], object] | None,
) -> None:
    for epoch in range(len(run.records), run.epochs):
        started = time.perf_counter()
        change = _refresh_mapping(run, data.train, epoch, progress)
        outcome = _train_epoch(run, data.train, epoch, progress) if run.model.trainable else _NOTHING_TRAINED
        accuracy: dict[str, float | None] = {"train": outcome.accuracy}
        due = (epoch + 1) % run.settings.evaluate_every == 0 or epoch + 1 == run.epochs
        for name, split in (("val", data.val), ("test", data.test)):
            accuracy[name] = run.evaluate(split, progress, name).accuracy if due and split is not None else None
        run.records.append(
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
            run.keep_if_selected(accuracy["val"])
        if checkpoint is not None:
            run.store(checkpoint, origin)
        if on_epoch is not None:
            on_epoch(run.records, run.epochs)


def _refresh_mapping(run: "_Run", train: Split, epoch: int, progress: Progress) -> float | None:
    """Estimate ω from the statistics that the refresh schedule prescribes; return how much it changed."""
    mapping = run.model.mapping
    if mapping.statistics is None:
        return None
    if epoch == 0 or mapping.refresh == "fresh":
        run.gathered = gathered = run.empty_folds(mapping)
        with torch.inference_mode():
            order = torch.arange(len(train))
            for images, labels, indices in run.batches(train, order, progress, "estimating the mapping"):
                with autocast(run.model.device, run.settings.precision):
                    logits = run.model.source_logits(images)
                run.count(gathered, logits, labels, indices)
    elif mapping.refresh == "never" and not run.resumed:
        return 0.0
    run.resumed = False
    return mapping.estimate(*run.gathered)


@dataclass(frozen=True)
class _Outcome:
    loss: float | None
    accuracy: float | None
    images_per_second: float | None


_NOTHING_TRAINED = _Outcome(None, None, None)


def _train_epoch(run: "_Run", train: Split, epoch: int, progress: Progress) -> _Outcome:
    """One pass over the training set: Algorithm 1; with `reuse`, the outputs of step 1 also serve the next step 2."""
    model, settings, mapping = run.model, run.settings, run.model.mapping
    gathered = run.empty_folds(mapping) if mapping.statistics is not None and mapping.refresh == "reuse" else []
    losses: list[Tensor] = []
    hits: list[Tensor] = []
    order = torch.randperm(len(train), generator=generator(settings.seed, "order", epoch))
    started = _clock(model.device)
    views = generator(settings.seed, "augmentation", epoch)
    what = f"epoch {epoch + 1} of {run.epochs}"
    for step, (images, labels, indices) in enumerate(run.batches(train, order, progress, what, views)):
        run.set_learning_rate(epoch, step)
        with autocast(model.device, settings.precision):
            logits = model.source_logits(images)  # step 1: outputs of the frozen model under the program
        predicted = mapping(logits, run.fold_of(indices))  # step 3: target logits
        loss = F.cross_entropy(predicted, labels)
        run.step(loss)  # step 4: the program follows the gradient
        if gathered:
            run.count(gathered, logits.detach(), labels, indices)  # step 2 for the coming epoch: the mapping's statistics
        losses.append(loss.detach() * len(labels))  # read after the epoch, so that no step waits for its numbers
        hits.append((predicted.argmax(1) == labels).sum())
    seconds = _clock(model.device) - started
    run.gathered = gathered or run.gathered
    mean_loss = float(torch.stack(losses).cpu().double().sum()) / len(train)
    if not math.isfinite(mean_loss):
        raise ReprogramError(f"the loss became {mean_loss} in epoch {epoch + 1}; lower lr = {settings.lr:g} or use fp32")
    return _Outcome(mean_loss, int(torch.stack(hits).sum()) / len(train), round(len(train) / seconds, 2))


def _as_slice(indices: Tensor) -> Tensor | slice:
    """Consecutive indices as the slice that reads them without a copy."""
    first, count = int(indices[0]), len(indices)
    return slice(first, first + count) if torch.equal(indices, torch.arange(first, first + count)) else indices


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


def learning_rate_factor(schedule: Schedule, epoch: int, step: int, epochs: int, steps: int) -> float:
    """What the learning rate is multiplied by at a step of an epoch (both from 0).

    `multistep` drops to a tenth at epochs floor(0.5·E) and floor(0.72·E); `cosine` falls to 0 over all steps.

    >>> [learning_rate_factor("multistep", epoch, 0, 200, 10) for epoch in (99, 100, 143, 144)]
    [1.0, 0.1, 0.1, 0.01]
    """
    if schedule == "multistep":
        passed = sum(0 < milestone <= epoch for milestone in (epochs // 2, 18 * epochs // 25))
        return (1.0, 0.1, 0.01)[passed]
    if schedule == "cosine":
        return (1 + math.cos(math.pi * (epoch * steps + step) / (epochs * steps))) / 2
    return 1.0


@dataclass
class _Run:
    """The state of a fit: everything a checkpoint must hold, and the small acts of the loop."""

    model: Reprogrammed
    settings: TrainingSettings
    labels: Tensor
    records: list[dict[str, Any]] = field(default_factory=list)
    gathered: list[Statistics] = field(default_factory=list)
    resumed: bool = False
    selected: dict[str, Tensor] | None = None
    selected_epoch: int = 0

    def __post_init__(self) -> None:
        settings = self.settings
        theta = list(self.model.program.parameters())
        learned = list(self.model.mapping.parameters())
        self.epochs = settings.epochs if self.model.trainable else 1  # without a program there is nothing to repeat
        self.steps = math.ceil(len(self.labels) / settings.batch_size)
        self.folds = stratified_folds(self.labels, self.model.mapping.folds if theta else 0, settings.seed)
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        if theta and settings.optimizer == "adam":
            self.optimizers["program"] = torch.optim.Adam(theta, lr=settings.lr)
        elif theta:
            self.optimizers["program"] = torch.optim.SGD(theta, lr=settings.lr, momentum=0.9)
        if isinstance(self.model.mapping, LearnedMapping):
            self.optimizers["mapping"] = torch.optim.Adam(learned, lr=settings.mapping_lr)
        self.base_rates = {"program": settings.lr, "mapping": settings.mapping_lr}
        self.scaler = torch.amp.GradScaler(self.model.device.type, enabled=settings.precision == "fp16")

    def batches(
        self, train: Split, order: Tensor, progress: Progress, what: str, draw: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Training images in this order, with labels and indices; augmented where a generator is given, else as they are."""
        program, augment, device = self.model.program, self.settings.augment, self.model.device
        pixels = train.pixels(pixel_sizes(program, augment)["train"], program.interpolation)
        for indices in progress.track(order.split(self.settings.batch_size), what):
            images = pixels[_as_slice(indices)]
            if draw is None:
                images = centre_view(images, program.image_size)
            else:
                images = random_views(images, program.image_size, augment or "none", draw)
            yield images.to(device, non_blocking=True), train.labels[indices].to(device, non_blocking=True), indices

    def empty_folds(self, mapping: Mapping) -> list[Statistics]:
        """One set of empty statistics for each fold, or a single one."""
        return [mapping.new_statistics() for _ in range(1 if self.folds is None else int(self.folds.max()) + 1)]

    def fold_of(self, indices: Tensor) -> Tensor | None:
        """The folds of these training samples, if there are any."""
        return None if self.folds is None else self.folds[indices]

    def count(self, gathered: list[Statistics], logits: Tensor, labels: Tensor, indices: Tensor) -> None:
        """Add a batch to the statistics of its folds."""
        for fold, statistics in enumerate(gathered):
            if self.folds is None:
                statistics.update(logits, labels)
            else:
                chosen = (self.folds[indices] == fold).nonzero().flatten().to(logits.device)
                statistics.update(logits[chosen], labels[chosen])

    def set_learning_rate(self, epoch: int, step: int) -> None:
        factor = learning_rate_factor(self.settings.schedule, epoch, step, self.epochs, self.steps)
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self.base_rates[name] * factor

    def step(self, loss: Tensor) -> None:
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        for optimizer in self.optimizers.values():
            self.scaler.step(optimizer)
        self.scaler.update()

    def evaluate(self, split: Split, progress: Progress, name: str) -> Evaluation:
        size, precision = self.settings.batch_size, self.settings.precision
        return evaluate(
            self.model, split, batch_size=size, precision=precision, progress=progress, what=f"testing on {name}"
        )

    def keep_if_selected(self, accuracy: float | None) -> None:
        """Remember this epoch if it is the best on validation so far; the earliest wins among equals."""
        earlier = [record["accuracy"]["val"] for record in self.records[:-1] if record["accuracy"]["val"] is not None]
        if accuracy is None or not earlier or accuracy > max(earlier):
            self.selected = {key: tensor.detach().clone() for key, tensor in self.model.state_dict().items()}
            self.selected_epoch = len(self.records)

    def finish(self, test: Split, progress: Progress) -> FitResult:
        scores = [record["accuracy"]["test"] for record in self.records]
        tested = [score for score in scores if score is not None]
        validated = self.records[-1]["accuracy"]["val"] is not None
        assert self.selected is not None
        self.model.load_state_dict(self.selected)
        accuracy = {
            "last": scores[-1],
            "selected": scores[self.selected_epoch - 1] if validated else None,
            "best_on_test": max(tested),
        }
        seconds = sum(record["seconds"] for record in self.records)
        return FitResult(accuracy, self.selected_epoch, self.records, self.evaluate(test, progress, "test"), seconds)

    def store(self, path: Path, origin: dict[str, Any]) -> None:
        tensors = {f"model/{key}": tensor for key, tensor in self.model.state_dict().items()}
        tensors |= {f"selected/{key}": tensor for key, tensor in (self.selected or {}).items()}
        for fold, statistics in enumerate(self.gathered):
            tensors |= {f"gathered {fold}/{key}": tensor for key, tensor in statistics.state_dict().items()}
        header = {
            "origin": origin,
            "records": self.records,
            "selected_epoch": self.selected_epoch,
            "scaler": self.scaler.state_dict(),
        }
        write_checkpoint(path, tensors, self.optimizers, header)

    def restore(self, path: Path, origin: dict[str, Any]) -> None:
        found = read_tensors(path, "checkpoint")[1].get("origin", {})
        for what, value in origin.items():
            if found.get(what) != value:
                raise ReprogramError(
                    f"checkpoint {str(path)!r} was made with other {what}; continue it as it was, or start anew elsewhere"
                )
        tensors, header = read_checkpoint(path, self.optimizers)

        def part(name: str) -> dict[str, Tensor]:
            return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}

        self.model.load_state_dict(part("model"))
        self.selected = part("selected")
        self.selected_epoch = header["selected_epoch"]
        self.records = header["records"]
        if header["scaler"]:
            self.scaler.load_state_dict(header["scaler"])
        if self.model.mapping.statistics is not None:
            self.gathered, self.resumed = self.empty_folds(self.model.mapping), self.folds is not None
            for fold, statistics in enumerate(self.gathered):
                statistics.load_state_dict(part(f"gathered {fold}"))
