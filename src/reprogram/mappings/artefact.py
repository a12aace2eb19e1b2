"""The one artefact format: a folder with `artefact.json` and `artefact.safetensors`, and `labels.csv` for people.

Every artefact holds a mapping with its label sets and statistics. What else belongs to it stands in sections of its own:
the program and the frozen model of a `Reprogrammed`, or how a mapping from files did on rows that it had not seen.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.files import (
    fitting,
    locked,
    read_json,
    read_sealed,
    refuse_links,
    settle_folder,
    sha256,
    tensors_with_digest,
    write_folder,
    write_sealed,
    write_tensors,
    write_text,
)
from reprogram.files.reading import AGAIN, check_schema
from reprogram.mappings.base import Mapping
from reprogram.mappings.making import make_mapping
from reprogram.mappings.places import FILES as FILES
from reprogram.mappings.places import artefact_folder as artefact_folder
from reprogram.mappings.places import check_free as check_free
from reprogram.mappings.stored_certainty import SECTION, read_certainty, section_of, tensors_of
from reprogram.settings import Settings
from reprogram.text import csv_cell, csv_line

FORMAT = 3
_LISTED = 10
_PREFIX = "mapping."
_PATIENCE = 100  # times that an artefact may be replaced while it is read
_SPARE = 2**26  # bytes that a description may ask for beyond what its tensors hold


def check_new(folder: Path, replace: bool) -> None:
    """Raise if something stands where a mapping shall go, unless it may be replaced."""
    settle_folder(folder)
    _check_absent(folder, replace)


def _check_absent(folder: Path, replace: bool) -> None:
    if not replace and folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ReprogramError(
            f"{str(folder)!r} exists already; choose another folder, or add --replace (in Python: replace=True)"
        )


def write_artefact(
    folder: Path, mapping: Mapping, sections: dict[str, Any], tensors: dict[str, Tensor], *, replace: bool = True
) -> None:
    """Write an artefact in one step.

    Args:
        folder: where; see `check_free`.
        mapping: its label sets and settings go into the JSON file.
        sections: what else goes there, as plain JSON values.
        tensors: what goes into the safetensors file, the mapping's tensors among them under `mapping.`.
        replace: whether an artefact that stands there may be replaced.
    """
    folder = folder.expanduser()
    check_free(folder)
    if mapping.certainty is not None:
        sections = {SECTION: section_of(mapping.certainty), **sections}
        tensors = {**tensors, **tensors_of(mapping.certainty)}

    def fill(fresh: Path) -> None:
        digest = write_tensors(fresh / FILES[1], tensors)
        write_text(fresh / FILES[2], labels_csv(mapping))
        content = {
            "format": FORMAT,
            "reprogram": version("reprogram"),
            "mapping": mapping.config(),
            "source_labels": list(mapping.source_labels),
            "classes": list(mapping.classes),
            "spanned": mapping.span is not None,
            "files": {FILES[1]: digest, FILES[2]: sha256(fresh / FILES[2])},
            **sections,
        }
        write_sealed(fresh / FILES[0], content)

    def check() -> None:
        _check_absent(folder, replace)
        check_free(folder)

    write_folder(folder, fill, check)


def read_artefact(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON content and the tensors of an artefact, of a run folder that contains one too; both are checked."""
    path = artefact_folder(folder)
    for _ in range(_PATIENCE):
        content = read_description(path)
        try:
            tensors, _, digest = tensors_with_digest(path / FILES[1], "artefact")
            if digest == content["files"].get(FILES[1]):
                break
            raise unfit(path)
        except ReprogramError:
            if read_description(path) == content:  # else it was replaced between the two files, and is read again
                raise
    else:
        raise ReprogramError(f"artefact {str(path)!r} is replaced faster than it can be read; wait until that has ended")
    labels, classes = len(content["source_labels"]), len(content["classes"])
    held = sum(tensor.nbytes for tensor in tensors.values())
    if 4 * labels * classes > 4 * held + _SPARE:
        raise ReprogramError(
            f"artefact {str(path)!r} names {labels:,} source labels and {classes:,} classes, but its tensors hold only "
            f"{held:,} bytes; make it again"
        )
    return content, tensors


def read_description(path: Path) -> dict[str, Any]:
    """The JSON content of an artefact folder."""
    settle_folder(path)
    file = path / FILES[0]
    found = read_json(file, "artefact")
    if isinstance(found, dict) and found.get("format") != FORMAT:
        raise ReprogramError(
            f"{str(file)!r} is no artefact of format {FORMAT}, which this version reads, but {_shown_format(found)}; make "
            "it again (a run with reprogram fit --config and its config.json), or use the version that made it"
        )
    content = read_sealed(file, "artefact")
    check_schema(content, f"artefact {str(file)!r}", _Description, AGAIN)
    return content


def _shown_format(content: dict[str, Any]) -> str:
    number = content.get("format")
    return f"of format {number}" if isinstance(number, int) and 0 < number < FORMAT else "something else"


@contextmanager
def changing(folder: Path, out: Path | None = None) -> Iterator[None]:
    """Keep other processes from changing an artefact, or the run that it is in, between reading and writing it.

    Args:
        folder: the artefact, or a run folder that contains one.
        out: where the changed one goes, if it does not take the old one's place: then there is nothing to keep.
    """
    path = artefact_folder(folder)
    inside = path.name == "artefact" and (path.parent / "config.json").is_file()
    lock = path.parent / ".lock" if inside else path.with_name(f".{path.name}.changing.lock")
    if inside and out is None:
        refuse_links(path.parent, [path.name])
    with nullcontext() if out is not None else locked(lock, f"{str(folder)!r}"):
        yield


def save_mapping(mapping: Mapping, folder: Path, sections: dict[str, Any], *, replace: bool = True) -> None:
    """Write a mapping without a model."""
    tensors = {f"{_PREFIX}{key}": tensor for key, tensor in mapping.state_dict().items()}
    write_artefact(folder, mapping, sections, tensors, replace=replace)


def load_mapping(folder: Path) -> tuple[Mapping, dict[str, Any]]:
    """The mapping of any artefact, and the artefact's content."""
    content, tensors = read_artefact(folder)
    if content.get("spanned"):
        raise ReprogramError(
            f"the mapping in {str(folder)!r} counts in coordinates of its model, so it cannot be had without it; "
            "load both with Reprogrammed.load"
        )
    mapping = described_mapping(content)
    fill_mapping(mapping, {key: value for key, value in tensors.items() if key.startswith(_PREFIX)}, folder)
    read_certainty(content, tensors, mapping, folder)
    return mapping, content


class _Named(Settings):
    """What every mapping's description has beside the settings of its family."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: str
    seed: int = 0
    weighted: bool = False


class _Description(Settings):
    """What every artefact says; what else it says belongs to those who wrote it."""

    model_config = ConfigDict(extra="ignore", strict=True)
    format: int
    mapping: _Named
    source_labels: list[str] = Field(min_length=1)
    classes: list[str] = Field(min_length=1)
    spanned: bool
    files: dict[str, str] = Field(min_length=2)
    updates: list[dict[str, Any]] | None = None


def described_mapping(content: dict[str, Any], span: Tensor | None = None) -> Mapping:
    """The mapping that an artefact describes, without its tensors."""
    return make_mapping(source_labels=content["source_labels"], classes=content["classes"], span=span, **content["mapping"])


def fill_mapping(mapping: Mapping, tensors: dict[str, Tensor], folder: Path) -> None:
    """Load the tensors of an artefact into the mapping that it describes."""
    given = {key.removeprefix(_PREFIX): value for key, value in tensors.items()}
    mapping.load_state_dict(fitting(given, mapping.state_dict(), f"artefact {str(folder)!r}"))


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
