"""The state of a fit: everything a checkpoint must hold, and the small acts of the loop."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.data.dataset import DataSet, Split
from reprogram.data.decode import Decoding
from reprogram.data.splits import stratified_folds
from reprogram.errors import ReprogramError
from reprogram.files import fitting
from reprogram.images.settings import Augment
from reprogram.images.views import centre_view, margin, random_views
from reprogram.mappings.neighbours import MOST_FITTED, MOST_MEASURED, missing_groups, spread_places
from reprogram.programs.base import Program
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks, Share
from reprogram.reprogrammed import Reprogrammed
from reprogram.statistics.base import Statistics
from reprogram.training.average import Average
from reprogram.training.certainty import certify
from reprogram.training.checkpoint import REMEDY, fill_optimizers, part, read_checkpoint, write_checkpoint
from reprogram.training.evaluation import Evaluation, Glimpse, evaluate
from reprogram.training.kept import KeptLogits, conditions
from reprogram.training.loss_temperature import LossTemperature
from reprogram.training.result import FitResult
from reprogram.training.schedules import learning_rate_factor
from reprogram.training.seen import Seen
from reprogram.training.settings import TrainingSettings

#: Images whose outputs wait until they are counted, and logits of these at the most.
_TOGETHER, _MOST_LOGITS = 1024, 2**23


def counted_together(k_source: int) -> int:
    """So many images' outputs, or one batch's, are checked, ranked and counted at once.

    Each look at numbers makes a GPU wait, and a CPU's threads for each other; a Gaussian's sums are k_S × k_S to go through.
    """
    return min(_TOGETHER, _MOST_LOGITS // k_source)


def pixel_sizes(program: Program, augment: Augment) -> dict[str, int]:
    """The side that each split's images are decoded to: training images leave room for random crops."""
    size = program.image_size
    return {"train": size + margin(augment, size), "val": size, "test": size}


def _as_slice(indices: Tensor) -> Tensor | slice:
    """Consecutive indices as the slice that reads them without a copy."""
    first, count = int(indices[0]), len(indices)
    return slice(first, first + count) if torch.equal(indices, torch.arange(first, first + count)) else indices


@dataclass
class FitState:
    """The state of a fit: everything a checkpoint must hold, and the small acts of the loop."""

    model: Reprogrammed
    settings: TrainingSettings
    labels: Tensor
    records: list[dict[str, Any]] = field(default_factory=list)
    gathered: list[Statistics] = field(default_factory=list)
    skipped: tuple[str, ...] = ()
    selected: dict[str, Tensor] | None = None
    selected_epoch: int = 0
    groups: Tensor | None = None
    kept: list[Tensor] = field(default_factory=list)
    kept_logits: KeptLogits | None = None
    known: KeptLogits | None = None
    spent: float = 0.0
    seen: dict[str, Seen] = field(default_factory=dict)
    selected_seen: dict[str, Seen] = field(default_factory=dict)
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        settings = self.settings
        theta, learned = self.model.trained()
        self.epochs = settings.epochs if self.model.trainable else 1  # without a program there is nothing to repeat
        self.steps = math.ceil(len(self.labels) / settings.batch_size)
        folds = self.model.mapping.folds if theta else 0
        self.folds = stratified_folds(self.labels, folds, settings.seed, self.groups)
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        if theta and settings.optimizer == "adam":
            self.optimizers["program"] = torch.optim.Adam(theta, lr=settings.lr)
        elif theta:
            self.optimizers["program"] = torch.optim.SGD(theta, lr=settings.lr, momentum=0.9)
        if learned:
            self.optimizers["mapping"] = torch.optim.Adam(learned, lr=settings.mapping_lr)
        self.base_rates = {"program": settings.lr, "mapping": settings.mapping_lr}
        self._uncounted: list[tuple[Tensor, Tensor, Tensor]] = []
        self.scaler = torch.amp.GradScaler(self.model.device.type, enabled=settings.precision == "fp16")
        learns_scale = settings.loss_temperature == "auto" and self.model.mapping.learned
        self.temperature = LossTemperature("none" if learns_scale else settings.loss_temperature)
        averaged = dict(self.model.named_parameters()) if settings.average and self.model.trainable else None
        self.average = None if averaged is None else Average(averaged, settings.average * self.steps)

    def batches(
        self, train: Split, order: Tensor, progress: Progress, what: str, draw: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Share]]:
        """Training images in this order, with labels and indices; augmented where a generator is given, else as they are.

        Those that are augmented are trained with: of each batch, a process has its share. Where the logits of the images
        are kept, as they never change, these come instead; see `source_logits`.
        """
        program, augment, device = self.model.program, self.settings.augment, self.model.device
        pixels = train.pixels(pixel_sizes(program, augment)["train"], program.interpolation)
        for indices in progress.track(order.split(self.settings.batch_size) if len(order) else (), what):
            share = ALONE.share(len(indices)) if draw is None else self.ranks.share(len(indices))
            if self.kept_logits is not None and draw is not None:
                images = self.kept_logits.rows(indices[share.rows])
            elif draw is None:
                images = centre_view(pixels[_as_slice(indices)], program.image_size)
            else:
                # drawn for the whole batch, so that an image looks the same whoever has it
                images = random_views(pixels[_as_slice(indices)], program.image_size, augment, draw)[share.rows]
            own = indices[share.rows]
            yield images.to(device, non_blocking=True), train.labels[own].to(device, non_blocking=True), own, share

    def source_logits(self, images: Tensor) -> Tensor:
        """Those of training images that `batches` has given, which may be logits already."""
        if self.kept_logits is not None:
            return images
        return self.model.source_logits(images, self.settings.precision)

    def new_statistics(self) -> list[Statistics]:
        """One set of empty statistics for each fold, or a single one."""
        return [self.model.mapping.new_statistics() for _ in range(1 if self.folds is None else int(self.folds.max()) + 1)]

    def fold_of(self, indices: Tensor) -> Tensor | None:
        """The folds of these training samples, if there are any."""
        return None if self.folds is None else self.folds[indices]

    def count(self, gathered: list[Statistics], logits: Tensor, labels: Tensor, indices: Tensor) -> None:
        """Add a batch to the statistics of its folds, together with those before and after it."""
        self._uncounted.append((logits, labels, indices))
        if sum(len(rows) for _, rows, _ in self._uncounted) >= counted_together(logits.shape[1]):
            self.count_all(gathered)

    def count_all(self, gathered: list[Statistics]) -> None:
        """Add the batches that wait to be counted."""
        if self._uncounted:
            together = [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*self._uncounted, strict=True)]
            self._uncounted = []
            with self.ranks.held():
                self._count(gathered, *together)

    def _count(self, gathered: list[Statistics], logits: Tensor, labels: Tensor, indices: Tensor) -> None:
        probabilities = self.model.frozen.log_probabilities
        for fold, statistics in enumerate(gathered):
            if self.folds is None:
                statistics.update(logits, labels, log_probabilities=probabilities)
            else:
                chosen = (self.folds[indices] == fold).nonzero().flatten().to(logits.device)
                statistics.update(logits[chosen], labels[chosen], log_probabilities=probabilities)

    def set_learning_rate(self, epoch: int, step: int) -> None:
        """Follow the schedule."""
        factor = learning_rate_factor(self.settings.schedule, epoch, step, self.epochs, self.steps)
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self.base_rates[name] * factor

    def begin_pass(self, train: Split) -> Tensor:
        """Which training images this process counts; nothing is counted yet."""
        self.gathered = self.new_statistics()
        return torch.arange(len(train))[self.ranks.rows(len(train), self.settings.batch_size)]

    def known_logits(self, train: Split) -> KeptLogits | None:
        """The logits that a pass over the training images would give now, where an earlier one has given the same."""
        settings, sizes = self.settings, pixel_sizes(self.model.program, self.settings.augment)
        if self.known is None:
            return None
        how: dict[str, Any] = {"batch_size": settings.batch_size, "precision": settings.precision}
        return self.known if self.known.serves(conditions(self.model, train, pixels=sizes["train"], **how)) else None

    def let_go(self) -> None:
        """Of what an earlier pass has given: it has served, or never will."""
        if self.known is not None:
            self.known.drop()
        self.known = None

    def end_pass(self) -> None:
        """Make whole what the processes have counted and kept."""
        self.count_all(self.gathered)
        self.ranks.settle()
        self.summed(self.gathered)
        if self._compares:
            found = self.ranks.gather(self.kept, torch.empty(0, self.model.frozen.k_source))
            self.kept = [found] if len(found) else []
        if self.kept_logits is not None:
            self.kept_logits.complete(self.ranks)

    def summed(self, gathered: list[Statistics]) -> list[Statistics]:
        """These statistics, of all processes."""
        for statistics in gathered:
            self.ranks.sum_statistics(statistics)
        return gathered

    def align(self) -> None:
        """Let all processes have the same θ and ω, to the bit."""
        moving = [] if self.average is None else self.average.moving.values()
        self.ranks.align([*self.model.parameters(), *self.model.mapping.buffers(recurse=False), *moving])

    def loss(self, scores: Tensor, labels: Tensor, share: Share) -> Tensor:
        """The cross-entropy of target logits (N, k_T), at the temperature of the loss, which all processes see alike."""
        if self.temperature.looks:
            own = scores.detach()[: share.count], labels[: share.count]
            self.temperature.look(*(self.ranks.gather([part], part[:0]) for part in own))
        return F.cross_entropy(self.temperature(scores), labels)

    def begin_epoch(self) -> None:
        """From here on, steps are made, and what was seen under another program says nothing."""
        if self.model.moves:
            self.seen = {}
        if self.average is not None:
            self.average.begin()

    def end_epoch(self) -> None:
        """From here on, the model is looked at."""
        self.temperature.end_epoch()
        if self.average is not None:
            self.average.end()

    def step(self, loss: Tensor, share: Share) -> None:
        """Let the program, and a learned mapping, follow the gradient of the loss over the whole batch."""
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss * share.weight).backward()
        for optimizer in self.optimizers.values():
            self.ranks.sum_gradients(tensor for group in optimizer.param_groups for tensor in group["params"])
        for optimizer in self.optimizers.values():
            self.scaler.step(optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.take()

    @property
    def _compares(self) -> bool:
        """Whether the test images are compared with the training images, as these stay as they are."""
        return not self.model.trainable and self.groups is None

    def remember(self, logits: Tensor, indices: Tensor) -> None:
        """Keep the logits of some training images, to compare the test images with."""
        if self._compares:
            chosen = torch.isin(indices, spread_places(len(self.labels), MOST_FITTED))
            self.kept.append(logits[chosen.to(logits.device)].float().cpu())

    def evaluate(
        self, split: Split, progress: Progress, name: str, watch: Callable[[Tensor], object] | None = None
    ) -> Evaluation:
        """Classify a split, decoded already, as it is run in training; by logits that were seen before, if there are."""
        before = self.seen[name].logits() if name in self.seen else None
        if before is None:
            self.seen[name] = Seen(len(split), self.model.frozen.k_source)

        def watching(logits: Tensor) -> None:
            if before is None:
                self.seen[name](logits)
            if watch is not None:
                watch(logits)

        return evaluate(
            self.model,
            split,
            batch_size=self.settings.batch_size,
            precision=self.settings.precision,
            decoding=Decoding(cache=False),
            progress=progress,
            what=f"testing on {name}",
            watch=watching,
            known=before,
            ranks=self.ranks,
        )

    def keep_if_selected(self, accuracy: float | None) -> None:
        """Remember this epoch if it is the best on validation so far; the earliest wins among equals."""
        earlier = [record["accuracy"]["val"] for record in self.records[:-1] if record["accuracy"]["val"] is not None]
        if accuracy is None or not earlier or accuracy > max(earlier):
            self.selected = {key: tensor.detach().clone() for key, tensor in self.model.state_dict().items()}
            self.selected_epoch = len(self.records)
            self.selected_seen = dict(self.seen)

    def finish(self, data: DataSet, progress: Progress) -> FitResult:
        """Leave the model at the selected epoch, and measure it there: how sure it may be, and on the test images."""
        scores = [record["accuracy"]["test"] for record in self.records]
        tested = [score for score in scores if score is not None]
        validated = any(record["accuracy"]["val"] is not None for record in self.records)
        assert self.selected is not None
        self.model.load_state_dict(self.selected)
        accuracy = {
            "last": scores[-1],
            "selected": scores[self.selected_epoch - 1] if validated else None,
            "best_on_test": max(tested, default=None),
        }
        seconds = sum(record["seconds"] for record in self.records)
        sizes = pixel_sizes(self.model.program, self.settings.augment)
        self.seen = self.selected_seen if self.model.moves else self.seen
        checked = self.evaluate(data.val, progress, "val") if data.val is not None else None
        held = self.seen["val"].logits(torch.float32) if checked is not None else None
        if held is not None:
            held = self.ranks.gather([held], held[:0])
        certify(self.model, data, sizes, self.settings, self.kept_logits, held, progress, self.ranks)
        self.kept_logits = None
        watch = Glimpse(len(data.test), self.settings.batch_size, MOST_MEASURED) if self.kept else None
        outcome = self.evaluate(data.test, progress, "test", watch)
        seen = None if watch is None else watch.logits(self.ranks, self.model.frozen.k_source)
        hint = None if seen is None else missing_groups(torch.cat(self.kept), seen, "test images")
        notes = () if hint is None else (hint,)
        right = None if checked is None else checked.labels == checked.predicted
        found = (self.records, outcome, seconds, self.skipped, notes)
        return FitResult(self.model, accuracy, self.selected_epoch, *found, right=right)

    def store(self, path: Path, origin: dict[str, Any]) -> None:
        """Write the checkpoint."""
        tensors = {f"model/{key}": tensor for key, tensor in self.model.state_dict().items()}
        tensors |= {f"selected/{key}": tensor for key, tensor in (self.selected or {}).items()}
        for fold, statistics in enumerate(self.gathered):
            tensors |= {f"gathered {fold}/{key}": tensor for key, tensor in statistics.state_dict().items()}
        if self.average is not None:
            tensors |= {f"moving/{key}": tensor for key, tensor in self.average.moving.items()}
        header = {
            "origin": origin,
            "records": self.records,
            "selected_epoch": self.selected_epoch,
            "scaler": self.scaler.state_dict(),
            "loss_temperature": self.temperature.measured,
            "planned": None if self.settings.minutes is None else self.epochs,
            "spent": 0.0 if self.settings.minutes is None else self.spent,
        }
        write_checkpoint(path, tensors, self.optimizers, header)

    def restore(self, path: Path, origin: dict[str, Any]) -> None:
        """Continue from a checkpoint, if that has the same origin and no more epochs."""
        header, tensors = self.ranks.told(lambda: read_checkpoint(path)[::-1])
        what = f"checkpoint {str(path)!r}"
        for name, value in origin.items():
            if header["origin"].get(name) != value:
                raise ReprogramError(
                    f"{what} was made with {_difference(name, header['origin'].get(name), value)}; "
                    "continue it as it was, or start anew elsewhere"
                )
        if self.settings.minutes is not None and header.get("planned") is not None:
            self.epochs = header["planned"]  # as it was decided when it began
            self.spent = header.get("spent", self.spent)
        most, done = self.settings.epochs if self.model.trainable else 1, max(len(header["records"]), self.epochs)
        if done > min(most, self.epochs):
            raise ReprogramError(
                f"{what} has {done} epochs, but epochs = {min(most, self.epochs)} was given; "
                "give as many or more, or start anew elsewhere"
            )
        model, mapping = self.model, self.model.mapping
        state = model.state_dict()
        chosen = part(tensors, "selected")
        self.gathered = self.new_statistics() if mapping.statistics is not None else []
        counted = {fold: part(tensors, f"gathered {fold}") for fold in range(len(self.gathered))}
        for fold, statistics in enumerate(self.gathered):  # all is checked before anything is changed
            fitting(counted[fold], statistics.state_dict(), what, REMEDY)
        fitting(part(tensors, "model"), state, what, REMEDY)
        self.selected = fitting(chosen, state, what, REMEDY) if chosen or header["selected_epoch"] else None
        if self.average is not None:
            like = {key: tensor.detach() for key, tensor in model.named_parameters()}
            self.average.moving = fitting(part(tensors, "moving"), like, what, REMEDY)
            self.average.taken = len(header["records"]) * self.steps
        fill_optimizers(tensors, self.optimizers, what)
        model.load_state_dict(part(tensors, "model"))
        self.selected_epoch, self.records = header["selected_epoch"], header["records"]
        self.temperature.measured = header["loss_temperature"]
        if self.scaler.is_enabled() and header["scaler"]:
            self.scaler.load_state_dict(self.scaler.state_dict() | _scale(header["scaler"], what))
        for fold, statistics in enumerate(self.gathered):
            statistics.load_state_dict(counted[fold])
        # the mappings without each fold are made of them, and are not stored
        if self.gathered and mapping.refresh in ("never", "after"):
            mapping.estimate(*self.gathered)


def _scale(stored: dict[str, float], what: str) -> dict[str, float]:
    """The two numbers by which fp16 training keeps its gradients in range."""
    scale, steps = stored.get("scale", 0.0), stored.get("_growth_tracker", -1)
    if scale <= 0 or steps < 0 or steps != int(steps):
        raise ReprogramError(f"{what} has the gradient scale {scale:g} after {steps} steps, which cannot be; {REMEDY}")
    return {"scale": scale, "_growth_tracker": int(steps)}


def _difference(what: str, before: Any, now: Any) -> str:
    """What two descriptions differ in, in a few words."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in (*before, *now):
            if before.get(name) != now.get(name):
                return f"{what} {name} = {before.get(name)!r}, but now it is {now.get(name)!r}"
    return f"other {what}"
