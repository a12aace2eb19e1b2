"""A mapping that takes files of answers: predict, save and load, with how it did on rows that it had not seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.block import Block, make_block
from reprogram.answers.labels import LabelSets, Rows
from reprogram.answers.manifest import check_shard, read_manifest
from reprogram.answers.shards import Files, find_shards, read_blocks
from reprogram.answers.truth import LabelTable, images_meant
from reprogram.errors import ReprogramError
from reprogram.mappings.artefact import check_new, load_mapping, save_mapping
from reprogram.mappings.base import Mapping
from reprogram.mappings.predictions import Predictions
from reprogram.scores import Score

Answers = Tensor | np.ndarray[Any, Any] | Sequence[Sequence[Any]]
_FLAGS = ("percent", "sources_numbered", "classes_numbered", "log_probabilities")


@dataclass(frozen=True)
class HeldOutScore:
    """How a mapping did on rows that it was not estimated from.

    Attributes:
        score: how many of them it classified rightly.
        how: which rows, in words.
        by_frequency: how many of them had no usable label and got the most frequent class.
        refitted: whether the mapping was then estimated anew, with these rows among the others.
    """

    score: Score
    how: str
    by_frequency: int = 0
    refitted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            **self.score.to_json(),
            "how": self.how,
            "by_frequency": self.by_frequency,
            "refitted": self.refitted,
        }

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Read what `to_json` gave."""
        score = Score.from_json(values)
        return cls(score, str(values["how"]), int(values["by_frequency"]), bool(values["refitted"]))


@dataclass(frozen=True)
class ClassifiedBlock:
    """Rows of a shard with what a mapping says about them.

    Attributes:
        block: the rows.
        predictions: what is said about each.
        targets: (N,) the true class, −1 where it is not known.
        unseen: (N,) how many labels of the answer the mapping does not know.
        shared: (N,) how many labels of the answer have a name that several source labels have.
    """

    block: Block
    predictions: Predictions
    targets: Tensor
    unseen: Tensor
    shared: Tensor


@dataclass(frozen=True)
class AnswerMapping:
    """A mapping with all that is needed to read files of answers for it.

    Attributes:
        mapping: ω and the statistics that it came from.
        labels: its source labels and classes, and how they are written in files.
        samples: (k_T,) how many rows of each class it was estimated from.
        held_out: how it did on rows that it had not seen, if that was measured.
        notes: what a reader should know about the rows.
        whole_answers: whether K was not given, so that all labels of the top-K answers count.
        updates: what was added and taken out since it was fitted, one record for each time.
        others: sections of the artefact that it came from and that others have written.
    """

    mapping: Mapping
    labels: LabelSets
    samples: Tensor
    held_out: HeldOutScore | None = None
    notes: tuple[str, ...] = ()
    whole_answers: bool = False
    updates: tuple[dict[str, Any], ...] = ()
    others: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ours = (tuple(self.mapping.source_labels), self.mapping.classes)
        if ours != (tuple(self.labels.source_labels), tuple(self.labels.classes)) or self.samples.shape != (len(ours[1]),):
            raise ReprogramError(
                "the label sets are not those of the mapping, or not one number of rows per class was given; "
                "take them from it"
            )

    def predict(self, answers: Answers, **asked: Any) -> Predictions:
        """Classify logits (N, k_S), or N top-K answers, each a list of labels or of (label, score) pairs.

        `calibration`, `coverage`, `per_class`, `strict` and `unlike` may be asked for, see `reprogram.mappings.asked.Asked`.

        >>> from reprogram.mappings.making import make_mapping
        >>> labels = LabelSets(("Tabby", "Beagle", "Kennel"), ("cat", "dog"))
        >>> mapping = make_mapping("blm", labels.source_labels, labels.classes)
        >>> seen = mapping.new_statistics().update_top_k(torch.tensor([[0], [1], [2]]), None, torch.tensor([0, 1, 1]))
        >>> _ = mapping.estimate(seen)
        >>> saved = AnswerMapping(mapping, labels, seen.samples)
        >>> saved.predict([[("Tabby", 0.9), ("Kennel", 0.1)], ["Beagle"], ["Sofa"]]).labels
        ['cat', 'dog', 'dog']
        """
        return self.predict_block(_block_of(answers, len(self.labels.source_labels)), **asked).predictions

    def predict_files(
        self, files: Files, labels: str | Path | LabelTable | None = None, **asked: Any
    ) -> Iterator[ClassifiedBlock]:
        """Classify the rows of shards, block after block; they need no labels, but may get them from a table.

        For `asked` see `predict`.
        """
        truth, shards = None if labels is None else LabelTable.read(labels), find_shards(files)
        meant: dict[int, str] = {}
        if truth is not None:
            truth.check_shards(shards)
        for path in shards:
            manifest = read_manifest(path.parent) or {"shards": {}}
            check_shard(path, {name: facts["sha256"] for name, facts in manifest["shards"].items()})
            for block in read_blocks(path, labels=truth, others=True):
                if truth is not None:
                    truth.meet(meant, images_meant(block))
                yield self.predict_block(block, **asked)

    def predict_block(self, block: Block, **asked: Any) -> ClassifiedBlock:
        """Classify the rows of a block."""
        rows = self.labels.rows(block, strict=False)
        return ClassifiedBlock(block, self.predict_rows(rows, **asked), rows.targets, rows.unseen, rows.shared)

    def predict_rows(self, rows: Rows, **asked: Any) -> Predictions:
        """Classify rows: by the softmax of the target logits or, for top-K answers, as `Mapping.predict_answers` does."""
        if rows.logits is not None:
            return self.mapping.predict(rows.logits, precise=True, **asked)
        assert rows.indices is not None
        assert rows.probabilities is not None
        frequencies = self.samples if bool(self.samples.any()) else None
        return self.mapping.predict_answers(rows.indices, rows.probabilities, frequencies, **asked)

    def save(self, folder: str | Path, *, replace: bool = False) -> None:
        """Write the artefact: `artefact.json`, `artefact.safetensors` (ω and its statistics) and `labels.csv`.

        Everything that loads a mapping loads this one, too.

        Args:
            folder: where.
            replace: whether an artefact that stands there is replaced; anything else never is.
        """
        path = Path(folder).expanduser()
        check_new(path, replace)
        answers = {name: getattr(self.labels, name) for name in _FLAGS}
        answers |= {"samples": self.samples.tolist(), "whole_answers": self.whole_answers}
        sections = {
            **self.others,
            "answers": answers,
            "held_out": None if self.held_out is None else self.held_out.to_json(),
            "notes": list(self.notes),
            "updates": list(self.updates),
        }
        save_mapping(self.mapping, path, sections, replace=replace)

    @classmethod
    def load(cls, folder: str | Path) -> "AnswerMapping":
        """Read what `save` wrote, or the mapping of a run or of a `LabelMapper`."""
        path = Path(folder).expanduser()
        mapping, content = load_mapping(path)
        try:
            answers = dict(content.get("answers") or {})
            held = content.get("held_out")
            statistics = mapping.statistics
            default = torch.zeros(mapping.k_target, dtype=torch.int64) if statistics is None else statistics.samples
            samples = torch.tensor(answers.pop("samples")) if "samples" in answers else default
            whole = bool(answers.pop("whole_answers", False))
            # a class that is called by a number cannot be meant by its place as well
            numbered = not any(name.isdecimal() for name in mapping.classes)
            flags = {"classes_numbered": numbered, **{name: bool(answers[name]) for name in _FLAGS if name in answers}}
            if samples.shape != (mapping.k_target,):
                raise ValueError(f"{tuple(samples.shape)} samples")
            return cls(
                mapping,
                LabelSets(tuple(mapping.source_labels), mapping.classes, **flags),
                samples,
                None if held is None else HeldOutScore.from_json(held),
                tuple(map(str, content.get("notes") or ())),
                whole,
                tuple(dict(entry) for entry in content.get("updates") or ()),
                {name: content[name] for name in content.keys() & {"label_mapper"}},
            )
        except (TypeError, ValueError, KeyError, AttributeError, RuntimeError, OverflowError, RecursionError):
            raise ReprogramError(f"the parts of artefact {str(path)!r} do not fit together; make it again") from None


def _block_of(answers: Answers, k_source: int) -> Block:
    place = Path("answers")
    if isinstance(answers, (Tensor, np.ndarray)):
        logits: np.ndarray[Any, Any] = np.asarray(answers)
        if logits.ndim != 2:
            raise ReprogramError(f"logits have shape {logits.shape}, but (N, {k_source}) is expected")
        return make_block(place, 1, len(logits), {"logits": logits}, logits.shape[1])
    pairs = [[(item, None) if isinstance(item, (str, int, np.integer)) else item for item in answer] for answer in answers]
    raw = {"topk_labels": [[p[0] for p in a] for a in pairs], "topk_scores": [[p[1] for p in a] for a in pairs]}
    return make_block(place, 1, len(pairs), raw)
