"""Cells in processes of this machine, a few at a time. A process that dies fails its cell, and another one takes over."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pydantic import ValidationError

from reprogram.errors import first_line
from reprogram.experiments.carry_out import Work
from reprogram.experiments.folder import GridFolder, Note
from reprogram.experiments.grid import Cell

#: What a runner tells: a cell that was begun, or one with what became of it.
Event = tuple[Cell, Note | None]


class LocalRunner:
    """Processes of this machine.

    Args:
        folder: of the grid.
        jobs: runs at a time.
        threads: of each run.
        gpus: how many there are; each process gets one of them.
    """

    def __init__(self, folder: Path, jobs: int, threads: int, gpus: int = 0) -> None:
        self.folder, self.jobs, self.threads, self.gpus = folder, jobs, threads, gpus
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.end()

    def map(self, cells: Sequence[Cell]) -> Iterator[Event]:
        """Carry out cells; tell of each when it is begun, and when it has ended, in whichever order that happens."""
        todo: queue.SimpleQueue[Cell | None] = queue.SimpleQueue()
        told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        for cell in cells:
            todo.put(cell)
        self._workers = [_Worker(self, number, todo, told) for number in range(min(self.jobs, len(cells)))]
        for worker in self._workers:
            todo.put(None)
            worker.start()
        ended = 0
        while ended < len(cells):
            event = told.get()
            ended += event[1] is not None
            yield event


class _Worker(threading.Thread):
    """Feeds one process, and starts another one in its place where it died."""

    def __init__(
        self,
        runner: LocalRunner,
        number: int,
        todo: "queue.SimpleQueue[Cell | None]",
        told: "queue.SimpleQueue[Event]",
    ) -> None:
        super().__init__(daemon=True)
        self.runner, self.number, self.todo, self.told = runner, number, todo, told
        self.process: subprocess.Popen[str] | None = None
        self.ending = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Take cells until there is none."""
        while (cell := self.todo.get()) is not None and not self.ending:
            self.told.put((cell, None))
            try:
                note = self._carried_out(cell)
            except Exception as error:  # a full disk, say: whoever waits for this cell must hear of it
                note = Note(state="failed", error=f"nobody could carry it out ({type(error).__name__}: {first_line(error)})")
            if not self.ending:
                self.told.put((cell, note))
        self.end()

    def _carried_out(self, cell: Cell) -> Note:
        work = Work.of(cell, self.runner.folder, self.runner.threads)
        try:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(work.to_json()) + "\n")
            process.stdin.flush()
            found = _answer(process.stdout)
        except (OSError, ValueError):  # also of a pipe that was closed this moment
            found = None
        if found is not None:
            return found
        code, folder = self._stop(), GridFolder(self.runner.folder)
        before = folder.note(cell)  # what it was begun with stays known
        note = Note(
            state="failed",
            origin={} if before is None else before.origin,
            error=f"the process that carried it out was ended from outside ({_ending(code)})",
        )
        if not self.ending:
            folder.write_note(cell, note)
        return note

    def _running(self) -> "subprocess.Popen[str]":
        with self._lock:
            if self.process is None and not self.ending:
                environment = {**os.environ, "OMP_NUM_THREADS": str(self.runner.threads)}
                if self.runner.gpus > 1:
                    environment["CUDA_VISIBLE_DEVICES"] = str(self.number % self.runner.gpus)
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "reprogram.experiments.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                    text=True,
                    encoding="utf-8",
                    start_new_session=True,  # Ctrl-C is for the one that started it
                )
            if self.process is None:
                raise OSError("it is ending")
            return self.process

    def _stop(self) -> int:
        with self._lock:
            process, self.process = self.process, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            return process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            process.stdout.close()

    def end(self) -> None:
        """End the process at once; what it is at can be continued."""
        self.ending = True
        self._stop()


def _answer(lines: IO[str]) -> Note | None:
    """The next note; what else stands there, such as what Python prints before the worker begins, is passed over."""
    for line in lines:
        with contextlib.suppress(ValidationError):
            return Note.model_validate_json(line)
    return None


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return "killed, perhaps for lack of memory"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"exit code {code}"
