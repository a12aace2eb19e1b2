"""Where work on many files runs: in this process, in several local ones, or on a Ray cluster; results keep their order."""

import contextlib
import importlib
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

import torch

from reprogram.errors import ReprogramError, extra_missing, first_line, unknown
from reprogram.processes import WorkerPool

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD = 2  # tasks per worker that wait for their turn; more would only pile up results


class Workers:
    """Runs a function over many items, and gives the results in the order of the items.

    Used as a context manager, it keeps its workers from one `map` to the next and ends them at the end of the block.

    Args:
        name: `local`, processes of this machine; or `ray`, tasks of a Ray cluster that has the library installed and sees
            the same files under the same paths.
        processes: how many at once; 1 works in this process. A script that asks for more must start its work under
            `if __name__ == "__main__"`.
        address: of the Ray cluster, such as `auto` or `ray://host:10001`; None takes the one that the caller has
            initialised, or starts one on this machine, which only this machine can reach, and ends it again.

    >>> with Workers() as workers:
    ...     list(workers.map(pow, 2, [1, 2, 3]))
    [2, 4, 8]
    """

    def __init__(
        self, name: Literal["local", "ray"] | str = "local", processes: int = 1, address: str | None = None
    ) -> None:
        if name not in ("local", "ray"):
            raise unknown("engine", name, ("local", "ray"))
        if processes < 1:
            raise ReprogramError(f"{processes} processes were given, but at least 1 is expected")
        if address is not None and name != "ray":
            raise ReprogramError(f"address {address!r} was given, but only the ray engine takes one; add --engine ray")
        self.name, self.processes, self.address = name, processes, address
        self._pool: WorkerPool | None = None
        self._own_ray: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, error, trace)
        if self._own_ray is not None:
            self._own_ray.shutdown()
        self._pool = self._own_ray = None

    def map(self, function: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(shared, item)` for each item, in order; the first item that fails raises its `ReprogramError`.

        `function` must be importable by its name. On Ray, items may come without end: they are taken as they are needed.
        """
        if self.name == "ray":
            yield from self._on_ray(function, shared, items)
            return
        items = list(items)
        if self.processes == 1 or len(items) == 1:
            for item in items:
                yield function(shared, item)
        else:
            yield from self._in_processes(function, shared, items)

    def _in_processes(
        self, function: Callable[[Shared, Item], Result], shared: Shared, items: Sequence[Item]
    ) -> Iterator[Result]:
        if self._pool is None:
            # there is a process for each core already, so each of them computes with one thread
            self._pool = WorkerPool(min(self.processes, len(items)), torch.set_num_threads, (1,))
        waiting: deque[Future[tuple[bool, Any]]] = deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(_attempt, (function, shared), item))
                if len(waiting) >= self.processes * _AHEAD:
                    yield _result(waiting.popleft().result())
            while waiting:
                yield _result(waiting.popleft().result())
        except BrokenProcessPool:
            raise ReprogramError(
                "a process that read shards was ended from outside, perhaps for lack of memory; use fewer --processes"
            ) from None

    def _on_ray(self, function: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]) -> Iterator[Result]:
        try:
            import ray
        except ModuleNotFoundError:
            raise extra_missing("ray", "ray", "engine 'ray'") from None
        if not ray.is_initialized():
            start_ray(ray, self.address, self.processes)
            self._own_ray = ray
        try:
            task = ray.remote(num_cpus=1)(_attempt)
            sent = ray.put((function, shared))
            workers = max(1, int(cast(Any, ray).cluster_resources().get("CPU", 1)))
            waiting: deque[Any] = deque()
            for item in items:
                waiting.append(task.remote(sent, item))
                if len(waiting) >= workers * _AHEAD:
                    yield _result(ray.get(waiting.popleft()))
            while waiting:
                yield _result(ray.get(waiting.popleft()))
        except ray.exceptions.RayError as error:
            reason = str(error).strip().split("\n")[-1][:200]
            raise ReprogramError(
                f"Ray could not finish the work ({reason}); check that its machines have this version of the library"
            ) from None


def start_ray(ray: Any, address: str | None, processes: int) -> None:
    """Join the Ray cluster at an address, or start one on this machine that only this machine can reach."""
    # Ray reports its use to its makers unless told not to; a call over the network has to be asked for.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local = {"num_cpus": processes, "include_dashboard": False} if address is None else {}
    try:
        host, _, port = (address or "").removeprefix("ray://").rpartition(":")
        if host and port.isdecimal():  # Ray itself would try for many minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        with _of_this_machine() if address is None else contextlib.nullcontext():
            ray.init(address=address or "local", log_to_driver=False, logging_level="error", **local)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ReprogramError(
            f"Ray at {address or 'this machine'} does not answer ({first_line(error)}); check --address, or leave it out"
        ) from None


@contextlib.contextmanager
def _of_this_machine() -> Iterator[None]:
    """Let a Ray that is started here listen on the loopback interface alone.

    On Linux, Ray takes the address by which other machines reach this one, and listens on all interfaces. Only where it is
    told that no cluster is possible, as it is by default on a Mac, it takes 127.0.0.1. It is told so by a variable, which
    its processes read when they start, and this one has read when it imported Ray.
    """
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before, read = os.environ.get(name), None
    with contextlib.suppress(ImportError):
        read = importlib.import_module("ray._private.ray_constants")
    enabled = getattr(read, "ENABLE_RAY_CLUSTER", None)
    os.environ[name] = "0"
    if enabled is not None:
        read.ENABLE_RAY_CLUSTER = False  # type: ignore[union-attr]
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
        if enabled is not None:
            read.ENABLE_RAY_CLUSTER = enabled  # type: ignore[union-attr]


def _attempt(prepared: tuple[Callable[[Any, Any], Any], Any], item: Any) -> tuple[bool, Any]:
    """A mistake of the user comes back as its sentence, so that it reads the same whoever found it."""
    function, shared = prepared
    try:
        return True, function(shared, item)
    except ReprogramError as error:
        return False, str(error)


def _result(outcome: tuple[bool, Any]) -> Any:
    good, content = outcome
    if not good:
        raise ReprogramError(content)
    return content
