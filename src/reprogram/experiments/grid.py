"""The cells of a recipe: what each run is given, what it is called in tables, and its name by content."""

import functools
import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from reprogram.errors import ReprogramError, shown, unknown
from reprogram.experiments.outcomes import DATA
from reprogram.experiments.recipe import LABEL, REFERENCE, Grid, Recipe
from reprogram.mappings.registry import AUTO
from reprogram.references.registry import REFERENCES
from reprogram.run.config import FitConfig
from reprogram.run.paths import safe_name

#: Where something lies and what computes it: they do not make it another run.
PLACES = ("data_root", "cache", "download", "device")
#: A file that counts by its name, wherever it lies: its content is compared elsewhere.
_WEIGHTS = "weights"
#: More runs than this are a slip of the pen.
MOST = 100_000
_DIGITS = 10
#: What is compared where nothing was said: the first of these that varies.
_METHODS = ("mapping", "program", "reference", "model")


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Attributes:
        settings: what is given to it: fields of `FitConfig` and settings of its mapping, program and source; and perhaps
            `reference`.
        labels: what it is called in tables, axis → label; the seed is not among them.
        data: what its data are called.
    """

    settings: dict[str, Any]
    labels: dict[str, str] = field(compare=False)
    data: str

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.settings.get("seed", 0))

    @property
    def told(self) -> dict[str, str]:
        """Its labels with the data, whether they vary or not: every table says of what it is."""
        return {DATA: self.data, **self.labels}

    @property
    def reference(self) -> str | None:
        """The reference method that it is a run of, if it is."""
        return self.settings.get(REFERENCE)

    @functools.cached_property
    def config(self) -> FitConfig:
        """What is carried out; whatever is wrong with it is told here."""
        reference = self.reference
        if reference is not None and (not isinstance(reference, str) or reference not in REFERENCES):
            raise unknown("reference", str(reference), REFERENCES)
        return FitConfig.read({name: value for name, value in self.settings.items() if name != REFERENCE})

    @functools.cached_property
    def name(self) -> str:
        """Its run folder: some words for people, and a digest of everything that makes it another run than others.

        Data count by what they are called and weights by the name of their file, not by where they lie; their content is
        compared elsewhere.
        """
        config = self.config
        given = {name: value for name, value in config.given.items() if name not in PLACES}
        if config.weights is not None:
            given[_WEIGHTS] = PurePath(config.weights).name
        what = {**given, "data": self.data, REFERENCE: self.reference}
        digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:_DIGITS]
        method = [config.named_program, config.named_mapping] if self.reference is None else [self.reference]
        if self.reference is None and config.program == AUTO and config.protocol != "paper":
            method[0] = AUTO
        return safe_name("-".join([self.data, *method, f"s{self.seed}", digest]))


def expand(recipe: Recipe) -> list[Cell]:
    """The runs of a recipe, each once, in the order of its grids and axes.

    >>> recipe = Recipe(settings={"data": "digits"}, grid={"mapping": ["blm", "ilm"], "seed": [0, 1]})
    >>> [(cell.labels, cell.seed) for cell in expand(recipe)][:2]
    [({'mapping': 'blm'}, 0), ({'mapping': 'blm'}, 1)]
    """
    if sum(math.prod(map(len, grid.grid.values())) for grid in recipe.grids) > MOST:  # before any of them is looked at
        raise ReprogramError(f"the grid has more than {MOST:,} runs; give fewer values")
    cells: dict[str, Cell] = {}
    places: dict[str, str] = {}
    for cell in _cells(recipe.grids):
        spec = str(cell.settings.get("data", FitConfig.model_fields["data"].default))
        if places.setdefault(cell.data, spec) != spec:
            raise ReprogramError(
                f"data {places[cell.data]!r} and {spec!r} are both called {cell.data!r}; give one of them another name: "
                f'{{"label": "other", "data": {json.dumps(spec)}}}'
            )
        _check_same(cells.setdefault(cell.name, cell), cell)
    axes = [axis for grid in recipe.grids for axis in grid.grid if axis != "seed"]
    labelled = [_with_labels(cell, axes) for cell in cells.values()]
    if further := _untold(labelled):
        labelled = [_with_labels(cell, [*axes, *further]) for cell in labelled]
    _check_told_apart(labelled)
    return labelled


def _check_same(first: Cell, second: Cell) -> None:
    """Refuse to take two runs for one that were meant to be two: they would differ in places alone."""
    for place in (*PLACES, _WEIGHTS):
        one, other = (getattr(cell.config, place) for cell in (first, second))
        if one != other:
            remedy = "give the files different names" if place == _WEIGHTS else "give one value"
            raise ReprogramError(
                f"two runs of the grid differ in {place} alone, {shown(one)} and {shown(other)}, and would be one run: "
                f"where something lies or is computed makes no other one; {remedy}"
            )


def _check_told_apart(cells: Iterable[Cell]) -> None:
    """Refuse labels that two different runs share: a table would take them for one."""
    seen: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        first = seen.setdefault((*cell.told.items(), cell.seed), cell)
        if first is not cell:
            names = dict.fromkeys([*first.settings, *cell.settings])
            which = next((name for name in names if first.settings.get(name) != cell.settings.get(name)), DATA)
            told = ", ".join(f"{axis} {shown(label)}" for axis, label in cell.told.items())
            raise ReprogramError(
                f"two different runs, with {which} {shown(first.settings.get(which))} and {shown(cell.settings.get(which))} "
                f"have the same labels ({told}); give them different labels"
            )


def _untold(cells: Iterable[Cell]) -> list[str]:
    """The settings in which cells differ that have the same labels and seed: they need an axis of their own."""
    alike: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        alike.setdefault((*cell.labels.items(), cell.seed), []).append(cell)
    found: dict[str, None] = {}
    for group in alike.values():
        names = [name for cell in group for name in cell.settings]
        values = {name: {json.dumps(cell.settings.get(name), default=str) for cell in group} for name in names}
        found |= {name: None for name, several in values.items() if len(several) > 1 and name not in PLACES}
    return list(found)


def table_axes(cells: Sequence[Cell], rows: str | None, columns: str | None) -> tuple[str, str]:
    """The axes down and across a table: those that were asked for, else the data and what methods differ in."""
    axes = list(dict.fromkeys([DATA, *(axis for cell in cells for axis in cell.labels)]))
    for axis in (rows, columns):
        if axis is not None and axis not in axes:
            raise unknown("axis", axis, axes)
    varying = [axis for axis in axes if len({cell.told.get(axis) for cell in cells}) > 1]
    candidates = [axis for axis in (*_METHODS, *varying, *axes) if axis in axes and axis != rows]
    across = columns or next((axis for axis in candidates if axis in varying and axis != DATA), None)
    across = across or next((axis for axis in candidates if axis != DATA), DATA)
    down = rows or (DATA if across != DATA else next((axis for axis in axes if axis != DATA), DATA))
    return down, across


def given_order(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """The levels of each axis in the order in which the recipe has them; tables keep it."""
    order: dict[str, dict[str, None]] = {}
    for cell in cells:
        for axis, label in cell.told.items():
            order.setdefault(axis, {})[label] = None
    return {axis: list(levels) for axis, levels in order.items()}


def _with_labels(cell: Cell, axes: Iterable[str]) -> Cell:
    """With a label for every axis of the recipe, also for those that a grid of its own does not have."""
    known = dict.fromkeys(axes)
    labels = {axis: cell.labels.get(axis) or _default_label(cell, axis) for axis in known}
    return Cell(cell.settings, labels, cell.data)


def _default_label(cell: Cell, axis: str) -> str:
    if axis == "data":
        return cell.data
    if axis in cell.settings:
        return _text(cell.settings[axis])
    if axis in ("mapping", "program") and cell.reference is None:
        return str(getattr(cell.config, f"named_{axis}"))
    return "" if axis not in FitConfig.model_fields else _text(getattr(cell.config, axis))


def _cells(grids: Iterable[Grid]) -> Iterator[Cell]:
    for grid in grids:
        for axis, values in grid.grid.items():
            if not values:
                raise ReprogramError(f"axis {axis!r} of the grid has no values; give at least one, or leave it out")
        chosen = [[_value(axis, value) for value in values] for axis, values in grid.grid.items()]
        for combination in itertools.product(*chosen):
            settings = dict(grid.settings)
            labels: dict[str, str] = {}
            name = None
            for axis, (label, told, several) in zip(grid.grid, combination, strict=True):
                settings |= several
                if axis != "seed":
                    labels[axis] = label
                if told and "data" in several:
                    name = label
            yield Cell(settings, labels, name or data_name(str(settings.get("data", "digits"))))


def _value(axis: str, value: Any) -> tuple[str, bool, dict[str, Any]]:
    """A value of an axis: its label, whether that was given, and the settings that it stands for."""
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ReprogramError(
                f"{shown(value)} is a value of axis {axis!r}, but one value or a table of settings is expected"
            )
        return (data_name(str(value)) if axis == "data" else _text(value)), False, {axis: value}
    settings = {name: setting for name, setting in value.items() if name != LABEL}
    if not settings:
        raise ReprogramError(f"a value of axis {axis!r} sets nothing; write a value, or a table of settings")
    label = value.get(LABEL)
    if label is not None and (not isinstance(label, str) or not label.strip()):
        raise ReprogramError(f"label {shown(label)} of axis {axis!r} is no text; give one, or leave it out")
    if label is None:
        label = ", ".join(_text(setting) for setting in settings.values())
        return label, False, settings
    return label, True, settings


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "default"}[value]
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)  # two values never have one text
    return str(value)


def data_name(spec: str) -> str:
    """What data are called: the last part of a path without its suffix, or the name.

    >>> data_name("/photos/birds.csv"), data_name("paper:dtd"), data_name("photos/")
    ('birds', 'paper:dtd', 'photos')
    """
    if "/" not in spec and "\\" not in spec and not spec.lower().endswith((".csv", ".tsv", ".npz", ".parquet")):
        return spec
    path = PurePath(spec)
    return path.stem if path.suffix.lower() in (".csv", ".tsv", ".npz", ".parquet") else path.name
