"""What waits for the model, from all clients and tasks, goes through it together where the way is the same.

Nothing waits for a batch to fill: while the model works on one, the next one gathers. On a CPU each processor works on a
small batch of its own, so that nobody waits for a large one to be done; elsewhere one thread runs the model.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from reprogram.errors import ReprogramError, first_line
from reprogram.images.decoding import Pixels
from reprogram.serve.journal import Journal
from reprogram.serve.limits import Limits, Refusal
from reprogram.serve.metrics import Metrics
from reprogram.serve.tasks import Said, Task, Tasks, Way

_WORTH_PREPARING = 64  # images that a way has taken: from then on it is prepared when nothing waits


@dataclass(frozen=True)
class Part:
    """Rows of some predictions, and the number of the first of these images in its request."""

    said: Said
    start: int
    stop: int
    place: int


@dataclass
class Job:
    """Images of one request for one task.

    Attributes:
        task: the task.
        images: (3, S, S) each.
        evidence: how many source labels to name.
        asked: what else; see `reprogram.mappings.asked.Asked`.
        parts: what was said; in the order of the images when all of it is.
        error: why there is no answer.
    """

    task: Task
    images: list[Pixels]
    evidence: int = 0
    asked: dict[str, Any] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    error: Exception | None = None
    taken: int = 0
    answered: int = 0

    @property
    def group(self) -> Hashable:
        """Jobs of one group are answered by one product with ω."""
        return id(self.task), self.evidence, tuple(sorted(self.asked.items()))


class Batcher:
    """The queue of images, and the threads that work on it.

    Args:
        limits: how many images wait and go together.
        tasks: which say how many threads compute at once; each of several computes by itself.
        finish: called from one of them with jobs that are done; it must not wait.
        metrics: where it is counted.
        journal: where it is told.
    """

    def __init__(
        self, limits: Limits, tasks: Tasks, finish: Callable[[list[Job]], None], metrics: Metrics, journal: Journal
    ) -> None:
        self.tasks = tasks
        self.limits, self.finish, self.metrics, self.journal = limits, finish, metrics, journal
        self._lines: dict[Way, deque[Job]] = {}  # in the order in which their first jobs came
        self._waiting, self._ending = 0, False
        self._used: WeakKeyDictionary[Way, int] = WeakKeyDictionary()  # images of those that are not prepared
        self._condition = threading.Condition()
        self._threads = [threading.Thread(target=self._work, name=f"model {n}", daemon=True) for n in range(tasks.threads)]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish what was taken, and end."""
        with self._condition:
            self._ending = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def waiting(self) -> int:
        """How many images wait."""
        return self._waiting

    def check_room(self, images: int) -> None:
        """Refuse now what could not be taken after it was decoded."""
        if self._waiting + images > self.limits.queue:
            raise Refusal(429, f"{self._waiting:,} images are waiting already; try again in a second, or send fewer at once")

    def submit(self, job: Job) -> None:
        """Let a job wait for the model, unless too many do."""
        with self._condition:
            if self._ending:
                raise Refusal(503, "this service is being ended; try again when it is back")
            self.check_room(len(job.images))
            self._waiting += len(job.images)
            self._lines.setdefault(job.task.way, deque()).append(job)
            self._condition.notify(len(job.images))
        self.metrics.waiting.set(self._waiting)

    def _work(self) -> None:
        self.tasks.begin_thread(alone=len(self._threads) == 1)
        while True:
            with self._condition:
                while not self._lines and not self._ending:
                    if (way := self._to_prepare()) is not None:
                        break
                    self._condition.wait()
                else:
                    way = None
                if way is None and not self._lines:
                    return
                taken = self._take() if way is None else []
            if way is not None:
                self._prepare(way)
                continue
            self._answer(taken)

    def _take(self) -> list[tuple[Job, int, int]]:
        """The images that go together: those of the way that has waited longest, up to a batch."""
        way, line = next(iter(self._lines.items()))
        room, taken = self.limits.batch, []
        while line and room:
            job = line[0]
            start, stop = job.taken, min(len(job.images), job.taken + room)
            taken.append((job, start, stop))
            job.taken, room = stop, room - (stop - start)
            if stop == len(job.images):
                line.popleft()
        del self._lines[way]
        if line:  # behind the others
            self._lines[way] = line
        self._waiting -= self.limits.batch - room
        return taken

    def _answer(self, taken: list[tuple[Job, int, int]]) -> None:
        taken = [(job, start, stop) for job, start, stop in taken if job.error is None]
        if not taken:
            return
        way = taken[0][0].task.way
        began = time.perf_counter()
        try:
            found = way([image for job, start, stop in taken for image in job.images[start:stop]])
            between = time.perf_counter()
            self._map(taken, found)
        except Exception as error:  # the thread outlives whatever one batch leads it into
            self.journal.tell("fault", where="model", error=first_line(error), kind=type(error).__name__)
            between = time.perf_counter()
            for job, _, _ in taken:
                job.error = job.error or error
        count = sum(stop - start for _, start, stop in taken)
        self.metrics.model_seconds.inc(between - began)
        self.metrics.mapping_seconds.inc(time.perf_counter() - between)
        self.metrics.images.inc(count)
        self.metrics.batches.observe(count)
        self.metrics.waiting.set(self._waiting)
        with self._condition:
            if not way.prepared:
                self._used[way] = self._used.get(way, 0) + count
            for job, start, stop in taken:
                job.answered += stop - start
            done = [job for job, _, _ in taken if job.error is not None or job.answered == len(job.images)]
        for job in done:
            job.parts.sort(key=lambda part: part.place)
        self.finish(done)

    def _map(self, taken: list[tuple[Job, int, int]], found: Any) -> None:
        """ω of each task on its rows; requests that ask the same of the same task have one product."""
        groups: dict[Hashable, list[tuple[Job, int, int, int]]] = {}
        row = 0
        for job, start, stop in taken:
            groups.setdefault(job.group, []).append((job, row, row + stop - start, start))
            row += stop - start
        for members in groups.values():
            try:
                self._say(members, found)
            except ReprogramError:  # of one of them, perhaps: each by itself
                for member in members:
                    try:
                        self._say([member], found)
                    except ReprogramError as error:
                        member[0].error = error

    @staticmethod
    def _say(members: list[tuple[Job, int, int, int]], found: Any) -> None:
        job = members[0][0]
        whole = len(members) == 1 and members[0][2] - members[0][1] == len(found)
        rows = found if whole else job.task.way.joined([found[start:stop] for _, start, stop, _ in members])
        said = job.task.mapping.predict(rows, evidence=job.evidence, **job.asked)
        row = 0
        for member, start, stop, place in members:
            member.parts.append(Part(said, row, row + stop - start, place))
            row += stop - start

    def _to_prepare(self) -> Way | None:
        """A way that is used often and not prepared yet; those that left memory are not kept alive for it."""
        return next((way for way, images in self._used.items() if images >= _WORTH_PREPARING), None)

    def _prepare(self, way: Way) -> None:
        self._used.pop(way, None)
        began = time.perf_counter()
        chosen = way.prepare()
        self.journal.tell("prepared", way=way.key[:12], chosen=chosen, ms=round(1000 * (time.perf_counter() - began), 1))
