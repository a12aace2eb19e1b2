"""`compare`: carry out what is missing of a grid, and know the state of every run of it."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprogram.errors import ReprogramError
from reprogram.experiments.cluster import RayRunner
from reprogram.experiments.folder import GridFolder, Note, State, checked_cells, located_recipe
from reprogram.experiments.grid import Cell
from reprogram.experiments.local import LocalRunner
from reprogram.experiments.origin import Origins, differences
from reprogram.experiments.recipe import Recipe
from reprogram.experiments.settings import Plan
from reprogram.progress import Progress
from reprogram.report.names import counted
from reprogram.threads import granted_cpus


@dataclass
class Status:
    """The cells of a grid, and what each is at.

    Attributes:
        folder: of the grid.
        cells: in the order of the recipe.
        states: by name.
        notes: by name, of those that were begun.
    """

    folder: GridFolder
    cells: Sequence[Cell]
    states: dict[str, State]
    notes: dict[str, Note] = field(default_factory=dict)

    @property
    def counts(self) -> dict[State, int]:
        """How many cells are in each state."""
        found = Counter(self.states[cell.name] for cell in self.cells)
        return {state: found.get(state, 0) for state in ("done", "failed", "running", "waiting")}

    def those(self, state: State) -> list[Cell]:
        """The cells in a state."""
        return [cell for cell in self.cells if self.states[cell.name] == state]


OnChange = Callable[[Status, Cell | None], object]


def status_of(folder: GridFolder, recipe: Recipe | None = None) -> Status:
    """What each cell of a grid is at; of the recipe that the folder holds, or of another one."""
    cells = checked_cells(recipe or folder.read_recipe())
    notes = {cell.name: note for cell in cells if (note := folder.note(cell)) is not None}
    return Status(folder, cells, {cell.name: folder.state(cell) for cell in cells}, notes)


def compare(
    recipe: Recipe | None,
    out: str | Path,
    plan: Plan | None = None,
    *,
    progress: Progress | None = None,
    on_change: OnChange | None = None,
) -> Status:
    """Carry out the runs of a grid that are not done yet.

    Runs are named by content: reordering or extending a recipe neither repeats nor overwrites one. A kill loses at most the
    epochs since the last checkpoints; the same call goes on from there.

    Args:
        recipe: the experiment; None continues the one in the folder.
        out: the folder of the grid.
        plan: where and how many at a time.
        progress: where to say what happens.
        on_change: told the status whenever a run begins or ends, and which one; None at the start and at the end.

    Returns:
        What each run is at; failed ones are among them and raise nothing.

    Raises:
        ReprogramError: the recipe cannot be carried out, or finished runs are stale and `plan.stale` refuses them.
    """
    plan, progress, on_change = plan or Plan(), progress or Progress(), on_change or (lambda *_: None)
    folder = GridFolder(Path(out).expanduser().absolute())
    folder.check()
    recipe = folder.read_recipe() if recipe is None else located_recipe(recipe)
    checked_cells(recipe)  # before anything is written
    with folder.locked():
        folder.write_recipe(recipe)
        status = status_of(folder, recipe)
        _settle_stale(status, plan, progress)
        todo = [*status.those("waiting"), *(status.those("failed") if plan.retry else [])]
        for cell in todo:
            status.states[cell.name] = "waiting"
        on_change(status, None)
        if todo:
            with _runner(folder, plan, len(todo)) as runner:
                for cell, note in runner.map(todo):
                    status.states[cell.name] = "running" if note is None else note.state
                    if note is not None:
                        status.notes[cell.name] = note
                    on_change(status, cell)
        on_change(status, None)
        if all(state == "done" for state in status.states.values()):
            shutil.rmtree(folder.passes, ignore_errors=True)
    return status


def _runner(folder: GridFolder, plan: Plan, count: int) -> LocalRunner | RayRunner:
    if plan.engine == "ray":
        return RayRunner(folder.path, plan.address, plan.cpus_per_run, plan.gpus_per_run, granted_cpus())
    if plan.address is not None:
        raise ReprogramError(f"address {plan.address!r} was given, but only the ray engine takes one; add --engine ray")
    import torch

    gpus = torch.cuda.device_count()
    jobs = plan.jobs or gpus or max(1, granted_cpus() // plan.cpus_per_run)
    return LocalRunner(folder.path, min(jobs, count), plan.cpus_per_run, gpus)


def _settle_stale(status: Status, plan: Plan, progress: Progress) -> None:
    """Find runs whose code, data or source are others than now, and do with them what the plan says."""
    begun = [cell for cell in status.cells if (note := status.notes.get(cell.name)) is not None and note.origin]
    begun = [cell for cell in begun if status.states[cell.name] != "failed" or plan.retry]
    if not begun:
        return
    origins = Origins()
    changed: dict[str, list[Cell]] = {}
    for cell in begun:
        failed = status.states[cell.name] == "failed"
        try:
            parts = differences(status.notes[cell.name].origin, origins.of(cell))
        except ReprogramError:
            if not failed:
                raise
            continue  # it will say so when it is begun again
        if parts and failed:  # begun anew, and not continued from what others have left: that is what retrying is for
            progress.say(
                f"note: {cell.name} had failed with other {' and '.join(parts)}: begun anew, the old one is in replaced/"
            )
            status.folder.set_aside(cell)
            status.notes.pop(cell.name)
        elif parts:
            changed.setdefault(" and ".join(parts), []).append(cell)
    if not changed:
        return
    told = "; ".join(
        f"{counted(len(cells), 'run')} with other {parts}, such as {cells[0].name}" for parts, cells in changed.items()
    )
    if plan.stale == "refuse":
        raise ReprogramError(
            f"{told}, stand in {str(status.folder.path)!r}; add --stale keep to take them as they are, or --stale again to "
            "make them anew"
        )
    progress.say(f"note: {told}: {'kept' if plan.stale == 'keep' else 'made again, the old ones are in replaced/'}")
    if plan.stale == "again":
        for cell in [cell for cells in changed.values() for cell in cells]:
            status.folder.set_aside(cell)
            status.states[cell.name] = "waiting"
            status.notes.pop(cell.name, None)
