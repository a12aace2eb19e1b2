"""What of the paper can be made again by one command: for each table and figure its recipe and where its numbers stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

from reprogram.data.paper_sets import paper_set
from reprogram.errors import ReprogramError, unknown
from reprogram.experiments.grid import Cell, expand
from reprogram.experiments.recipe import Grid, Recipe, read_recipe

_PREFIX = "paper:"


@dataclass(frozen=True)
class PaperItem:
    """A table or a figure of the paper.

    Attributes:
        name: as `reprogram reproduce` takes it.
        tables: whose printed numbers its runs are compared with; a figure has none of its own in words.
        meaning: what it shows.
    """

    name: str
    tables: tuple[int, ...]
    meaning: str

    def recipe(self) -> Recipe:
        """Its runs."""
        with as_file(files("reprogram.experiments").joinpath("recipes", f"{self.name}.json")) as path:
            return read_recipe(path)


ITEMS: dict[str, PaperItem] = {
    item.name: item
    for item in (
        PaperItem("table1", (1,), "mappings with padding, ResNet-18 and ResNeXt-101, 12 data sets"),
        PaperItem("table2", (2,), "mappings with a watermark, ResNet-18, 12 data sets"),
        PaperItem("table3", (3,), "ablations: -Bayes, -Iter, -Top-K, ResNet-18, 12 data sets"),
        PaperItem("table5", (5,), "α × λ of BLM+, ResNet-18, Flowers102"),
        PaperItem("table6", (6,), "α and λ of each task, 70 % of the training images, 5 data sets"),
        PaperItem("table7", (7,), "60, 100, 150, 200 epochs, ResNet-18, mean of 12 data sets"),
        PaperItem("table8", (8,), "parameters and time, Flowers102, with finetuning"),
        PaperItem("table9", (9,), "mappings on CLIP ViT-B/32, 12 data sets"),
        PaperItem("figure5", (1,), "gain over ILM by the number of classes, ResNet-18"),
        PaperItem("figure6", (1,), "share of the training images, CIFAR100, ResNet-18"),
        PaperItem("figure9", (1, 5), "λ of BLM+ on five data sets, ResNet-18"),
        PaperItem("figure10", (1, 5), "α of BLM+ on five data sets, ResNet-18"),
    )
}


def find_item(name: str) -> PaperItem:
    """A table or figure by its name, or an error that proposes the nearest one."""
    if name not in ITEMS:
        raise unknown("table or figure of the paper", name, ITEMS)
    return ITEMS[name]


def item_recipe(
    name: str, datasets: Sequence[str] = (), seeds: Sequence[int] = (), settings: dict[str, Any] | None = None
) -> Recipe:
    """The recipe of a table or figure, perhaps of some data sets and seeds only.

    Args:
        name: such as `table1`.
        datasets: names as in `paper:NAME`; none for all.
        seeds: none for 0, 1 and 2.
        settings: further ones for all runs, such as `data_root`.

    Raises:
        ReprogramError: a name is not known, or the item has no run on these data sets.
    """
    recipe = find_item(name).recipe()
    for each in datasets:
        paper_set(each)
    wanted = {f"{_PREFIX}{each}" for each in datasets}
    grids = [grid for each in recipe.grids if (grid := _only(each, wanted)) is not None]
    if not grids:
        has = ", ".join(dict.fromkeys(cell.data.removeprefix(_PREFIX) for cell in expand(recipe)))
        raise ReprogramError(f"{name} has no run on {', '.join(datasets)}; it is about {has}")
    content = {
        "title": recipe.title,
        "also": [
            {
                "settings": {**grid.settings, **(settings or {})},
                "grid": {**grid.grid, **({"seed": list(seeds)} if seeds else {})},
            }
            for grid in grids
        ],
    }
    return Recipe.read(content)


def _only(grid: Grid, wanted: set[str]) -> Grid | None:
    """What of a grid is about some data sets, all of it if none are named; None if nothing is."""
    if not wanted:
        return grid
    if "data" in grid.settings:
        return grid if grid.settings["data"] in wanted else None
    kept = [value for value in grid.grid.get("data", []) if value in wanted]
    return Grid(settings=grid.settings, grid={**grid.grid, "data": kept}) if kept else None


def datasets_of(cells: Sequence[Cell]) -> list[str]:
    """The names of the paper's data sets that cells are about, in order."""
    return list(dict.fromkeys(cell.data.removeprefix(_PREFIX) for cell in cells))
