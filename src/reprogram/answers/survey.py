"""A first, cheap look at shards: how many rows, which labels, which form; what everything after it depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprogram.answers.holdout import named_group, row_groups, test_rows
from reprogram.answers.manifest import check_shard
from reprogram.answers.parallel import Workers
from reprogram.answers.shards import read_blocks
from reprogram.answers.truth import LabelTable, images_meant
from reprogram.data.group_patterns import GroupPattern
from reprogram.errors import ReprogramError
from reprogram.mappings.grouping import group_hash
from reprogram.progress import Progress, Sized


@dataclass
class Survey:
    """What one shard, or several together, hold: the same whatever the sharding.

    Attributes:
        path: the first shard.
        rows: how many rows.
        labels: how many rows each target label has, by its text.
        k_source: how many logits a row has; None for top-K answers.
        columns: the source labels that the files give their logits.
        vocabulary: the source labels of all top-K answers.
        longest: how many labels the longest of them names.
        highest_score: the largest score of all top-K answers.
        test_rows: how many rows name the split `test`.
        starts: the number of each shard's first row among all rows.
        groups: the groups of rows, as hashes of their names: 1 for those with rows to fit, 2 with test rows, 3 with both.
        answers: how many rows there are, also those that a table of labels does not name.
        example: what the image of one of them is called.
        truths: the image that each row of a table of labels meant.
    """

    path: Path
    rows: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    k_source: int | None = None
    columns: tuple[str, ...] | None = None
    vocabulary: set[str] = field(default_factory=set)
    longest: int = 0
    highest_score: float = 0.0
    test_rows: int = 0
    starts: dict[str, int] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    answers: int = 0
    example: str = ""
    truths: dict[int, str] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """What the rows are, in words."""
        return "top-K answers" if self.k_source is None else f"{self.k_source} logits per row"

    def merge(self, other: "Survey") -> None:
        """Add another shard, which must hold answers of the same form."""
        self.answers += other.answers
        self.example = self.example or other.example
        if not other.rows:
            return
        if not self.rows:
            self.__dict__.update({**other.__dict__, "answers": self.answers, "example": self.example})
            return
        if self.form != other.form:
            raise ReprogramError(
                f"shard {str(self.path)!r} holds {self.form}, but {str(other.path)!r} holds {other.form}; "
                "give shards of one model"
            )
        if set(self.columns or ()) != set(other.columns or ()):
            raise ReprogramError(
                f"shards {str(self.path)!r} and {str(other.path)!r} name different source labels; give shards of one model"
            )
        self.rows += other.rows
        self.test_rows += other.test_rows
        self.vocabulary |= other.vocabulary
        self.longest = max(self.longest, other.longest)
        self.highest_score = max(self.highest_score, other.highest_score)
        for label, count in other.labels.items():
            self.labels[label] = self.labels.get(label, 0) + count
        for group, sides in other.groups.items():
            self.groups[group] = self.groups.get(group, 0) | sides


def survey_shards(
    shards: Sequence[Path],
    workers: Workers,
    progress: Progress,
    checksums: Mapping[str, str] | None = None,
    pattern: GroupPattern | None = None,
    labels: LabelTable | None = None,
) -> Survey:
    """Look at all shards.

    Args:
        shards: the files.
        workers: who looks at them.
        progress: where to show progress.
        checksums: SHA-256 of the files by name, where it is known what they should hold.
        pattern: reads groups off image names, instead of the column `group`.
        labels: a table of the true labels; only rows that it names count.
    """
    if labels is not None:
        labels.check_shards(shards)
    found, starts = Survey(shards[0]), {}
    shared = (dict(checksums or {}), pattern, labels)
    parts = Sized(workers.map(_survey_shard, shared, shards), len(shards))
    for path, part in zip(shards, progress.track(parts, "looking at the shards"), strict=True):
        starts[str(path)] = found.rows
        if labels is not None:
            labels.meet(found.truths, part.truths.items())
            part.truths = found.truths
        found.merge(part)
    found.starts = starts
    if labels is not None and not found.rows and found.answers:
        raise labels.unmatched(found.answers, found.example)
    if not found.rows:
        raise ReprogramError(f"the {len(shards)} shards from {str(shards[0])!r} on hold no row; check the files")
    return found


def _survey_shard(shared: tuple[Mapping[str, str], GroupPattern | None, LabelTable | None], path: Path) -> Survey:
    checksums, pattern, labels = shared
    return survey_shard(checksums, path, pattern, labels)


def survey_shard(
    checksums: Mapping[str, str], path: Path, pattern: GroupPattern | None = None, labels: LabelTable | None = None
) -> Survey:
    """Look at one shard: labels, form, vocabulary and groups, without the logits."""
    check_shard(path, checksums)
    survey = Survey(path)
    for block in read_blocks(path, logits=False, labels=labels, others=True):
        survey.answers += block.rows
        if labels is not None:
            survey.example = survey.example or block.image(0)
            labels.meet(survey.truths, images_meant(block))
            block = block.chosen([row for row, truth in enumerate(block.truths or ()) if truth >= 0])
            if not block.rows:
                continue
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
            survey.longest = max(survey.longest, len(names))
        highest = max((score for scores in block.top_scores or () for score in scores if score == score), default=0.0)
        survey.highest_score = max(survey.highest_score, highest)
        tests = test_rows(block)
        survey.test_rows += int(tests.sum())
        for name, test in zip(row_groups(block, pattern) or (), tests.tolist(), strict=False):
            if name:
                group = group_hash(*named_group(name))
                survey.groups[group] = survey.groups.get(group, 0) | (2 if test else 1)
    return survey
