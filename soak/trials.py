"""Which disturbances are tried on a command, and what came of them."""

import random
import signal
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from threading import Lock

from soak.faults import Call
from soak.verbs import Scenario, State

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
_SYNCS = ("fsync", "msync")
_GROWS = ("open", "write", "mkdir", "truncate", "fallocate", "link")
#: Manners in which a process is ended at a call, those in which a call fails, and those in which another command runs.
KILLS = ("before", "half", "after", "double", *SIGNALS)
HINDRANCES = ("full-disk", "no-space", "io-error", "short")
RIVALS = ("same", "rival")


@dataclass(frozen=True)
class Trial:
    """One disturbance.

    Attributes:
        scenario: a name in `SCENARIOS`.
        manner: one of `KILLS`, `HINDRANCES` and `RIVALS`.
        number: the call at which it happens.
        second: for `double`, the call at which the continued command is killed, too.
        share: for signals, when they are sent: as a share of the time that an undisturbed run takes.
    """

    scenario: str
    manner: str
    number: int = 0
    second: int = 0
    share: float = 0.0

    def __str__(self) -> str:
        return f"{self.scenario}/{self.manner}/{self.number}/{self.second}/{self.share:.4f}"

    @classmethod
    def read(cls, text: str) -> "Trial":
        """A trial from how it is written."""
        scenario, manner, number, second, share = text.split("/")
        return cls(scenario, manner, int(number), int(second), float(share))


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    Attributes:
        trial: which.
        where: the call at which it happened.
        kills: how many processes were ended by it.
        problems: what was lost or different; none if it was survived.
    """

    trial: Trial
    where: str
    kills: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.trial.scenario}, {self.trial.manner} {self.where}:\n    "
            + "\n    ".join(self.problems)
            + f"\n    repeat: python -m soak --trial '{self.trial}'"
        )


@dataclass
class Undisturbed:
    """A scenario as it should go: what was there, what is there afterwards, the calls in between and the time."""

    before: State
    after: State
    calls: tuple[Call, ...]
    seconds: float
    output: str


def chosen_calls(calls: Sequence[Call]) -> list[Call]:
    """The calls before which something else is there than before the one before.

    Of many writes to one file the first, the middle and the last. What is brought to the disk was there for all processes
    already, and making a folder a second time does nothing: a kill before these is a kill before the next call.
    """
    changing, made = [], set()
    for call in calls:
        if call.kind in _SYNCS or (call.kind == "mkdir" and call.path in made):
            continue
        if call.kind == "mkdir":
            made.add(call.path)
        elif call.kind == "rmdir":
            made.discard(call.path)
        changing.append(call)
    chosen: list[Call] = []
    start = 0
    while start < len(changing):
        end = start + 1
        while end < len(changing) and changing[end].kind == "write" and _face(changing[end]) == _face(changing[start]):
            end += 1
        chosen += [changing[place] for place in sorted({start, (start + end - 1) // 2, end - 1})]
        start = end
    return chosen


def _face(call: Call) -> tuple[str, str]:
    return call.kind, call.path


def plan(scenario: Scenario, known: Undisturbed, rng: random.Random) -> list[Trial]:
    """All trials of a scenario at its chosen calls, and as many random ones."""
    name, points = scenario.name, chosen_calls(known.calls)
    writes = [call for call in points if call.kind == "write"]
    syncs, count = [call for call in known.calls if call.kind in _SYNCS], len(known.calls)
    trials = [Trial(name, "before", call.number) for call in points]
    trials += [Trial(name, "half", call.number) for call in writes]
    trials += [Trial(name, "after", call.number) for call in points[::4]]
    trials += [Trial(name, "full-disk", call.number) for call in points if call.kind in _GROWS]
    trials += [Trial(name, "no-space", call.number) for call in points[::3] if call.kind in _GROWS]
    trials += [Trial(name, "io-error", call.number) for call in (*points, *syncs[::3])]
    trials += [Trial(name, "short", call.number) for call in writes]
    if count:
        trials += [Trial(name, "double", call.number, rng.randint(1, count)) for call in points[1::3]]
        trials += [Trial(name, "same", call.number) for call in points[::3]]
    if count and scenario.rival:
        trials += [Trial(name, "rival", call.number) for call in points[1::3]]
    for index in range(max(9, len(points) // 3)):
        trials.append(Trial(name, list(SIGNALS)[index % len(SIGNALS)], share=rng.uniform(0, 1.1)))
    return trials


@dataclass
class Report:
    """What came of many trials.

    Attributes:
        seed: of the random ones.
        points: chosen calls of each scenario.
        outcomes: of all trials.
        seconds: how long it took.
    """

    seed: int
    points: dict[str, int] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        """Processes that were ended."""
        return sum(outcome.kills for outcome in self.outcomes)

    @property
    def failed(self) -> list[Outcome]:
        """What was not survived."""
        return [outcome for outcome in self.outcomes if outcome.problems]

    def table(self) -> list[list[str]]:
        """Per scenario: calls, kills survived, hindrances survived, rivals survived."""
        kinds = {**dict.fromkeys(KILLS, 0), **dict.fromkeys(HINDRANCES, 1), **dict.fromkeys(RIVALS, 2)}
        tried: dict[tuple[str, int], Counter[bool]] = defaultdict(Counter)
        for outcome in self.outcomes:
            kind = kinds[outcome.trial.manner]
            weight = outcome.kills if kind == 0 else 1
            tried[outcome.trial.scenario, kind][not outcome.problems] += weight
        rows = []
        for name, points in self.points.items():
            cells = [tried[name, kind] for kind in range(3)]
            rows.append([name, str(points), *(f"{cell[True]} of {cell.total()}" if cell else "-" for cell in cells)])
        return rows


class Supply:
    """Trials for several workers: kills before each chosen call and others by turns, then random kills without end."""

    def __init__(self, scenarios: Sequence[Scenario], known: dict[str, Undisturbed], seed: int) -> None:
        self.rng, self.lock = random.Random(seed), Lock()
        self.names = [scenario.name for scenario in scenarios]
        planned = [trial for scenario in scenarios for trial in plan(scenario, known[scenario.name], self.rng)]
        self.rng.shuffle(planned)
        firsts = [trial for trial in planned if trial.manner == "before"]
        others = [trial for trial in planned if trial.manner != "before"]
        self.planned = deque(trial for pair in zip_longest(firsts, others) for trial in pair if trial is not None)

    def next(self, *, enough: bool) -> Trial | None:
        """The next trial; none when all planned ones were given out and `enough` has happened."""
        with self.lock:
            if self.planned:
                return self.planned.popleft()
            if enough:
                return None
            return Trial(self.rng.choice(self.names), self.rng.choice(list(SIGNALS)), share=self.rng.uniform(0, 1.1))
