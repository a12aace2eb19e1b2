"""The paper's tables as data: every printed number, and the settings of the run that it stands for.

`paper/tableN.json` holds a table as it is printed. A number's facts are those of its table, row, column and cell together:
settings as `reprogram fit` takes them. A run and a number belong together if these mean the same, defaults filled in.
Nothing here imports torch.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reprogram.errors import ReprogramError
from reprogram.experiments.recipe import REFERENCE
from reprogram.files import parse_json
from reprogram.files.reading import check_schema
from reprogram.run.config import FitConfig
from reprogram.run.defaults import with_mapping
from reprogram.sources.registry import SOURCES, find_source

Quantity = Literal["accuracy", "minutes", "million parameters", "count"]
Identity = frozenset[tuple[str, Any]]
#: Fields of a run that say what it is; seeds, places and devices do not.
_FIELDS = ("protocol", "data", "model", "epochs", "fraction", "shots")
_SEEDS = 3


@dataclass(frozen=True)
class PublishedNumber:
    """One printed number.

    Attributes:
        table: its table's number.
        row: of that table.
        column: of that table.
        mean: as printed; of accuracies in percent.
        std: as printed, over three seeds; None where none is.
        quantity: what it is a number of.
        facts: the settings that it stands for; without `data` it is a mean over the twelve sets.
    """

    table: int
    row: str
    column: str
    mean: float
    std: float | None
    quantity: Quantity
    facts: Mapping[str, Any]

    @property
    def standard_error(self) -> float | None:
        """Of the mean over the paper's three seeds."""
        return None if self.std is None else self.std / _SEEDS**0.5

    @property
    def is_average(self) -> bool:
        """Whether it is a mean over the twelve data sets."""
        return "data" not in self.facts


class PublishedTable(BaseModel):
    """One table of the paper."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int = Field(description="As in the paper.")
    title: str
    source: str = Field(description="The work, and where in it.")
    quantity: Literal["accuracy", "cost", "count"]
    facts: dict[str, Any] = Field(description="What all its runs have in common.")
    notes: list[str] = Field(description="What has to be known to read it.")
    rows: dict[str, dict[str, Any]] = Field(description="Row → what its runs have in common.")
    columns: dict[str, dict[str, Any]] = Field(description="Column → the same.")
    cell_facts: dict[str, dict[str, dict[str, Any]]] = Field(default={}, description="Row → column → the same.")
    row_quantities: dict[str, Literal["minutes", "million parameters"]] = Field(
        default={}, description="Of a table of cost."
    )
    backpropagation: dict[str, str] = Field(default={}, description="Column → whether the mapping is learned by gradient.")
    cells: dict[str, dict[str, tuple[float, float | None]]] = Field(description="Row → column → mean and std.")
    averages: dict[str, dict[str, tuple[float, float | None]]] = Field(
        default={}, description="Rows that are printed as averages of those above."
    )

    def numbers(self) -> list[PublishedNumber]:
        """Every cell, and the averages over the twelve data sets."""
        found = [self._number(row, column, cell) for row, cells in self.cells.items() for column, cell in cells.items()]
        if all("data" in facts for facts in self.rows.values()):
            found += [
                self._number(row, column, cell) for row, cells in self.averages.items() for column, cell in cells.items()
            ]
        return found

    def _number(self, row: str, column: str, cell: tuple[float, float | None]) -> PublishedNumber:
        own = self.cell_facts.get(row, {}).get(column, {})
        facts = {**self.facts, **self.rows.get(row, {}), **self.columns[column], **own}
        quantity: Any = self.row_quantities.get(row, self.quantity)
        return PublishedNumber(self.number, row, column, *cell, quantity, facts)


#: The tables of the paper, main text and appendix.
TABLES = (1, 2, 3, 4, 5, 6, 7, 8, 9)


@functools.cache
def published_table(number: int) -> PublishedTable:
    """A table of the paper by its number.

    >>> cell = published_table(1).cells["Flowers102"]["ResNet-18, BLM+"]
    >>> cell
    (50.1, 0.6)
    """
    if number not in TABLES:
        raise ReprogramError(
            f"table {number} was asked for, but the paper has the tables 1 to {TABLES[-1]}; name one of them"
        )
    file = files("reprogram.experiments").joinpath("paper", f"table{number}.json")
    what = f"table {number} of the paper"
    content = parse_json(file.read_bytes(), what, "install reprogram again")
    check_schema(content, what, PublishedTable, "install reprogram again")
    return PublishedTable.model_validate(content)


def identity(settings: Mapping[str, Any]) -> Identity:
    """What a run is, defaults filled in: equal for settings that mean the same run but for its seed and its places.

    >>> identity({"mapping": "blm", "seed": 1}) == identity({"mapping": "blm", "smoothing": 1.0})
    True
    """
    reference = settings.get(REFERENCE)
    config = FitConfig.read({name: value for name, value in settings.items() if name != REFERENCE})
    found: dict[str, Any] = {name: getattr(config, name) for name in _FIELDS if name != "data" or "data" in settings}
    prefix = find_source(config.model)[0].prefix
    found |= SOURCES.read(prefix, config.options("source")).model_dump()
    if reference is not None:
        return frozenset({**found, REFERENCE: reference}.items())
    name = config.named_mapping
    resolved = with_mapping(config, name, config.options("mapping"))
    return frozenset({**found, "program": config.named_program, "mapping": name, **resolved.options("mapping")}.items())


def without_data(what: Identity) -> Identity:
    """The same run on any data."""
    return frozenset(pair for pair in what if pair[0] != "data")
