"""How a long job shows where it is: nothing (library), plain lines (a pipe or a log), or a live bar (a terminal)."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import override

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

    def say(self, line: str) -> None:
        """Show one line that stays."""


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
    def say(self, line: str) -> None:
        print(line, flush=True)


class TerminalProgress(Progress):
    """A live rich bar that disappears when its phase ends."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(highlight=False)

    @override
    def track(self, steps: Steps[Item], what: str) -> Iterable[Item]:
        from rich import progress

        columns: list[Any] = [
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
        ]
        with progress.Progress(*columns, console=self.console, transient=True) as bar:
            yield from bar.track(steps, total=len(steps), description=what)

    @override
    def say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


def for_stream(stream: Any = None) -> Progress:
    """A live bar where standard output is a terminal, plain lines otherwise."""
    stream = stream or sys.stdout
    return TerminalProgress() if stream.isatty() else PlainProgress()
