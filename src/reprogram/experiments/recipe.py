"""A recipe: which runs belong to an experiment, as one JSON or YAML file. Nothing here imports torch."""

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import Field

from reprogram.errors import ReprogramError, extra_missing, shown
from reprogram.files import parse_json, read_bytes
from reprogram.files.foreign import expanded, is_file
from reprogram.settings import Settings

#: The key by which a value of an axis that sets several settings is called in tables.
LABEL = "label"
#: The setting that makes a run one of a reference method instead of a program and a mapping.
REFERENCE = "reference"
_YAML = (".yaml", ".yml")
_MOST_VALUES = 1_000_000  # in one file
_FORM = 'such as {"settings": {"epochs": 5}, "grid": {"data": ["photos"], "mapping": ["blm", "blm+"], "seed": [0, 1, 2]}}'


class Grid(Settings):
    """Every combination of the values of some axes, on top of settings that all of its runs have."""

    settings: dict[str, Any] = Field(default_factory=dict, description="The same in all runs.")
    grid: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="Axis → values, each one of the setting of that name, or a table of several settings with a label.",
    )


class Recipe(Grid):
    """One experiment.

    A recipe is one grid, and perhaps further ones that share its settings. Settings are those of `reprogram fit`, with `_`
    for `-`; cells of two grids with equal settings are one run.
    """

    title: str = Field("", description="What the tables are about.")
    also: list[Grid] = Field(default_factory=list, description="Further grids.")

    @property
    def grids(self) -> list[Grid]:
        """All grids, each with the common settings; the first is the recipe's own, if it has axes or stands alone."""
        own = [Grid(settings=self.settings, grid=self.grid)] if self.grid or not self.also else []
        further = [Grid(settings={**self.settings, **grid.settings}, grid=grid.grid) for grid in self.also]
        return [*own, *further]

    def with_axes(self, axes: dict[str, list[Any]]) -> "Recipe":
        """The same experiment with other values: of each axis here, these instead of what any grid says of it.

        Raises:
            ReprogramError: values of another axis set it along with others; their labels would tell what is not so.
        """
        others = [item for grid in self.grids for item in grid.grid.items() if item[0] not in axes]
        for axis, value in ((axis, value) for axis, values in others for value in values if isinstance(value, dict)):
            if twice := [name for name in axes if name in value]:
                raise ReprogramError(
                    f"{twice[0]} was given, but {shown(value.get(LABEL, value))} on axis {axis!r} of the recipe sets it, "
                    "too; leave it out, or change the recipe"
                )

        def changed(grid: Grid) -> dict[str, Any]:
            settings = {name: value for name, value in grid.settings.items() if name not in axes}
            kept = {name: values for name, values in grid.grid.items() if name not in axes}
            return {"settings": settings, "grid": {**kept, **axes}}

        # a recipe of further grids alone has none of its own, and gets none
        own = changed(self) if self.grid or not self.also else {"settings": changed(self)["settings"]}
        return Recipe.read({**own, "title": self.title, "also": [changed(grid) for grid in self.also]})


def read_recipe(path: str | Path) -> Recipe:
    """Read a recipe from a `.json`, `.yaml` or `.yml` file.

    Raises:
        ReprogramError: it is not there, or not a recipe.
    """
    file = expanded(path, "recipe")
    if not is_file(file):
        raise ReprogramError(f"recipe {shown(str(path))} is not there, or no file; give a .json or .yaml file")
    if file.suffix.lower() in _YAML:
        content = _yaml(file)
    elif file.suffix.lower() == ".json":
        content = parse_json(read_bytes(file, "recipe"), f"recipe {shown(str(path))}", "mend it", unique=True)
    else:
        raise ReprogramError(f"recipe {shown(str(path))} is neither .json nor .yaml; name it so")
    if not isinstance(content, dict):
        raise ReprogramError(f"recipe {shown(str(path))} holds no table; write one, {_FORM}")
    try:
        return Recipe.read(content)
    except ReprogramError as error:
        raise ReprogramError(f"recipe {shown(str(path))}: {error}") from None


def _yaml(file: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise extra_missing("yaml", "models", "a recipe in YAML") from None
    try:
        text = read_bytes(file, "recipe").decode("utf-8", "replace")
        _check_nodes(yaml.compose(text, Loader=yaml.SafeLoader))
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())[:200]
        raise ReprogramError(f"recipe {shown(str(file))} is no YAML ({reason}); mend it, or write JSON") from None


def _check_nodes(root: Any) -> None:
    """Refuse names that are given twice, of which YAML takes the last one, and aliases that stand for endless text."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        """How many values it has, with each alias written out."""
        if id(node) in sizes:
            return sizes[id(node)]
        sizes[id(node)] = _MOST_VALUES + 1  # one that holds itself has no end
        parts = node.value if isinstance(node.value, list) else []
        names = Counter(part[0].value for part in parts if isinstance(part, tuple) and isinstance(part[0].value, str))
        if twice := next((name for name, count in names.items() if count > 1), None):
            raise ValueError(f"{shown(twice)} stands twice in one table")
        inner = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        sizes[id(node)] = 1 + sum(map(size, inner))
        return sizes[id(node)]

    if root is not None and size(root) > _MOST_VALUES:
        raise ValueError(f"with its aliases written out, it has more than {_MOST_VALUES:,} values")
