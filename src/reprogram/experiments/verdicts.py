"""Ours beside the paper's: for each run of a recipe what was reached, what is printed, and whether the two agree.

The rule. Ours is the mean over seeds of the accuracy that the paper publishes, the best epoch on test. It agrees with a
printed mean if the two differ by no more than twice the standard error of the difference, and half a printed digit. The
paper's standard error is its std over the root of three seeds. Where one of the two is not known (nothing printed, one seed
of ours), it is taken to be as large as the other one; where neither is, as that of three seeds with the paper's usual std.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reprogram.experiments.comparison import Status
from reprogram.experiments.grid import Cell
from reprogram.experiments.published import Identity, PublishedNumber, Quantity, identity, published_table, without_data
from reprogram.files import read_sealed

Verdict = Literal["agrees", "above", "below", "not run", "another machine", "not printed"]
MEASURES = ("best_on_test", "selected", "last")
#: The mean of the stds that tables 1, 2 and 9 print, in points.
USUAL_STD = 0.39
_DATA_SETS = 12
_SEEDS = 3


@dataclass(frozen=True)
class Sample:
    """One quantity over seeds.

    Attributes:
        values: one for each seed, accuracies in percent.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """Their standard deviation, of a sample; None of one value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def standard_error(self) -> float | None:
        """Of the mean."""
        return None if self.std is None else self.std / math.sqrt(len(self.values))


@dataclass(frozen=True)
class Line:
    """One number of the paper, or one run that it prints none for, beside ours.

    Attributes:
        data: what the runs were on; "mean of 12" of an average.
        labels: what else the runs are called, axis → label.
        quantity: what is compared.
        published: the printed number, if there is one.
        ours: by measure; `best_on_test` is what is compared. Empty where nothing is done; of cost, one entry.
        done: how many of its runs are done.
        runs: how many it has.
    """

    data: str
    labels: Mapping[str, str]
    quantity: Quantity
    published: PublishedNumber | None
    ours: Mapping[str, Sample] = field(default_factory=dict)
    done: int = 0
    runs: int = 0

    @property
    def sample(self) -> Sample | None:
        """What is compared with the printed number."""
        return next(iter(self.ours.values()), None) if self.quantity != "accuracy" else self.ours.get(MEASURES[0])

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.sample is None or self.published is None else self.sample.mean - self.published.mean

    @property
    def allowance(self) -> float | None:
        """How much the two may differ and agree."""
        return None if self.sample is None or self.published is None else allowance(self.sample, self.published)

    @property
    def verdict(self) -> Verdict:
        """What the rule says."""
        if self.sample is None:
            return "not run"
        if self.difference is None or self.allowance is None:
            return "not printed"
        if self.quantity == "minutes":
            return "another machine"
        if abs(self.difference) <= self.allowance:
            return "agrees"
        return "above" if self.difference > 0 else "below"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        found: dict[str, Any] = {"data": self.data, **self.labels, "quantity": self.quantity, "verdict": self.verdict}
        if self.published is not None:
            at = {"table": self.published.table, "row": self.published.row, "column": self.published.column}
            found |= {**at, "paper": self.published.mean, "paper_std": self.published.std}
        for name, sample in self.ours.items():
            found |= {name: sample.mean, f"{name}_std": sample.std}
        return found | {"difference": self.difference, "allowance": self.allowance, "done": self.done, "runs": self.runs}


def allowance(ours: Sample, number: PublishedNumber) -> float:
    """Twice the standard error of the difference, and half a printed digit.

    >>> number = PublishedNumber(1, "DTD", "BLM", 42.0, 0.6, "accuracy", {})
    >>> round(allowance(Sample((42.1, 42.7, 41.8)), number), 2), round(allowance(Sample((42.1,)), number), 2)
    (0.92, 1.03)
    """
    if number.quantity != "accuracy":
        return _half_digit(number.mean)
    known = [error for error in (ours.standard_error, number.standard_error) if error is not None]
    errors = known * (2 // len(known)) if known else [USUAL_STD / math.sqrt(_SEEDS)] * 2
    return 2 * math.hypot(*errors) + _half_digit(number.mean)


def _half_digit(value: float) -> float:
    """Half a unit of the last digit that is printed: of 0.1 one, of 11.97 two behind the point."""
    digits = len(f"{value:.10f}".rstrip("0").partition(".")[2])
    return 0.5 * 10.0 ** -max(1, digits) + 1e-9


def lines_of(status: Status, tables: Sequence[int]) -> list[Line]:
    """Every kind of run of a recipe beside what the paper prints for it, in the order of the recipe; then averages."""
    groups: dict[Identity, list[Cell]] = {}
    for cell in status.cells:
        groups.setdefault(identity(cell.settings), []).append(cell)
    results = {cell.name: _result(status, cell) for cell in status.those("done")}
    by_run: dict[Identity, list[PublishedNumber]] = {}
    averages: list[PublishedNumber] = []
    for number in (number for table in tables for number in published_table(table).numbers()):
        if number.is_average:
            averages.append(number)
        else:
            by_run.setdefault(identity(number.facts), []).append(number)
    lines = [line for what, cells in groups.items() for line in _group(cells, results, by_run.get(what, []))]
    return lines + [line for number in averages if (line := _average(number, groups, results)) is not None]


def _result(status: Status, cell: Cell) -> dict[str, Any]:
    return read_sealed(status.folder.run(cell) / "result.json", "result", remedy="make the run again")


def _group(cells: Sequence[Cell], results: Mapping[str, Any], numbers: Sequence[PublishedNumber]) -> Iterable[Line]:
    """The runs of one kind, which differ in their seeds, once for each number that is printed for them."""
    first, done = cells[0], [results[cell.name] for cell in cells if cell.name in results]
    labels = {axis: label for axis, label in first.labels.items() if axis != "data"}
    seen: set[tuple[int, Quantity]] = set()
    printed: Sequence[PublishedNumber | None] = numbers or [None]
    for number in printed:
        quantity: Quantity = "accuracy" if number is None else number.quantity
        if number is not None and (number.table, quantity) in seen:
            continue  # two cells of a table that stand for one run, such as specific values that are the shared ones
        if number is not None:
            seen.add((number.table, quantity))
        yield Line(first.data, labels, quantity, number, _samples(done, quantity), len(done), len(cells))


def _samples(results: Sequence[Mapping[str, Any]], quantity: Quantity) -> dict[str, Sample]:
    if not results:
        return {}
    if quantity == "minutes":
        return {quantity: Sample(tuple(result["seconds"] / 60 for result in results))}
    if quantity == "million parameters":
        return {quantity: Sample(tuple(result["parameters"]["free"] / 1e6 for result in results))}
    found = {name: [result["accuracy"].get(name) for result in results] for name in MEASURES}
    return {name: Sample(tuple(100 * v for v in values)) for name, values in found.items() if None not in values}


def _average(number: PublishedNumber, groups: Mapping[Identity, Sequence[Cell]], results: Mapping[str, Any]) -> Line | None:
    """The mean over all twelve data sets; None of a recipe that has fewer, and nothing of ours until all are done."""
    wanted = identity(number.facts)
    parts = [cells for what, cells in groups.items() if without_data(what) == wanted]
    if len(parts) < _DATA_SETS:
        return None
    labels = {axis: label for axis, label in parts[0][0].labels.items() if axis != "data"}
    seeds = set.intersection(*({cell.seed for cell in cells if cell.name in results} for cells in parts))
    done = sum(cell.name in results for cells in parts for cell in cells)
    chosen = [[results[cell.name] for cell in cells if cell.seed in seeds] for cells in parts] if seeds else []
    per_set = [_samples(each, "accuracy") for each in chosen]
    ours: dict[str, Sample] = {}
    for name in MEASURES if per_set else ():
        if all(name in samples for samples in per_set):
            columns = zip(*(samples[name].values for samples in per_set), strict=True)
            ours[name] = Sample(tuple(statistics.fmean(column) for column in columns))
    return Line(f"mean of {_DATA_SETS}", labels, "accuracy", number, ours, done, sum(map(len, parts)))
