"""One cell of a grid, carried out: what a worker does, whether it is a process of this machine or a task of a cluster."""

import contextlib
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reprogram.errors import ReprogramError, first_line
from reprogram.experiments.folder import GridFolder, Note
from reprogram.experiments.grid import PLACES, Cell
from reprogram.experiments.origin import Origins
from reprogram.files import read_sealed, write_sealed
from reprogram.progress import PlainProgress
from reprogram.run.config import GIVEN, FitConfig
from reprogram.run.folder import run_fit


@dataclass(frozen=True)
class Work:
    """A cell to carry out, as it is sent to a worker.

    Attributes:
        folder: of the grid; all machines see it under this path.
        settings: of the cell.
        labels: of the cell.
        data: what its data are called.
        threads: that it may compute with.
    """

    folder: str
    settings: dict[str, Any]
    labels: dict[str, str]
    data: str
    threads: int

    @classmethod
    def of(cls, cell: Cell, folder: Path, threads: int) -> "Work":
        """The work of a cell."""
        return cls(str(folder), cell.settings, cell.labels, cell.data, threads)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `Work(**values)` reads them."""
        return asdict(self)

    @property
    def cell(self) -> Cell:
        """The cell."""
        return Cell(self.settings, self.labels, self.data)


def carry_out(work: Work, origins: Origins) -> Note:
    """Run a cell to its end, continuing what is there of it; whatever goes wrong is a note, and no exception."""
    import torch

    cell, folder, began = work.cell, GridFolder(Path(work.folder)), time.monotonic()
    folder.log(cell).parent.mkdir(parents=True, exist_ok=True)
    with folder.log(cell).open("a", encoding="utf-8", errors="backslashreplace") as log, contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(log))
        stack.enter_context(contextlib.redirect_stderr(log))
        origin: dict[str, str] = {}
        try:
            torch.set_num_threads(work.threads)
            origin = _begun_with(cell, folder) or origins.of(cell)
            folder.write_note(cell, Note(state="running", origin=origin))
            _run(cell, folder, origins)
            note = Note(state="done", origin=origin)
        except Exception as error:  # one failure never stops the rest
            if not isinstance(error, ReprogramError):
                traceback.print_exc()
            sentence = str(error) if isinstance(error, ReprogramError) else f"{type(error).__name__}: {first_line(error)}"
            note = Note(state="failed", origin=origin, error=sentence)
            print(sentence)
        note = note.model_copy(update={"seconds": round(time.monotonic() - began, 3)})
        folder.write_note(cell, note)
    return note


def _begun_with(cell: Cell, folder: GridFolder) -> dict[str, str]:
    """What a run was begun with that is continued: it stays so, also where it is kept although something has changed."""
    before = folder.note(cell) if (folder.run(cell) / "config.json").is_file() else None
    return {} if before is None else before.origin


def _run(cell: Cell, folder: GridFolder, origins: Origins) -> None:
    config, place = cell.config, folder.run(cell)
    place.parent.mkdir(parents=True, exist_ok=True)
    _relocate(place, config)
    if cell.reference is None:
        data, passes = origins.data(config), folder.passes
        run_fit(config, place, data=data, resume=True, progress=PlainProgress(), memory=passes)
        return
    from reprogram.references import run_reference

    run_reference(cell.reference, config, place, resume=True, progress=PlainProgress())


def _relocate(place: Path, config: FitConfig) -> None:
    """Tell a run that was begun where its files lie now, and what computes it: a grid takes it for the same run."""
    path = place / "config.json"
    if not path.is_file():
        return
    content = read_sealed(path, "run configuration", remedy="make the run again")
    now = {name: config.given[name] for name in ("data", "weights", *PLACES) if name in config.given}
    moved = {name: value for name, value in now.items() if content.get(name) != value}
    if moved:
        write_sealed(path, {**content, **moved, GIVEN: {**content.get(GIVEN, {}), **moved}})
