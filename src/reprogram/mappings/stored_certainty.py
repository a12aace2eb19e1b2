"""A `Certainty` in an artefact: a section of its JSON file, and tensors under a prefix of their own."""

from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from reprogram.files.reading import AGAIN, check_schema, fitting
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.certainty import Certainty
from reprogram.mappings.certainty_folds import FOLDS
from reprogram.mappings.prediction_sets import PredictionSets
from reprogram.mappings.reliability import Reliability
from reprogram.mappings.typicality import Typicality, has_densities

SECTION = "certainty"
PREFIX = "certainty."
_PARTS = ("omega", "shift", "scale", "bias")


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _StoredReliability(_Form):
    log_loss: float = Field(ge=0)
    brier: float = Field(ge=-1e-6, le=2.1)
    calibration_error: float = Field(ge=0, le=1.1)


class StoredCertainty(_Form):
    """What the JSON file says."""

    temperature: float = Field(gt=0)
    how: str
    n: int = Field(ge=0)
    before: _StoredReliability | None
    after: _StoredReliability | None
    answers: float | None = Field(ge=0, lt=1)
    outdated: bool
    notes: list[str]


def section_of(certainty: Certainty) -> dict[str, Any]:
    """What goes into the JSON file."""
    names = ("temperature", "how", "n", "answers", "outdated")
    return {
        **{name: getattr(certainty, name) for name in names},
        "notes": list(certainty.notes),
        "before": None if certainty.before is None else certainty.before.to_json(),
        "after": None if certainty.after is None else certainty.after.to_json(),
    }


def tensors_of(certainty: Certainty) -> dict[str, Tensor]:
    """What goes beside the mapping's tensors."""
    found: dict[str, Tensor] = {}
    if (sets := certainty.sets) is not None:
        found["misfits"], found["targets"] = torch.cat(sets.misfits), torch.cat(sets.targets)
        found["sizes"] = torch.tensor([len(part) for part in sets.misfits])
        for name in _PARTS if sets.affines else ():
            parts = [getattr(affine, name) for affine in sets.affines]
            if parts[0] is not None:
                found[name] = torch.stack(parts)
    if certainty.typicality is not None:
        found["distances"] = certainty.typicality.distances
    return {f"{PREFIX}{name}": tensor for name, tensor in found.items()}


def read_certainty(content: dict[str, Any], tensors: dict[str, Tensor], mapping: Mapping, folder: Path) -> None:
    """Hang on a mapping what its artefact says of its certainty, if it says anything; every contradiction is refused."""
    what = f"artefact {str(folder)!r}"
    section = content.get(SECTION)
    given = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    if section is None:
        fitting(given, {}, what)
        return
    check_schema(section, f"{what}, section {SECTION}", StoredCertainty, AGAIN)
    fitting(given, _expected(given, mapping), what)
    if not _consistent(given, mapping.k_target):
        from reprogram.mappings.artefact import unfit

        raise unfit(folder)
    stored = {**section, "notes": tuple(section["notes"])}
    for name in ("before", "after"):
        stored[name] = None if section[name] is None else Reliability(**section[name])
    mapping.certainty = Certainty(
        **stored,
        sets=_sets(given),
        typicality=Typicality(given["distances"]) if "distances" in given else None,
    )


def without_certainty(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the model alone."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}


def _expected(given: dict[str, Tensor], mapping: Mapping) -> dict[str, Tensor]:
    """Tensors of the shapes that these should have."""
    like: dict[str, Tensor] = {}
    if given.keys() - {"distances"}:
        n = len(given["targets"]) if "targets" in given and given["targets"].ndim else 0
        folds = FOLDS if "omega" in given else 1
        like = {"misfits": torch.empty(n).double(), "targets": torch.empty(n).long(), "sizes": torch.empty(folds).long()}
        for name in _PARTS if "omega" in given else ():
            if (part := getattr(mapping.affine, name)) is not None:
                like[name] = part.detach().cpu().expand(folds, *part.shape)
    if "distances" in given and has_densities(mapping):
        like["distances"] = torch.empty(given["distances"].numel()).double()
    return like


def _consistent(given: dict[str, Tensor], k_target: int) -> bool:
    """Whether the folds are as large as is said, and their classes are some of the mapping's."""
    if "sizes" not in given:
        return True
    targets, sizes = given["targets"], given["sizes"]
    inside = not len(targets) or (int(targets.min()) >= 0 and int(targets.max()) < k_target)
    return int(sizes.min()) >= 0 and int(sizes.sum()) == len(targets) and inside


def _sets(given: dict[str, Tensor]) -> PredictionSets | None:
    if "sizes" not in given:
        return None
    sizes = given["sizes"].tolist()
    affines = [
        Affine(*(given[name][fold] if name in given else None for name in _PARTS))  # type: ignore[arg-type]
        for fold in range(len(sizes) if "omega" in given else 0)
    ]
    found = zip(given["misfits"].split(sizes), given["targets"].split(sizes), strict=True)
    return PredictionSets.of(affines, list(found))
