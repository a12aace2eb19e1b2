"""A fitted mapping with samples added or taken out and classes removed: exactly as if it had been fitted so at once."""

import hashlib
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Table
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reprogram.answers.counting import Plan, count_shards
from reprogram.answers.holdout import HoldOutRule
from reprogram.answers.labels import LabelSets
from reprogram.answers.mapping import AnswerMapping
from reprogram.answers.parallel import Workers
from reprogram.answers.shards import Files, find_shards
from reprogram.answers.survey import Survey, survey_shards
from reprogram.answers.truth import LabelTable
from reprogram.data.splits import sorted_classes
from reprogram.errors import ReprogramError, ignore_evidence_warnings, shown, unknown
from reprogram.files import sha256
from reprogram.mappings.base import Mapping
from reprogram.mappings.making import make_mapping
from reprogram.progress import Progress
from reprogram.statistics.base import Statistics
from reprogram.statistics.joint import JointStatistics

_LONGEST_NUMBER = 19  # digits of a whole number that numpy can hold


@dataclass(frozen=True)
class Samples:
    """Labelled samples that can be counted for a mapping, whatever they are.

    Attributes:
        origin: where they come from, for messages and records.
        classes: the classes that they are of, new ones too.
        digest: of their content, by which they are known when they come again.
        count: the statistics of them all or, given the name of a class, of those of that class.
    """

    origin: str
    classes: tuple[str, ...]
    digest: str
    count: Callable[[Mapping, str | None], Statistics]


@dataclass(frozen=True)
class Change:
    """A mapping before and after.

    Attributes:
        mapping: the new one.
        record: what was done, as plain JSON values.
        before: how many samples each class had.
        after: how many each has now.
    """

    mapping: Mapping
    record: dict[str, Any]
    before: dict[str, int]
    after: dict[str, int]


def change_mapping(
    mapping: Mapping,
    *,
    add: Samples | None = None,
    forget: Samples | None = None,
    remove: Sequence[str] = (),
    samples: Samples | None = None,
    keep_order: bool = False,
    earlier: Sequence[dict[str, Any]] = (),
) -> Change:
    """Add samples, then take samples out, then remove classes; the mapping that was given stays as it is.

    Args:
        mapping: one that is estimated from statistics. K of blm+ stays what it is.
        add: samples to add; new classes among them become classes of the mapping.
        forget: samples to take out, which the mapping must have been given before.
        remove: names of classes to remove.
        samples: all samples of those; others among them do not count. Mappings whose statistics are shared by the classes
            need them.
        keep_order: whether new classes stand at the end even where the classes are sorted.
        earlier: the records of earlier changes. Samples that one of them has added are not added again: a command that was
            killed when its work was done can be given once more, and nothing counts twice.
    """
    if mapping.learned:
        raise ReprogramError(
            f"mapping {mapping.name!r} is learned by gradient, so nothing can be added to it or taken out; fit it again"
        )
    if mapping.statistics is None and (add is not None or forget is not None):
        raise ReprogramError(
            f"mapping {mapping.name!r} is not estimated from samples, so none can be added or taken out; "
            "fit another mapping, such as blm+"
        )
    for name in remove:
        if name not in mapping.classes and (add is None or name not in add.classes):
            raise unknown("class", name, mapping.classes)
    if add is not None and _times_added(earlier, add.digest) > 0:
        raise ReprogramError(
            f"{add.origin} was added before, and would count twice; give other samples, or take it out first with --forget"
        )
    new = () if add is None else tuple(name for name in add.classes if name not in mapping.classes)
    record: dict[str, Any] = {}
    with ignore_evidence_warnings():
        fresh = mapping.with_classes(_extended(mapping.classes, new, keep_order))
        if add is not None:
            counted = add.count(fresh, None)
            fresh.learn(counted)
            record["add"] = {"from": add.origin, "samples": counted.n, "sha256": add.digest, "new_classes": list(new)}
        if forget is not None:
            strange = [name for name in forget.classes if name not in fresh.classes]
            if strange:
                raise ReprogramError(
                    f"{forget.origin} has the class {shown(strange[0])}, which the mapping does not have, so it cannot "
                    "forget samples of it; give samples that were added before"
                )
            counted = forget.count(fresh, None)
            fresh.forget(counted)
            record["forget"] = {"from": forget.origin, "samples": counted.n, "sha256": forget.digest}
        for name in remove:
            fresh = fresh.without_class(name, _all_samples(fresh, name, samples))
            record.setdefault("remove", []).append(name)
    if fresh.statistics is not None:
        fresh.estimate()  # once more, for the warning about classes of which nothing is left
    return Change(fresh, record, _counts(mapping), _counts(fresh))


def update_mapping(
    saved: AnswerMapping,
    *,
    add: Files | None = None,
    forget: Files | None = None,
    remove: Sequence[str] = (),
    samples: Files | None = None,
    labels: str | Path | LabelTable | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> tuple[AnswerMapping, Change]:
    """Change a mapping by shards of answers; see `change_mapping`. Rows of the split test count nowhere.

    Where its source labels were collected from top-K answers, those of new answers join them, and K grows with the longest
    answer if it was not given: the result is that of one fit to all files.

    Args:
        saved: the mapping, which stays as it is.
        add: shards to add.
        forget: shards to take out.
        remove: names of classes to remove.
        samples: shards with all rows of these classes.
        labels: a table of the true labels of all these shards, see `fit_files`.
        workers: who reads the shards; by default this process.
        progress: where to show progress.
    """
    progress = progress or Progress()
    truth = None if labels is None else LabelTable.read(labels)
    with Workers() if workers is None else nullcontext(workers) as hands:
        surveys = {
            name: survey_shards(find_shards(files), hands, progress, labels=truth)
            for name, files in (("add", add), ("forget", forget), ("samples", samples))
            if files is not None
        }
        mapping, sets = saved.mapping, saved.labels
        if "add" in surveys and not sets.sources_numbered:
            mapping = _with_vocabulary(saved, surveys["add"])
            sets = replace(sets, source_labels=tuple(mapping.source_labels))
        given = {
            name: _shard_samples(sets, [Path(path) for path in survey.starts], survey, hands, progress, truth)
            for name, survey in surveys.items()
        }
        keep_order = sets.classes_numbered and "label_mapper" not in saved.others
        change = change_mapping(mapping, remove=remove, keep_order=keep_order, earlier=saved.updates, **given)
    fresh = change.mapping
    rows = dict(zip(saved.labels.classes, saved.samples.tolist(), strict=True))
    record = change.record if saved.held_out is None else {**change.record, "held_out_before": saved.held_out.to_json()}
    updated = AnswerMapping(
        fresh,
        replace(sets, classes=fresh.classes),
        torch.tensor([rows[name] for name in fresh.classes]) if fresh.statistics is None else fresh.statistics.samples,
        notes=saved.notes,
        whole_answers=saved.whole_answers,
        updates=(*saved.updates, record),
        others=_other_sections(saved.others, fresh.classes),
    )
    return updated, change


def _times_added(earlier: Sequence[dict[str, Any]], digest: str) -> int:
    """How often samples were added and not taken out again."""
    found = [part for record in earlier for part in ("add", "forget") if _digest_of(record.get(part)) == digest]
    return found.count("add") - found.count("forget")


def _digest_of(facts: Any) -> Any:
    return facts.get("sha256") if isinstance(facts, dict) else None


def _extended(classes: tuple[str, ...], new: Sequence[str], keep_order: bool) -> tuple[str, ...]:
    """The classes with new ones: in their place where the classes are sorted, else behind them."""
    longer = (*classes, *new)
    if not keep_order:
        for order in (sorted_classes, lambda names: tuple(sorted(names))):
            if order(classes) == classes:
                return order(longer)
    return longer


def _all_samples(mapping: Mapping, name: str, samples: Samples | None) -> Statistics | None:
    """The statistics of all samples of a class, where a mapping cannot do without."""
    assert name in mapping.classes
    number = mapping.classes.index(name)
    if mapping.statistics is None or not mapping.statistics.shares(number):
        return None
    if samples is None:
        raise ReprogramError(
            f"mapping {mapping.name!r} needs all samples of class {name!r} to take them out of what its classes share; "
            "give them with --samples"
        )
    counted = samples.count(mapping, name)
    expected = int(mapping.statistics.counted[number])
    if counted.n != expected:
        raise ReprogramError(
            f"{samples.origin} has {counted.n} samples of class {name!r}, but the mapping was given {expected}; "
            "give exactly those"
        )
    return counted


def _counts(mapping: Mapping) -> dict[str, int]:
    counts = [0] * mapping.k_target if mapping.statistics is None else mapping.statistics.counted.tolist()
    return dict(zip(mapping.classes, counts, strict=True))


def _shard_samples(
    labels: LabelSets,
    shards: Sequence[Path],
    survey: Survey,
    workers: Workers,
    progress: Progress,
    truth: LabelTable | None,
) -> Samples:
    known = labels.class_numbers
    found = [labels.classes[known[label]] if label in known else label for label in survey.labels]

    def count(mapping: Mapping, only: str | None) -> Statistics:
        sets = replace(labels, classes=mapping.classes)
        plan = Plan(sets, mapping.config(), HoldOutRule("none"), survey.starts, only=only, truth=truth)
        counted = count_shards(plan, shards, workers, progress)
        assert counted.kept is not None
        return counted.kept

    origin = f"shard {str(shards[0])!r}" + (f" and {len(shards) - 1} more" if len(shards) > 1 else "")
    files = [*shards, *([] if truth is None else [truth.path])]
    content = hashlib.sha256("".join(sorted(map(sha256, files))).encode())
    return Samples(origin, tuple(dict.fromkeys(found)), content.hexdigest(), count)


def _with_vocabulary(saved: AnswerMapping, survey: Survey) -> Mapping:
    """The mapping with the source labels of new answers among its own, and with a K that counts all labels of them."""
    mapping, statistics = saved.mapping, saved.mapping.statistics
    if survey.k_source is not None or statistics is None or not mapping.takes_answers:
        return mapping
    source_labels = sorted_classes({*mapping.source_labels, *survey.vocabulary})
    places = {label: number for number, label in enumerate(mapping.source_labels)}
    counted = statistics.with_sources([places.get(label) for label in source_labels])
    config = mapping.config()
    if saved.whole_answers and isinstance(statistics, JointStatistics):
        config["top_k"] = max(statistics.top_k, survey.longest)
    fresh = make_mapping(source_labels=source_labels, classes=mapping.classes, **config)
    assert fresh.statistics is not None
    fresh.statistics.load_state_dict(counted.state_dict())
    fresh.certainty = None if mapping.certainty is None else mapping.certainty.aged()
    return fresh


def _other_sections(others: Table[str, Any], classes: tuple[str, ...]) -> dict[str, Any]:
    """What a `LabelMapper` has written about its labels, for other classes."""
    if "label_mapper" not in others:
        return dict(others)
    section = others["label_mapper"]
    try:
        facts, kind = dict(section), np.dtype(str(section["dtype"])).kind
        labels = {str(label): label for label in section["labels"]}
    except Exception:  # numpy is led into many errors by texts that name no type
        raise ReprogramError(
            "what this artefact says about the labels of its LabelMapper cannot be read; save it again with LabelMapper.save"
        ) from None
    for name in classes:
        whole = len(name) < _LONGEST_NUMBER and name.removeprefix("-").isdecimal()
        if name not in labels and (kind not in "iuU" or (kind != "U" and not whole)):
            raise ReprogramError(
                f"class {shown(name)} was given, but the labels of this LabelMapper are of type {facts['dtype']}; add it "
                "with LabelMapper.load(folder).add_class"
            )
    facts["labels"] = [labels[name] if name in labels else name if kind == "U" else int(name) for name in classes]
    if kind == "U":  # wide enough for the longest
        facts["dtype"] = np.asarray(facts["labels"]).dtype.str
    return {**others, "label_mapper": facts}
