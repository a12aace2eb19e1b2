"""What an audit has found, as one object: rows by suspicion, duplicates, classes, and sentences that sum it up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from reprogram.audit.classes import ClassSize, Confusion
from reprogram.audit.duplicates import Duplicate
from reprogram.audit.judging import BY_TRAIN, SET_ASIDE, UNJUDGED, Judged
from reprogram.data.splits import PARTS
from reprogram.scores import Score
from reprogram.text import shortened


@dataclass(frozen=True)
class Reason:
    """A source label that speaks for the suggested class rather than the given one, or the other way where negative."""

    source: str
    amount: float


@dataclass(frozen=True)
class Suspicion:
    """What is said about one row.

    Attributes:
        place: its number among all rows, from 0.
        name: its image, or its file and row.
        split: train, val or test.
        given: its label.
        suggested: the label that a mapping gives which does not know it; None where its class has no other example.
        lead: by how much the best other label is ahead of the given one, in log-odds: what rows are ordered by.
        wrong: the probability that the given label is wrong; None where nothing could be said.
        sure: the calibrated probability of the suggested label.
        judged: how: by leave-one-out, by the mapping of train, set aside (by the mapping without it), or not at all.
        reasons_for: the source labels that speak most for the suggested label and against the given one.
        reasons_against: those that speak most for the given label.
    """

    place: int
    name: str
    split: str
    given: str
    suggested: str | None
    lead: float | None
    wrong: float | None
    sure: float | None
    judged: str
    reasons_for: tuple[Reason, ...] = ()
    reasons_against: tuple[Reason, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether another label than the given one is suggested."""
        return self.suggested is not None and self.suggested != self.given


@dataclass(frozen=True)
class Audit:
    """What was found in labelled data.

    Attributes:
        classes: the class names.
        source_labels: those of the frozen model.
        mapping: which mapping judged, in words.
        how: how training rows were judged: by leave-one-out, or on folds.
        names: n names of rows.
        splits: (n,) 0 train, 1 val, 2 test.
        labels: (n,) the given class numbers.
        judged: what is said about each row, see `Judged`.
        order: (m,) the places of the audited rows, the most suspicious first; those that could not be judged last.
        duplicates: images that are the same, or nearly so; the surest first.
        confusions: classes that the model takes for each other; the worst first.
        small_classes: classes with too few examples.
        notes: what a reader should know.
    """

    classes: tuple[str, ...]
    source_labels: Sequence[str] = field(repr=False)
    mapping: str
    how: str
    names: Sequence[str] = field(repr=False)
    splits: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    judged: Judged = field(repr=False)
    order: Tensor = field(repr=False)
    duplicates: list[Duplicate] = field(repr=False)
    confusions: list[Confusion] = field(repr=False)
    small_classes: list[ClassSize] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.order)

    @property
    def wrong(self) -> float:
        """About how many of the audited labels are wrong: the sum of the probabilities that each is."""
        return float(self.judged.wrong[self.order].double().sum())

    @property
    def interval(self) -> tuple[float, float]:
        """Between how many, with 95 % confidence: by the likelihood of the share that cannot be explained otherwise."""
        low, high = self.judged.certainty.interval
        count, share = int(self.judged.judged[self.order].sum()), self.judged.certainty.noise
        scale = self.wrong / (share * count) if share * count else 1.0
        return min(low * count * scale, self.wrong), min(max(high * count * scale, self.wrong), float(count))

    @property
    def agreement(self) -> Score:
        """How many of the judged training labels are those that leave-one-out gives."""
        rows = self.order[self.judged.judged[self.order] & (self.splits[self.order] == 0)]
        return Score(int((self.judged.suggested[rows] == self.labels[rows]).sum()), len(rows))

    def suspicious(self, count: int | None = None) -> Iterator[Suspicion]:
        """The audited rows, the most suspicious first; all, or so many."""
        for place in self.order[:count].tolist():
            yield self.row(place)

    def row(self, place: int) -> Suspicion:
        """What is said about the row at a place."""
        said, how = self.judged, int(self.judged.how[place])
        unjudged = how == UNJUDGED
        reasons = [
            Reason(self.source_labels[label], amount)
            for label, amount in zip(said.reasons[place].tolist(), said.amounts[place].tolist(), strict=True)
            if label >= 0
        ]
        return Suspicion(
            place,
            self.names[place],
            PARTS[int(self.splits[place])],
            self.classes[int(self.labels[place])],
            None if unjudged else self.classes[int(said.suggested[place])],
            None if unjudged else float(said.lead[place]),
            None if unjudged else float(said.wrong[place]),
            None if unjudged else float(said.sure[place]),
            {BY_TRAIN: "mapping of train", SET_ASIDE: "set aside", UNJUDGED: "not judged"}.get(how, self.how),
            tuple(reason for reason in reasons if reason.amount > 0),
            tuple(reason for reason in reasons if reason.amount < 0),
        )

    def summary(self) -> list[str]:
        """What was found, in sentences."""
        lines = [self._labels_sentence(), *self._how_sentences()]
        across = sum(one.across for one in self.duplicates)
        if self.duplicates:
            exact = sum(one.exact for one in self.duplicates)
            torn = sum(self.labels[one.first] != self.labels[one.second] for one in self.duplicates)
            lines.append(
                f"{len(self.duplicates)} pairs of images are the same or nearly so ({exact} exactly), {across} of them "
                f"across splits, {int(torn)} with different labels"
            )
        else:
            lines.append("no two images are the same or nearly so")
        if self.confusions:
            worst = self.confusions[0]
            first, second = (shortened(name) for name in (worst.first, worst.second))
            lines.append(
                f"{len(self.confusions)} pairs of classes are taken for each other; most of all {first!r}, which is "
                f"taken for {second!r} in {worst.forth}"
            )
        if self.small_classes:
            least = self.small_classes[0]
            lines.append(
                f"{len(self.small_classes)} classes have too few examples; {shortened(least.name)!r} has {least.examples}"
            )
        return lines

    def _labels_sentence(self) -> str:
        count = int(self.judged.judged[self.order].sum())
        low, high = self.interval
        if self.wrong < 0.5 or low < 0.5:
            least = "" if self.wrong < 0.5 else f"; about {self.wrong:.0f} would fit as well as none"
            return f"no sign of wrong labels among {count:,} (95 % interval 0 to {max(high, 0):.0f}{least})"
        return f"about {self.wrong:.0f} of {count:,} labels look wrong (95 % interval {low:.0f} to {high:.0f})"

    def _how_sentences(self) -> list[str]:
        how = self.judged.how[self.order]
        lines = [
            f"  judged by {self.mapping}; by {self.how} it gives training labels back in {self.agreement}, and the estimate "
            "is how many labels its calibrated probabilities cannot explain otherwise"
        ]
        if aside := int((how == SET_ASIDE).sum()):
            lines.append(f"  {aside} training labels were set aside and judged, like the others, by a mapping without them")
        if others := int((how == BY_TRAIN).sum()):
            lines.append(f"  {others} labels of other splits were judged by the mapping of train")
        if alone := int((how == UNJUDGED).sum()):
            lines.append(f"  {alone} labels could not be judged: no other training example has their class")
        return lines

    def save(self, path: str | Path) -> None:
        """Write all audited rows, the most suspicious first, as `.csv`, `.jsonl` or `.parquet`."""
        from reprogram.audit.write import write_audit

        write_audit(Path(path), self)


def ordered(judged: Judged, audited: Tensor) -> Tensor:
    """The places of the audited rows (n,): those first where another label leads most, those last that were not judged."""
    places = audited.nonzero().flatten()
    key = judged.lead[places].masked_fill(~judged.judged[places], -torch.inf)
    return places[key.argsort(descending=True, stable=True)]
