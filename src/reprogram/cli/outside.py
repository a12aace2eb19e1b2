"""What the outside does to a command: readers that go away, streams that are closed, and signals that ask it to end."""

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from reprogram.progress import Outlet

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_REPEATED = 2.0  # seconds: within these, a signal that comes twice (as timeout(1) sends it) is one
_AGAIN = 0.01  # seconds: by then, the place where an interrupt could not be raised is left


def files_matter() -> None:
    """Say that this command is there for the files that it writes, so that it goes on when nobody reads what it prints."""
    if isinstance(sys.stdout, Outlet):
        sys.stdout.needed = False


@contextlib.contextmanager
def outlets() -> Iterator[Outlet]:
    """Standard output and standard error as outlets, and the first of them; what they cannot encode, they escape."""
    for number in range(3):  # or the next file that is opened would get the number, and what is printed
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue
        _nowhere(number)
    before = sys.stdout, sys.stderr
    out, err = _outlet(sys.stdout), _outlet(sys.stderr)
    out.needed = True
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        for outlet, stream in ((out, before[0]), (err, before[1])):
            outlet.flush()
            if outlet.lost is not None and stream is not None:
                # what is still buffered has to go somewhere, or Python complains about it at its end
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    _nowhere(stream.fileno())
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def standard_output() -> Iterator[Any]:
    """Standard output for data, not for words: UTF-8 and the bytes of file names as they are, as in a file."""
    out: Any = sys.stdout
    before = {"encoding": getattr(out, "encoding", None), "errors": getattr(out, "errors", None)}
    _encode(out, encoding="utf-8", errors="surrogateescape")
    try:
        yield out
    finally:
        _encode(out, **before)


def _encode(stream: Any, **how: str | None) -> None:
    stream.flush()  # by the outlet, which knows what to do when that fails; what follows would flush, too
    if getattr(stream, "lost", None) is None and hasattr(stream, "reconfigure"):
        stream.reconfigure(**how)


def _outlet(stream: Any) -> Outlet:
    if stream is None:  # closed before Python started
        outlet = Outlet(open(os.devnull, "w"))  # noqa: SIM115, PTH123
        outlet.lost = OSError(errno.EBADF, "it is closed")
        return outlet
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return Outlet(stream)


def _nowhere(number: int) -> None:
    """Make a file descriptor lead nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


class Signals:
    """While this context lasts, SIGTERM and SIGHUP end the work as Ctrl-C does: by a `KeyboardInterrupt`.

    A signal that is ignored when the command starts (`nohup`) stays ignored. Outside the main thread nothing is changed.

    Args:
        own: whether the process is the command's own. Then a signal before `begin` ends it at once: nothing is begun, and
            there are libraries that take an interrupt while they are imported for an error.

    Attributes:
        received: the first signal that came.
    """

    def __init__(self, own: bool) -> None:
        self.own, self.begun = own, False
        self.received: int | None = None
        self._since = 0.0
        self._before: dict[int, Any] = {}
        self._hook: Any = None
        self._hooked = self._missed = False
        self._seen = 0

    def begin(self) -> None:
        """Say that the work begins, which an interrupt has to tidy up after."""
        self.begun = True

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._end)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._before.items():
            # a process that ends needs no handler of Python's, which would show where it was interrupted in doing so
            signal.signal(number, signal.SIG_DFL if self.own else handler)
        if self._hook is not None:
            sys.unraisablehook = self._hook

    def _end(self, number: int, _: FrameType | None) -> None:
        if self.own and not self.begun:
            os._exit(128 + number)
        repeated = number != signal.SIGINT and time.monotonic() - self._since < _REPEATED
        if self.received is None:
            self.received, self._since = number, time.monotonic()
        self._seen += 1
        if self._hooked:
            self._missed = True
        elif not repeated:
            self._missed = False
            raise KeyboardInterrupt

    def _unraisable(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """An interrupt that came where nothing can be raised, in a destructor perhaps or in here, comes once more."""
        self._hooked = True
        try:
            if issubclass(unraisable.exc_type, KeyboardInterrupt):
                self._missed = True
            else:
                self._hook(unraisable)
            if self._missed:
                threading.Thread(target=self._come_again, args=(threading.main_thread().ident or 0,), daemon=True).start()
        finally:
            self._hooked = False

    def _come_again(self, main: int) -> None:
        """Interrupt the main thread until it could be raised there, one time after the other."""
        while self._missed:
            seen = self._seen
            time.sleep(_AGAIN)
            signal.pthread_kill(main, signal.SIGINT)
            while self._seen == seen:
                time.sleep(_AGAIN)
