"""`reprogram compare`: a grid of runs, told as it goes, and tables at its end."""

import contextlib
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from reprogram.cli.compare_command import CompareCommand, ComparePlan
from reprogram.cli.outside import files_matter
from reprogram.cli.report import REPORT, report_at_the_end
from reprogram.cli.text import pasted, percent, show, show_table
from reprogram.experiments.analysis import findings
from reprogram.experiments.comparison import Status, status_of
from reprogram.experiments.comparison import compare as carry_out
from reprogram.experiments.folder import GridFolder, located_recipe
from reprogram.experiments.gather import gathered
from reprogram.experiments.grid import Cell, given_order, table_axes
from reprogram.experiments.settings import Plan
from reprogram.experiments.tables import FILES, Results, write_tables
from reprogram.files import read_sealed
from reprogram.progress import Progress, TerminalProgress, for_stream
from reprogram.report.names import counted
from reprogram.run.first import duration
from reprogram.text import printable, shortened

#: The exit code where some runs failed.
FAILED = 3
_MOST_REPORTED = 60  # runs in one page: of more, the table is what can be read


def compare(plan: ComparePlan) -> int:
    """Carry out the grid and show its tables."""
    command, folder = plan.command, GridFolder(plan.out.absolute())
    if command.dry_run:
        _list(status_of(folder, None if plan.recipe is None else located_recipe(plan.recipe)))
        return 0
    files_matter()
    progress = for_stream()
    how = Plan(**{name: getattr(command, name) for name in Plan.model_fields})
    with Teller(progress) as teller:
        try:
            status = carry_out(plan.recipe, plan.out, how, progress=progress, on_change=teller)
        except KeyboardInterrupt:
            progress.say(f"interrupted; continue with: reprogram compare --out {pasted(plan.out)}")
            raise
    return finish(status, command, progress)


class Teller:
    """Says what ends, one line each; on a terminal, a table of what is going on stands below."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.began = progress, time.monotonic()
        self.status: Status | None = None
        self.before = 0
        self.since: dict[str, float] = {}
        self._live: Any = None

    def __enter__(self) -> Self:
        if isinstance(self.progress, TerminalProgress):
            from rich.live import Live

            self._live = Live(
                get_renderable=self._table, console=self.progress.console, refresh_per_second=1, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, status: Status, cell: Cell | None) -> None:
        """Take notice of a change."""
        counts = status.counts
        if self.status is None:
            self.status, self.before = status, counts["done"] + counts["failed"]
            told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
            self.progress.say(f"{counted(len(status.cells), 'run')} in {status.folder.path}: {told}")
        if cell is None:
            return
        if status.states[cell.name] == "running":
            self.since[cell.name] = time.monotonic()
            return
        note = status.notes[cell.name]
        outcome = f"failed: {note.error}" if note.state == "failed" else _accuracy(status, cell)
        ended = counts["done"] + counts["failed"]
        self.progress.say(
            f"{ended} of {len(status.cells)}: {cell.name}: {outcome} in {duration(note.seconds)}{self._left(counts)}"
        )

    def _left(self, counts: Any) -> str:
        left, new = counts["waiting"] + counts["running"], counts["done"] + counts["failed"] - self.before
        return f", about {duration((time.monotonic() - self.began) / new * left)} left" if left and new > 0 else ""

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        if self.status is None:
            return table
        counts = dict(self.status.counts)
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        table.add_row(Text(f"{told}{self._left(counts)}"))
        for cell in [cell for cell in self.status.cells if self.status.states[cell.name] == "running"]:
            lines = 0
            with contextlib.suppress(OSError):
                lines = len((self.status.folder.run(cell) / "metrics.jsonl").read_bytes().splitlines())
            seconds = time.monotonic() - self.since.get(cell.name, time.monotonic())
            table.add_row(Text(f"  {shortened(printable(cell.name), 60)}  {lines} epochs, {duration(seconds)}"))
        return table


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
    show(f"{counted(len(status.cells), 'run')}: {told}")


def finish(status: Status, command: CompareCommand, progress: Progress) -> int:
    """Write and show the tables of what is done, and name what failed."""
    counts, folder = status.counts, status.folder
    outcomes, failures = gathered(status)
    if outcomes:
        rows, columns = table_axes(status.cells, command.rows, command.columns)
        found = write_tables(
            outcomes,
            folder.path,
            rows=rows,
            columns=columns,
            measure=command.measure,
            failures=failures,
            order=given_order(status.cells),
            title=folder.read_recipe().title,
        )
        show_results(found, progress)
        progress.say(f"tables: {', '.join(str(folder.path / name) for name in FILES)}")
    for one in failures:
        progress.say(f"failed: {one.name}: {one.error} (log: {folder.path / 'logs' / one.name}.log)")
    progress.say(f"{counts['done']} of {len(status.cells)} runs are done")
    done = [folder.run(cell) for cell in status.those("done")]
    if command.report and done:
        if len(done) > _MOST_REPORTED:
            progress.say(
                f"no report.html: {len(done)} runs are too many for one page; name some to reprogram report RUN RUN"
            )
        else:
            report_at_the_end(done, folder.path / REPORT, progress)
    return FAILED if failures else 0


def show_results(found: Results, progress: Progress) -> None:
    """The accuracies on the terminal, and in words what they say; the other tables stand in the files."""
    headings, rows, numbers = found.table.for_terminal()
    progress.say(found.table.title)
    show_table(headings, rows, numbers=numbers)
    for note in found.table.notes:
        progress.say(note)
    progress.say("")
    for sentence in findings(found.analysis, most=4):
        progress.say(f"- {sentence}")
    progress.say("")
