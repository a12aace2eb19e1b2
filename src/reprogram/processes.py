"""Processes of this machine that share out work, and that never outlive it."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from typing_extensions import override

_STARTING = threading.Lock()  # the environment, which is changed for a start, belongs to all threads


class WorkerPool(ProcessPoolExecutor):
    """Processes that leave Ctrl-C to the one that started them, and end when it ends, however that happens.

    Used as a context manager, it waits for its work at the end of the block, but not when the block fails.

    Args:
        count: how many.
        prepare: what each of them calls first, with `arguments`.
        arguments: for `prepare`.
    """

    def __init__(self, count: int, prepare: Callable[..., Any] | None = None, arguments: tuple[Any, ...] = ()) -> None:
        with _safe_path():  # its queues start a process, too
            super().__init__(count, get_context("spawn"), _prepare, (prepare, arguments))

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with _signals_held(), _safe_path():  # the process that this may start begins with them held, and keeps it so
            return super().submit(fn, *args, **kwargs)

    def abandon(self) -> None:
        """End the processes at once, whatever they do."""
        processes = list((getattr(self, "_processes", None) or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            self.abandon()
        return super().__exit__(kind, error, trace)


def start_process(work: Callable[..., Any], arguments: tuple[Any, ...]) -> BaseProcess:
    """Start one process that carries out `work`, leaves Ctrl-C to this one, and ends when this one does.

    `work` is found by its name in a new interpreter, which imports its module and no other one of ours.
    """
    process = get_context("spawn").Process(target=_carry_out, args=(work, arguments), daemon=True)
    with _STARTING, _signals_held(), _safe_path():
        process.start()
    return process


def _carry_out(work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _prepare(None, ())
    work(*arguments)


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Processes that start now begin with Python's own modules: none of that name in the current folder comes first."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = before or "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Hold back what a terminal sends to all processes of a command; it comes afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare(prepare: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare(*arguments)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()  # a parent that was killed cannot say that it is gone
        os._exit(1)
