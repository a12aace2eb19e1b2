"""A mapping from files of answers: the shards are looked at, their rows are counted, and ω is what the counts say."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from reprogram.answers.counting import Counted, Plan, count_shards, score_shards, sided_rows
from reprogram.answers.hints import groups_hint
from reprogram.answers.holdout import HoldOutRule
from reprogram.answers.labels import LabelSets
from reprogram.answers.manifest import manifest_beside
from reprogram.answers.mapping import AnswerMapping, HeldOutScore
from reprogram.answers.parallel import Workers
from reprogram.answers.shards import Files, find_shards
from reprogram.answers.survey import Survey, survey_shards
from reprogram.answers.truth import LabelTable
from reprogram.data.group_patterns import GroupPattern
from reprogram.errors import ReprogramError, ignore_evidence_warnings, shown, unknown
from reprogram.mappings.asked import Calibration, check_calibration
from reprogram.mappings.base import Mapping
from reprogram.mappings.certainty import measure_certainty
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.mappings.selection import Block, Selection, select
from reprogram.progress import Progress
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import Statistics
from reprogram.statistics.gaussian import LARGEST_COVARIANCE

Scores = Literal["fraction", "percent"]
HELD_OUT_SHARE = 0.2
#: Of more rows no mapping is chosen unless that is asked for.
MOST_CHOSEN_FROM = 20_000
_BLOCK_VALUES = 2_000_000


def fit_files(
    files: Files,
    mapping: str | None = None,
    *,
    labels: str | Path | LabelTable | None = None,
    classes: Sequence[str] | None = None,
    source_labels: Sequence[str] | None = None,
    holdout: float | None = None,
    test: Files | None = None,
    scores: Scores = "fraction",
    seed: int = 0,
    group: str | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
    calibration: Calibration = "temperature",
    **settings: Any,
) -> AnswerMapping:
    """Estimate a mapping from shards of answers and measure it on rows that it has not seen.

    Test rows never enter the mapping, whichever way they are named: neither shards of `test`, also where `files` mean them,
    too, nor rows that name the split `test`, also where those are not measured on.

    Args:
        files: shards: paths, folders or patterns such as `shards/*.npz`; see `reprogram.answers.shards`.
        mapping: one that is estimated from statistics, such as `gaussian+` or `blm`, or `auto` for the best of them by
            leave-one-out. None is `auto` for up to `MOST_CHOSEN_FROM` rows; of more, `gaussian`, or `gaussian+` for top-K
            answers, is taken without a choice, which would read every row twice in one process.
        labels: a table of the true labels, for files that have none: CSV with the columns `image` and `label`, and perhaps
            `split`; see `LabelTable`. Answers that it does not name are left out.
        classes: the target classes in order; by default those in the manifest beside the shards, or all labels, sorted.
        source_labels: the source labels in order; by default those in the manifest or header, or of all answers, sorted.
        holdout: the share of rows to measure on, drawn by a hash of each row (see `HoldOutRule`); by default the rows of the
            split `test` if there are any, else a fifth. 0 measures nothing.
        test: shards to measure on instead.
        scores: whether scores of top-K answers run from 0 to 1 or to 100.
        seed: of the hash and of random mappings.
        group: a pattern that reads groups, such as videos, off the names in the column `image` (see `GroupPattern`);
            without it, the column `group` tells them, if there is one. Rows of a group are held out, or left out,
            together.
        workers: who reads the shards; by default this process. Ending them is left to the caller.
        progress: where to show progress.
        calibration: whether to measure how sure the mapping may be, with prediction sets, for which the shards are read
            twice more, in this process; "none" does not.
        settings: of the mapping, such as `smoothing` and `top_ratio`; see `make_mapping`. Where neither `top_k` nor
            `top_ratio` is given, all labels of top-K answers count.

    Returns:
        The mapping, estimated from all rows but test rows. Its `held_out` was measured with a mapping estimated from the
        other rows only.
    """
    shards, tests = _without_tests(find_shards(files), [] if test is None else find_shards(test))
    settings = {name: value for name, value in settings.items() if value is not None}
    check_calibration(calibration)
    _check_arguments(mapping or AUTO, holdout, bool(tests), settings)
    truth = None if labels is None else LabelTable.read(labels)
    if workers is not None and workers.name == "ray":  # other machines have another current folder
        shards, tests = [path.absolute() for path in shards], [path.absolute() for path in tests]
    progress = progress or Progress()
    pattern = None if group is None else GroupPattern.read(group)
    with Workers() if workers is None else nullcontext(workers) as hands:
        manifest = manifest_beside(shards) or {}
        survey = survey_shards(shards, hands, progress, _checksums(manifest), pattern, truth)
        if pattern is not None and not survey.groups:
            raise ReprogramError(
                f"--group {shown(group)} fits no name in the column image of {str(survey.path)!r} and its like; write a "
                "pattern of the end of these names"
            )
        sets = LabelSets.collect(
            survey,
            source_labels if source_labels is not None else manifest.get("source_labels"),
            classes if classes is not None else manifest.get("classes"),
            percent=scores == "percent",
            log_probabilities=bool(manifest.get("log_probabilities")),
        )
        rule = replace(_rule(holdout, survey, bool(tests), seed), grouped=bool(survey.groups), pattern=pattern)
        notes: list[str] = [] if truth is None else [truth.note(survey.truths, survey.rows, survey.answers)]
        if mapping is None:
            mapping = _default_mapping(survey, sets)
            if mapping != AUTO:
                notes.append(f"{mapping} was taken for {survey.rows} rows; --mapping auto chooses by leave-one-out")
        plan = Plan(sets, {"name": mapping, "seed": seed, **settings}, rule, survey.starts, truth=truth)
        if mapping == AUTO:
            # Here and not by the workers: every row is judged by its own logits under a hundred mappings, so that all logits
            # would have to be sent back, which takes as long as reading them.
            progress.say("choosing the mapping; for that, the shards are read in this process, twice")
            selection = _selected(plan, shards)
            chosen = dict(selection.choice.settings)
            if survey.k_source is None and chosen.get("top_ratio") == "all":
                del chosen["top_ratio"]  # all labels of the answers, also of longer ones that are added later
            plan = replace(plan, mapping={"name": selection.choice.mapping, "seed": seed, **chosen})
            notes += [f"chosen {selection}", *selection.notes]
        whole = _counts_whole_answers(plan.mapping, survey)
        if whole:
            plan = replace(plan, mapping={**plan.mapping, "top_k": survey.longest})
            notes.append(f"K = {survey.longest}, the longest answer; --top-k or --top-ratio makes it another number")
        _check_plan(plan, survey)
        counted = count_shards(plan, shards, hands, progress)
        notes += _notes(counted, sets)
        with ignore_evidence_warnings() if rule.refits else nullcontext():
            fitted = _estimated(plan, counted.kept, torch.from_numpy(counted.samples[0]))
        held_out = None
        if rule.grouped and rule.refits and not counted.samples.any(1).all():
            notes.append(f"{len(survey.groups)} groups are too few to hold some out; --holdout or --seed may draw others")
        elif tests or counted.samples[1].any():
            measured = replace(rule, kind="all") if tests else rule
            outcome = score_shards(plan.measuring(fitted, measured), tests or shards, hands, progress)
            if not outcome.score().n:
                raise ReprogramError(
                    f"no answer of the test files, such as {str(tests[0])!r}, has a label in {str(labels)!r}; add labels of "
                    "them, or leave --test out"
                )
            held_out = HeldOutScore(outcome.score(), str(measured), outcome.by_frequency, rule.refits)
            notes += _group_notes(survey, outcome.groups if tests else {})
            hint = groups_hint(plan, shards, tests) if survey.k_source is not None and not survey.groups else None
            notes += [hint] if hint is not None else []
    if rule.refits:
        both = None if counted.kept is None or counted.held is None else counted.kept.merge(counted.held)
        fitted = _estimated(plan, both, torch.from_numpy(counted.samples.sum(0)))
    if calibration != "none" and fitted.samples.any():
        notes += _certified(fitted.mapping, plan, shards)
    return replace(fitted, held_out=held_out, notes=tuple(notes), whole_answers=whole)


def _default_mapping(survey: Survey, labels: LabelSets) -> str:
    """What is the best we know where no mapping was named."""
    if survey.rows <= MOST_CHOSEN_FROM:
        return AUTO
    if len(labels.source_labels) > LARGEST_COVARIANCE:
        return "blm+"
    return "gaussian+" if survey.k_source is None else "gaussian"


def _without_tests(shards: list[Path], tests: list[Path]) -> tuple[list[Path], list[Path]]:
    """The shards to fit, without those to measure on, by whatever path they were named."""
    named = {_identity(path) for path in tests}
    left = [path for path in shards if _identity(path) not in named]
    if not left:
        raise ReprogramError(
            f"all {len(shards)} shards are among the test shards, so none is left to fit; give others, or leave --test out"
        )
    return left, tests


def _check_arguments(mapping: str, holdout: float | None, has_tests: bool, settings: dict[str, Any]) -> None:
    if mapping != AUTO and mapping not in MAPPINGS:
        raise unknown("mapping", mapping, [*MAPPINGS, AUTO])
    if holdout is not None and not 0 <= holdout < 1:
        raise ReprogramError(f"holdout = {holdout} was given, but a share from 0 to below 1 is expected; change that value")
    if holdout and has_tests:
        raise ReprogramError(f"holdout = {holdout} and test files were both given; give one of them")
    if mapping == AUTO and settings:
        raise ReprogramError(
            f"mapping 'auto' chooses {', '.join(sorted(settings))} by itself; leave it out, or name a mapping"
        )


def _checksums(manifest: dict[str, Any]) -> dict[str, str]:
    facts = manifest.get("shards", {})
    return {name: str(facts[name]["sha256"]) for name in facts if isinstance(facts[name], dict) and "sha256" in facts[name]}


def _rule(holdout: float | None, survey: Survey, has_tests: bool, seed: int) -> HoldOutRule:
    if survey.test_rows == survey.rows:
        raise ReprogramError(
            f"all {survey.rows} rows name the split test, so none is left to fit; give the training rows, too, "
            "or rename the split"
        )
    if has_tests or holdout == 0:
        return HoldOutRule("none")
    if holdout is None and survey.test_rows:
        return HoldOutRule("split")
    return HoldOutRule("share", HELD_OUT_SHARE if holdout is None else holdout, seed)


def _counts_whole_answers(mapping: dict[str, Any], survey: Survey) -> bool:
    """Whether all labels of top-K answers count: K was left open, and the mapping has one."""
    if survey.k_source is not None or not survey.longest or {"top_k", "top_ratio"} & mapping.keys():
        return False
    # where all labels count without a number, as for gaussian+, none is needed
    return "top_ratio" in MAPPINGS[mapping["name"]].settings.model_fields


def _check_plan(plan: Plan, survey: Survey) -> None:
    """Refuse before the long pass what would fail after it."""
    mapping = plan.make()
    if mapping.learned:
        raise ReprogramError(
            f"mapping {mapping.name!r} is learned by gradient, which files of answers do not allow; choose blm+"
        )
    if survey.k_source is None and not mapping.takes_answers:
        raise ReprogramError(
            f"mapping {mapping.name!r} with these options needs all logits, but {str(survey.path)!r} holds top-K answers; "
            "choose gaussian+, blm or blm+, without --normalize"
        )
    if survey.k_source is None and survey.vocabulary.isdisjoint(plan.labels.source_numbers):
        raise ReprogramError(
            f"no label of the answers, such as {shown(min(survey.vocabulary))}, is among the "
            f"{len(plan.labels.source_labels)} source labels that were given; check --source-labels"
        )


def _estimated(plan: Plan, statistics: Statistics | None, samples: Tensor) -> AnswerMapping:
    mapping = plan.make()
    if statistics is not None:
        mapping.estimate(statistics)
    return AnswerMapping(mapping, plan.labels, samples)


def _notes(counted: Counted, labels: LabelSets) -> list[str]:
    notes = []
    if counted.left_out:
        notes.append(f"{counted.left_out} rows of the split test were left out")
    if counted.unscored:
        notes.append(f"{counted.unscored} answers lack scores and were weighed by rank")
    if counted.unseen:
        notes.append(f"{counted.unseen} labels in answers are not among the source labels and were ignored")
    if counted.shared:
        notes.append(shared_note(counted.shared, labels))
    return notes


def _group_notes(survey: Survey, tested: Iterable[int]) -> list[str]:
    """Whether groups have rows on both sides; `tested` are those of the test shards."""
    shared = sum(sides == 3 for sides in survey.groups.values()) + sum(survey.groups.get(group, 0) & 1 for group in tested)
    if not shared:
        return []
    return [f"{shared} groups have rows that were fitted and rows that were measured on: the accuracy flatters"]


def shared_note(count: int, labels: LabelSets) -> str:
    """What became of labels whose name several source labels have."""
    name, numbers = next(iter(labels.shared_names.items()))
    return (
        f"{count} labels in answers have a name that several source labels have, such as {shown(name)} "
        f"({' and '.join(map(str, numbers))}), and count as the first of them; numbers tell them apart"
    )


def _selected(plan: Plan, shards: Sequence[Path]) -> Selection:
    """`auto`: the mapping that does best by leave-one-out on the rows to fit."""
    return select(
        lambda: _kept_blocks(plan, shards),
        len(plan.labels.classes),
        log_probabilities=plan.labels.log_probabilities,
    )


def _certified(mapping: Mapping, plan: Plan, shards: Sequence[Path]) -> tuple[str, ...]:
    """Measure how sure a mapping may be on the rows that it was estimated from; what could not be measured."""
    with ignore_evidence_warnings():
        return measure_certainty(
            mapping,
            lambda: _kept_blocks(plan, shards, held_out=plan.rule.refits),
            log_probabilities=plan.labels.log_probabilities,
        ).notes


def _kept_blocks(plan: Plan, shards: Sequence[Path], *, held_out: bool = False) -> Iterator[Block]:
    """Logits or answers, targets and perhaps groups of all rows that are fitted, and perhaps of those that are held out."""
    for path in shards:
        for rows, kept, held in sided_rows(plan, path):
            part = rows.where(kept | held if held_out else kept)
            if not len(part):
                continue
            others = (part.targets, *(() if part.groups is None else (part.groups,)))
            if part.logits is not None:
                yield (part.logits, *others)
                continue
            assert part.indices is not None
            answers = TopK.of(part.indices, part.probabilities, len(plan.labels.source_labels))
            size = max(1, _BLOCK_VALUES // len(plan.labels.source_labels))  # as vectors they are as wide as logits
            yield from zip(answers.split(size), *(each.split(size) for each in others), strict=True)


def _identity(path: Path) -> tuple[int, int]:
    """The file itself, by whatever name or link it is called."""
    status = path.stat()
    return status.st_dev, status.st_ino
