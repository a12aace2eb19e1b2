"""How a long job shows where it is: nothing (library), plain lines (a pipe or a log), or a live bar (a terminal).

What is shown never ends a job: when nobody reads it any more, the job goes on in silence.
"""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Generic, Protocol, TypeVar, cast

from typing_extensions import override

from reprogram.text import printable

Item = TypeVar("Item")
ItemOut = TypeVar("ItemOut", covariant=True)


class Steps(Protocol[ItemOut]):
    """Something to iterate over whose length is known."""

    def __iter__(self) -> Iterator[ItemOut]: ...

    def __len__(self) -> int: ...


class Sized(Generic[Item]):
    """An iterator whose length is known, for the progress bar."""

    def __init__(self, items: Iterable[Item], length: int) -> None:
        self.items, self.length = items, length

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return self.length


class Progress:
    """The silent one, and the interface of the others."""

    def track(self, steps: Steps[Item], what: str) -> Iterable[Item]:
        """Yield the steps and show how many are done."""
        return steps

    def count(self, parts: Iterable[Sequence[Item]], what: str, done: int = 0) -> Iterable[Sequence[Item]]:
        """Yield parts of something whose end is not known, and show how many items have come; `done` came before."""
        return parts

    def say(self, line: str) -> None:
        """Show one line that stays; line ends inside it, of a name perhaps, are shown as such."""


class Outlet:
    """A text stream that outlives its reader.

    When writing fails (a closed pipe, a full disk, a terminal that is gone), the error is kept in `lost`, and what is
    written from then on goes nowhere.

    Args:
        stream: where the text goes.
        needed: whether the error is also raised, because what is written is what the work is for.
    """

    def __init__(self, stream: Any, *, needed: bool = False) -> None:
        self.stream, self.needed = stream, needed
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write, as long as somebody reads."""
        self._attempt("write", text)
        return len(text)

    def flush(self) -> None:
        """Pass on what was written, as long as somebody reads."""
        self._attempt("flush")

    def isatty(self) -> bool:
        """Whether this is a terminal that is still there."""
        return self.lost is None and bool(self.stream.isatty())

    def _attempt(self, what: str, *values: str) -> None:
        if self.lost is None:
            try:
                getattr(self.stream, what)(*values)
                return
            except OSError as error:
                self.lost = error
            except ValueError:  # closed by this process itself
                self.lost = OSError("it is closed")
        if self.needed and what == "write":
            raise self.lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class PlainProgress(Progress):
    """Lines on standard output, and a sign of life every half minute in a long phase."""

    def __init__(self, interval: float = 30.0) -> None:
        self.interval = interval

    @override
    def track(self, steps: Steps[Item], what: str) -> Iterable[Item]:
        last = time.monotonic()
        for done, step in enumerate(steps):
            if time.monotonic() - last > self.interval:
                self.say(f"{what}: {done} of {len(steps)}")
                last = time.monotonic()
            yield step

    @override
    def count(self, parts: Iterable[Sequence[Item]], what: str, done: int = 0) -> Iterable[Sequence[Item]]:
        began = last = time.monotonic()
        new = 0
        for part in parts:
            yield part
            new, now = new + len(part), time.monotonic()
            if now - last > self.interval:
                self.say(f"{what}: {done + new:,} so far, {new / (now - began):.1f} per second")
                last = now

    @override
    def say(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a full disk
            print(printable(line), flush=True)


class TerminalProgress(Progress):
    """A live rich bar that disappears when its phase ends."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(file=cast(IO[str], Outlet(sys.stdout)), highlight=False, markup=False, emoji=False)

    @override
    def track(self, steps: Steps[Item], what: str) -> Iterable[Item]:
        from rich import progress

        columns: list[Any] = [
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
        ]
        with progress.Progress(*columns, console=self.console, transient=True) as bar:
            yield from bar.track(steps, total=len(steps), description=printable(what))

    @override
    def count(self, parts: Iterable[Sequence[Item]], what: str, done: int = 0) -> Iterable[Sequence[Item]]:
        from rich import progress

        columns: list[Any] = [
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}: {task.completed:,}", markup=False),
            progress.TextColumn("{task.fields[rate]}", markup=False),
            progress.TimeElapsedColumn(),
        ]
        began, new = time.monotonic(), 0
        with progress.Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(printable(what), total=None, completed=done, rate="")
            for part in parts:
                yield part
                new += len(part)
                bar.update(task, advance=len(part), rate=f"{new / max(1e-9, time.monotonic() - began):.1f} per second")

    @override
    def say(self, line: str) -> None:
        self.console.print(printable(line), markup=False, emoji=False, soft_wrap=True)


def for_stream(stream: Any = None) -> Progress:
    """A live bar where standard output is a terminal, plain lines otherwise."""
    stream = stream or sys.stdout
    return TerminalProgress() if stream is not None and stream.isatty() else PlainProgress()
