"""All that stands in a run folder, or in the folder of a mapping, read and checked: what pictures and reports are made of.

Neither the frozen model nor the data are needed, and nothing is computed: `reprogram.run.examples` does that.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.files import fitting, parse_sealed, read_bytes, read_sealed, read_tensors, settle_folder, sha256
from reprogram.files.foreign import expanded
from reprogram.files.reading import check_schema
from reprogram.mappings.artefact import FILES, artefact_folder, described_mapping, fill_mapping, read_artefact
from reprogram.mappings.base import Mapping
from reprogram.mappings.stored_certainty import read_certainty
from reprogram.programs.appearance import bound_as_stored
from reprogram.programs.base import Program
from reprogram.reprogrammed import stored_program
from reprogram.run.config import FitConfig
from reprogram.run.first import StoredAnswer
from reprogram.run.folder import FIRST, WEIGHTS, stored_config, stored_reference
from reprogram.run.history import HISTORY, ProgramHistory, read_history
from reprogram.run.outcomes import Outcomes
from reprogram.text import csv_text
from reprogram.training.checkpoint import Record

_AGAIN = "continue the run with --resume, or take the file from a backup"
_COLUMNS = ["image", "label", "predicted", "confidence"]


@dataclass(frozen=True)
class RunRecord:
    """What a folder tells.

    Attributes:
        folder: where it stands.
        kind: "run" of a run folder, "reference" of one of `reprogram reference`, "mapping" of an artefact alone: of
            `reprogram map`, of `Mapping.save` or of `Reprogrammed.save`.
        own_mapping: what `mapping` gives; None of a reference, which has none.
        description: what `artefact.json` says; `held_out`, `notes` and `updates` of mappings from files are there.
        program: with its θ, bound to the normalisation of its model; None of a mapping without a model.
        source: how the frozen model was loaded, its fingerprint and normalisation; None of a mapping without a model.
        config: the settings of the run, everything decided; None of a mapping.
        environment: versions and machine; None where it is not told.
        first: the answer without a program; None where there was none.
        selection: how the mapping was chosen; None where it was named.
        epochs: one record for each epoch, epoch 0 among them where the run began without a program.
        result: the content of `result.json`; None as long as the run is not finished.
        test: what was said about the test images; None as long as the run is not finished.
        history: the program over the epochs; None where none was trained, or by an older version.
        notes: what is missing or does not fit, in plain words.
        reference: the reference method; None of what was reprogrammed.
    """

    folder: Path
    kind: Literal["run", "reference", "mapping"]
    own_mapping: Mapping | None
    description: dict[str, Any]
    program: Program | None = None
    source: dict[str, Any] | None = None
    config: FitConfig | None = None
    environment: dict[str, Any] | None = None
    first: dict[str, Any] | None = None
    selection: dict[str, Any] | None = None
    epochs: tuple[dict[str, Any], ...] = ()
    result: dict[str, Any] | None = None
    test: Outcomes | None = None
    history: ProgramHistory | None = None
    notes: tuple[str, ...] = ()
    reference: str | None = None

    @property
    def mapping(self) -> Mapping:
        """ω with its label sets, statistics (J) and certainty.

        The statistics of a mapping that counts in coordinates of its model are left out (None).

        Raises:
            ReprogramError: it is a reference.
        """
        if self.own_mapping is None:
            raise ReprogramError(
                f"{str(self.folder)!r} holds the reference {self.reference}, which has no mapping; give a run of reprogram "
                "fit"
            )
        return self.own_mapping

    @property
    def name(self) -> str:
        """What to call it: the folder's name."""
        return self.folder.absolute().name or str(self.folder)

    @property
    def classes(self) -> tuple[str, ...]:
        """The target classes, as they are now."""
        if self.own_mapping is None and self.result is not None:
            return tuple(self.result["per_class"])
        return self.mapping.classes

    @property
    def source_labels(self) -> tuple[str, ...]:
        """The labels of the frozen model; none of a reference, which does without them."""
        return () if self.own_mapping is None else tuple(self.mapping.source_labels)

    @property
    def omega(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """ω, (k_S, k_T) float32."""
        found: np.ndarray[Any, np.dtype[np.float32]] = self.mapping.weights.detach().cpu().float().numpy()
        return found

    @property
    def joint(self) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        """J, (k_S, k_T) float64, as it was summed; None of mappings that are not made of it, and of references."""
        if self.own_mapping is None:
            return None
        matrix = getattr(self.mapping.statistics, "matrix", None)
        return None if matrix is None else matrix.detach().cpu().double().numpy()

    @property
    def updated(self) -> bool:
        """Whether the model was changed after the run was finished, so that it may say otherwise about the test images."""
        return bool(self.description.get("updates"))


def read_run(path: str | Path) -> RunRecord:
    """Read a run folder, or the folder of a mapping.

    Args:
        path: a run folder, finished or with a first answer that can be used already; or an artefact.

    Raises:
        ReprogramError: it is neither, or something in it is damaged.
    """
    folder = expanded(path)
    settle_folder(folder)
    if (folder / "config.json").is_file() and (method := stored_reference(folder)) is not None:
        return _reference(folder, method[0])
    inner = artefact_folder(folder)
    if not (inner / FILES[0]).exists():
        raise ReprogramError(
            f"{str(folder)!r} is neither a run nor a mapping; give a folder that reprogram fit or reprogram map wrote"
        )
    mapping, content, tensors = _mapping(inner)
    program = _program(content, tensors, inner)
    source = None if program is None else content["frozen"]
    if inner == folder or not (folder / "config.json").is_file():
        return RunRecord(folder, "mapping", mapping, content, program, source)
    notes: list[str] = []
    epochs = _epochs(folder)
    result, test = _result(folder, len(epochs), notes)
    if content.get("updates"):
        notes.append("the model was changed by reprogram update after the run: what is told of test images was before that")
    return RunRecord(
        folder,
        "run",
        mapping,
        content,
        program,
        source,
        stored_config(folder),
        _sealed(folder / "environment.json"),
        _sealed(folder / FIRST, StoredAnswer),
        _sealed(folder / "selection.json"),
        epochs,
        result,
        test,
        read_history(folder / HISTORY) if (folder / HISTORY).exists() else None,
        tuple(notes),
    )


def _reference(folder: Path, name: str) -> RunRecord:
    """What a reference has left, which is told as soon as it is finished."""
    notes: list[str] = []
    epochs = _epochs(folder)
    result, test = _result(folder, len(epochs), notes)
    if result is None or not (folder / WEIGHTS).exists():
        raise ReprogramError(
            f"the reference in {str(folder)!r} is not finished; continue it with: reprogram reference {name} --resume --out "
            f"{folder}"
        )
    _, header = read_tensors(folder / WEIGHTS, "weights", remedy=_AGAIN)
    check_schema(header, f"weights {str(folder / WEIGHTS)!r}", _Weights, _AGAIN)
    return RunRecord(
        folder,
        "reference",
        None,
        {},
        source=header["source"],
        config=stored_config(folder),
        environment=_sealed(folder / "environment.json"),
        epochs=epochs,
        result=result,
        test=test,
        notes=tuple(notes),
        reference=name,
    )


class _Weights(BaseModel):
    """What the weights of a reference tell beside their tensors."""

    model_config = ConfigDict(strict=True, extra="ignore")
    source: dict[str, Any]
    layer: str
    classes: list[str]


def _mapping(folder: Path) -> tuple[Mapping, dict[str, Any], dict[str, Tensor]]:
    """The mapping of an artefact, without its model; statistics in coordinates of the model mean nothing here."""
    content, tensors = read_artefact(folder)
    own = {key: value for key, value in tensors.items() if key.startswith("mapping.")}
    span = None
    if content["spanned"]:
        sums = own.get("mapping.statistics.sums")
        width = 1 if sums is None or sums.ndim != 2 else min(len(sums), len(content["source_labels"]))
        span = torch.zeros(len(content["source_labels"]), width)
    mapping = described_mapping(content, span)
    fill_mapping(mapping, own, folder)
    read_certainty(content, tensors, mapping, folder)
    if span is not None:
        mapping.statistics = None
    return mapping.eval(), content, tensors


def _program(content: dict[str, Any], tensors: dict[str, Tensor], folder: Path) -> Program | None:
    if "frozen" not in content or "program" not in content:
        return None
    program = stored_program(content, tensors, folder)
    own = {key.removeprefix("program."): value for key, value in tensors.items() if key.startswith("program.")}
    program.load_state_dict(fitting(own, program.state_dict(), f"artefact {str(folder)!r}"))
    return bound_as_stored(program, content["frozen"]["normalisation"]).eval().requires_grad_(False)


def _sealed(path: Path, schema: type[BaseModel] | None = None) -> dict[str, Any] | None:
    return read_sealed(path, "file", schema, remedy=_AGAIN) if path.exists() else None


def _epochs(folder: Path) -> tuple[dict[str, Any], ...]:
    path = folder / "metrics.jsonl"
    if not path.exists():
        return ()
    text = read_bytes(path, "file").decode("utf-8", "surrogateescape")
    lines = enumerate(text.splitlines(keepends=True), start=1)
    return tuple(parse_sealed(line, f"line {n} of {str(path)!r}", Record, remedy=_AGAIN) for n, line in lines)


class _ClassCount(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    images: int = Field(ge=0)
    correct: int = Field(ge=0)


class _Result(BaseModel):
    """What of a result others rely on."""

    model_config = ConfigDict(strict=True, extra="ignore")
    accuracy: dict[str, float | None]
    interval_95: list[float] = Field(min_length=2, max_length=2)
    selected_epoch: int = Field(ge=0)
    epochs: int = Field(ge=0)
    steps: list[dict[str, Any]]
    chance: float
    calibration_error: float
    reliability: dict[str, dict[str, float] | None]
    per_class: dict[str, _ClassCount]
    images: dict[str, int]
    labels: dict[str, int]
    parameters: dict[str, int]
    seconds: float
    notes: list[str]
    skipped: list[str]
    files: dict[str, str]


def _result(folder: Path, epochs: int, notes: list[str]) -> tuple[dict[str, Any] | None, Outcomes | None]:
    """What a finished run has reached; nothing of one that goes on."""
    result = _sealed(folder / "result.json")
    if result is None or result.get("epochs") != epochs:
        notes.append(
            "the run is not finished: what is told is its first answer, or what stood there before it went on; "
            "there are no test results yet"
        )
        return None, None
    check_schema(result, f"result {str(folder / 'result.json')!r}", _Result, _AGAIN)
    path = folder / "predictions.csv"
    if not path.is_file():
        notes.append("predictions.csv is missing, so nothing can be told about single test images")
        return result, None
    if sha256(path) != result["files"].get(path.name):
        raise ReprogramError(f"{str(path)!r} has changed since it was written (its SHA-256 differs); {_AGAIN}")
    return result, _outcomes(path, tuple(result["per_class"]))


def _outcomes(path: Path, classes: tuple[str, ...]) -> Outcomes:
    text = read_bytes(path, "predictions", most=2**30).decode("utf-8", "surrogateescape")
    places = {name: number for number, name in enumerate(classes)}
    try:
        header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        if header != _COLUMNS:
            raise ValueError("another header")
        named = [
            (csv_text(image), places[csv_text(label)], places[csv_text(said)], float(c)) for image, label, said, c in rows
        ]
        confidence = np.array([row[3] for row in named], dtype=np.float64)
        if not ((confidence >= 0) & (confidence <= 1.000001)).all():
            raise ValueError("a confidence that is none")
    except (ValueError, KeyError, csv.Error):
        raise ReprogramError(f"{str(path)!r} does not have the expected form; {_AGAIN}") from None
    labels, predicted = (np.array([row[place] for row in named], dtype=np.int64) for place in (1, 2))
    return Outcomes(classes, tuple(row[0] for row in named), labels, predicted, confidence)
