"""The folder of a grid: `grid.json`, a run folder for each cell, what is known of each, and the tables over all.

    grid.json        the recipe, with absolute paths
    runs/NAME/       run folders, as `reprogram fit` fills them, named by content
    cells/NAME.json  of each run that was begun: its state, what it was made from, its error
    logs/NAME.log    what it printed

Nothing in it says where the folder is, so it can be moved and copied.
"""

import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reprogram.errors import ReprogramError
from reprogram.experiments.grid import Cell, expand
from reprogram.experiments.recipe import Recipe
from reprogram.files import is_leftover, locked, read_sealed, write_sealed
from reprogram.run.config import FitConfig
from reprogram.run.paths import located

GRID = "grid.json"
State = Literal["waiting", "running", "done", "failed"]
_AGAIN = "remove it, and what it tells of is made again"


class Note(BaseModel):
    """What is known of a cell that was begun.

    Attributes:
        state: what became of it; one that was interrupted is still running by this note.
        origin: code, data and source that it was begun with; empty where it failed before that was known.
        error: why it failed, in one sentence.
        seconds: how long it took, the last time.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
    state: Literal["running", "done", "failed"]
    origin: dict[str, str] = Field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0


class _Stored(BaseModel):
    recipe: dict[str, Any]


@dataclass(frozen=True)
class GridFolder:
    """A folder that holds the runs of a recipe."""

    path: Path

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from working on the same grid."""
        self.path.mkdir(parents=True, exist_ok=True)
        return locked(self.path / ".lock", f"the grid {str(self.path)!r}", remedy=", or choose another folder")

    def check(self) -> None:
        """Refuse a folder that holds something else."""
        if self.path.exists() and not self.path.is_dir():
            raise ReprogramError(f"{str(self.path)!r} is a file, but a grid is a folder; choose another --out")
        if self.path.is_dir() and not (self.path / GRID).exists():
            others = [entry.name for entry in self.path.iterdir() if not is_leftover(entry) and entry.name != ".lock"]
            if others:
                raise ReprogramError(
                    f"{str(self.path)!r} already exists and is no grid (it holds {others[0]!r}); choose another --out"
                )

    def write_recipe(self, recipe: Recipe) -> None:
        """Keep the recipe, unless it is there already."""
        if not (self.path / GRID).exists() or self.read_recipe() != recipe:
            write_sealed(self.path / GRID, {"recipe": recipe.model_dump()})

    def read_recipe(self) -> Recipe:
        """The recipe of this folder."""
        if not (self.path / GRID).is_file():
            raise ReprogramError(f"{str(self.path)!r} holds no grid; give a recipe, or flags with several values")
        return Recipe.read(read_sealed(self.path / GRID, "grid", _Stored, remedy="give the recipe again")["recipe"])

    @property
    def passes(self) -> Path:
        """Where runs share their first passes, until all are done."""
        return self.path / ".passes"

    def run(self, cell: Cell) -> Path:
        """The run folder of a cell."""
        return self.path / "runs" / cell.name

    def log(self, cell: Cell) -> Path:
        """The file with what its run prints."""
        return self.path / "logs" / f"{cell.name}.log"

    def note(self, cell: Cell) -> Note | None:
        """What is known of a cell; None of one that was not begun."""
        path = self._note(cell)
        if not path.exists():
            return None
        return Note.model_validate(read_sealed(path, "note on a run", Note, remedy=_AGAIN))

    def write_note(self, cell: Cell, note: Note) -> None:
        """Keep what is known of a cell."""
        path = self._note(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, note.model_dump())

    def set_aside(self, cell: Cell) -> None:
        """Move a run, and what is known of it, out of the way, so that it is made anew; nothing is deleted."""
        place = self.path / "replaced"
        place.mkdir(exist_ok=True)
        number = next(n for n in range(1, 1_000_000) if not (place / f"{cell.name}-{n}").exists())
        if self.run(cell).exists():
            self.run(cell).rename(place / f"{cell.name}-{number}")
        if self._note(cell).exists():
            shutil.move(self._note(cell), place / f"{cell.name}-{number}.json")

    def state(self, cell: Cell) -> State:
        """What a cell is at, as far as this folder tells; one that no process works on any more is waiting."""
        note = self.note(cell)
        if note is None or note.state == "running":
            return "waiting"
        finished = note.state == "failed" or (self.run(cell) / "result.json").is_file()
        return note.state if finished else "waiting"

    def _note(self, cell: Cell) -> Path:
        return self.path / "cells" / f"{cell.name}.json"


def located_recipe(recipe: Recipe) -> Recipe:
    """The same recipe with absolute paths, so that it can be continued from any folder."""
    return Recipe.read(
        {
            "title": recipe.title,
            **_located_grid(recipe.settings, recipe.grid),
            "also": [_located_grid(grid.settings, grid.grid) for grid in recipe.also],
        }
    )


_PATHS = ("data", "model", "data_root", "weights", "prior", "templates", "labels")


def _located_grid(settings: dict[str, Any], grid: dict[str, list[Any]]) -> dict[str, Any]:
    axes = {axis: [_located_value(axis, value) for value in values] for axis, values in grid.items()}
    return {"settings": _located(settings), "grid": axes}


def _located_value(axis: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _located(value)
    return _located({axis: value})[axis]


def _located(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with absolute paths where they are paths; whatever else is wrong with them is told with their cell."""
    found = dict(settings)
    for name in _PATHS:
        if isinstance(found.get(name), str):
            found[name] = _located_alone(name, found[name], found)
    return found


def _located_alone(name: str, value: str, beside: dict[str, Any]) -> str:
    owner = {
        "prior": {"mapping": "gaussian"},
        "templates": {"model": beside.get("model", "openclip:ViT-B-32")},
        "labels": {"model": beside.get("model", "onnx:model.onnx")},
    }
    try:
        config = located(FitConfig.read({**owner.get(name, {}), name: value}))
    except ReprogramError:
        return value
    return str(config.given.get(name, value))


def checked_cells(recipe: Recipe) -> Sequence[Cell]:
    """The cells of a recipe, each of which could be begun; the first mistake in one is told with where it stands."""
    cells = expand(recipe)
    if not cells:
        raise ReprogramError("the grid has no runs; give it data, mappings or other values")
    return cells
