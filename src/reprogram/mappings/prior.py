"""Prior knowledge about classes: a matrix P (k_S, k_T), with target logits z · P before any sample."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.errors import ReprogramError, shown
from reprogram.files.foreign import Lines, expanded, opened_text
from reprogram.files.safe_npz import read_npz
from reprogram.mappings.settings import PriorMatrix
from reprogram.mappings.similar_names import similar_names
from reprogram.names import first_twice, plain_name
from reprogram.sources.texts import Texts

_REMEDY = "write a table of numbers with the classes above its columns and the source labels beside its rows"
#: Beyond this, weights times logits leave the range of float32.
_LARGEST = 1e6


def prior_matrix(prior: Any, source_labels: Sequence[str], classes: Sequence[str]) -> Tensor | None:
    """P for these label sets, (k_S, k_T) float32; None where nothing is known.

    Args:
        prior: what the setting says: `none`, `names`, `texts`, a path, or a `PriorMatrix`. `matrix` is one that was handed
            over before and comes with the other tensors: zeros until then.
        source_labels: k_S names.
        classes: k_T names. A class that the prior does not know has the mean of all source logits, or zeros in a matrix.
    """
    if prior == "none":
        return None
    if prior == "matrix":
        return torch.zeros(len(source_labels), len(classes))
    if isinstance(source_labels, Texts) and prior in ("names", "texts"):
        return _of_texts(source_labels, classes)
    if prior == "texts":
        raise ReprogramError(
            "prior 'texts' is about a model that compares images with texts, but this one has labels of its own; "
            "choose an openclip: model, or prior 'names'"
        )
    if prior == "names":
        found = similar_names(source_labels, classes)
        return found.where(found.any(0), 1 / len(source_labels))
    return _arranged(prior if isinstance(prior, PriorMatrix) else read_prior(prior), source_labels, classes)


def read_prior(path: str | Path) -> PriorMatrix:
    """A prior from a file.

    A `.csv` file has the class names in its first row and a source label at the beginning of each other row. A `.npz` file
    has the array `prior` (k_S, k_T), and perhaps `source_labels` and `classes`, the names of its rows and columns.
    """
    file = expanded(path, "prior")
    return _read_npz(file) if file.suffix.lower() == ".npz" else _read_csv(file)


def _read_npz(path: Path) -> PriorMatrix:
    arrays, names = read_npz(path, ("prior", "source_labels", "classes"))
    if "prior" not in arrays or arrays["prior"].dtype.kind not in "biuf":
        raise ReprogramError(
            f"prior {str(path)!r} holds {', '.join(map(shown, names)) or 'nothing'}, but an array of numbers called 'prior' "
            "is expected; save it with np.savez(path, prior=matrix)"
        )
    rows, columns = (arrays[name].astype(str).flatten().tolist() if name in arrays else None for name in _SIDES)
    return PriorMatrix(arrays["prior"], rows, columns)


_SIDES = ("source_labels", "classes")


def _read_csv(path: Path) -> PriorMatrix:
    with opened_text(path, "prior", _REMEDY, newline="") as file:
        lines = Lines(file, path, "prior")
        table = []
        try:
            for row in csv.reader(lines, strict=True):
                lines.end_row()
                if row:
                    table.append(row)
        except csv.Error as error:
            raise ReprogramError(f"prior {str(path)!r} cannot be read ({error}); {_REMEDY}") from None
    if len(table) < 2 or len(table[0]) < 2:
        raise ReprogramError(f"prior {str(path)!r} holds no numbers; {_REMEDY}")
    (_, *columns), *rows = table
    values = np.empty((len(rows), len(columns)))
    for place, row in enumerate(rows):
        try:
            values[place] = np.array([float(cell or 0) for cell in row[1:]]).reshape(len(columns))
        except ValueError:
            raise ReprogramError(
                f"row {place + 2} of prior {str(path)!r} has no {len(columns)} numbers after its name; {_REMEDY}"
            ) from None
    return PriorMatrix(values, [row[0] for row in rows], columns)


def _arranged(given: PriorMatrix, source_labels: Sequence[str], classes: Sequence[str]) -> Tensor:
    """The matrix in the order of these label sets; zeros for what it does not name."""
    try:
        values = torch.as_tensor(given.values).detach().to("cpu", torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ReprogramError("the prior holds no numbers; give an array of source labels × classes") from None
    shape = tuple(values.shape)
    expected = tuple(
        len(wanted if named is None else named)
        for named, wanted in ((given.source_labels, source_labels), (given.classes, classes))
    )
    if shape != expected:
        raise ReprogramError(
            f"the prior has shape {shape}, but {expected} is expected, source labels × classes; give a number for each"
        )
    if not bool((values.abs() <= _LARGEST).all()):
        raise ReprogramError(f"the prior holds numbers beyond ±{_LARGEST:g}, or NaN; give finite weights of moderate size")
    values = _placed(values, given.source_labels, source_labels, 0, "source labels")
    return _placed(values, given.classes, classes, 1, "classes").float()


def _placed(values: Tensor, named: Sequence[str] | None, wanted: Sequence[str], dim: int, what: str) -> Tensor:
    if named is None or list(named) == list(wanted):
        return values
    twice = first_twice(named)
    if twice is not None:
        raise ReprogramError(f"the prior names {shown(twice)} twice among its {what}; give each name once")
    plain: dict[str, int | None] = {}
    for place, name in enumerate(named):  # spellings that mean several names mean none of them
        plain[plain_name(name)] = None if plain_name(name) in plain else place
    places = {**plain, **{name: place for place, name in enumerate(named)}}
    found = [places.get(name, plain.get(plain_name(name))) for name in wanted]
    if all(place is None for place in found):
        raise ReprogramError(
            f"the prior is about the {what} {', '.join(map(shown, named[:3]))} ..., of which none is among "
            f"{', '.join(map(shown, wanted[:3]))} ...; give it the names that are used here"
        )
    fresh = values.new_zeros(tuple(len(wanted) if side == dim else size for side, size in enumerate(values.shape)))
    known = [place for place, old in enumerate(found) if old is not None]
    old = torch.tensor([place for place in found if place is not None])
    return fresh.index_copy_(dim, torch.tensor(known), values.index_select(dim, old))


def _of_texts(texts: Texts, classes: Sequence[str]) -> Tensor:
    """The zero-shot classifier; a class that no text is about has the mean of all logits."""
    about = {plain_name(name) for name in texts.classes}
    known = [name for name in classes if plain_name(name) in about]
    prior = torch.full((len(texts), len(classes)), 1 / len(texts))
    if known:
        columns = texts.ensemble(known) if texts.embedded else texts.zero_shot(known)
        prior[:, [place for place, name in enumerate(classes) if plain_name(name) in about]] = columns
    return prior
