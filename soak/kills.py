"""Commands killed, stopped and hindered at every chosen call that writes; then the same command again.

A trial is survived if afterwards the old state or the new one is there, the same command finishes, and its result is that
of an undisturbed run: every file byte by byte (without how long things took), and nothing besides.
"""

import random
import shutil
import signal
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock

from soak.faults import Call, Command, Ended, Server, build_library
from soak.verbs import SCENARIOS, STARTS, Scenario, State, differences, draw, mixtures, state_of, take_step, visible

_SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
_GROWS = ("open", "write", "mkdir", "truncate", "fallocate", "link")
_INTERRUPTED = 130
_MISTAKE = 2
#: Manners in which a process is ended at a call, and those in which a call fails.
KILLS = ("before", "half", "after", "double", *_SIGNALS)
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


class Bench:
    """A fork server with its folder, in which trials are made one after the other."""

    def __init__(self, base: Path, library: Path) -> None:
        self.base = base
        base.mkdir(parents=True, exist_ok=True)
        draw(base / "data")
        self.server = Server(base, library)
        self._known: dict[str, Undisturbed] = {}
        self._rivals: dict[str, State] = {}

    def close(self) -> None:
        """End the server."""
        self.server.close()

    @cached_property
    def trial(self) -> Path:
        """The folder in which commands run."""
        return self.server.trial

    def undisturbed(self, scenario: Scenario) -> Undisturbed:
        """How the scenario goes here; found out once."""
        if scenario.name not in self._known:
            before = self._restore(scenario)
            ended = self.server.run(*scenario.command)
            if ended.code != 0:
                raise RuntimeError(f"{scenario.name} fails without any disturbance: {ended.errors}")
            after = state_of(self.trial)
            self._known[scenario.name] = Undisturbed(before, after, ended.calls, ended.seconds, ended.output)
        return self._known[scenario.name]

    def make(self, trial: Trial) -> Outcome:
        """Make one trial."""
        scenario = SCENARIOS[trial.scenario]
        known = self.undisturbed(scenario)
        self._restore(scenario)
        if trial.manner in RIVALS:
            return self._with_rival(trial, scenario, known)
        problems: list[str] = []
        kills = 0
        first, *later = self._disturbances(trial, scenario, known)
        ended = self.server.run(*scenario.command, **first)
        where = _where(ended, trial)
        kills += _killed(ended)
        problems += self._judge(trial, ended, known)
        for disturbance in later:
            ended = self.server.run(*scenario.continued, **disturbance)
            kills += _killed(ended)
            problems += mixtures(state_of(self.trial), known.before, known.after)
        problems += self._continue(scenario, known)
        return Outcome(trial, where, kills, tuple(problems))

    def _disturbances(self, trial: Trial, scenario: Scenario, known: Undisturbed) -> list[dict[str, object]]:
        if trial.manner in _SIGNALS:
            return [{"signal": _SIGNALS[trial.manner], "after": trial.share * known.seconds}]
        if trial.manner == "double":
            return [{"manner": "before", "number": number} for number in (trial.number, trial.second)]
        return [{"manner": trial.manner, "number": trial.number}]

    def _judge(self, trial: Trial, ended: Ended, known: Undisturbed) -> list[str]:
        """What is wrong right after the disturbance."""
        state = state_of(self.trial)
        problems = mixtures(state, known.before, known.after)
        if trial.manner not in HINDRANCES:
            died = ended.code < 0 or ended.code == _INTERRUPTED
            if ended.code == 0 and visible(state) == visible(known.after):
                return problems  # it was over before
            return problems if died else [*problems, f"exit code {ended.code}: {ended.errors.strip()[-300:]}"]
        return problems + self._hindered(trial, ended, state, known)

    def _hindered(self, trial: Trial, ended: Ended, state: State, known: Undisturbed) -> list[str]:
        call = next((call for call in ended.calls if call.number == trial.number), None)
        removing = call is not None and call.kind in ("unlink", "rmdir")  # what cannot be removed stays
        if ended.code == 0:
            found = visible(state) if removing else state
            wrong = differences(found, visible(known.after) if removing else known.after)
            return [f"exit code 0, but {text}" for text in wrong]
        problems = _sentence(ended)
        if not removing:
            problems += [f"{path} is left behind" for path in state if path not in known.before and path not in known.after]
        if trial.manner == "short":
            problems.append("a short write is no failure, but it ended the command")
        return problems

    def _continue(self, scenario: Scenario, known: Undisturbed) -> list[str]:
        """The same command once more, and what is wrong with its result."""
        done = visible(state_of(self.trial)) == visible(known.after) and bool(known.calls)
        if not (done and scenario.once):
            ended = self.server.run(*scenario.continued)
            refused = done and ended.code == _MISTAKE and not _sentence(ended)
            if ended.code != 0 and not refused:
                said = ended.errors.strip() or "nothing was said"
                return [f"the same command ends with {ended.code}: {said[-400:]}"]
            if not known.calls and ended.output != known.output:
                return ["the same command prints something else"]
        return [f"afterwards {text}" for text in differences(state_of(self.trial), known.after)]

    def _with_rival(self, trial: Trial, scenario: Scenario, known: Undisturbed) -> Outcome:
        """The command is stopped at a call, another one runs, then the first goes on."""
        command = scenario.command if trial.manner == "same" else scenario.rival
        other = known.after if trial.manner == "same" else self._rival_state(scenario)
        self._restore(scenario)
        first, second = self.server.run_all(
            [Command(scenario.command, manner="stop", number=trial.number), Command(command)]
        )
        problems = []
        for name, ended in (("the first", first), ("the second", second)):
            if ended.code != 0:
                problems += [f"{name}: {text}" for text in _sentence(ended)]
        if first.code and second.code:
            problems.append(f"both failed: {first.errors.strip()[-200:]} | {second.errors.strip()[-200:]}")
        state = state_of(self.trial)
        allowed = [known.after] if not first.code else []
        allowed += [other] if not second.code else []
        if state not in allowed:
            problems += [f"mixed: {text}" for text in differences(state, allowed[0] if allowed else known.after)]
        where = _where(first, trial) + f" (exit codes {first.code} and {second.code}{', waited' if second.waited else ''})"
        return Outcome(trial, where, 0, tuple(problems))

    def _rival_state(self, scenario: Scenario) -> State:
        if scenario.name not in self._rivals:
            self._restore(scenario)
            ended = self.server.run(*scenario.rival)
            if ended.code != 0:
                raise RuntimeError(f"the rival of {scenario.name} fails: {ended.errors}")
            self._rivals[scenario.name] = state_of(self.trial)
        return self._rivals[scenario.name]

    def _restore(self, scenario: Scenario) -> State:
        """Put back what stands there before the scenario."""
        kept = self.base / "before" / scenario.start
        if not kept.exists():
            self._empty()
            for words in STARTS[scenario.start]:
                if not take_step(self.trial, words):
                    ended = self.server.run(*words)
                    if ended.code != 0:
                        raise RuntimeError(f"{' '.join(words)} fails: {ended.errors}")
            shutil.copytree(self.trial, kept)
        self._empty()
        shutil.copytree(kept, self.trial, dirs_exist_ok=True)
        known = self._known.get(scenario.name)
        return known.before if known else state_of(self.trial)

    def _empty(self) -> None:
        shutil.rmtree(self.trial, ignore_errors=True)
        self.trial.mkdir()


def _killed(ended: Ended) -> int:
    return int(ended.code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, _INTERRUPTED))


def _where(ended: Ended, trial: Trial) -> str:
    if trial.manner in _SIGNALS:
        return f"after call {len(ended.calls)} ({ended.calls[-1]})" if ended.calls else "before any call"
    call = next((call for call in ended.calls if call.number == trial.number), None)
    return f"at call {trial.number} ({call})" if call else f"at call {trial.number}, which did not come"


def _sentence(ended: Ended) -> list[str]:
    """What is wrong with how a command refused."""
    lines = [line for line in ended.errors.splitlines() if line and not line.startswith("reprogram: warning:")]
    problems = []
    if ended.code == -signal.SIGALRM:
        problems.append("it hangs")
    elif ended.code != _MISTAKE:
        problems.append(f"exit code {ended.code} instead of {_MISTAKE}")
    if "Traceback" in ended.errors:
        problems.append(f"a traceback, ending in {lines[-1][-200:]!r}")
    elif len(lines) != 1 or not lines[0].startswith("reprogram: "):
        problems.append(f"not one sentence: {ended.errors.strip()[-300:]!r}")
    return problems


def chosen_calls(calls: Sequence[Call]) -> list[Call]:
    """The calls at which something can differ: of many writes to one file the first, the middle and the last."""
    chosen: list[Call] = []
    start = 0
    while start < len(calls):
        end = start + 1
        while end < len(calls) and calls[end].kind == "write" and (calls[end].kind, calls[end].path) == _face(calls[start]):
            end += 1
        chosen += [calls[place] for place in sorted({start, (start + end - 1) // 2, end - 1})]
        start = end
    return chosen


def _face(call: Call) -> tuple[str, str]:
    return call.kind, call.path


def plan(scenario: Scenario, known: Undisturbed, rng: random.Random) -> list[Trial]:
    """All trials of a scenario at its chosen calls, and as many random ones."""
    name, points = scenario.name, chosen_calls(known.calls)
    writes = [call for call in points if call.kind == "write"]
    count = len(known.calls)
    trials = [Trial(name, "before", call.number) for call in points]
    trials += [Trial(name, "half", call.number) for call in writes]
    trials += [Trial(name, "after", call.number) for call in points[::4]]
    trials += [Trial(name, "full-disk", call.number) for call in points if call.kind in _GROWS]
    trials += [Trial(name, "no-space", call.number) for call in points[::3] if call.kind in _GROWS]
    trials += [Trial(name, "io-error", call.number) for call in points]
    trials += [Trial(name, "short", call.number) for call in writes]
    if count:
        trials += [Trial(name, "double", call.number, rng.randint(1, count)) for call in points[1::3]]
        trials += [Trial(name, "same", call.number) for call in points[::3]]
    if count and scenario.rival:
        trials += [Trial(name, "rival", call.number) for call in points[1::3]]
    for index in range(max(9, len(points) // 3)):
        trials.append(Trial(name, list(_SIGNALS)[index % len(_SIGNALS)], share=rng.uniform(0, 1.1)))
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


def soak_kills(
    base: Path,
    *,
    seed: int = 0,
    kills: int = 1000,
    minutes: float = 12.0,
    workers: int = 2,
    names: Iterable[str] = (),
    say: Callable[[str], None] = print,
) -> Report:
    """Make trials until the time is over, or until every planned one was made and `kills` processes were ended.

    The kills before each chosen call come first, then all others in a random order, then random kills.

    Args:
        base: a folder for the trials.
        seed: of what is random.
        kills: how many processes to end at least.
        minutes: how long to go on at most.
        workers: trials at the same time.
        names: of scenarios; by default all.
        say: where failures are told as they come.
    """
    started = time.perf_counter()
    report = Report(seed)
    library = build_library(base)
    scenarios = [SCENARIOS[name] for name in names] if names else list(SCENARIOS.values())
    with ThreadPoolExecutor(workers) as pool, ExitStack() as stack:
        benches = list(pool.map(lambda number: Bench(base / f"worker-{number}", library), range(workers)))
        for bench in benches:
            stack.callback(bench.close)
        found = pool.map(lambda bench: {one.name: bench.undisturbed(one) for one in scenarios}, benches)
        known = next(iter(found))
        report.points = {name: len(chosen_calls(facts.calls)) for name, facts in known.items()}
        trials = _Supply(scenarios, known, seed)

        def work(bench: Bench) -> None:
            while time.perf_counter() - started < 60 * minutes:
                trial = trials.next(enough=report.kills >= kills)
                if trial is None:
                    return
                outcome = bench.make(trial)
                report.outcomes.append(outcome)
                if outcome.problems:
                    say(f"not survived: {outcome}")

        list(pool.map(work, benches))
    report.seconds = time.perf_counter() - started
    return report


class _Supply:
    """Trials for several workers: the planned ones, then random kills without end."""

    def __init__(self, scenarios: Sequence[Scenario], known: dict[str, Undisturbed], seed: int) -> None:
        self.rng, self.lock = random.Random(seed), Lock()
        self.names = [scenario.name for scenario in scenarios]
        planned = [trial for scenario in scenarios for trial in plan(scenario, known[scenario.name], self.rng)]
        self.rng.shuffle(planned)
        self.planned = deque(sorted(planned, key=lambda trial: trial.manner != "before"))

    def next(self, *, enough: bool) -> Trial | None:
        """The next trial; none when all planned ones were given out and `enough` has happened."""
        with self.lock:
            if self.planned:
                return self.planned.popleft()
            if enough:
                return None
            return Trial(self.rng.choice(self.names), self.rng.choice(list(_SIGNALS)), share=self.rng.uniform(0, 1.1))
