"""`reprogram compare`: a grid of runs, told as it goes, and tables at its end."""

import time
from collections.abc import Sequence

from reprogram.cli.compare_command import CompareCommand, ComparePlan
from reprogram.cli.outside import files_matter
from reprogram.cli.text import pasted, percent, show, show_table
from reprogram.experiments.compare import Status, status_of
from reprogram.experiments.compare import compare as carry_out
from reprogram.experiments.folder import GridFolder, located_recipe
from reprogram.experiments.grid import Cell
from reprogram.experiments.settings import Plan
from reprogram.files import read_sealed
from reprogram.progress import Progress, for_stream
from reprogram.run.first import duration

#: The exit code where some runs failed.
FAILED = 3


def compare(plan: ComparePlan) -> int:
    """Carry out the grid and show its tables."""
    command, folder = plan.command, GridFolder(plan.out.absolute())
    if command.dry_run:
        recipe = None if plan.recipe is None else located_recipe(plan.recipe)
        _list(status_of(folder, recipe))
        return 0
    files_matter()
    progress = for_stream()
    teller = Teller(progress)
    how = Plan(**{name: getattr(command, name) for name in Plan.model_fields})
    try:
        status = carry_out(plan.recipe, plan.out, how, progress=progress, on_change=teller)
    except KeyboardInterrupt:
        progress.say(f"interrupted; continue with: reprogram compare --out {pasted(plan.out)}")
        raise
    return _end(status, command, progress)


class Teller:
    """Says what begins and what ends."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.began = progress, time.monotonic()
        self.before: int | None = None

    def __call__(self, status: Status, cell: Cell | None) -> None:
        """One line for each run that has ended."""
        counts = status.counts
        if self.before is None:
            self.before = counts["done"]
            told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
            self.progress.say(f"{len(status.cells)} runs in {status.folder.path}: {told}")
        if cell is None or status.states[cell.name] == "running":
            return
        ended = counts["done"] + counts["failed"]
        note = status.notes[cell.name]
        outcome = f"failed: {note.error}" if note.state == "failed" else _accuracy(status, cell)
        left = counts["waiting"] + counts["running"]
        new = ended - self.before
        rest = f", about {duration((time.monotonic() - self.began) / new * left)} left" if left and new > 0 else ""
        self.progress.say(f"{ended} of {len(status.cells)}: {cell.name}: {outcome} in {duration(note.seconds)}{rest}")


def _accuracy(status: Status, cell: Cell) -> str:
    result = read_sealed(status.folder.run(cell) / "result.json", "result", remedy="make the run again")
    found = result["accuracy"]
    return percent(found["selected"] if found["selected"] is not None else found["last"])


def _list(status: Status) -> None:
    axes = list(status.cells[0].labels)
    rows: list[Sequence[str]] = [
        [*(cell.labels.get(axis, "") for axis in axes), str(cell.seed), status.states[cell.name]] for cell in status.cells
    ]
    show_table((*axes, "seed", "state"), rows, numbers=("seed",))
    told = ", ".join(f"{count} {state}" for state, count in status.counts.items() if count)
    show(f"{len(status.cells)} runs: {told}")


def _end(status: Status, command: CompareCommand, progress: Progress) -> int:
    counts = status.counts
    for cell in status.those("failed"):
        progress.say(f"failed: {cell.name}: {status.notes[cell.name].error} (log: {status.folder.log(cell)})")
    progress.say(f"{counts['done']} of {len(status.cells)} runs are done; folder {status.folder.path}")
    return FAILED if counts["failed"] else 0
