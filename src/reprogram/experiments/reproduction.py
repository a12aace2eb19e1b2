"""A table or a figure of the paper made again: what is missing is carried out, and ours stands beside the paper's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from reprogram.data.paper import find_paper
from reprogram.data.paper_sets import paper_missing, paper_set
from reprogram.errors import ReprogramError
from reprogram.experiments.comparison import OnChange, Status, compare, status_of
from reprogram.experiments.folder import GridFolder, located_recipe
from reprogram.experiments.grid import expand
from reprogram.experiments.items import PaperItem, datasets_of, find_item, item_recipe
from reprogram.experiments.recipe import Recipe
from reprogram.experiments.settings import Plan
from reprogram.experiments.verdicts import Line, Verdict, lines_of
from reprogram.files import write_text
from reprogram.progress import Progress
from reprogram.text import csv_cell, csv_line, json_text


@dataclass(frozen=True)
class Reproduction:
    """A table or a figure, ours beside the paper's.

    Attributes:
        item: which one.
        status: its runs.
        lines: what was reached beside what is printed.
        missing: its data sets that are not under the data root.
    """

    item: PaperItem
    status: Status
    lines: Sequence[Line]
    missing: Sequence[str] = field(default_factory=tuple)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many lines have each verdict."""
        found = Counter(line.verdict for line in self.lines)
        return {verdict: found[verdict] for verdict in get_args(Verdict) if found[verdict]}


def missing_data(names: Sequence[str], root: Path) -> list[str]:
    """Those of the paper's data sets that are not under a data root."""
    return [name for name in names if find_paper(name, root) is None]


def planned(
    name: str,
    out: Path,
    *,
    data_root: str | Path = "data",
    datasets: Sequence[str] = (),
    seeds: Sequence[int] = (),
    settings: dict[str, Any] | None = None,
) -> Reproduction:
    """A table or a figure as far as it is made in a folder; nothing is carried out and nothing is written.

    The arguments are those of `reproduce`.
    """
    item, recipe = _recipe(name, data_root, datasets, seeds, settings)
    status = status_of(GridFolder(out.expanduser().absolute()), located_recipe(recipe))
    missing = missing_data(datasets_of(status.cells), Path(data_root).expanduser())
    return Reproduction(item, status, lines_of(status, item.tables), missing)


def reproduce(
    name: str,
    out: Path,
    plan: Plan | None = None,
    *,
    data_root: str | Path = "data",
    datasets: Sequence[str] = (),
    seeds: Sequence[int] = (),
    settings: dict[str, Any] | None = None,
    progress: Progress | None = None,
    on_change: OnChange | None = None,
) -> Reproduction:
    """Carry out the runs of a table or a figure of the paper that are not done yet, and compare.

    Runs are named by content, so that tables which share a folder share their runs. Data sets that are not there are left
    out, unless they were asked for.

    Args:
        name: such as `table1`; see `ITEMS`.
        out: the folder of the runs; beside them, `NAME.csv` and `NAME.json` hold the comparison.
        plan: where runs are carried out, and how many at a time.
        data_root: the folder that holds the paper's data sets.
        datasets: which of them, by name; all for none.
        seeds: 0, 1 and 2 for none.
        settings: further ones of all runs.
        progress: where to say what happens.
        on_change: told of each run that begins or ends.

    Raises:
        ReprogramError: the name is not known, or there are no data for it.
    """
    progress = progress or Progress()
    item, recipe = _recipe(name, data_root, datasets, seeds, settings)
    wanted, root = datasets_of(expand(recipe)), Path(data_root).expanduser()
    missing = missing_data(wanted, root)
    if missing and (datasets or len(missing) == len(wanted)):
        raise paper_missing(paper_set(missing[0]), root)
    there = [each for each in wanted if each not in missing]
    if missing:
        progress.say(f"note: not under {str(root)!r}, so left out: {', '.join(missing)} (--dry-run says how to get them)")
    status = compare(_recipe(name, data_root, there, seeds, settings)[1], out, plan, progress=progress, on_change=on_change)
    whole = status_of(status.folder, located_recipe(recipe))
    whole.notes.update(status.notes)
    found = Reproduction(item, whole, lines_of(whole, item.tables), missing)
    write_comparison(found)
    return found


def write_comparison(found: Reproduction) -> None:
    """Write the lines beside the runs, as CSV and as JSON."""
    rows = [line.to_json() for line in found.lines]
    names = list(dict.fromkeys(name for row in rows for name in row))
    folder = found.status.folder.path
    text = "".join([csv_line(names), *(csv_line([_text(row.get(name)) for name in names]) for row in rows)])
    write_text(folder / f"{found.item.name}.csv", text)
    tables = [f"Table {number}" for number in found.item.tables]
    content = {"item": found.item.name, "compared_with": tables, "verdicts": found.verdicts, "lines": rows}
    write_text(folder / f"{found.item.name}.json", json_text(content, indent=1) + "\n")


def _text(value: Any) -> str:
    return "" if value is None else csv_cell(value) if isinstance(value, str) else str(value)


def _recipe(
    name: str, data_root: str | Path, datasets: Sequence[str], seeds: Sequence[int], settings: dict[str, Any] | None
) -> tuple[PaperItem, Recipe]:
    if len(set(seeds)) < len(seeds):
        raise ReprogramError(f"seeds {', '.join(map(str, seeds))} were given, but each counts once; give it once")
    return find_item(name), item_recipe(name, datasets, seeds, {**(settings or {}), "data_root": str(data_root)})
