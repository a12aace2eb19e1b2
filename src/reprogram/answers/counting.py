"""The passes over shards: what their rows say is counted, and a mapping is measured on them, wherever they are read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.holdout import HoldOutRule
from reprogram.answers.labels import LabelSets, Rows
from reprogram.answers.mapping import AnswerMapping
from reprogram.answers.parallel import Workers
from reprogram.answers.shards import read_blocks
from reprogram.answers.truth import LabelTable
from reprogram.mappings.base import Mapping
from reprogram.mappings.making import make_mapping
from reprogram.progress import Progress, Sized
from reprogram.scores import GroupSums, Score
from reprogram.statistics.base import Statistics

Array = np.ndarray[Any, Any]
#: Tensors by name, as arrays: between processes, tensors would take shared memory.
State = dict[str, Array]


@dataclass(frozen=True)
class Plan:
    """What every worker needs to count or to score a shard.

    Attributes:
        labels: the label sets.
        mapping: what `make_mapping` takes besides these.
        rule: which rows are fitted and which are measured on.
        starts: the number of each shard's first row among all rows.
        state: the tensors of the mapping to measure, but for its statistics.
        samples: how many rows of each class it was estimated from.
        only: the one class whose rows count; None for all.
        truth: a table of the true labels; only rows that it names count.
    """

    labels: LabelSets
    mapping: dict[str, Any]
    rule: HoldOutRule
    starts: dict[str, int]
    state: State | None = None
    samples: Array | None = None
    only: str | None = None
    truth: LabelTable | None = None

    def make(self) -> Mapping:
        """The mapping, with nothing counted."""
        return make_mapping(source_labels=self.labels.source_labels, classes=self.labels.classes, **self.mapping)

    def measuring(self, fitted: AnswerMapping, rule: HoldOutRule) -> "Plan":
        """The same with the mapping that is to be measured."""
        state = {key: value for key, value in fitted.mapping.state_dict().items() if not key.startswith("statistics.")}
        return replace(self, rule=rule, state=_arrays(state), samples=fitted.samples.numpy())

    def fitted(self) -> AnswerMapping:
        """The mapping that is to be measured, without its statistics."""
        assert self.state is not None
        assert self.samples is not None
        mapping = self.make()
        mapping.load_state_dict(_tensors(self.state), strict=False)
        return AnswerMapping(mapping, self.labels, torch.tensor(self.samples))


@dataclass
class Counted:
    """What rows add up to: those that are fitted, and those that are set aside.

    Attributes:
        kept: the statistics of the fitted rows; None for a mapping that is not estimated from data.
        held: the same of the rows that are measured on.
        samples: (2, k_T) rows of each class, fitted and measured on.
        left_out: rows of the split test that are neither.
        unscored: how many answers lack scores.
        unseen: how many labels of answers are not among the source labels.
        shared: how many labels of answers have a name that several source labels have.
    """

    kept: Statistics | None
    held: Statistics | None
    samples: Array
    left_out: int = 0
    unscored: int = 0
    unseen: int = 0
    shared: int = 0

    @classmethod
    def nothing(cls, plan: Plan) -> "Counted":
        """Empty."""
        mapping = plan.make()
        kept, held = (None if mapping.statistics is None else mapping.new_statistics() for _ in range(2))
        return cls(kept, held, np.zeros((2, len(plan.labels.classes)), dtype=np.int64))

    def add(self, rows: Rows, kept: Tensor, held: Tensor, *, log_probabilities: bool) -> None:
        """Count rows (N,), of which these masks tell the side; for the last argument see `Statistics.update`."""
        for side, (statistics, mask) in enumerate(((self.kept, kept), (self.held, held))):
            part = rows.where(mask)
            self.samples[side] += torch.bincount(part.targets, minlength=self.samples.shape[1]).numpy()
            if statistics is not None and len(part):
                _update(statistics, part, log_probabilities)
        used = kept | held
        self.left_out += int((~used).sum())
        for name in ("unscored", "unseen", "shared"):
            setattr(self, name, getattr(self, name) + int(getattr(rows, name)[used].sum()))

    def merge(self, parts: "_CountedParts") -> None:
        """Add what another process has counted."""
        for mine, theirs in ((self.kept, parts.kept), (self.held, parts.held)):
            if mine is not None:
                counted = mine.empty()
                counted.load_state_dict(_tensors(theirs))
                mine.merge(counted)
        self.samples += parts.samples
        for name, value in parts.numbers.items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class _CountedParts:
    """`Counted` as it travels between processes."""

    kept: State
    held: State
    samples: Array
    numbers: dict[str, int]


def count_shards(
    plan: Plan, shards: Sequence[Path], workers: Workers, progress: Progress, what: str = "counting answers"
) -> Counted:
    """What all shards add up to, merged in their order."""
    total = Counted.nothing(plan)
    for part in progress.track(Sized(workers.map(_count_shard, plan, shards), len(shards)), what):
        total.merge(part)
    return total


def _count_shard(plan: Plan, path: Path) -> _CountedParts:
    counted = Counted.nothing(plan)
    for rows, kept, held in sided_rows(plan, path):
        counted.add(rows, kept, held, log_probabilities=plan.labels.log_probabilities)
    kept_state, held_state = ({} if part is None else _arrays(part.state_dict()) for part in (counted.kept, counted.held))
    numbers = {name: getattr(counted, name) for name in ("left_out", "unscored", "unseen", "shared")}
    return _CountedParts(kept_state, held_state, counted.samples, numbers)


def sided_rows(plan: Plan, path: Path) -> Iterator[tuple[Rows, Tensor, Tensor]]:
    """The rows of a shard, block after block: which of them are fitted (N,), and which are measured on (N,)."""
    start = plan.starts.get(str(path), 0)
    for block in read_blocks(path, labels=plan.truth):
        kept, held = map(torch.from_numpy, plan.rule.sides(block, start))
        rows = plan.labels.rows(block, strict=plan.only is None)
        if plan.rule.grouped:
            rows = replace(rows, groups=plan.rule.group_numbers(block, start))
        start += block.rows
        if plan.only is not None:
            kept = kept & (rows.targets == plan.labels.classes.index(plan.only))
        yield rows, kept, held


@dataclass
class Measured:
    """How rows were classified.

    Attributes:
        n: how many were measured on.
        correct: how many of them were classified rightly.
        by_frequency: how many got the most frequent class, for lack of a usable label.
        groups: where there are groups, how many rows of each were classified rightly, and how many there are.
    """

    n: int = 0
    correct: int = 0
    by_frequency: int = 0
    groups: dict[int, tuple[int, int]] = field(default_factory=dict)

    def merge(self, other: "Measured") -> None:
        """Add others."""
        self.n, self.correct = self.n + other.n, self.correct + other.correct
        self.by_frequency += other.by_frequency
        for group, (hits, size) in other.groups.items():
            before = self.groups.get(group, (0, 0))
            self.groups[group] = before[0] + hits, before[1] + size

    def score(self) -> Score:
        """How many of how many were right."""
        if not self.groups:
            return Score(self.correct, self.n)
        sums = GroupSums()
        sums.add((hits for hits, _ in self.groups.values()), (size for _, size in self.groups.values()))
        return sums.score()


def score_shards(plan: Plan, shards: Sequence[Path], workers: Workers, progress: Progress) -> Measured:
    """Classify the rows that are measured on."""
    total = Measured()
    for part in progress.track(Sized(workers.map(_score_shard, plan, shards), len(shards)), "measuring"):
        total.merge(part)
    return total


def _score_shard(plan: Plan, path: Path) -> Measured:
    fitted, total = plan.fitted(), Measured()
    for rows, _, held in sided_rows(plan, path):
        part = rows.where(held)
        if len(part):
            said = fitted.predict_rows(part)
            right = said.indices == part.targets
            found = Measured(len(part), int(right.sum()), int(said.guessed.sum()))
            if part.groups is not None:
                names, index, sizes = part.groups.unique(return_inverse=True, return_counts=True)
                hits = torch.bincount(index[right], minlength=len(names))
                found.groups = dict(zip(names.tolist(), zip(hits.tolist(), sizes.tolist(), strict=True), strict=True))
            total.merge(found)
    return total


def _update(statistics: Statistics, rows: Rows, log_probabilities: bool) -> None:
    if rows.logits is not None:
        statistics.update(rows.logits, rows.targets, log_probabilities=log_probabilities)
    else:
        assert rows.indices is not None
        statistics.update_top_k(rows.indices, rows.probabilities, rows.targets)


def _arrays(tensors: dict[str, Tensor]) -> State:
    return {key: tensor.numpy() for key, tensor in tensors.items()}


def _tensors(state: State) -> dict[str, Tensor]:
    return {key: torch.from_numpy(array.copy()) for key, array in state.items()}
