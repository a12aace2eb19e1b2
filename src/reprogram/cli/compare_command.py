"""What `reprogram compare` takes, and what can be wrong with it, found before torch is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import Field
from pydantic.fields import FieldInfo

from reprogram.cli.arguments import read
from reprogram.data.registry import check_data_spec
from reprogram.errors import ReprogramError, shown
from reprogram.experiments.grid import Cell, expand, table_axes
from reprogram.experiments.recipe import Recipe, read_recipe
from reprogram.experiments.settings import Measure, Plan
from reprogram.files.foreign import expanded
from reprogram.run.config import FitConfig
from reprogram.sources.registry import check_model_name

_RECIPES = (".json", ".yaml", ".yml")
_SEEDS = [0, 1, 2]


class CompareCommand(Plan):
    """Carry out a grid of runs, every combination of what is given, and compare them in tables with intervals."""

    words: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE|DATA")] = Field(
        [],
        description="A recipe (.json or .yaml), or data sets as for `reprogram fit`; with neither, the grid in --out is "
        "continued.",
    )
    out: str = Field("runs/compare", description="Folder of the grid: runs, states, logs, tables, report.")
    dry_run: bool = Field(False, description="List the runs and what each is at, and carry out none.")
    measure: Measure = Field(
        "selected", description="Accuracy that the tables compare; selected is the epoch that validation chose."
    )
    rows: str | None = Field(None, description="Axis down the table; by default the data.")
    columns: str | None = Field(None, description="Axis across the table; by default the mapping, or what else varies.")
    report: bool = Field(True, description="Write report.html over all finished runs at the end.")


@dataclass(frozen=True)
class ComparePlan:
    """What `reprogram compare` shall do.

    Attributes:
        command: the command.
        recipe: the experiment, or None for the one in the folder.
        out: the folder of the grid.
    """

    command: CompareCommand
    recipe: Recipe | None
    out: Path


def axes_of(fields: dict[str, FieldInfo]) -> dict[str, FieldInfo]:
    """The flags of `fit` for a grid: each takes one or more values, and several make an axis."""
    taken = set(CompareCommand.model_fields)
    plain = {**FitConfig.model_fields, **fields}
    plain["seed"] = FieldInfo.merge_field_infos(
        plain["seed"], description="Seeds; a grid that is given by flags has 0, 1 and 2.", default=None
    )
    return {
        name: field if field.annotation is bool else _several(field) for name, field in plain.items() if name not in taken
    }


def _several(field: FieldInfo) -> FieldInfo:
    made = FieldInfo.merge_field_infos(field, annotation=list[str], default=[])
    made.annotation = list[str]
    return made


def check_compare(given: dict[str, Any]) -> ComparePlan:
    """Read the command and its recipe, and look at every run of it."""
    own = {name: value for name, value in given.items() if name in CompareCommand.model_fields}
    axes = {name: value for name, value in given.items() if name not in own and value != []}
    command = read(CompareCommand, own)
    recipe = _recipe(command.words, axes)
    if command.address is not None and command.engine != "ray":
        raise ReprogramError(f"--address {command.address} goes with --engine ray; add that, or leave it out")
    out = expanded(command.out, "--out")
    if recipe is not None:
        cells = expand(recipe)
        for cell in cells:
            _check(cell)
        table_axes(cells, command.rows, command.columns)
    elif not (out / "grid.json").is_file():
        raise ReprogramError(
            f"neither a recipe nor data were given, and {shown(command.out)} holds no grid; write reprogram compare DATA "
            "--mapping blm blm+, or reprogram compare RECIPE.json"
        )
    return ComparePlan(command, recipe, out)


def _recipe(words: list[str], axes: dict[str, Any]) -> Recipe | None:
    files = [word for word in words if Path(word).suffix.lower() in _RECIPES]
    data = [word for word in words if word not in files]
    if len(files) > 1:
        raise ReprogramError(f"{shown(files[0])} and {shown(files[1])} are two recipes, but one is expected; give one")
    if data and "data" in axes:
        raise ReprogramError(f"{shown(data[0])} and --data were both given; give the data one way")
    if data:
        axes = {"data": data, **axes}
    several = {name: value if isinstance(value, list) else [value] for name, value in axes.items()}
    if files:
        return read_recipe(files[0]).with_axes(several)
    if not axes:
        return None
    return Recipe(grid={**several, **({} if "seed" in several else {"seed": _SEEDS})})


def _check(cell: Cell) -> None:
    config = cell.config
    check_data_spec(config.data, expanded(config.data_root, "--data-root"), config.group)
    check_model_name(config.model, config.weights)
