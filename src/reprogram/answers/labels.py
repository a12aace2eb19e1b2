"""Texts → numbers: which classes and source labels there are, and a block's rows as tensors in their terms."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.block import Block
from reprogram.answers.shards import read_blocks
from reprogram.data.splits import SPLIT_WORDS, sorted_classes
from reprogram.errors import ReprogramError, nearest


@dataclass
class Survey:
    """What one shard, or several together, hold: found in one cheap pass, and the same whatever the sharding.

    Attributes:
        rows: how many rows.
        labels: how many rows each target label has, by its text.
        k_source: how many logits a row has; None for top-K answers.
        columns: the source labels that the files give their logits.
        vocabulary: the source labels of all top-K answers.
        highest_score: the largest score of all top-K answers.
        test_rows: how many rows name the split `test`.
        path: the first shard.
        starts: the number of each shard's first row among all rows.
    """

    path: Path
    rows: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    k_source: int | None = None
    columns: tuple[str, ...] | None = None
    vocabulary: set[str] = field(default_factory=set)
    highest_score: float = 0.0
    test_rows: int = 0
    starts: dict[str, int] = field(default_factory=dict)

    def merge(self, other: "Survey") -> None:
        """Add another shard, which must hold answers of the same form."""
        if not other.rows:
            return
        if not self.rows:
            self.__dict__.update(other.__dict__)
            return
        ours, theirs = (
            "top-K answers" if survey.k_source is None else f"{survey.k_source} logits per row" for survey in (self, other)
        )
        if ours != theirs:
            raise ReprogramError(
                f"shard {str(self.path)!r} holds {ours}, but {str(other.path)!r} holds {theirs}; give shards of one model"
            )
        if set(self.columns or ()) != set(other.columns or ()):
            raise ReprogramError(
                f"shards {str(self.path)!r} and {str(other.path)!r} name different source labels; give shards of one model"
            )
        self.rows += other.rows
        self.test_rows += other.test_rows
        self.vocabulary |= other.vocabulary
        self.highest_score = max(self.highest_score, other.highest_score)
        for label, count in other.labels.items():
            self.labels[label] = self.labels.get(label, 0) + count


def survey_shard(_: None, path: Path) -> Survey:
    """Look at one shard: labels, form and vocabulary, without the logits."""
    survey = Survey(path)
    for block in read_blocks(path, logits=False):
        survey.rows += block.rows
        survey.k_source, survey.columns = block.k_source, block.columns
        for row, label in enumerate(block.labels or [""]):
            if not label:
                raise ReprogramError(
                    f"{block.place(row)} has no label, but a mapping is fitted to labels; add the column label"
                )
            survey.labels[label] = survey.labels.get(label, 0) + 1
        for names in block.top_labels or ():
            survey.vocabulary.update(names)
        highest = max((score for scores in block.top_scores or () for score in scores if score == score), default=0.0)
        survey.highest_score = max(survey.highest_score, highest)
        survey.test_rows += int(test_rows(block).sum())
    return survey


def test_rows(block: Block) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which rows name the split `test`; a word that is no split is a mistake."""
    found = np.zeros(block.rows, dtype=bool)
    for row, word in enumerate(block.splits or ()):
        if word and word.lower() not in SPLIT_WORDS:
            raise ReprogramError(
                f"{block.place(row)} has the split {word!r}, but one of {', '.join(SPLIT_WORDS)} is expected; rename it"
            )
        found[row] = SPLIT_WORDS.get(word.lower()) == "test"
    return found


test_rows.__test__ = False  # type: ignore[attr-defined]  # a rule about rows, not a test


@dataclass(frozen=True)
class Rows:
    """The rows of a block in terms of numbers.

    Attributes:
        targets: (N,) class numbers, −1 where a row has no label or one that is no class.
        logits: (N, k_S), or None.
        indices: (N, K) source labels of top-K answers, −1 where there is none or an unseen one; or None.
        probabilities: (N, K) their scores in [0, 1].
        unscored: (N,) whether scores were missing, so that the answer was weighed by rank.
        unseen: (N,) how many labels of the answer are not among the source labels.
    """

    targets: Tensor
    logits: Tensor | None
    indices: Tensor | None
    probabilities: Tensor | None
    unscored: Tensor
    unseen: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def where(self, mask: Tensor) -> "Rows":
        """The rows at which the mask is true."""
        logits, indices, probabilities = (
            None if part is None else part[mask] for part in (self.logits, self.indices, self.probabilities)
        )
        return Rows(self.targets[mask], logits, indices, probabilities, self.unscored[mask], self.unseen[mask])


def rank_weights(count: int) -> list[float]:
    """What an answer without scores counts: 1/rank, scaled to sum 1.

    >>> [round(weight, 3) for weight in rank_weights(3)]
    [0.545, 0.273, 0.182]
    """
    total = sum(1 / rank for rank in range(1, count + 1))
    return [1 / rank / total for rank in range(1, count + 1)]


@dataclass(frozen=True)
class LabelSets:
    """The two label sets of a mapping.

    Args:
        source_labels: the k_S labels that the frozen model answers with.
        classes: the k_T target classes.
        percent: whether scores run from 0 to 100.
        sources_numbered: whether a source label may also be given by its number; not where the names were collected from
            answers, because there a new label that reads `3` is a name.
        classes_numbered: the same of the classes.
    """

    source_labels: tuple[str, ...]
    classes: tuple[str, ...]
    percent: bool = False
    sources_numbered: bool = True
    classes_numbered: bool = True

    @classmethod
    def collect(
        cls,
        survey: Survey,
        source_labels: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        *,
        percent: bool = False,
    ) -> "LabelSets":
        """Take label sets as given, or as a survey found them: in the order of their spelling, numbers by value."""
        if source_labels is None:
            source_labels = survey.columns
        if source_labels is None and survey.k_source is not None:
            source_labels = [f"label {number}" for number in range(survey.k_source)]
        sets = cls(
            tuple(source_labels) if source_labels is not None else sorted_classes(survey.vocabulary),
            tuple(classes) if classes is not None else sorted_classes(survey.labels),
            percent,
            sources_numbered=source_labels is not None,
            classes_numbered=classes is not None,
        )
        sets._check(survey)
        return sets

    def rows(self, block: Block, *, strict: bool = True) -> Rows:
        """Bring a block to numbers.

        Args:
            block: rows of a shard.
            strict: whether a label that is no class is an error, as in fitting; otherwise it becomes −1.
        """
        targets = torch.tensor([self._target(block, row, strict) for row in range(block.rows)], dtype=torch.int64)
        nothing = torch.zeros(block.rows, dtype=torch.int64)
        if block.logits is not None:
            return Rows(targets, self._logits(block), None, None, nothing.bool(), nothing)
        return self._answers(block, targets)

    def _check(self, survey: Survey) -> None:
        if len(set(self.classes)) < len(self.classes):
            twice = next(label for label in self.classes if self.classes.count(label) > 1)
            raise ReprogramError(f"the classes name {twice!r} more than once; give each a name of its own")
        if len(self.classes) < 2:
            raise ReprogramError(
                f"the rows have the one label {(*self.classes, '(none)')[0]!r}, but at least 2 classes are expected; "
                "check the column label"
            )
        if survey.k_source is not None and survey.k_source != len(self.source_labels):
            raise ReprogramError(
                f"{len(self.source_labels)} source labels were given, but {str(survey.path)!r} has {survey.k_source} logits "
                "per row; give one name for each logit, in their order"
            )
        if not self.source_labels:
            raise ReprogramError(
                f"no answer in {str(survey.path)!r} and its like names a label; check the column topk_labels"
            )
        if self.percent and survey.vocabulary and survey.highest_score <= 1:
            raise ReprogramError(
                f"the scores were said to be percentages, but the highest is {survey.highest_score:g}; leave --scores out"
            )

    @cached_property
    def _class_numbers(self) -> dict[str, int]:
        return _numbers(self.classes, self.classes_numbered)

    @cached_property
    def source_numbers(self) -> dict[str, int]:
        """The number of each source label, by all the texts that mean it."""
        return _numbers(self.source_labels, self.sources_numbered)

    def _target(self, block: Block, row: int, strict: bool) -> int:
        label = block.labels[row] if block.labels is not None else ""
        number = self._class_numbers.get(label, -1)
        if number < 0 and strict:
            raise ReprogramError(
                f"{block.place(row)} has the label {label!r}, which is none of the {len(self.classes)} classes"
                f"{nearest(label, self.classes)}; mend the label or the list of classes"
            )
        return number

    def _logits(self, block: Block) -> Tensor:
        assert block.logits is not None
        if block.k_source != len(self.source_labels):
            raise ReprogramError(
                f"shard {str(block.path)!r} has {block.k_source} logits per row, but the mapping has "
                f"{len(self.source_labels)} source labels; give answers of the same model"
            )
        # a copy in the machine's own byte order: what comes from a file may be read-only or of the other order
        logits = block.logits.astype(np.float32 if block.logits.dtype in (np.float16, np.float32) else np.float64)
        if block.columns is not None and block.columns != self.source_labels:
            places = {name: place for place, name in enumerate(block.columns)}
            missing = [label for label in self.source_labels if label not in places]
            if missing or len(places) < len(block.columns):
                raise ReprogramError(
                    f"shard {str(block.path)!r} names other source labels than the mapping ({len(missing)} of its "
                    f"{len(self.source_labels)} are missing), or in another order; give answers of the same model"
                )
            logits = np.ascontiguousarray(logits[:, [places[label] for label in self.source_labels]])
        return torch.from_numpy(logits)

    def _answers(self, block: Block, targets: Tensor) -> Rows:
        assert block.top_labels is not None
        assert block.top_scores is not None
        width = max((len(names) for names in block.top_labels), default=0)
        indices = np.full((block.rows, max(width, 1)), -1, dtype=np.int64)
        weights = np.zeros(indices.shape)
        unscored, unseen = np.zeros(block.rows, dtype=bool), np.zeros(block.rows, dtype=np.int64)
        numbers = self.source_numbers
        for row, (names, scores) in enumerate(zip(block.top_labels, block.top_scores, strict=True)):
            found = [numbers.get(name, -1) for name in names]
            indices[row, : len(names)] = found
            unseen[row] = found.count(-1)
            unscored[row] = any(map(math.isnan, scores))
            weights[row, : len(names)] = rank_weights(len(names)) if unscored[row] else self._fractions(block, row, scores)
        parts = map(torch.from_numpy, (indices, weights, unscored, unseen))
        return Rows(targets, None, *parts)

    def _fractions(self, block: Block, row: int, scores: Sequence[float]) -> Sequence[float]:
        highest, lowest = max(scores, default=0.0), min(scores, default=0.0)
        limit = 100.0 if self.percent else 1.0
        if lowest < 0 or highest > limit * (1 + 1e-6):
            wrong = lowest if lowest < 0 else highest
            remedy = (
                "say so with --scores percent if they are percentages"
                if not self.percent and lowest >= 0 and highest <= 100
                else "logits go into the column logits"
            )
            raise ReprogramError(
                f"{block.place(row)} has the score {wrong:g}, but scores from 0 to {limit:g} are expected; {remedy}"
            )
        return [min(score / limit, 1.0) for score in scores]


def _numbers(labels: Iterable[str], numbered: bool) -> dict[str, int]:
    """The number of each label by its name and, if wanted, by the number itself where that is no label's name.

    Models have labels of the same name (ImageNet has two cranes); in top-K answers they count as the first of them.
    """
    names = {label: number for number, label in reversed(list(enumerate(labels)))}
    return {str(number): number for number in names.values()} | names if numbered else names
