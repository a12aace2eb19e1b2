"""The one artefact format: a folder with `artefact.json` and `artefact.safetensors`, and `labels.csv` for people.

Every artefact holds a mapping with its label sets and statistics. What else belongs to it stands in sections of its own:
the program and the frozen model of a `Reprogrammed`, or how a mapping from files did on rows that it had not seen.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.files import read_json, read_tensors, write_folder, write_json, write_tensors, write_text
from reprogram.mappings.base import Mapping, make_mapping
from reprogram.settings import Settings
from reprogram.text import csv_cell, csv_line

FORMAT = 2
FILES = ("artefact.json", "artefact.safetensors", "labels.csv")
_LISTED = 10
_PREFIX = "mapping."


def check_free(folder: Path) -> None:
    """Raise unless an artefact may be written there: nothing stands there, or an artefact that can be replaced."""
    if folder.exists() and not (folder.is_dir() and {entry.name for entry in folder.iterdir()} <= set(FILES)):
        raise ReprogramError(f"{str(folder)!r} exists and is not an artefact; save to a folder that does not exist yet")


def write_artefact(folder: Path, mapping: Mapping, sections: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write an artefact in one step.

    Args:
        folder: where; see `check_free`.
        mapping: its label sets and settings go into the JSON file.
        sections: what else goes there, as plain JSON values.
        tensors: what goes into the safetensors file, the mapping's tensors among them under `mapping.`.
    """
    folder = folder.expanduser()
    check_free(folder)

    def fill(fresh: Path) -> None:
        content = {
            "format": FORMAT,
            "reprogram": version("reprogram"),
            "mapping": mapping.config(),
            "source_labels": list(mapping.source_labels),
            "classes": list(mapping.classes),
            "spanned": mapping.span is not None,
            **sections,
        }
        write_json(fresh / FILES[0], content)
        write_tensors(fresh / FILES[1], tensors)
        write_text(fresh / FILES[2], labels_csv(mapping))

    write_folder(folder, fill)


def read_artefact(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON content and the tensors of an artefact, of a run folder that contains one too."""
    path = artefact_folder(folder)
    content = read_json(path / FILES[0], "artefact")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ReprogramError(f"{str(path)!r} is not an artefact of format {FORMAT}; make it again with this version")
    return content, read_tensors(path / FILES[1], "artefact")[0]


def artefact_folder(folder: Path) -> Path:
    """The folder itself, or the artefact inside a run folder; `~` is the user's home."""
    folder = folder.expanduser()
    if not folder.is_dir():
        raise ReprogramError(f"{str(folder)!r} is not a folder; give a run folder or an artefact folder")
    if (folder / "artefact").is_dir():
        return folder / "artefact"
    if (folder / "checkpoint").is_dir():
        raise ReprogramError(
            f"the run in {str(folder)!r} is not finished; continue it with: reprogram fit --resume --out {folder}"
        )
    return folder


def save_mapping(mapping: Mapping, folder: Path, sections: dict[str, Any]) -> None:
    """Write a mapping without a model."""
    tensors = {f"{_PREFIX}{key}": tensor for key, tensor in mapping.state_dict().items()}
    write_artefact(folder, mapping, sections, tensors)


def load_mapping(folder: Path) -> tuple[Mapping, dict[str, Any]]:
    """The mapping of any artefact, and the artefact's content."""
    content, tensors = read_artefact(folder)
    if content.get("spanned"):
        raise ReprogramError(
            f"the mapping in {str(folder)!r} counts in coordinates of its model, so it cannot be had without it; "
            "load both with Reprogrammed.load"
        )
    mapping = described_mapping(content, folder)
    fill_mapping(mapping, {key: value for key, value in tensors.items() if key.startswith(_PREFIX)}, folder)
    return mapping, content


class _Named(Settings):
    """What every mapping's description has beside the settings of its family."""

    model_config = ConfigDict(extra="allow")
    name: str
    seed: int = 0
    weighted: bool = False


class _Description(Settings):
    """What an artefact says about its mapping."""

    model_config = ConfigDict(extra="ignore")
    mapping: _Named
    source_labels: list[str]
    classes: list[str]


def described_mapping(content: dict[str, Any], folder: Path, span: Tensor | None = None) -> Mapping:
    """The mapping that an artefact describes, without its tensors."""
    try:
        _Description.model_validate(content)
    except ValidationError:
        raise unfit(folder) from None
    return make_mapping(source_labels=content["source_labels"], classes=content["classes"], span=span, **content["mapping"])


def fill_mapping(mapping: Mapping, tensors: dict[str, Tensor], folder: Path) -> None:
    """Load the tensors of an artefact into the mapping that it describes."""
    try:
        mapping.load_state_dict({key.removeprefix(_PREFIX): value for key, value in tensors.items()})
    except RuntimeError:
        raise unfit(folder) from None


def labels_csv(mapping: Mapping) -> str:
    """The strongest source labels of each class, for people and spreadsheets."""
    lines = [csv_line(["class", "rank", "source_label", "weight"])]
    for name, labels in mapping.explain(_LISTED).classes.items():
        for rank, label in enumerate(labels, start=1):
            lines.append(csv_line([csv_cell(name), str(rank), csv_cell(label.source), f"{label.weight:.6g}"]))
    return "".join(lines)


def unfit(folder: Path) -> ReprogramError:
    """The error about an artefact whose parts contradict one another."""
    return ReprogramError(f"the parts of artefact {str(folder)!r} do not fit together; make it again")
