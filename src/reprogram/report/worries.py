"""What to worry about in a run: each worry is a sentence with its numbers, found from what the run has stored."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reprogram.report.names import counted, image_name, listed, percent, quoted, shown
from reprogram.report.outline import held_out
from reprogram.run.outcomes import Outcomes
from reprogram.run.record import RunRecord

Level = Literal["serious", "mild", "fine"]
#: Below so many images of a class, nothing certain can be said of it.
FEW = 10
#: Below so many rows in all, an accuracy is uncertain by ten points and more.
_FEW_ROWS = 50
#: From this confidence on a wrong answer makes one look at the label.
SURE = 0.95
_RARE = 2.576  # how far from 0 a normal variable lies in 1 of 100 cases


@dataclass(frozen=True)
class Worry:
    """Something that a reader should know.

    Attributes:
        level: "serious" where the number at the top may mislead, "mild" where it is good to know, "fine" for none at all.
        title: what, in a few words.
        text: how much, and what to do.
    """

    level: Level
    title: str
    text: str


def worries(record: RunRecord) -> list[Worry]:
    """All of them, the serious ones first; one that says so where there is none."""
    found = [*_of_mapping(record), *_of_test(record), *_of_training(record), *_notes(record)]
    found.sort(key=lambda worry: worry.level != "serious")
    return found or [Worry("fine", "Nothing stands out", "None of the things that this report looks for was found.")]


def training_counts(record: RunRecord) -> list[int] | None:
    """How many samples of each class the mapping was estimated from; None where that is not stored."""
    if record.reference is not None:
        return None
    statistics = record.mapping.statistics
    if statistics is None or record.mapping.weighted:
        answers = record.description.get("answers")
        return answers["samples"] if isinstance(answers, dict) and "samples" in answers else None
    return [int(count) for count in statistics.counted.tolist()]


def _of_mapping(record: RunRecord) -> Iterator[Worry]:
    if record.reference is not None:
        return
    counts = training_counts(record)
    joint = record.joint
    without = set()
    if joint is not None:
        without = {name for name, sum_ in zip(record.classes, joint.sum(0).tolist(), strict=True) if sum_ <= 0}
    elif counts is not None:
        without = {name for name, count in zip(record.classes, counts, strict=True) if count == 0}
    if without:
        names = [name for name in record.classes if name in without]
        yield Worry(
            "serious",
            f"{counted(len(names), 'class', 'classes')} without evidence",
            f"Nothing was counted for {listed(map(quoted, names))}: the mapping can only guess there. Add labelled images.",
        )
    if counts is None:
        return
    few = [name for name, count in zip(record.classes, counts, strict=True) if 0 < count < FEW]
    if few:
        least = min(count for count in counts if count > 0)
        yield Worry(
            "mild",
            f"Few training images in {counted(len(few), 'class', 'classes')}",
            f"{listed(map(quoted, few), 3)} {'has' if len(few) == 1 else 'have'} fewer than {FEW} training samples, down to "
            f"{least}. `reprogram forecast` tells what more would bring.",
        )


def _of_test(record: RunRecord) -> Iterator[Worry]:
    test, result = record.test, record.result
    if result is None:
        yield from _of_rows(record)
    if result is not None and result["interval_95"][0] <= result["chance"]:
        yield Worry(
            "serious",
            "No better than chance",
            f"The interval of the accuracy reaches down to {percent(result['interval_95'][0])}, and guessing gives "
            f"{percent(result['chance'])}.",
        )
    if test is None or not len(test):
        return
    yield from _mistakes(test, None if record.config is None else record.config.data)
    small = {name: score for name, score in test.per_class().items() if score.n < FEW}
    if small:
        example = next((name for name, score in small.items() if score.n), next(iter(small)))
        low, high = small[example].interval
        many = "every class" if len(small) == len(test.classes) else counted(len(small), "class", "classes")
        yield Worry(
            "mild",
            f"Few test images in {many}",
            f"With fewer than {FEW} test images the accuracy of one class is known only roughly: that of "
            f"{quoted(example)}, for example, lies between {percent(low, 0)} and {percent(high, 0)}. Look at the "
            "intervals, not at the order of the classes.",
        )
    error = test.reliability().error
    if error > 0.1:
        sure, right = float(test.confidence.mean()), float(test.right.mean())
        yield Worry(
            "serious",
            "Confidence cannot be believed as it is",
            f"On the mean the answers say {percent(sure)} and {percent(right)} of them are right (calibration error "
            f"{error:.2f}).",
        )


def _of_rows(record: RunRecord) -> Iterator[Worry]:
    """A mapping, or an artefact, without test images: what is known of its accuracy, if anything."""
    held = held_out(record)
    if held is None:
        yield Worry(
            "mild",
            "Nothing was measured here",
            "Nobody can tell from this folder how often it is right. "
            + (
                "`reprogram report` of the whole run folder tells more."
                if record.source is not None
                else "`reprogram map` holds rows out to measure it."
            ),
        )
    elif held.score.n < _FEW_ROWS:
        low, high = held.score.interval
        yield Worry(
            "mild",
            "Few rows were held out",
            f"The accuracy was measured on {counted(held.score.n, 'row')}, so it is known only roughly: it lies between "
            f"{percent(low, 0)} and {percent(high, 0)}.",
        )


def _mistakes(test: Outcomes, data: str | None) -> Iterator[Worry]:
    pairs = [(true, said, n, share) for true, said, n, share in test.confused(20) if n >= 3 and share >= 0.2]
    if pairs:
        told = [
            f"{quoted(true)} taken for {quoted(said)} ({n} times, {percent(share, 0)})" for true, said, n, share in pairs
        ]
        yield Worry("mild", "Classes that are confused", f"{listed(told, 3)}.")
    counts = np.bincount(test.predicted, minlength=len(test.classes))
    never = [name for number, name in enumerate(test.classes) if not counts[number] and (test.labels == number).any()]
    if never:
        yield Worry(
            "serious",
            f"{counted(len(never), 'class', 'classes')} never answered",
            f"No test image was taken for {listed(map(quoted, never))}, though there are some.",
        )
    sure = np.flatnonzero(~test.right & (test.confidence >= SURE))
    if len(sure):
        first = sure[np.argsort(-test.confidence[sure], kind="stable")][:3].tolist()
        told = [
            f"{quoted(image_name(test.names[row], data))} ({quoted(test.classes[test.predicted[row]])})" for row in first
        ]
        yield Worry(
            "mild",
            f"{counted(len(sure), 'label')} that may be wrong",
            f"{'One test image was' if len(sure) == 1 else f'{len(sure)} test images were'} taken for another class with at "
            f"least {percent(SURE, 0)} confidence, such as {listed(told)}. Either the model errs or the label does: "
            "`reprogram audit` judges all labels.",
        )


def _of_training(record: RunRecord) -> Iterator[Worry]:
    result = record.result
    if result is None:
        return
    val, test = _validation(record), result["accuracy"].get("selected")
    images = result["images"]
    if val is not None and test is not None and images["val"] and images["test"]:
        pooled = (val * images["val"] + test * images["test"]) / (images["val"] + images["test"])
        independent = independent_share(record)
        deviation = math.sqrt(
            max(pooled * (1 - pooled), 1e-12) * (1 / images["val"] + 1 / images["test"]) / max(independent, 1e-12)
        )
        if abs(val - test) > _RARE * deviation:
            yield Worry(
                "serious",
                "Validation and test disagree",
                f"{percent(val)} of {counted(images['val'], 'validation image')} are right, and {percent(test)} of "
                f"{counted(images['test'], 'test image')}: chance alone does so in fewer than 1 of 100 runs. The two are "
                "drawn from different images, or images of one group are in training and validation "
                "(`--group`).",
            )
    yield from _of_program(record)


def independent_share(record: RunRecord) -> float:
    """How many independent images tell as much as one test image: fewer than one where they are in groups."""
    result = record.result or {}
    groups, n = result.get("groups"), (result.get("images") or {}).get("test")
    effective = groups.get("effective_test_images") if isinstance(groups, dict) else None
    return min(1.0, effective / n) if isinstance(effective, (int, float)) and n else 1.0


def _validation(record: RunRecord) -> float | None:
    """The validation accuracy of the epoch that was selected."""
    assert record.result is not None
    for epoch in record.epochs:
        if epoch["epoch"] == record.result["selected_epoch"]:
            found: float | None = epoch["accuracy"]["val"]
            return found
    return None


def _of_program(record: RunRecord) -> Iterator[Worry]:
    """A program that was trained, and whether it was worth it: by validation, against the images unchanged."""
    assert record.result is not None
    steps = record.result["steps"]
    tried = [step for step in steps if step.get("kept") is False and step.get("program") not in (None, "none")]
    for step in tried:
        yield Worry("mild", "No program is used", f"{_sentence(str(step.get('told', '')))}")
    if record.first is None or record.program is None or not record.program.free_parameters:
        return
    if any(step.get("kept") and step.get("program") not in (None, "none") for step in steps):
        return  # it was kept because it is better, image by image, which this comparison of shares cannot see
    before, after, n = record.first["record"]["accuracy"]["val"], _validation(record), record.result["images"]["val"]
    if before is None or after is None or not n:
        return
    deviation = math.sqrt((before * (1 - before) + after * (1 - after)) / n)
    if after - before <= 1.645 * deviation:
        cost = f"The {record.program.name} with its {counted(record.program.free_parameters, 'free parameter')}"
        yield Worry(
            "mild",
            "The program brought nothing that can be told from chance",
            f"{cost} is right on {percent(after)} of the validation images, and the images unchanged on {percent(before)} "
            f"with the mapping {record.first['mapping']}. Try --program none.",
        )


def _notes(record: RunRecord) -> Iterator[Worry]:
    result = record.result or {}
    texts = [*result.get("notes", ()), *record.notes, *record.description.get("notes", ())]
    if stopped := result.get("stopped"):
        yield Worry("serious", "The training was given up", _sentence(str(stopped)))
    for text in dict.fromkeys(map(str, texts)):
        yield Worry("mild", "Noted in the run", _sentence(text))
    if skipped := result.get("skipped"):
        yield Worry(
            "mild",
            f"{counted(len(skipped), 'image')} left out",
            f"Among them: {listed(map(quoted, map(str, skipped)), 2)}.",
        )


def _sentence(text: str) -> str:
    text = shown(text, 600)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
