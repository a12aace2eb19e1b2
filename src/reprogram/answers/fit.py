"""A mapping from files of answers to files of predictions: J is counted shard by shard, ω saved, new answers classified."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.holdout import HoldOut
from reprogram.answers.labels import LabelSets, Rows, Survey, survey_shard
from reprogram.answers.manifest import manifest_beside
from reprogram.answers.mapping import HeldOut, SavedMapping, takes_top_k
from reprogram.answers.parallel import Engine
from reprogram.answers.shards import find_shards, read_blocks
from reprogram.errors import ReprogramError, unknown
from reprogram.mappings.base import LEARNED, METHODS, EstimatedMapping, make_mapping
from reprogram.mappings.selection import Selection, select
from reprogram.progress import Progress, Sized

Scores = Literal["fraction", "percent"]
Files = str | Path | Sequence[str | Path]
_State = dict[str, "np.ndarray[Any, Any]"]
HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class _Plan:
    """What every worker needs to count or to score a shard."""

    sets: LabelSets
    mapping: dict[str, Any]
    holdout: HoldOut
    starts: dict[str, int]
    state: _State | None = None
    samples: "np.ndarray[Any, Any] | None" = None

    def make(self) -> EstimatedMapping:
        mapping = make_mapping(source_labels=self.sets.source_labels, classes=self.sets.classes, **self.mapping)
        assert isinstance(mapping, EstimatedMapping)
        return mapping

    def scoring(self, saved: SavedMapping, holdout: HoldOut) -> "_Plan":
        """The same with the mapping to score by, as arrays: between processes, tensors would take shared memory."""
        state = {key: value for key, value in saved.mapping.state_dict().items() if not key.startswith("statistics.")}
        arrays = {key: value.numpy() for key, value in state.items()}
        return replace(self, holdout=holdout, state=arrays, samples=saved.samples.numpy())

    def saved(self) -> SavedMapping:
        """The mapping to score by, without its statistics."""
        assert self.state is not None
        assert self.samples is not None
        mapping = self.make()
        mapping.load_state_dict({key: torch.tensor(value) for key, value in self.state.items()}, strict=False)
        return SavedMapping(mapping, self.sets, torch.tensor(self.samples))


@dataclass
class _Counted:
    """What one shard adds: the statistics of the rows that are kept and of those held out, and a few numbers."""

    kept: _State
    held: _State
    samples: "np.ndarray[Any, Any]"  # (2, k_T): rows of each class, kept and held out
    unscored: int = 0
    unseen: int = 0


def fit_files(
    files: Files,
    mapping: str = "blm+",
    *,
    classes: Sequence[str] | None = None,
    source_labels: Sequence[str] | None = None,
    holdout: float | None = None,
    test: Files | None = None,
    scores: Scores = "fraction",
    seed: int = 0,
    engine: Engine | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> SavedMapping:
    """Estimate a mapping from shards of answers and measure it on rows that it has not seen.

    Args:
        files: shards: paths, folders or patterns such as `shards/*.npz`; see `reprogram.answers.shards`.
        mapping: a method that is estimated from statistics, such as `blm` or `blm+`, or `auto` for the best of them.
        classes: the target classes in order; by default those in the manifest beside the shards, or all labels, sorted.
        source_labels: the source labels in order; by default those in the manifest or header, or of all answers, sorted.
        holdout: the share of rows to measure on, drawn by a hash of each row (see `HoldOut`); by default the rows of the
            split `test` if there are any, else a fifth. 0 measures nothing.
        test: shards to measure on instead.
        scores: whether scores of top-K answers run from 0 to 1 or to 100.
        seed: of the hash and of random mappings.
        engine: where the shards are read; by default in this process. Ending it is left to the caller.
        progress: where to show progress.
        options: of the mapping, such as `smoothing` and `top_ratio`; see `make_mapping`.

    Returns:
        The mapping, estimated from all rows; from all but the test rows where those are named by `test` or by a split. Its
        `held_out` was measured with a mapping estimated from the other rows only.
    """
    shards = find_shards(files)
    tests = find_shards(test) if test is not None else []
    if mapping != "auto" and mapping not in METHODS:
        raise unknown("mapping", mapping, [*METHODS, "auto"])
    if holdout is not None and not 0 <= holdout < 1:
        raise ReprogramError(f"holdout = {holdout} was given, but a share from 0 to below 1 is expected")
    if holdout and tests:
        raise ReprogramError(f"holdout = {holdout} and test files were both given; give one of them")
    if engine is not None and engine.name == "ray":  # other machines have another current folder
        shards, tests = [path.absolute() for path in shards], [path.absolute() for path in tests]
    progress = progress or Progress()
    with Engine() if engine is None else nullcontext(engine) as workers:
        survey = _survey(shards, workers, progress)
        manifest = manifest_beside(shards) or {}
        sets = LabelSets.collect(
            survey,
            source_labels if source_labels is not None else manifest.get("source_labels"),
            classes if classes is not None else manifest.get("classes"),
            percent=scores == "percent",
        )
        rule = _rule(holdout, survey, bool(tests), seed)
        notes = []
        if mapping == "auto":
            progress.say("choosing the mapping")
            selection = _selected(shards, sets, rule, survey, options)
            mapping, options = selection.choice.mapping, selection.choice.settings
            notes = [f"chosen {selection}", *selection.notes]
        plan = _Plan(sets, {"name": mapping, "seed": seed, **options}, rule, survey.starts)
        _check_plan(plan, survey)
        kept, held, counted = _count_all(plan, shards, workers, progress)
        notes += _notes(counted)
        fitted = _estimated(plan, kept, counted.samples[0])
        result = None
        if tests or counted.samples[1].any():
            scoring = plan.scoring(fitted, HoldOut("all") if tests else rule)
            result = _score_all(scoring, tests or shards, workers, progress)
    if rule.rule == "share":
        fitted = _estimated(plan, None if kept is None else kept.merge(held), counted.samples.sum(0))
    return replace(fitted, held_out=result, notes=tuple(notes))


def _rule(holdout: float | None, survey: Survey, has_tests: bool, seed: int) -> HoldOut:
    if has_tests or holdout == 0:
        return HoldOut("none")
    if holdout is None and survey.test_rows:
        if survey.test_rows == survey.rows:
            raise ReprogramError(
                f"all {survey.rows} rows name the split test, so none is left to fit; set a share aside with --holdout"
            )
        return HoldOut("split")
    return HoldOut("share", HELD_OUT_SHARE if holdout is None else holdout, seed)


def _survey(shards: Sequence[Path], engine: Engine, progress: Progress) -> Survey:
    found, starts = Survey(shards[0]), {}
    parts = progress.track(Sized(engine.map(survey_shard, None, shards), len(shards)), "looking at the shards")
    for path, part in zip(shards, parts, strict=True):
        starts[str(path)] = found.rows
        found.merge(part)
    found.starts = starts
    if not found.rows:
        raise ReprogramError(f"the {len(shards)} shards from {str(shards[0])!r} on hold no row; check the files")
    return found


def _check_plan(plan: _Plan, survey: Survey) -> None:
    """Refuse before the long pass what would fail after it."""
    name = plan.mapping["name"]
    if name in LEARNED:
        raise ReprogramError(f"mapping {name!r} is learned by gradient, which files of answers do not allow; choose blm+")
    mapping = plan.make()
    if survey.k_source is None and not takes_top_k(mapping):
        raise ReprogramError(
            f"mapping {name!r} with these options needs all logits, but {str(survey.path)!r} holds top-K answers; "
            "choose blm or blm+ without --normalize"
        )
    if survey.k_source is None and survey.vocabulary.isdisjoint(plan.sets.source_numbers):
        raise ReprogramError(
            f"no label of the answers, such as {min(survey.vocabulary)!r}, is among the {len(plan.sets.source_labels)} "
            "source labels that were given; check --source-labels"
        )


def _count_all(plan: _Plan, shards: Sequence[Path], engine: Engine, progress: Progress) -> tuple[Any, Any, _Counted]:
    """The statistics of all shards, merged in their order: of the kept rows, of those held out, and the numbers."""
    mapping = plan.make()
    totals = [None if mapping.statistics is None else mapping.new_statistics() for _ in range(2)]
    numbers = _Counted({}, {}, np.zeros((2, len(plan.sets.classes)), dtype=np.int64))
    parts = engine.map(_count, plan, shards)
    for part in progress.track(Sized(parts, len(shards)), "counting answers"):
        for total, state in zip(totals, (part.kept, part.held), strict=True):
            if total is not None:
                fresh = mapping.new_statistics()
                fresh.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in state.items()})
                total.merge(fresh)
        numbers.samples += part.samples
        numbers.unscored += part.unscored
        numbers.unseen += part.unseen
    return totals[0], totals[1], numbers


def _count(plan: _Plan, path: Path) -> _Counted:
    mapping = plan.make()
    statistics = [None if mapping.statistics is None else mapping.new_statistics() for _ in range(2)]
    counted = _Counted({}, {}, np.zeros((2, len(plan.sets.classes)), dtype=np.int64))
    start = plan.starts[str(path)]
    for block in read_blocks(path):
        rows, aside = plan.sets.rows(block), torch.from_numpy(plan.holdout(block, start))
        start += block.rows
        for side, mask in enumerate((~aside, aside)):
            part = rows.where(mask)
            counted.samples[side] += torch.bincount(part.targets, minlength=len(plan.sets.classes)).numpy()
            total = statistics[side]
            if total is not None and len(part):
                _add(total, part)
        counted.unscored += int(rows.unscored.sum())
        counted.unseen += int(rows.unseen.sum())
    counted.kept, counted.held = (
        {} if total is None else {key: value.numpy() for key, value in total.state_dict().items()} for total in statistics
    )
    return counted


def _add(statistics: Any, rows: Rows) -> None:
    if rows.logits is not None:
        statistics.update(rows.logits, rows.targets)
    else:
        statistics.update_top_k(rows.indices, rows.probabilities, rows.targets)


def _estimated(plan: _Plan, statistics: Any, samples: "np.ndarray[Any, Any]") -> SavedMapping:
    mapping = plan.make()
    if statistics is not None:
        mapping.estimate(statistics)
    return SavedMapping(mapping, plan.sets, torch.tensor(samples))


def _notes(counted: _Counted) -> list[str]:
    notes = []
    if counted.unscored:
        notes.append(f"{counted.unscored} answers lack scores and were weighed by rank")
    if counted.unseen:
        notes.append(f"{counted.unseen} labels in answers are not among the source labels and were ignored")
    return notes


def _score_all(plan: _Plan, shards: Sequence[Path], engine: Engine, progress: Progress) -> HeldOut:
    rows = correct = by_frequency = 0
    for part in progress.track(Sized(engine.map(_score, plan, shards), len(shards)), "measuring"):
        rows, correct, by_frequency = rows + part.rows, correct + part.correct, by_frequency + part.by_frequency
    return HeldOut(rows, correct, by_frequency, plan.holdout.told())


def _score(plan: _Plan, path: Path) -> HeldOut:
    saved = plan.saved()
    rows = correct = by_frequency = 0
    start = plan.starts.get(str(path), 0)
    for block in read_blocks(path):
        part = plan.sets.rows(block).where(torch.from_numpy(plan.holdout(block, start)))
        start += block.rows
        if len(part):
            scores, guessed = saved.target_scores(part)
            rows += len(part)
            correct += int((scores.argmax(1) == part.targets).sum())
            by_frequency += int(guessed.sum())
    return HeldOut(rows, correct, by_frequency, "")


def _selected(shards: Sequence[Path], sets: LabelSets, rule: HoldOut, survey: Survey, options: dict[str, Any]) -> Selection:
    """`auto`: the mapping that does best by leave-one-out on the kept rows."""
    if survey.k_source is None:
        raise ReprogramError(
            f"mapping 'auto' needs all logits, but {str(survey.path)!r} holds top-K answers; choose blm or blm+"
        )
    if options:
        raise ReprogramError(
            f"mapping 'auto' chooses {', '.join(sorted(options))} by itself; leave it out, or name a mapping"
        )
    return select(lambda: _kept_blocks(shards, sets, rule), len(sets.classes))


def _kept_blocks(shards: Sequence[Path], sets: LabelSets, rule: HoldOut) -> Iterator[tuple[Tensor, Tensor]]:
    """(logits, targets) of all rows that are not held out."""
    for path in shards:
        for block in read_blocks(path):
            rows = sets.rows(block).where(~torch.from_numpy(rule(block)))
            assert rows.logits is not None
            if len(rows):
                yield rows.logits, rows.targets
