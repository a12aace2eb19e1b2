"""Commands killed, stopped and hindered at every chosen call that writes; then the same command again.

A trial is survived if afterwards the old state or the new one is there, the same command finishes, and its result is that
of an undisturbed run: every file byte by byte (without how long things took), and nothing besides.
"""

import shutil
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reprogram.files import is_leftover
from soak.faults import Command, Ended, Server, build_library
from soak.trials import HINDRANCES, RIVALS, SIGNALS, Outcome, Report, Supply, Trial, Undisturbed, chosen_calls
from soak.verbs import SCENARIOS, STARTS, Scenario, State, differences, draw, mixtures, outside, state_of, take_step, visible

_INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # how a command ends that has put things in order first
_MISTAKE = 2


class Bench:
    """A fork server with its folder, in which trials are made one after the other.

    Args:
        base: a new folder.
        library: faults.so.
        needs: see `Server`.
    """

    def __init__(self, base: Path, library: Path, needs: Iterable[str] = ()) -> None:
        self.base = base
        base.mkdir(parents=True, exist_ok=True)
        draw(base / "data")
        self.server = Server(base, library, needs=needs)
        self.trial = self.server.trial
        self._known: dict[str, Undisturbed] = {}
        self._rivals: dict[str, State] = {}

    def close(self) -> None:
        """End the server."""
        self.server.close()

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

    def make(self, trial: Trial, plant: str | None = None) -> Outcome:
        """Make one trial; `plant` is "module:function", which puts a fault into the process that is disturbed."""
        scenario = SCENARIOS[trial.scenario]
        known = self.undisturbed(scenario)
        self._restore(scenario)
        if trial.manner in RIVALS:
            return self._with_rival(trial, scenario, known)
        problems: list[str] = []
        kills = 0
        first, *later = self._disturbances(trial, known)
        ended = self.server.run(*scenario.command, plant=plant, **first)
        where = _where(ended, trial)
        kills += _killed(ended)
        problems += self._judge(trial, ended, known)
        for disturbance in later:
            if scenario.once and self._is_done(known):
                break  # a second time would do the work twice
            ended = self._again(scenario, **disturbance)
            kills += _killed(ended)
            problems += mixtures(state_of(self.trial), known.before, known.after)
        problems += self._continue(scenario, known, cached=trial.manner not in HINDRANCES)
        return Outcome(trial, where, kills, tuple(problems))

    def _disturbances(self, trial: Trial, known: Undisturbed) -> list[dict[str, Any]]:
        if trial.manner in SIGNALS:
            return [{"signal": SIGNALS[trial.manner], "after": trial.share * known.seconds}]
        if trial.manner == "double":
            return [{"manner": "before", "number": number} for number in (trial.number, trial.second)]
        return [{"manner": trial.manner, "number": trial.number}]

    def _judge(self, trial: Trial, ended: Ended, known: Undisturbed) -> list[str]:
        """What is wrong right after the disturbance."""
        state = state_of(self.trial)
        problems = mixtures(state, known.before, known.after) + _strays(state, known, SCENARIOS[trial.scenario].keeps)
        if trial.manner not in HINDRANCES:
            if ended.code == 0 and visible(state) == visible(known.after):
                return problems  # it was over before
            return problems if _killed(ended) else [*problems, f"exit code {ended.code}: {ended.errors.strip()[-300:]}"]
        return problems + self._hindered(trial, ended, state, known)

    def _hindered(self, trial: Trial, ended: Ended, state: State, known: Undisturbed) -> list[str]:
        call = next((call for call in ended.calls if call.number == trial.number), None)
        removing = call is not None and call.kind in ("unlink", "rmdir")  # what cannot be removed stays
        if ended.code == 0:
            # a cache that cannot be written to is done without
            found, expected = (outside(part, "cache") for part in (visible(state) if removing else state, known.after))
            return [f"exit code 0, but {text}" for text in differences(found, expected)]
        problems = _sentence(ended)
        if not removing:
            allowed = {*known.before, *known.after, *SCENARIOS[trial.scenario].keeps}
            problems += [f"{path} is left behind" for path in state if path not in allowed]
        if trial.manner == "short":
            problems.append("a short write is no failure, but it ended the command")
        return problems

    def _continue(self, scenario: Scenario, known: Undisturbed, *, cached: bool) -> list[str]:
        """The same command once more, and what is wrong with its result; a cache that failed may be missing."""
        state, done = state_of(self.trial), self._is_done(known)
        if not (done and scenario.once):
            ended = self._again(scenario)
            refused = done and ended.code == _MISTAKE and not _sentence(ended)
            if ended.code != 0 and not refused:
                said = ended.errors.strip() or "nothing was said"
                return [f"the same command ends with {ended.code}: {said[-400:]}"]
            if not known.calls and ended.output != known.output:
                return ["the same command prints something else"]
            state = state_of(self.trial)
        wrong = differences(state, known.after)
        if done and scenario.once:  # what is hidden goes with the next start, which there is none of
            wrong = differences(visible(state), visible(known.after))
        if not cached:
            wrong = [text for text in wrong if not (text.startswith("cache") and text.endswith("is missing"))]
        return [f"afterwards {text}" for text in wrong]

    def _is_done(self, known: Undisturbed) -> bool:
        """Whether the result is there already."""
        found, expected = (outside(visible(part), "cache") for part in (state_of(self.trial), known.after))
        return bool(known.calls) and found == expected

    def _again(self, scenario: Scenario, **disturbance: Any) -> Ended:
        """The same command; and what it says to do instead, where that is to continue."""
        ended = self.server.run(*scenario.command, **disturbance)
        if scenario.again and ended.code == _MISTAKE and "--resume" in ended.errors and not _sentence(ended):
            ended = self.server.run(*scenario.again, **disturbance)
        return ended

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
    """One if a signal of ours ended it; one that hangs or crashes ends by another."""
    return int(ended.code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, *_INTERRUPTED))


def _strays(state: State, known: Undisturbed, keeps: tuple[str, ...]) -> list[str]:
    """What is hidden, but neither a leftover that the next command knows to remove nor what it continues from."""
    new = (path for path in state if path not in known.before and path not in known.after and path not in keeps)
    hidden = [path for path in new if path not in visible(state)]
    return [f"{path} is a stray" for path in hidden if not any(map(is_leftover, (Path(path), *Path(path).parents)))]


def _where(ended: Ended, trial: Trial) -> str:
    if trial.manner in SIGNALS:
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

    The kills before each chosen call and all others come by turns, in a random order; then come random kills.

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
        needs = [name for scenario in scenarios for name in scenario.needs]
        benches = list(pool.map(lambda number: Bench(base / f"worker-{number}", library, needs), range(workers)))
        for bench in benches:
            stack.callback(bench.close)
        # each worker finds out about a share of the scenarios, and about the others when it comes to them
        shares = [scenarios[number::workers] for number in range(workers)]
        parts = pool.map(lambda bench, share: {one.name: bench.undisturbed(one) for one in share}, benches, shares)
        found = {name: facts for part in parts for name, facts in part.items()}
        known = {scenario.name: found[scenario.name] for scenario in scenarios}
        report.points = {name: len(chosen_calls(facts.calls)) for name, facts in known.items()}
        trials = Supply(scenarios, known, seed)

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
