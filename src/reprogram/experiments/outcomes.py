"""What a finished run of a grid has reached, as few numbers: what statistics, tables and figures over runs are made of."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from reprogram.errors import ReprogramError, short, shown, unknown

if TYPE_CHECKING:  # torch is imported where a run folder is read
    from reprogram.run.record import RunRecord

Measure = Literal["selected", "last", "best_on_test"]
#: The three test accuracies of a run, in the order in which they should be believed.
MEASURES: tuple[Measure, ...] = ("selected", "last", "best_on_test")
#: The axis whose levels are data sets: what is compared over several of them is to hold for others.
DATA = "data"
_BETWEEN = " / "
_FINISH = "finish it with reprogram fit --resume, or leave it out"


class Labelled(Protocol):
    """A run of a grid, finished or not: what it is called, what varies, and its seed."""

    @property
    def name(self) -> str:
        """Of its run folder."""

    @property
    def labels(self) -> dict[str, str]:
        """Axis → label."""

    @property
    def seed(self) -> int:
        """Its seed."""


@dataclass(frozen=True)
class Outcome:
    """One finished run of a grid.

    Attributes:
        name: of its run folder.
        labels: what varies in the grid, for tables: axis → label, such as {"data": "eurosat-mini", "mapping": "blm+"}; the
            seed is not among them.
        seed: its seed.
        accuracy: test accuracy `last` (final epoch), `selected` (the epoch that is best on validation; None without
            validation images) and `best_on_test` (the best of all epochs: an optimistic number).
        right: 0 or 1 for each test image of the saved model, in their order, if they were read.
        n: how many test images there are.
        seconds: how long it took.
        extra: further numbers and words for the table of all runs, such as epochs, calibration_error, parameters, chance.
            `effective_test_images` is used where it is there: how many single images tell as much as those of the groups.
    """

    name: str
    labels: dict[str, str]
    seed: int
    accuracy: dict[str, float | None]
    right: tuple[int, ...] | None
    n: int
    seconds: float
    extra: dict[str, float | int | str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A run of a grid that ended without a result.

    Attributes:
        name: of its run folder.
        labels: as of an `Outcome`.
        seed: its seed.
        error: what went wrong, in one sentence.
    """

    name: str
    labels: dict[str, str]
    seed: int
    error: str


def outcome_of(run: "RunRecord | str | Path", labels: Mapping[str, str], seed: int | None = None) -> Outcome:
    """What a run folder tells.

    Args:
        run: a run folder, or what `read_run` gave.
        labels: what it is called in tables, axis → label.
        seed: its seed; by default that of its settings.

    Raises:
        ReprogramError: it is no run, is damaged, or not finished.
    """
    from reprogram.run.record import RunRecord, read_run

    record = run if isinstance(run, RunRecord) else read_run(run)
    result, config = record.result, record.config
    if result is None or config is None:
        raise ReprogramError(f"{str(record.folder)!r} is no finished run; {_FINISH}")
    test = record.test
    counts = result["per_class"].values()
    extra: dict[str, float | int | str | None] = {
        "epochs": sum(one["epoch"] > 0 for one in record.epochs),
        "selected_epoch": result["selected_epoch"],
        "calibration_error": result["calibration_error"],
        "chance": result["chance"],
        "classes": result["labels"].get("target"),
        "training_images": result["images"].get("train"),
        "parameters": result["parameters"].get("free"),
    }
    groups = result.get("groups")
    if isinstance(groups, dict) and isinstance(groups.get("effective_test_images"), (int, float)):
        extra["effective_test_images"] = float(groups["effective_test_images"])
    return Outcome(
        record.name,
        dict(labels),
        config.seed if seed is None else seed,
        {name: result["accuracy"].get(name) for name in MEASURES},
        None if test is None else tuple(int(hit) for hit in test.right),
        sum(count["images"] for count in counts),
        float(result["seconds"]),
        extra,
    )


def measured(outcome: Outcome, measure: Measure = "selected") -> float | None:
    """The accuracy that is asked for; where there were no validation images to select by, that of the last epoch."""
    return outcome.accuracy.get(stands_for(outcome, measure))


def stands_for(outcome: Outcome, measure: Measure) -> Measure:
    """The accuracy that stands for the one that is asked for: `last` for a missing `selected`, else itself."""
    check_measure(measure)
    return "last" if measure == "selected" and outcome.accuracy.get(measure) is None else measure


def check_measure(measure: str) -> None:
    """Raise unless it is one of the three."""
    if measure not in MEASURES:
        raise unknown("accuracy", measure, MEASURES)


def check_outcomes(runs: Iterable[Labelled]) -> list[str]:
    """The axes of runs, if their labels tell the runs apart; also of a grid before anything was run.

    Raises:
        ReprogramError: two runs have the same labels and seed, or a run has not the axes of the others.
    """
    axes: list[str] | None = None
    seen: dict[tuple[tuple[str, ...], int], str] = {}
    for run in runs:
        if axes is None:
            axes = list(run.labels)
        if set(run.labels) != set(axes):
            raise ReprogramError(
                f"run {shown(run.name)} has labels for {_listed(run.labels)}, but others for {_listed(axes)}; "
                "give each run a label on every axis"
            )
        key = (tuple(run.labels[axis] for axis in axes), run.seed)
        if key in seen:
            raise ReprogramError(
                f"runs {shown(seen[key])} and {shown(run.name)} have the same labels and seed {run.seed}; "
                "give what they differ in as an axis"
            )
        seen[key] = run.name
    return axes or []


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(short, names)) or "nothing"


def check_axis(axis: str, axes: Iterable[str]) -> None:
    """Raise unless this is an axis of the grid."""
    names = list(axes)
    if axis not in names:
        raise unknown("axis", axis, names)


def check_level(level: str, axis: str, levels: Iterable[str]) -> None:
    """Raise unless this is a label of an axis."""
    names = list(levels)
    if level not in names:
        raise unknown(short(axis), level, names)


def levels_of(runs: Iterable[Labelled], axis: str, order: Sequence[str] = ()) -> list[str]:
    """The labels of an axis: those of `order` first, then numbers by their size, then words by the alphabet.

    It is a function of the labels alone, whatever the order of the runs.

    >>> runs = [Failure("", {"shots": label}, 0, "") for label in ("16", "4", "all", "1e2")]
    >>> levels_of(runs, "shots"), levels_of(runs, "shots", ["all"])
    (['4', '16', '1e2', 'all'], ['all', '4', '16', '1e2'])
    """
    found = {run.labels[axis] for run in runs}
    first = [label for label in dict.fromkeys(order) if label in found]
    return first + sorted(found - set(first), key=_natural)


def _natural(label: str) -> tuple[bool, float, str]:
    number = number_of(label)
    return (number is None, number or 0.0, label)


def number_of(label: object) -> float | None:
    """The number that a label is, also as a percentage; None if it is none.

    >>> number_of("0.15"), number_of("40 %"), number_of("auto"), number_of("nan")
    (0.15, 40.0, None, None)
    """
    try:
        number = float(str(label).removesuffix("%"))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


Run = TypeVar("Run", Outcome, Failure)


def merged_axes(runs: Iterable[Run], axes: Sequence[str]) -> tuple[str, list[Run]]:
    """Several axes as one, so that combinations of their labels can be compared as methods.

    Returns:
        What the axis is called, and the runs with it instead of the others.
    """
    if len(axes) == 1:
        return axes[0], list(runs)
    name = _BETWEEN.join(axes)

    def merged(run: Run) -> Run:
        rest = {axis: label for axis, label in run.labels.items() if axis not in axes}
        return replace(run, labels={**rest, name: _BETWEEN.join(run.labels[axis] for axis in axes)})

    return name, [merged(run) for run in runs]
