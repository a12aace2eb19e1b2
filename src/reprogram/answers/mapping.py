"""A mapping with its label sets, ready for answers: predict, save as JSON + safetensors, load."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.block import Block, make_block
from reprogram.answers.labels import LabelSets, Rows
from reprogram.answers.shards import find_shards, read_blocks
from reprogram.errors import ReprogramError
from reprogram.files import read_json, read_tensors, write_folder, write_json, write_tensors, write_text
from reprogram.mappings.base import EstimatedMapping, make_mapping
from reprogram.statistics.joint import JointStatistics
from reprogram.training.evaluation import accuracy_interval

FORMAT = 1
KIND = "label mapping"
_FILES = ("mapping.json", "mapping.safetensors", "labels.csv")
_LISTED = 10
Answers = Tensor | np.ndarray[Any, Any] | Sequence[Sequence[Any]]


@dataclass(frozen=True)
class HeldOut:
    """How a mapping did on rows that it was not estimated from."""

    rows: int
    correct: int
    by_frequency: int
    how: str

    @property
    def accuracy(self) -> float:
        """The share of rows classified rightly."""
        return self.correct / max(self.rows, 1)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the accuracy."""
        return accuracy_interval(self.correct, self.rows)


@dataclass(frozen=True)
class AnswerPredictions:
    """What a mapping says about N answers.

    Attributes:
        labels: N class names.
        indices: (N,) their numbers.
        shares: (N, k_T) float64: softmax of the target logits or, for top-K answers, each class's share of the scores.
        by_frequency: (N,) whether nothing in the answer spoke for any class, so that the most frequent one was taken.
        block: the rows that were classified.
        targets: (N,) the true class, −1 where it is not known.
        unseen: (N,) how many labels of the answer the mapping does not know.
    """

    labels: list[str]
    indices: Tensor
    shares: Tensor
    by_frequency: Tensor
    block: Block
    targets: Tensor
    unseen: Tensor


@dataclass(frozen=True)
class SavedMapping:
    """A mapping, its label sets, and how many rows of each class it was estimated from.

    Attributes:
        mapping: ω and J.
        sets: source labels and classes.
        samples: (k_T,) rows of each class.
        held_out: how it did on rows that it had not seen, if that was measured.
        notes: what a reader should know about the rows.
    """

    mapping: EstimatedMapping
    sets: LabelSets
    samples: Tensor
    held_out: HeldOut | None = None
    notes: tuple[str, ...] = ()

    def predict(self, answers: Answers) -> AnswerPredictions:
        """Classify logits (N, k_S), or N top-K answers, each a list of labels or of (label, score) pairs.

        >>> from reprogram.mappings.base import make_mapping
        >>> sets = LabelSets(("Tabby", "Beagle", "Kennel"), ("cat", "dog"))
        >>> mapping = make_mapping("blm", sets.source_labels, sets.classes)
        >>> seen = mapping.new_statistics().update_top_k(torch.tensor([[0], [1], [2]]), None, torch.tensor([0, 1, 1]))
        >>> _ = mapping.estimate(seen)
        >>> saved = SavedMapping(mapping, sets, seen.samples)
        >>> saved.predict([[("Tabby", 0.9), ("Kennel", 0.1)], ["Beagle"], ["Sofa"]]).labels
        ['cat', 'dog', 'dog']
        """
        place = Path("answers")
        if isinstance(answers, (Tensor, np.ndarray)):
            logits: np.ndarray[Any, Any] = np.asarray(answers)
            if logits.ndim != 2:
                raise ReprogramError(
                    f"logits have shape {logits.shape}, but (N, {len(self.sets.source_labels)}) is expected"
                )
            return self.predict_block(make_block(place, 1, len(logits), {"logits": logits}, logits.shape[1]))
        pairs = [[(item, None) if isinstance(item, (str, int)) else item for item in answer] for answer in answers]
        raw = {"topk_labels": [[p[0] for p in a] for a in pairs], "topk_scores": [[p[1] for p in a] for a in pairs]}
        return self.predict_block(make_block(place, 1, len(pairs), raw))

    def predict_files(self, files: str | Path | Sequence[str | Path]) -> Iterator[AnswerPredictions]:
        """Classify the rows of shards, block after block; they need no labels."""
        for path in find_shards(files):
            for block in read_blocks(path):
                yield self.predict_block(block)

    def predict_block(self, block: Block) -> AnswerPredictions:
        """Classify the rows of a block."""
        rows = self.sets.rows(block, strict=False)
        shares, guessed = self.target_scores(rows)
        best = shares.argmax(1)
        labels = [self.sets.classes[index] for index in best.tolist()]
        return AnswerPredictions(labels, best, shares, guessed, block, rows.targets, rows.unseen)

    @torch.no_grad()
    def target_scores(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Shares (N, k_T) of the classes, and (N,) which rows had to be guessed by class frequency.

        From logits, the softmax of the target logits. From top-K answers, score_t = Σ_k p_k · ω[s_k, t] over the known
        labels, scaled to sum 1; where that is 0 for every class, how frequent each class was.
        """
        if rows.logits is not None:
            shares = self.mapping(rows.logits).double().softmax(1)
            return shares, torch.zeros(len(rows), dtype=torch.bool)
        if not takes_top_k(self.mapping):
            raise ReprogramError(
                f"mapping {self.mapping.name!r} needs all logits, but top-K answers were given; fit one with blm or blm+"
            )
        assert rows.indices is not None
        assert rows.probabilities is not None
        weights = self.mapping.weights.double()
        shares = torch.zeros(len(rows), len(self.sets.classes), dtype=torch.float64)
        for labels, scores in zip(rows.indices.T, rows.probabilities.T, strict=True):
            shares += weights[labels.clamp_min(0)] * (scores * (labels >= 0))[:, None]
        total = shares.sum(1, keepdim=True)
        guessed = total[:, 0] <= 0
        frequency = self.samples.double() / max(int(self.samples.sum()), 1)
        return torch.where(guessed[:, None], frequency, shares / total.where(total > 0, 1)), guessed

    def top_labels(self, count: int = 3) -> list[tuple[str, list[tuple[str, float]]]]:
        """For each class, the source labels of the largest positive weights: (class, [(source label, weight), ...])."""
        values, order = self.mapping.weights.topk(min(count, len(self.sets.source_labels)), dim=0)
        table = []
        for name, places, weights in zip(self.sets.classes, order.T.tolist(), values.T.tolist(), strict=True):
            labels = [self.sets.source_labels[place] for place in places]
            table.append((name, [pair for pair in zip(labels, weights, strict=True) if pair[1] > 0]))
        return table

    def save(self, folder: str | Path) -> None:
        """Write `mapping.json`, `mapping.safetensors` (ω and J) and `labels.csv` (the best source labels of each class)."""
        folder = Path(folder)
        check_free(folder)

        def fill(fresh: Path) -> None:
            held = None
            if self.held_out is not None:
                held = {**asdict(self.held_out), "accuracy": self.held_out.accuracy, "interval_95": self.held_out.interval}
            content = {
                "format": FORMAT,
                "kind": KIND,
                "reprogram": version("reprogram"),
                "mapping": self.mapping.config(),
                "rows": int(self.samples.sum()),
                "held_out": held,
                "notes": list(self.notes),
                **asdict(self.sets),
            }
            write_json(fresh / "mapping.json", content)
            tensors = {f"mapping.{key}": tensor for key, tensor in self.mapping.state_dict().items()}
            write_tensors(fresh / "mapping.safetensors", {**tensors, "samples": self.samples})
            write_text(fresh / "labels.csv", self._labels_csv())

        write_folder(folder, fill)

    @classmethod
    def load(cls, folder: str | Path) -> "SavedMapping":
        """Read what `save` wrote."""
        path = Path(folder)
        content = read_json(path / "mapping.json", "mapping")
        if not isinstance(content, dict) or content.get("kind") != KIND or content.get("format") != FORMAT:
            raise ReprogramError(f"{str(path)!r} is not a mapping of format {FORMAT}; make it again with reprogram map")
        tensors, _ = read_tensors(path / "mapping.safetensors", "mapping")
        try:
            keys = ("percent", "sources_numbered", "classes_numbered")
            sets = LabelSets(
                tuple(content["source_labels"]), tuple(content["classes"]), **{key: bool(content[key]) for key in keys}
            )
            mapping = make_mapping(source_labels=sets.source_labels, classes=sets.classes, **content["mapping"])
            assert isinstance(mapping, EstimatedMapping)
            mapping.load_state_dict(
                {key.removeprefix("mapping."): value for key, value in tensors.items() if key.startswith("mapping.")}
            )
            held = content["held_out"]
            held_out = held and HeldOut(*(held[key] for key in ("rows", "correct", "by_frequency", "how")))
            return cls(mapping, sets, tensors["samples"], held_out, tuple(content["notes"]))
        except (KeyError, TypeError, RuntimeError, AssertionError):
            raise ReprogramError(f"the parts of mapping {str(path)!r} do not fit together; make it again") from None

    def _labels_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["class", "rank", "source_label", "weight"])
        for name, labels in self.top_labels(_LISTED):
            for rank, (label, weight) in enumerate(labels, start=1):
                writer.writerow([name, rank, label, f"{weight:.6g}"])
        return text.getvalue()


def takes_top_k(mapping: EstimatedMapping) -> bool:
    """Whether answers that name only their best labels are enough for a mapping."""
    plain = mapping.config().get("normalize", "none") == "none"
    return plain and (mapping.statistics is None or isinstance(mapping.statistics, JointStatistics))


def check_free(folder: Path) -> None:
    """Raise unless a mapping may be written there: nothing stands there, or a mapping that can be replaced."""
    if folder.exists() and not (folder.is_dir() and {entry.name for entry in folder.iterdir()} <= set(_FILES)):
        raise ReprogramError(f"{str(folder)!r} exists and is not a mapping; save to a folder that does not exist yet")
