"""What a run does one after the other: the images unchanged, then a program if one was named or if its training pays."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from reprogram.data.dataset import DataSet
from reprogram.errors import ReprogramError
from reprogram.mappings.registry import AUTO
from reprogram.mappings.selection import Selection
from reprogram.programs.base import Program
from reprogram.progress import Progress
from reprogram.ranks import Told
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import Prepared, build, decoding_of, with_chosen_mapping
from reprogram.run.config import FitConfig
from reprogram.run.defaults import with_mapping
from reprogram.run.first import FirstAnswer, continued, duration, first_answer, origin_of
from reprogram.sources.frozen import Frozen
from reprogram.training.loop import fit
from reprogram.training.result import Diverged, FitResult
from reprogram.training.stopping import enough_after

#: Epochs that a trial of training goes on without a better validation accuracy than any before, where nothing is said.
PATIENCE = 2
#: How rarely chance alone may keep a program.
_CHANCE = 0.05
_TRAINING_COST = 3.0  # a training step takes about as long as so many passes of its images through the model


class Book:
    """Where a run writes down what it has found, and finds what it wrote before; this one keeps nothing.

    Attributes:
        checkpoint: the file that a training continues from.
    """

    checkpoint: Path | None = None

    def write_config(self, config: FitConfig) -> None:
        """Everything decided so far."""

    def write_selection(self, selection: Selection) -> None:
        """How the mapping was chosen."""

    def write_records(self, records: list[dict[str, Any]]) -> None:
        """All epochs so far."""

    def write_program(self, epoch: int, program: Program) -> None:
        """What the program looks like after an epoch."""

    def catch_up(self, program: Program) -> None:
        """Write what `write_program` was kept from by a kill; `program` is of the kind that is trained."""

    def write_first(self, first: FirstAnswer, *, usable: bool) -> FirstAnswer:
        """The first answer, and where it is `usable` its model; returns it as `read_first` will give it, and its model."""
        return first

    def read_first(self) -> FirstAnswer | None:
        """The first answer of an earlier process."""
        return None

    def first_model(self, first: FirstAnswer, frozen: Frozen) -> Reprogrammed | None:
        """The model of that answer, if it is still there."""
        return None

    def first_artefact(self, first: FirstAnswer) -> Told | None:
        """What it is made of: the content and the tensors of an artefact."""
        return None


def carry_out(prepared: Prepared, book: Book, progress: Progress) -> FitResult:
    """Do what the configuration says.

    Under the paper's protocol, and for mappings that are trained themselves, that is one training. Otherwise the images
    unchanged come first. Program `none` ends there; `auto` tries to train a program, and keeps it if it pays; another
    program is trained and kept in any case.

    Raises:
        Diverged: a training that was asked for cannot go on.
    """
    config = prepared.config
    progress.say(describe_task(prepared.model, prepared.data))
    counted_otherwise = config.views > 1 or config.shots == 0  # by several views of each image, or by none
    if config.protocol == "paper" or prepared.model.mapping.learned or counted_otherwise:
        return _trained(prepared, book, progress)
    if config.program not in (AUTO, "none"):
        first = _first(prepared, book, progress, usable=False)
        try:
            result = _trained(replace(prepared, known=first.known), book, progress, first)
        except Diverged as error:
            error.result = error.result and replace(error.result, steps=(first.step, *error.result.steps))
            raise
        return replace(result, steps=(first.step, *result.steps))
    first = _first(prepared, book, progress, usable=True)
    if config.mapping == AUTO:
        config = with_mapping(config, first.candidate.mapping, first.candidate.settings)
        book.write_config(config)
    if config.program == "none":
        return _untrained(first, prepared, book, progress)
    model = build(config, prepared.model.frozen, prepared.data)
    return _tried(replace(prepared, config=config, model=model, known=first.known), first, book, progress)


def _first(prepared: Prepared, book: Book, progress: Progress, *, usable: bool) -> FirstAnswer:
    """The first answer, made now or before, and told."""
    config, frozen, data = prepared.config, prepared.model.frozen, prepared.data
    first = book.read_first()
    if first is not None:
        for name, value in origin_of(frozen, data).items():
            if first.origin.get(name) != value:
                raise ReprogramError(f"the run was made with other {name}; continue it as it was, or start anew elsewhere")
        progress.say(f"{first}; made before")
        return first
    first = first_answer(config, frozen, data, progress, test=usable, ranks=prepared.ranks)
    if usable and first.selection is not None:
        book.write_selection(first.selection)
    if first.selection is not None:
        progress.say(f"chosen {first.selection}")
    progress.say(f"{first}; in {duration(first.record['seconds'])}")
    first = book.write_first(replace(first, spent=spent_seconds(prepared)), usable=usable)
    if usable:
        book.write_records([first.record])
    return first


def _untrained(
    first: FirstAnswer, prepared: Prepared, book: Book, progress: Progress, *more: dict[str, Any], steps: Any = ()
) -> FitResult:
    """The result where the images stay unchanged; `more` epochs were tried and not kept, and `steps` tell of them."""
    if first.model is None or first.test is None:
        frozen, data = prepared.model.frozen, prepared.data
        model = book.first_model(first, frozen)
        if model is None:  # it was lost: the same once more
            made = first_answer(prepared.config, frozen, data, progress, test=True, ranks=prepared.ranks)
            first = replace(first, model=made.model, test=made.test)
        else:
            model = model.to(prepared.model.device)
            model.precision = prepared.model.precision  # which artefacts did not always say
            first = continued(first, model, data, prepared.config, progress, prepared.ranks)
    assert first.model is not None
    assert first.test is not None
    told = [{**first.step, "kept": True}, *steps]
    return replace(_result([first.record, *more], 0, first.model, first.test, told), notes=first.notes)


def _result(records: list[dict[str, Any]], selected: int, model: Reprogrammed, test: Any, steps: Any) -> FitResult:
    """A result whose records begin with epoch 0."""
    scores = [record["accuracy"]["test"] for record in records]
    accuracy = {
        "last": scores[-1],
        "selected": None if records[0]["accuracy"]["val"] is None else scores[selected],
        "best_on_test": max(score for score in scores if score is not None),
    }
    seconds = sum(record["seconds"] for record in records)
    return FitResult(model, accuracy, selected, records, test, seconds, steps=tuple(steps))


def _tried(prepared: Prepared, first: FirstAnswer, book: Book, progress: Progress) -> FitResult:
    """Train a program and keep it if it pays."""
    config, data, name = prepared.config, prepared.data, prepared.model.program.name
    reason, remedy = _no_trial(first, _patience(config)), ""
    if reason is None and not prepared.model.mapping.settings.smooth:
        reason = f"mapping {first.candidate} changes in steps alone, which no gradient sees"
    if reason is None and _out_of_time(prepared, first, book):
        reason, remedy = f"the time is up (minutes = {config.minutes:g})", "; with epochs = 20, say, it goes on all the same"
    if reason is not None:
        progress.say(f"no program is trained: {reason}{remedy}")
        return _untrained(first, prepared, book, progress, steps=[{"program": name, "kept": False, "told": reason}])
    assert data.val is not None
    others = (len(data.val) + len(data.test)) / first.images_per_second
    each = _TRAINING_COST * len(data.train) / first.images_per_second + others
    in_any_case = f"{config.epochs} in any case" + ("" if config.minutes is None else f", or {config.minutes:g} minutes")
    progress.say(
        f"a {name} is trained now, to see whether it pays: about {duration(each)} an epoch; {_patience(config)} epochs "
        f"without a gain on validation end it, {in_any_case}; what was found so far can be used already"
    )
    try:
        result = _trained(prepared, book, progress, first, trial=True)
    except Diverged as error:
        told = f"the training of a {name} was given up: {str(error).partition('; ')[0]}"
        progress.say(told)
        done = error.result.records if error.result is not None else []
        step = {"program": name, "kept": False, "told": told}
        return _untrained(first, prepared, book, progress, *done, steps=[step])
    assert first.right is not None
    assert result.right is not None
    looks = sum(record["accuracy"]["val"] is not None for record in result.records)
    gain = Gain.of(first.right, result.right, looks)
    told = f"a trained {name}: {gain}: {'kept' if gain.pays else 'not kept'}"
    progress.say(f"{told}; in {duration(result.seconds)}")
    step = {"program": name, **gain.to_json(), "seconds": result.seconds, "kept": gain.pays, "told": told}
    if not gain.pays:
        return _untrained(first, prepared, book, progress, *result.records, steps=[step])
    steps = [{**first.step, "kept": False}, step]
    return _result([first.record, *result.records], result.selected_epoch, result.model, result.test, steps)


def write_planned(prepared: Prepared, book: Book, epochs: int) -> None:
    """Write the configuration of a training by the clock, whose number of epochs is known now that it has begun."""
    if prepared.config.minutes is not None and prepared.model.trainable:
        book.write_config(prepared.config.model_copy(update={"epochs": epochs}))


def spent_seconds(prepared: Prepared, first: FirstAnswer | None = None) -> float:
    """Seconds of the run so far, those of its first answer also where an earlier process made it."""
    before: float = 0.0 if first is None else first.spent
    here = max(before, time.monotonic() - prepared.started)
    spent, _ = prepared.ranks.told(lambda: (here, {}))  # no two clocks agree, but all must do the same
    return float(spent)


def _out_of_time(prepared: Prepared, first: FirstAnswer, book: Book) -> bool:
    """Whether the minutes were used up before a training could begin; one that has begun goes on, however long to load.

    By what the first answer has stored, so that every process which goes on decides alike.
    """
    minutes = prepared.config.minutes
    begun, _ = prepared.ranks.told(lambda: (book.checkpoint is not None and book.checkpoint.exists(), {}))
    return minutes is not None and not begun and first.spent >= 60 * minutes


def _trained(
    prepared: Prepared, book: Book, progress: Progress, first: FirstAnswer | None = None, *, trial: bool = False
) -> FitResult:
    """A training, for as long as it was asked for; a trial, for as long as it brings more than the first answer."""
    prepared = with_chosen_mapping(prepared, progress)
    if prepared.selection is not None:
        book.write_selection(prepared.selection)
        book.write_config(prepared.config)
        progress.say(f"chosen {prepared.selection}")
    progress.say(describe_program(prepared.model))
    before = [first.record] if trial and first is not None else []
    book.catch_up(prepared.model.program)

    def on_epoch(records: list[dict[str, Any]], epochs: int) -> None:
        book.write_program(len(records), prepared.model.program)  # before the epoch is told
        book.write_records([*before, *records])
        progress.say(epoch_line(records[-1], epochs))

    return fit(
        prepared.model,
        prepared.data,
        prepared.config.training(),
        checkpoint=book.checkpoint,
        decoding=decoding_of(prepared.config, prepared.ranks),
        progress=progress,
        known=prepared.known,
        ranks=prepared.ranks,
        on_epoch=on_epoch,
        on_plan=lambda epochs: write_planned(prepared, book, epochs),
        spent=spent_seconds(prepared, first),
        enough=enough_after(_patience(prepared.config), before[0]["accuracy"]["val"]) if before else None,
    )


def _patience(config: FitConfig) -> int:
    return config.patience or PATIENCE


def _no_trial(first: FirstAnswer, patience: int) -> str | None:
    """Why no training could be shown to pay, if so."""
    if first.right is None:
        return "there are no validation images to judge it by (--val-fraction)"
    wrong = first.validation.n - first.validation.correct
    if Gain(wrong, 0, first.validation.n, patience).pays:
        return None
    return f"{wrong} of {first.validation.n} validation images are wrong, too few to show that it pays"


@dataclass(frozen=True)
class Gain:
    """What a program has changed on validation images, image by image.

    Attributes:
        better: images that were wrong before and are right.
        worse: images that were right before and are wrong.
        n: images in all.
        looks: epochs that the best was chosen of.

    >>> print(Gain(3, 2, 100, 3))
    +1.0 points on 100 validation images (3 better, 2 worse; not beyond chance)
    """

    better: int
    worse: int
    n: int
    looks: int

    @classmethod
    def of(cls, before: Tensor, after: Tensor, looks: int) -> "Gain":
        """From which images were right and which are."""
        return cls(int((~before & after).sum()), int((before & ~after).sum()), len(before), looks)

    @property
    def chance(self) -> float:
        """The exact one-sided McNemar test: how probable as many better ones are if better and worse are equally likely.

        It is multiplied by the number of looks (Bonferroni), as the best epoch was chosen on the same images: a gain of
        4.5 points that this refuses was a loss of 4.5 on test.

        >>> Gain(6, 0, 90, 1).chance, Gain(6, 0, 90, 3).pays, Gain(5, 0, 90, 3).pays
        (0.015625, True, False)
        """
        changed = self.better + self.worse
        ways: int = sum(math.comb(changed, count) for count in range(self.better, changed + 1))
        return min(1.0, self.looks * (ways / (1 << changed)))

    @property
    def pays(self) -> bool:
        """Whether the gain is beyond chance."""
        return self.chance <= _CHANCE

    def __str__(self) -> str:
        points = 100 * (self.better - self.worse) / max(self.n, 1)
        beyond = "beyond chance" if self.pays else "not beyond chance"
        return f"{points:+.1f} points on {self.n} validation images ({self.better} better, {self.worse} worse; {beyond})"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        names = ("better", "worse", "n", "looks", "chance")
        return {"gain": (self.better - self.worse) / max(self.n, 1), **{name: getattr(self, name) for name in names}}


def describe_task(model: Reprogrammed, data: DataSet) -> str:
    """Which model learns what, in one line."""
    val = f" / {len(data.val)} val" if data.val is not None else ""
    grouped = [f"{len(set(split.groups))} {name}" for name, split in data.splits.items() if split.groups is not None]
    inside = f", groups: {' / '.join(grouped)}" if grouped else ""
    return (
        f"{model.frozen.name} ({model.frozen.k_source} labels) -> {data.name} ({data.k_target} classes, "
        f"{len(data.train)} train{val} / {len(data.test)} test images{inside})"
    )


def describe_program(model: Reprogrammed) -> str:
    """What is trained, in one line."""
    program, canvas = model.program, model.program.canvas
    inside = (
        f" ({program.image_size} px image on a {canvas} px canvas)" if program.image_size < canvas else f" ({canvas} px)"
    )
    return (
        f"program {program.name}{inside}, mapping {model.mapping.name}, on {model.device}: "
        f"{trainable(model):,} trainable and {model.frozen.parameter_count:,} frozen parameters"
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


def trainable(model: Reprogrammed) -> int:
    """How many numbers a gradient may change."""
    return sum(parameter.numel() for parameter in model.parameters())
