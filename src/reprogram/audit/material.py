"""What is audited: labelled rows as a frozen model answers them, from arrays, from shards or from images."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.block import Block
from reprogram.answers.labels import LabelSets, Rows
from reprogram.answers.manifest import manifest_beside
from reprogram.answers.parallel import Workers
from reprogram.answers.shards import Files, find_shards, read_blocks
from reprogram.answers.survey import survey_shards
from reprogram.answers.truth import LabelTable
from reprogram.data.dataset import DataSet
from reprogram.data.splits import PARTS, SPLIT_WORDS
from reprogram.errors import ReprogramError, shown
from reprogram.progress import Progress, Sized
from reprogram.reprogrammed import Reprogrammed
from reprogram.training.kept import keep_logits

_BLOCK_VALUES = 1 << 21  # numbers in memory at once


@dataclass(frozen=True)
class Material:
    """Labelled rows, in an order that every pass keeps.

    Attributes:
        start: starts a pass over the rows, block after block.
        labels: (n,) class numbers.
        names: n names that a person can find a row by.
        splits: (n,) what each row is of: 0 train, 1 val, 2 test.
        classes: the class names.
        source_labels: the labels that the frozen model answers with.
        span: see `make_mapping`.
        log_probabilities: whether logits are logarithms of probabilities.
        fingerprints: n texts that are equal for equal images, "" where one is not known; None where none is.
        answers: how many labels the longest answer names, where rows are top-K answers; None for logits.
        notes: what a reader should know about the rows.
    """

    start: Callable[[], Iterator[Rows]]
    labels: Tensor
    names: Sequence[str]
    splits: Tensor
    classes: tuple[str, ...]
    source_labels: Sequence[str]
    span: Tensor | None = None
    log_probabilities: bool = False
    fingerprints: Sequence[str] | None = None
    answers: int | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def blocks(self) -> Iterator[tuple[Tensor, Rows]]:
        """A pass over all rows: their places (N,), and what the model answered."""
        begin = 0
        for rows in self.start():
            yield torch.arange(begin, begin + len(rows)), rows
            begin += len(rows)

    def only(self, mask: Tensor) -> Iterator[tuple[Tensor, Rows]]:
        """A pass over the rows at which a mask (n,) is true."""
        for places, rows in self.blocks():
            chosen = mask[places]
            if bool(chosen.all()):
                yield places, rows
            elif bool(chosen.any()):
                yield places[chosen], rows.where(chosen)


def of_logits(logits: Tensor, targets: Tensor) -> Rows:
    """Rows of full logits."""
    nothing = torch.zeros(len(targets), dtype=torch.int64)
    return Rows(targets, logits, None, None, nothing.bool(), nothing, nothing)


def from_arrays(
    logits: Any,
    labels: Sequence[Any],
    *,
    classes: Sequence[str] | None = None,
    source_labels: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
) -> Material:
    """Rows that are in memory: logits (n, k_S), and a class name or number for each."""
    values = torch.as_tensor(logits)
    if values.ndim != 2 or not values.is_floating_point() or len(values) != len(labels):
        raise ReprogramError(
            f"logits are {values.dtype} of shape {tuple(values.shape)} for {len(labels)} labels; give one row of "
            "floating-point numbers for each label"
        )
    for what, given in (("names", names), ("splits", splits)):
        if given is not None and len(given) != len(labels):
            raise ReprogramError(f"{len(given)} {what} were given for {len(labels)} rows; give one for each row")
    if source_labels is not None and len(source_labels) != values.shape[1]:
        raise ReprogramError(
            f"{len(source_labels)} source labels were given for {values.shape[1]} logits per row; give one for each logit"
        )
    said = np.asarray(labels)
    if classes is None:
        found, targets = np.unique(said, return_inverse=True)
        classes = [str(name) for name in found.tolist()]
    elif np.issubdtype(said.dtype, np.integer):
        targets = said
    else:
        numbers = {name: number for number, name in enumerate(classes)}
        missing = next((name for name in said.tolist() if name not in numbers), None)
        if missing is not None:
            raise ReprogramError(
                f"label {shown(str(missing))} is none of the {len(classes)} classes; mend it or the classes"
            )
        targets = np.array([numbers[name] for name in said.tolist()], dtype=np.int64)
    whole = torch.as_tensor(targets).long().cpu()
    if len(whole) and not (int(whole.min()) >= 0 and int(whole.max()) < len(classes)):
        raise ReprogramError(
            f"labels from {int(whole.min())} to {int(whole.max())} were given, but 0 to {len(classes) - 1} is expected"
        )
    size = _rows_at_once(values.shape[1])

    def start() -> Iterator[Rows]:
        for begin in range(0, len(whole), size):
            yield of_logits(values[begin : begin + size], whole[begin : begin + size])

    return Material(
        start,
        whole,
        [str(row) for row in range(len(whole))] if names is None else [str(name) for name in names],
        torch.zeros(len(whole), dtype=torch.int64) if splits is None else _numbered(splits),
        tuple(classes),
        [f"label {number}" for number in range(values.shape[1])] if source_labels is None else source_labels,
    )


@contextmanager
def from_files(
    files: Files,
    *,
    classes: Sequence[str] | None = None,
    source_labels: Sequence[str] | None = None,
    percent: bool = False,
    labels: str | Path | LabelTable | None = None,
    progress: Progress | None = None,
) -> Iterator[Material]:
    """The rows of shards, read once and then kept on disk as numbers until the end, so that their number does not matter."""
    progress = progress or Progress()
    shards, truth = find_shards(files), None if labels is None else LabelTable.read(labels)
    manifest = manifest_beside(shards) or {}
    facts = manifest.get("shards", {})
    checksums = {name: str(facts[name]["sha256"]) for name in facts}
    with Workers() as workers, tempfile.TemporaryDirectory(prefix="reprogram-") as folder:
        survey = survey_shards(shards, workers, progress, checksums, labels=truth)
        sets = LabelSets.collect(
            survey,
            source_labels if source_labels is not None else manifest.get("source_labels"),
            classes if classes is not None else manifest.get("classes"),
            percent=percent,
            log_probabilities=bool(manifest.get("log_probabilities")),
        )
        width = survey.longest if survey.k_source is None else survey.k_source
        kept = _KeptRows(Path(folder), survey.rows, max(width, 1), ranked=survey.k_source is None)
        names: list[str] = []
        words: list[str] = []
        unscored = 0
        for path in progress.track(Sized(iter(shards), len(shards)), "reading the shards"):
            for block in read_blocks(path, labels=truth):
                rows = sets.rows(block)
                kept.add(rows)
                unscored += int(rows.unscored.sum())
                names += _names(block)
                words += block.splits or [""] * block.rows
        notes = [f"{unscored} answers lack scores and were weighed by rank"] if unscored else []
        notes += [] if truth is None else [truth.note(survey.truths, survey.rows, survey.answers)]
        yield Material(
            kept.start,
            kept.targets,
            names,
            _numbered(words),
            sets.classes,
            sets.source_labels,
            log_probabilities=sets.log_probabilities,
            answers=survey.longest if survey.k_source is None else None,
            notes=tuple(notes),
        )


def from_images(model: Reprogrammed, data: DataSet, *, batch_size: int = 64, progress: Progress | None = None) -> Material:
    """The images of a data set, sent once through a model under its program; the answers lie on disk until the end."""
    kept = [
        keep_logits(model, split, batch_size=batch_size, progress=progress, what=f"reading the logits of {name}")
        for name, split in data.splits.items()
    ]

    def start() -> Iterator[Rows]:
        for part in kept:
            for logits, targets, *_ in part.blocks():
                assert isinstance(logits, Tensor)
                yield of_logits(logits, targets)

    parts = data.splits
    span = model.frozen.span
    return Material(
        start,
        torch.cat([split.labels for split in parts.values()]),
        [name for split in parts.values() for name in split.names],
        torch.cat([torch.full((len(split),), PARTS.index(name)) for name, split in parts.items()]),
        data.classes,
        model.frozen.labels,
        span=None if span is None else span.cpu(),
        log_probabilities=model.frozen.log_probabilities,
        fingerprints=[mark for split in parts.values() for mark in split.fingerprints()],
        notes=data.notes,
    )


class _KeptRows:
    """Rows in files of a temporary folder: logits, or the labels of answers with their scores."""

    def __init__(self, folder: Path, rows: int, width: int, *, ranked: bool) -> None:
        self.targets = torch.empty(rows, dtype=torch.int64)
        self._filled, self._size = 0, _rows_at_once(width)
        self._unscored = torch.zeros(rows if ranked else 0, dtype=torch.bool)
        kinds: Mapping[str, Any] = {"indices": np.int32, "probabilities": np.float64} if ranked else {"logits": np.float32}
        self._arrays = {
            name: np.memmap(folder / name, dtype=kind, mode="w+", shape=(rows, width)) for name, kind in kinds.items()
        }

    def add(self, rows: Rows) -> None:
        """Keep rows behind those that are there."""
        place = slice(self._filled, self._filled + len(rows))
        self.targets[place] = rows.targets
        if len(self._unscored):
            self._unscored[place] = rows.unscored
        for name, array in self._arrays.items():
            values = getattr(rows, name).numpy()
            if name == "indices":
                array[place] = -1
            array[place, : values.shape[1]] = values
        self._filled += len(rows)

    def start(self) -> Iterator[Rows]:
        """A pass over all of them."""
        for begin in range(0, self._filled, self._size):
            place = slice(begin, min(begin + self._size, self._filled))
            found = {name: torch.from_numpy(np.array(array[place])) for name, array in self._arrays.items()}
            targets = self.targets[place]
            if "logits" in found:
                yield of_logits(found["logits"], targets)
            else:
                nothing = torch.zeros(len(targets), dtype=torch.int64)
                answers = found["indices"].long(), found["probabilities"]
                yield Rows(targets, None, *answers, self._unscored[place], nothing, nothing)


def _rows_at_once(width: int) -> int:
    return max(1, min(2048, _BLOCK_VALUES // max(width, 1)))


def _names(block: Block) -> list[str]:
    """What each row is called; one without a name by its file and number."""
    images = block.images or [""] * block.rows
    return [name or f"{block.path}:{block.first_row + row}" for row, name in enumerate(images)]


def _numbered(words: Sequence[str]) -> Tensor:
    """The numbers of splits; what names none is train."""
    numbers = {word: PARTS.index(part) for word, part in SPLIT_WORDS.items()} | {"": 0}
    found = []
    for word in words:
        number = numbers.get(str(word).strip().lower())
        if number is None:
            raise ReprogramError(
                f"a row has the split {shown(str(word))}, but one of {', '.join(SPLIT_WORDS)} is expected; rename it"
            )
        found.append(number)
    return torch.tensor(found, dtype=torch.int64)
