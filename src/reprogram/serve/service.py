"""The service itself, behind whichever protocol: a request's images become answers."""

import asyncio
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from reprogram.errors import ReprogramError
from reprogram.images.decoding import Pixels, large_images_allowed
from reprogram.serve.answers import rows_of
from reprogram.serve.batching import Batcher, Job
from reprogram.serve.bodies import Options
from reprogram.serve.journal import Journal
from reprogram.serve.limits import Limits, Refusal, Room
from reprogram.serve.metrics import Metrics
from reprogram.serve.pictures import decoded
from reprogram.serve.store import Store
from reprogram.serve.tasks import Task, Tasks

Found = TypeVar("Found")
_DECODERS = 2


class Service:
    """Everything that answers requests, without HTTP.

    Args:
        tasks: what is served.
        store: where it comes from.
        limits: what is accepted.
        metrics: where it is counted.
        journal: where it is told.
        token: what clients have to show; None for nothing.
        uploads: whether clients may add and remove tasks.
        local: whether only this machine can reach it.
    """

    def __init__(
        self,
        tasks: Tasks,
        store: Store,
        limits: Limits,
        metrics: Metrics,
        journal: Journal,
        *,
        token: str | None = None,
        uploads: bool = False,
        local: bool = True,
    ) -> None:
        self.tasks, self.store, self.limits, self.metrics, self.journal = tasks, store, limits, metrics, journal
        self.uploads, self.local, self._token = uploads, local, token
        self.ready = self.draining = False
        self.room = Room(limits.held)
        self.batcher = Batcher(limits, tasks, self._finished, metrics, journal)
        self._pool = ThreadPoolExecutor(_DECODERS, thread_name_prefix="decode")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._futures: dict[int, asyncio.Future[Job]] = {}
        self._open = ExitStack()

    async def start(self) -> None:
        """Begin; the ways of all tasks in memory are prepared by then."""
        self._loop = asyncio.get_running_loop()
        self._open.enter_context(large_images_allowed())  # once, as warnings belong to the whole process
        self.batcher.start()
        self.store.start()
        self.ready = True

    async def stop(self) -> None:
        """End; what was accepted is answered by then."""
        self.ready = False
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.store.stop)
        await loop.run_in_executor(None, self.batcher.stop)
        self._pool.shutdown()
        self._open.close()

    def drain(self, signal: str) -> None:
        """Say that the end has begun; called within a signal handler, so what takes a lock is left to the loop."""
        self.draining = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(
                lambda: self.journal.tell("draining", signal=signal, waiting=self.batcher.waiting)
            )

    @property
    def guarded(self) -> bool:
        """Whether a token is needed."""
        return self._token is not None

    def admits(self, authorization: str | None) -> bool:
        """Whether the header of a request shows the token, compared in a time that does not tell how much was right."""
        if self._token is None:
            return True
        scheme, _, shown = (authorization or "").partition(" ")
        right = hmac.compare_digest(shown.strip().encode("utf-8", "surrogateescape"), self._token.encode())
        return right and scheme.lower() == "bearer"

    async def task(self, name: str, options: Options) -> Task:
        """The task that is asked for, with as much of it as the options need."""
        self.tasks.entry(name)
        whole = options.more
        if self.tasks.is_resident(name, whole=whole):
            return self.tasks.get(name, whole=whole)
        return await self.aside(lambda: self.tasks.get(name, whole=whole))

    async def aside(self, work: Callable[[], Found]) -> Found:
        """Do something that takes time, beside the requests."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def classify_files(self, name: str, files: list[tuple[str, bytes]], options: Options) -> list[dict[str, Any]]:
        """An object for each file: what was said of it, or, beside others that are good, what is wrong with it."""
        task = await self.task(name, options)
        self.batcher.check_room(len(files))
        works = [self.aside(partial(decoded, content, called, task.way, self.limits)) for called, content in files]
        found = await asyncio.gather(*works, return_exceptions=True)
        good = [one for one in found if not isinstance(one, BaseException)]
        if not good:
            raise next(one for one in found if isinstance(one, BaseException))
        said = iter(await self.classify(task, good, options))
        rows = []
        for (called, _), one in zip(files, found, strict=True):
            if isinstance(one, Refusal):
                rows.append({"name": called, "error": one.sentence})
            elif isinstance(one, BaseException):
                raise one
            else:
                rows.append({"name": called, **next(said)})
        return rows

    async def classify(self, task: Task, images: list[Pixels], options: Options) -> list[dict[str, Any]]:
        """An object for each image (3, S, S)."""
        return rows_of(await self.answered(task, images, options), options.top)

    async def answered(self, task: Task, images: list[Pixels], options: Options) -> Job:
        """The images of one request, when the model has seen them all."""
        job = Job(task, images, options.evidence, options.asked)
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._futures[id(job)] = future
        try:
            self.batcher.submit(job)
            done = await future
        finally:
            self._futures.pop(id(job), None)
        if isinstance(done.error, ReprogramError):
            raise Refusal(422, str(done.error))
        if done.error is not None:
            raise Refusal(503, "the model could not answer; the log of the service says why")
        return done

    def _finished(self, jobs: list[Job]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._deliver, jobs)

    def _deliver(self, jobs: list[Job]) -> None:
        for job in jobs:
            future = self._futures.get(id(job))
            if future is not None and not future.done():  # a client may have gone
                future.set_result(job)
