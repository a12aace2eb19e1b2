"""Locks that survive nothing but a live process: the system lets go of them when their holder ends, however it ends."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reprogram.errors import ReprogramError

try:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

except ModuleNotFoundError:  # Windows
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]


_PAUSE = 0.05


@contextmanager
def locked(
    path: Path, what: str, *, remedy: str = "", wait: float = 0.0, on_wait: Callable[[], object] | None = None
) -> Iterator[None]:
    """Hold the lock file at `path` while the block runs; it is removed afterwards.

    A file system that knows no locks (some network ones) is used without.

    Args:
        path: the lock file; its folder must exist.
        what: what is locked, for the message.
        remedy: what else the user can do than wait.
        wait: seconds after which to give up.
        on_wait: called once if there is somebody to wait for.

    Raises:
        ReprogramError: another process, or another thread of this one, holds it.
    """
    descriptor = _acquire(path, what, remedy, wait, on_wait)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is held: whoever waits for it notices that it is another file now
        os.close(descriptor)


def remove_abandoned(path: Path) -> None:
    """Remove a lock file, or a file that is locked while it is written, if its process has ended without doing so.

    Where there are no locks, nobody can tell, and it stays.
    """
    with suppress(OSError):  # not there, or held, or another process was faster
        descriptor = os.open(path, os.O_RDWR)
        try:
            _take(descriptor)
            if still_there(descriptor, path):
                path.unlink()
        finally:
            os.close(descriptor)


def _acquire(path: Path, what: str, remedy: str, wait: float, on_wait: Callable[[], object] | None) -> int:
    until = time.monotonic() + wait
    while True:
        descriptor, held = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666), True
        try:
            held = held_by_another(descriptor)
            if not held and still_there(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() if held else ""
        except BaseException:
            with suppress(OSError):
                if not held and still_there(descriptor, path):
                    path.unlink()  # ours, and no room to say so
            os.close(descriptor)
            raise
        os.close(descriptor)
        if held and time.monotonic() >= until:
            by = f"process {holder}" if holder.isdecimal() else "another process"
            raise ReprogramError(f"{what} is in use by {by}; wait until that has ended{remedy}")
        if held:
            if on_wait is not None:
                on_wait()
                on_wait = None
            time.sleep(_PAUSE)


def held_by_another(descriptor: int) -> bool:
    """Try to lock an open file; True if somebody else has. Where there are no locks, nobody has."""
    try:
        _take(descriptor)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:  # no locks on this file system
        return False
    return False


def still_there(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one at the path: its last holder may have removed it since it was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
