"""Cells as tasks of a Ray cluster: its placement, its retries when a machine dies, nothing of our own."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reprogram.answers.parallel import start_ray
from reprogram.errors import ReprogramError, extra_missing
from reprogram.experiments.carry_out import Work, carry_out
from reprogram.experiments.folder import GridFolder, Note
from reprogram.experiments.grid import Cell
from reprogram.experiments.local import Event
from reprogram.experiments.origin import Origins

_PAUSE = 1.0  # seconds between two looks at which cells have begun
_RETRIES = 5  # times that Ray begins a task again whose machine or process has died


class RayRunner:
    """A Ray cluster whose machines have the library installed and see the grid and the data under the same paths.

    Args:
        folder: of the grid.
        address: of the cluster, such as `auto` or `ray://host:10001`; None takes the one that the caller has initialised, or
            starts one on this machine.
        cpus: of each run; also its threads.
        gpus: of each run.
        processes: CPUs of a cluster that is started here.
    """

    def __init__(self, folder: Path, address: str | None, cpus: int, gpus: float, processes: int) -> None:
        self.folder, self.address, self.cpus, self.gpus, self.processes = folder, address, cpus, gpus, processes
        self._own: Any = None
        self._ray: Any = None
        self._waiting: dict[Any, Cell] = {}

    def __enter__(self) -> Self:
        try:
            import ray
        except ModuleNotFoundError:
            raise extra_missing("ray", "ray", "engine 'ray'") from None
        self._ray = ray
        if not ray.is_initialized():
            if self.address is None:
                self._check_room()
            start_ray(ray, self.address, self.processes)
            self._own = ray
        return self

    def _check_room(self) -> None:
        """A cluster of this machine alone never grows: a task that asks for more would wait for ever."""
        import torch

        here = {"cpus": (self.cpus, self.processes), "gpus": (self.gpus, torch.cuda.device_count())}
        for name, (asked, there) in here.items():
            if asked > there:
                raise ReprogramError(
                    f"--{name}-per-run {asked:g} was given, but this machine has {there}; give less, or an --address"
                )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._waiting:
            self._ray.cancel(task, force=True)
        if self._own is not None:
            self._own.shutdown()

    def map(self, cells: Sequence[Cell]) -> Iterator[Event]:
        """As `LocalRunner.map`."""
        ray = self._ray
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=_RETRIES, max_calls=0)(_task)
        grid = GridFolder(self.folder)
        self._waiting = {task.remote(Work.of(cell, self.folder, self.cpus).to_json()): cell for cell in cells}
        begun: set[str] = set()
        while self._waiting:
            done, _ = ray.wait(list(self._waiting), num_returns=1, timeout=_PAUSE)
            for cell in self._waiting.values():
                if cell.name not in begun and (note := grid.note(cell)) is not None and note.state == "running":
                    begun.add(cell.name)
                    yield cell, None
            for one in done:
                cell = self._waiting.pop(one)
                yield cell, self._note(grid, cell, one)

    def _note(self, grid: GridFolder, cell: Cell, one: Any) -> Note:
        try:
            return Note.model_validate_json(self._ray.get(one))
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[:300]
            try:
                before = grid.note(cell)  # what it was begun with stays known
                origin = {} if before is None else before.origin
                note = Note(state="failed", origin=origin, error=f"Ray could not finish it ({reason})")
                grid.write_note(cell, note)
            except OSError as problem:
                raise ReprogramError(f"{grid.path} cannot be written to ({problem.strerror}); check it") from None
            return note


_origins = None


def _task(content: dict[str, Any]) -> str:
    """What a worker of the cluster does."""
    global _origins  # kept from one task to the next
    _origins = _origins or Origins()
    return carry_out(Work(**content), _origins).model_dump_json()
