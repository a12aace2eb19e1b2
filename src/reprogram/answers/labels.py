"""Texts → numbers: which classes and source labels there are, and a block's rows as tensors in their terms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.block import Block
from reprogram.answers.survey import Survey
from reprogram.data.splits import sorted_classes
from reprogram.errors import ReprogramError, nearest, shown
from reprogram.names import first_twice

_MOST_CELLS = 2**28  # of ω and of what is counted for it, which takes 2 GiB


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
        shared: (N,) how many labels of the answer have a name that several source labels have.
        groups: (N,) int64 numbers of the groups that rows are of, where there are groups.
    """

    targets: Tensor
    logits: Tensor | None
    indices: Tensor | None
    probabilities: Tensor | None
    unscored: Tensor
    unseen: Tensor
    shared: Tensor
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def where(self, mask: Tensor) -> "Rows":
        """The rows at which the mask is true."""
        parts: list[Any] = [getattr(self, field.name) for field in fields(self)]
        chosen: list[Any] = [None if part is None else part[mask] for part in parts]
        return Rows(*chosen)


def rank_weights(count: int) -> list[float]:
    """What an answer without scores counts: 1/rank, scaled to sum 1.

    >>> [round(weight, 3) for weight in rank_weights(3)]
    [0.545, 0.273, 0.182]
    """
    total = sum(1 / rank for rank in range(1, count + 1))
    return [1 / rank / total for rank in range(1, count + 1)]


@dataclass(frozen=True)
class LabelSets:
    """The two label sets of a mapping, and how rows are read in their terms.

    Two source labels may have one name (ImageNet has two cranes). A number means one of them, the name alone the first.

    Args:
        source_labels: the k_S labels that the frozen model answers with.
        classes: the k_T target classes.
        percent: whether scores run from 0 to 100.
        sources_numbered: whether a source label may also be given by its number; not where the names were collected from
            answers, because there a new label that reads `3` is a name.
        classes_numbered: the same of the classes.
        log_probabilities: whether logits are logarithms of probabilities; see `Statistics.update`.
    """

    source_labels: tuple[str, ...]
    classes: tuple[str, ...]
    percent: bool = False
    sources_numbered: bool = True
    classes_numbered: bool = True
    log_probabilities: bool = False

    @classmethod
    def collect(
        cls,
        survey: Survey,
        source_labels: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        *,
        percent: bool = False,
        log_probabilities: bool = False,
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
            log_probabilities=log_probabilities,
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
            return Rows(targets, self._logits(block), None, None, nothing.bool(), nothing, nothing)
        return self._answers(block, targets)

    def _check(self, survey: Survey) -> None:
        twice = first_twice(self.classes)
        if twice is not None:
            raise ReprogramError(f"the classes name {shown(twice)} more than once; give each a name of its own")
        if len(self.classes) < 2:
            raise ReprogramError(
                f"the rows have the one label {shown((*self.classes, '(none)')[0])}, but at least 2 classes are expected; "
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
        if len(self.source_labels) * len(self.classes) > _MOST_CELLS:
            raise ReprogramError(
                f"there are {len(self.source_labels)} source labels and {len(self.classes)} classes, for which a mapping "
                f"would have more than {_MOST_CELLS} numbers; check that the column label holds classes, or give --classes"
            )
        if self.percent and survey.vocabulary and survey.highest_score <= 1:
            raise ReprogramError(
                f"the scores were said to be percentages, but the highest is {survey.highest_score:g}; leave --scores out"
            )

    @cached_property
    def class_numbers(self) -> dict[str, int]:
        """The number of each class, by all the texts that mean it."""
        return _numbers(self.classes, self.classes_numbered)

    @cached_property
    def source_numbers(self) -> dict[str, int]:
        """The number of each source label, by all the texts that mean it."""
        return _numbers(self.source_labels, self.sources_numbered)

    @cached_property
    def shared_names(self) -> dict[str, list[int]]:
        """The numbers of the source labels that have one name, for each such name."""
        places: dict[str, list[int]] = {}
        for number, label in enumerate(self.source_labels):
            places.setdefault(label, []).append(number)
        return {label: numbers for label, numbers in places.items() if len(numbers) > 1}

    def _target(self, block: Block, row: int, strict: bool) -> int:
        label = block.labels[row] if block.labels is not None else ""
        number = self.class_numbers.get(label, -1)
        if number < 0 and strict:
            raise ReprogramError(
                f"{block.place(row)} has the label {shown(label)}, which is none of the {len(self.classes)} classes"
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
        unscored = np.zeros(block.rows, dtype=bool)
        unseen, shared = (np.zeros(block.rows, dtype=np.int64) for _ in range(2))
        numbers = self.source_numbers
        for row, (names, scores) in enumerate(zip(block.top_labels, block.top_scores, strict=True)):
            found = [numbers.get(name, -1) for name in names]
            indices[row, : len(names)] = found
            unseen[row] = found.count(-1)
            shared[row] = sum(name in self.shared_names for name in names)
            unscored[row] = any(map(math.isnan, scores))
            weights[row, : len(names)] = rank_weights(len(names)) if unscored[row] else self._fractions(block, row, scores)
        parts = map(torch.from_numpy, (indices, weights, unscored, unseen, shared))
        return Rows(targets, None, *parts)

    def _fractions(self, block: Block, row: int, scores: Sequence[float]) -> Sequence[float]:
        highest, lowest = max(scores, default=0.0), min(scores, default=0.0)
        percent = self.percent or block.percent
        limit = 100.0 if percent else 1.0
        if lowest < 0 or highest > limit * (1 + 1e-6):
            wrong = lowest if lowest < 0 else highest
            remedy = (
                "say so with --scores percent if they are percentages"
                if not percent and lowest >= 0 and highest <= 100
                else "logits go into the column logits"
            )
            raise ReprogramError(
                f"{block.place(row)} has the score {wrong:g}, but scores from 0 to {limit:g} are expected; {remedy}"
            )
        return [min(score / limit, 1.0) for score in scores]


def _numbers(labels: Sequence[str], numbered: bool) -> dict[str, int]:
    """The number of each label by its name and, if wanted, by the number itself where that is no label's name.

    Of several labels of one name, the name means the first. Blanks around a name may be missing, as readers drop them.
    """
    names = {label: number for number, label in reversed(list(enumerate(labels)))}
    names = {label.strip(): number for label, number in reversed(names.items())} | names
    return {str(number): number for number in range(len(labels))} | names if numbered else names
