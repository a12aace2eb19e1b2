"""The summary of a run in plain words: what was done, what came out, what it cost, what the mapping says."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reprogram.report.names import counted, listed, percent, quoted, shown, synonym
from reprogram.report.outline import Outline, held_out, mapping_summary
from reprogram.run.first import duration
from reprogram.run.record import RunRecord

_SHARES = ("blm", "blm+")
_ONE_TO_ONE = ("rlm", "flm", "ilm")
_CLASSES_NAMED = 4


@dataclass(frozen=True)
class Sentence:
    """A sentence of the summary; `timed` ones tell how long something took, so that they differ from run to run."""

    text: str
    timed: bool = False


@dataclass(frozen=True)
class Passage:
    """A heading and what stands under it."""

    heading: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class Accuracy:
    """One of the three test accuracies, and what it means."""

    share: float | None
    name: str
    meaning: str


def accuracies(record: RunRecord, told: Outline) -> list[Accuracy]:
    """The three, in the order in which they should be believed; none of a mapping from files."""
    if record.result is None:
        return []
    chosen = record.result["selected_epoch"]
    epoch = f"epoch {chosen}" if chosen else "the images unchanged"
    meaning = f"the epoch that was best on validation images ({epoch}): what you get"
    if told.selected is None:
        meaning = f"there are no validation images to select an epoch by; saved is the last one ({epoch})"
    return [
        Accuracy(told.selected, "selected", meaning),
        Accuracy(told.last, "last", "the final epoch, chosen by nobody: an honest number, too"),
        Accuracy(
            told.best_on_test,
            "best on test",
            "the best of all epochs, chosen by looking at the test images, as many papers do: too good",
        ),
    ]


def passages(record: RunRecord, told: Outline) -> list[Passage]:
    """The whole summary but its numbers and its worries."""
    if record.reference is not None:
        told_of = [("What was done", _done_by_reference(record, told)), ("What it cost", _cost(record, told))]
        return [Passage(heading, tuple(sentences)) for heading, sentences in told_of]
    parts = [
        ("What was done", _done(record, told)),
        ("What it cost", _cost(record, told)),
        ("What the mapping says", _says(record, told)),
    ]
    found = [Passage(heading, tuple(sentences)) for heading, sentences in parts]
    return [passage for passage in found if passage.sentences]


def _done(record: RunRecord, told: Outline) -> Iterator[Sentence]:
    labels, classes = len(record.mapping.source_labels), len(record.classes)
    sets = f"{counted(labels, 'source label')} stand for {counted(classes, 'class', 'classes')}"
    what = mapping_summary(told.mapping)
    settings = f" ({what}{'; ' if what and told.settings else ''}{told.settings})" if what or told.settings else ""
    if record.source is None:
        yield Sentence(f"A mapping {told.mapping}{settings} was estimated from a model's answers: {sets}.")
        held = held_out(record)
        if held is not None:
            again = ", and was then estimated anew with them" if held.refitted else ""
            yield Sentence(f"It was measured on {shown(held.how, 200)}{again}.")
        return
    yield Sentence(f"The frozen model {quoted(told.model)} answers with new labels; not one of its weights changed.")
    yield from _data(record, told)
    if record.program is not None and record.program.free_parameters:
        yield Sentence(
            f"A {record.program.name} on the input was trained for {counted(told.epochs, 'epoch')}, and a mapping "
            f"{told.mapping}{settings} reads its answers: {sets}."
        )
    else:
        yield Sentence(f"The images stay as they are, and a mapping {told.mapping}{settings} reads the answers: {sets}.")
    if record.selection is not None:
        yield Sentence("The mapping was chosen by leave-one-out on the training images.")


def _data(record: RunRecord, told: Outline) -> Iterator[Sentence]:
    if record.result is not None:
        images = record.result["images"]
        parts = [f"{images[name]:,} {word}" for name, word in (("train", "training"), ("val", "validation")) if images[name]]
        parts.append(f"{images['test']:,} test")
        yield Sentence(f"The data are {quoted(told.data)}: {listed(parts)} images.")


def _done_by_reference(record: RunRecord, told: Outline) -> Iterator[Sentence]:
    yield Sentence(
        f"This is a reference to compare reprogramming with, {told.mapping}: {mapping_summary(told.mapping)}. The source "
        f"model is {quoted(told.model)}; there is neither a program nor a mapping."
    )
    yield from _data(record, told)
    assert record.result is not None
    chosen = [step for step in record.result["steps"] if step.get("kept") and "told" in step]
    if chosen:
        yield Sentence(f"Chosen was {shown(str(chosen[0]['told']), 200)}.")
    else:
        yield Sentence(f"It was trained for {counted(told.epochs, 'epoch')}.")


def _cost(record: RunRecord, told: Outline) -> Iterator[Sentence]:
    if record.result is None:
        return
    if told.seconds is not None:
        took = duration(told.seconds).replace(" h", " hours") if told.seconds >= 1 else "Less than a second"
        yield Sentence(f"{took} of computing.", timed=True)
    free, frozen = record.result["parameters"]["free"], record.result["parameters"]["frozen"]
    if free:
        beside = f", beside {frozen:,} frozen ones ({percent(free / frozen, 2)})" if frozen else ", all that there are"
        yield Sentence(f"{free:,} numbers were trained{beside}.")
    elif told.epochs:
        yield Sentence(
            f"What was trained by gradients, for {counted(told.epochs, 'epoch')}, was not kept; {frozen:,} numbers of the "
            "model stay frozen."
        )
    else:
        yield Sentence(f"Nothing was trained by gradients; {frozen:,} numbers of the model stay frozen.")
    if record.reference is not None:
        return
    weights = int(np.count_nonzero(record.omega))
    how = "they were trained by gradients" if record.mapping.learned else "they were computed, not trained"
    yield Sentence(f"The mapping has {weights:,} weights that are not 0; {how}.")


def _says(record: RunRecord, told: Outline) -> Iterator[Sentence]:
    omega = record.omega
    clear = _clearest(omega)
    labels = record.source_labels
    parts = []
    for column in clear:
        weights = omega[:, column]
        best = np.argsort(-weights, kind="stable")[:2].tolist()
        name = quoted(record.classes[column])
        if told.mapping in _ONE_TO_ONE:
            parts.append(f"{name} is {quoted(synonym(labels[best[0]]))}")
        elif told.mapping in _SHARES:
            reasons = [
                f"{quoted(synonym(labels[row]))} ({percent(float(weights[row]), 0)})" for row in best if weights[row] > 0
            ]
            parts.append(f"{name} is read off {listed(reasons)}")
        else:
            parts.append(f"{quoted(synonym(labels[best[0]]))} speaks most for {name}")
    if parts:
        yield Sentence(f"{'; '.join(parts)}.")
    if told.mapping in _SHARES:
        yield Sentence("A percentage is a source label's share in the weights of its class.")
    elif told.mapping in _ONE_TO_ONE:
        yield Sentence("Each class has one source label, whatever else the model says.")
    else:
        yield Sentence("Its weights are coefficients, for a class and against it; only their order can be read.")


def _clearest(omega: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> list[int]:
    """The classes with the heaviest single weight, in relation to all weights of the class."""
    size = np.abs(omega)
    lead = size.max(0) / np.maximum(size.sum(0), 1e-30)
    found: list[int] = np.argsort(-lead, kind="stable")[:_CLASSES_NAMED].tolist()
    return sorted(found)
