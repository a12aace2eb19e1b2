"""The first answer of a run: the images unchanged, each sent through the frozen model once, and a mapping of its logits."""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from reprogram.acceleration.precision import Chosen, network_line
from reprogram.data.dataset import DataSet
from reprogram.data.decode import Decoding
from reprogram.mappings.base import Mapping
from reprogram.mappings.certainty import measure_certainty
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.neighbours import MOST_FITTED, MOST_MEASURED, missing_groups, spread_places
from reprogram.mappings.registry import AUTO
from reprogram.mappings.scorers import Candidate
from reprogram.mappings.selection import Blocks, Selection
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import build, configured_mapping, decoding_of
from reprogram.run.config import FitConfig
from reprogram.run.defaults import with_mapping, without_program
from reprogram.scores import Score
from reprogram.sources.frozen import Frozen
from reprogram.training.checkpoint import Record
from reprogram.training.choice import select_from
from reprogram.training.evaluation import Evaluation, Glimpse, evaluate
from reprogram.training.kept import KeptLogits, keep_logits


@dataclass(frozen=True)
class FirstAnswer:
    """What the images unchanged give.

    Attributes:
        candidate: the mapping, and what was chosen of its settings.
        record: it as epoch 0, as in `metrics.jsonl`.
        left_out: how many training images are right by a mapping that does not know them; None where that cannot be had.
        how: by leave-one-out, or on folds.
        right: (n,) which validation images are right; None without a validation set.
        images_per_second: how fast images went through the model.
        origin: of which data and source model.
        digest: of the tensors of its artefact, where it was written.
        model: it; None where it was made in an earlier process.
        test: its test predictions; None as well, or where nobody asked for them.
        selection: how the mapping was chosen, if it was chosen now.
        notes: what a reader of the result should know.
        known: the logits of the training images, where they were made now.
        spent: seconds of the run when it was there.
    """

    candidate: Candidate
    record: dict[str, Any]
    left_out: Score | None
    how: str
    right: Tensor | None
    images_per_second: float
    origin: dict[str, str]
    digest: str | None = None
    model: Reprogrammed | None = None
    test: Evaluation | None = None
    selection: Selection | None = None
    notes: tuple[str, ...] = ()
    known: KeptLogits | None = None
    spent: float = 0.0

    def __str__(self) -> str:
        """It in one sentence."""
        shares = []
        if self.right is not None:
            shares.append(f"{100 * self.validation.accuracy:.1f} % on {self.validation.n} validation images")
        if self.left_out is not None and self.left_out.n:
            shares.append(f"{100 * self.left_out.accuracy:.1f} % by {self.how} on {self.left_out.n} training images")
        share = ", ".join(shares) or "nothing to judge it by"
        return f"without a program: {share}; mapping {self.candidate}"

    @property
    def validation(self) -> Score:
        """How many validation images are right."""
        assert self.right is not None
        return Score(int(self.right.sum()), len(self.right))

    @property
    def step(self) -> dict[str, Any]:
        """It as the first of a run's steps."""
        return {
            "program": "none",
            **self.candidate.to_json(),
            "left_out": None if self.left_out is None else {**self.left_out.to_json(), "how": self.how},
            "val": None if self.right is None else self.validation.to_json(),
            "seconds": self.record["seconds"],
            "told": str(self),
        }

    def to_json(self) -> dict[str, Any]:
        """What an interrupted run needs of it, as plain JSON values."""
        return {
            "mapping": self.candidate.mapping,
            "settings": self.candidate.settings,
            "record": self.record,
            "left_out": None if self.left_out is None else self.left_out.to_json(),
            "how": self.how,
            "right": None if self.right is None else "".join("01"[right] for right in self.right.tolist()),
            "images_per_second": self.images_per_second,
            "origin": self.origin,
            "digest": self.digest,
            "notes": list(self.notes),
            "spent": self.spent,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "FirstAnswer":
        """Read what `to_json` gave."""
        said = None if values["right"] is None else torch.tensor([letter == "1" for letter in values["right"]])
        left_out = None if values["left_out"] is None else Score.from_json(values["left_out"])
        candidate = Candidate(values["mapping"], values["settings"])
        facts = (values["how"], said, values["images_per_second"], values["origin"], values["digest"])
        spent = float(values.get("spent", values["record"]["seconds"]))
        return cls(candidate, values["record"], left_out, *facts, notes=tuple(values["notes"]), spent=spent)


class StoredAnswer(BaseModel):
    """The form of a first answer that was written."""

    model_config = ConfigDict(strict=True, extra="ignore")
    mapping: str
    settings: dict[str, Any]
    record: Record
    left_out: dict[str, Any] | None
    how: str
    right: str | None
    images_per_second: float
    origin: dict[str, str]
    digest: str | None
    notes: list[str]
    spent: float = 0.0  # which it did not always say


def first_answer(
    config: FitConfig, frozen: Frozen, data: DataSet, progress: Progress, *, test: bool, ranks: Ranks = ALONE
) -> FirstAnswer:
    """Send every image through the frozen model once, unchanged, and map the logits.

    Args:
        config: resolved; what it says of a program does not count. With mapping `auto` one is chosen by leave-one-out.
        frozen: the model.
        data: without bad images.
        progress: where to show progress.
        test: whether the test images are classified, too.
        ranks: the processes that share the images out; each comes to the same answer.
    """
    started = time.perf_counter()
    plain = without_program(config)
    model = build(plain, frozen, data)
    program = model.program
    sizes = dict.fromkeys(data.splits, program.image_size)
    data, _ = decoding_of(config, ranks).decode(data, sizes, program.interpolation, progress)
    progress.say(network_line(model.accelerate(sum(map(len, data.splits.values()))), Chosen(config.precision)))
    how: dict[str, Any] = {
        "batch_size": config.batch_size,
        "precision": config.precision,
        "progress": progress,
        "ranks": ranks,
    }
    before = time.perf_counter()
    known = keep_logits(model, data.train, **how, what="sending images through the model")
    speed, blocks = len(data.train) / max(time.perf_counter() - before, 1e-6), known.blocks
    selection = select_from(blocks, model, len(data.train), ranks=ranks) if config.mapping == AUTO else None
    if selection is not None:
        plain = with_mapping(plain, selection.choice.mapping, selection.choice.settings)
        model.mapping = configured_mapping(plain, frozen, data).to(model.device)
    change = _estimate(model, blocks)
    ranks.align(model.mapping.buffers(recurse=False))
    if config.calibration != "none" and model.mapping.statistics is not None:
        measure_certainty(model.mapping, blocks, log_probabilities=frozen.log_probabilities)
    if selection is None:
        left_out, by = _left_out(model.mapping, blocks, log_probabilities=frozen.log_probabilities)
    else:
        left_out, by = selection.table[0].score, selection.table[0].how
    fitted = _some(blocks, len(data.train)) if test and data.train.groups is None else None
    watch = None if fitted is None else Glimpse(len(data.test), config.batch_size, MOST_MEASURED)
    watches = {"val": None, "test": watch}
    found = {
        name: evaluate(model, split, decoding=Decoding(cache=False), what=f"testing on {name}", watch=watches[name], **how)
        for name, split in (("val", data.val), ("test", data.test if test else None))
        if split is not None
    }
    hint = None
    if fitted is not None and watch is not None:
        hint = missing_groups(fitted, watch.logits(ranks, frozen.k_source), "test images")
    accuracy = {name: found[name].accuracy if name in found else None for name in ("val", "test")}
    record = {
        "epoch": 0,
        "loss": None,
        "accuracy": {"train": None, **accuracy},
        "mapping_change": change,
        "seconds": round(time.perf_counter() - started, 3),
        "images_per_second": None,
    }
    right = found["val"].labels == found["val"].predicted if "val" in found else None
    candidate = Candidate(plain.mapping, {}) if selection is None else selection.choice
    answer = FirstAnswer(candidate, record, left_out, by, right, round(speed, 2), origin_of(frozen, data))
    notes = () if hint is None else (hint,)
    return replace(answer, model=model, test=found.get("test"), selection=selection, notes=notes, known=known)


def origin_of(frozen: Frozen, data: DataSet) -> dict[str, str]:
    """What a first answer must agree with to be taken for another's."""
    return {"source": frozen.fingerprint, "data": data.digest()}


def continued(
    first: FirstAnswer,
    model: Reprogrammed,
    data: DataSet,
    config: FitConfig,
    progress: Progress,
    ranks: Ranks = ALONE,
) -> FirstAnswer:
    """A first answer of an earlier process with its model, and with the test predictions of that."""
    size, how = model.program.image_size, model.program.interpolation
    split, _ = decoding_of(config, ranks).decode(data.test, size, how, progress)
    tested = evaluate(
        model,
        split,
        batch_size=config.batch_size,
        precision=config.precision,
        decoding=Decoding(cache=False),
        progress=progress,
        what="testing on test",
        ranks=ranks,
    )
    return replace(first, model=model, test=tested)


def _estimate(model: Reprogrammed, blocks: Blocks) -> float | None:
    mapping = model.mapping
    if mapping.statistics is None:
        return None
    statistics = mapping.new_statistics()
    for logits, labels, *_ in blocks():
        assert isinstance(logits, Tensor)
        parts = logits.to(model.device), labels.to(model.device)
        statistics.update(*parts, log_probabilities=model.frozen.log_probabilities)
    return mapping.estimate(statistics)


def _some(blocks: Blocks, count: int) -> Tensor:
    """The logits of some of the images, evenly spread."""
    chosen, start, parts = spread_places(count, MOST_FITTED), 0, []
    for logits, *_ in blocks():
        assert isinstance(logits, Tensor)
        here = chosen[(chosen >= start) & (chosen < start + len(logits))] - start
        parts.append(logits[here.to(logits.device)].float().cpu())
        start += len(logits)
    return torch.cat(parts)


def _left_out(mapping: Mapping, blocks: Blocks, *, log_probabilities: bool) -> tuple[Score | None, str]:
    """How the mapping does on its own samples, each scored without it; a class's only sample is not counted."""
    if mapping.statistics is None:
        return None, ""
    counts = sum((torch.bincount(block[1], minlength=mapping.k_target) for block in blocks()), torch.zeros(()))
    judge = LeftOut(mapping, log_probabilities=log_probabilities)
    right = n = 0
    for scores, targets in judge(blocks):
        own = targets.to(scores.device)[:, None]
        lead = scores.gather(1, own).flatten() - scores.scatter(1, own, -torch.inf).amax(1)
        judged = (counts > 1).to(scores.device)[own.flatten()]
        right += int(((lead > 1e-9 * scores.abs().amax(1)) & judged).sum())
        n += int(judged.sum())
    return Score(right, n), judge.how


def duration(seconds: float) -> str:
    """How long something takes, for a reader.

    >>> duration(41.3), duration(372), duration(9000)
    ('41 s', '6 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
