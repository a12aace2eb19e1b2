"""The processes of a fuzz run: one host per target, which prepares it and watches the workers that it forks.

A worker tries inputs until its batch is done. Before each it writes the input's number and the time into memory that it
shares with its host, so that the host can end one that takes too long, and knows which input a dead worker died of. The host
then forks the next worker, which goes on behind that input.
"""

import ctypes
import hashlib
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from soak.mutate import Known, mutate
from soak.targets import Target

_FIELDS = ("next", "began", "accepted", "refused", "raised", "seeds_accepted", "peak")
_BATCH = 4000  # inputs of one worker: what leaks shows in its peak, and does not add up
_LOOK = 0.02  # seconds between two looks of a host at its worker
_KEPT = 2  # inputs kept of each distinct failure
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_SEALED = 0.75


@dataclass
class Tally:
    """What came of the inputs of one target.

    Attributes:
        target: its name.
        tried: how many inputs.
        following: the number of the next input.
        accepted: parsed.
        refused: with our error.
        tracebacks: with another exception.
        signals: that ended the process.
        hangs: that took too long.
        peak: bytes by which the memory of a worker or a process of its own grew at most.
        seconds: spent on inputs.
        failures: how many inputs failed in which way.
        kept: the files of those.
    """

    target: str
    tried: int = 0
    following: int = 0
    accepted: int = 0
    refused: int = 0
    tracebacks: int = 0
    signals: int = 0
    hangs: int = 0
    peak: int = 0
    seconds: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)
    kept: dict[str, list[str]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether anything was found."""
        return bool(self.failures)

    def add(self, other: "Tally") -> None:
        """Take in what came of further inputs."""
        for name in ("tried", "accepted", "refused", "tracebacks", "signals", "hangs", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.peak, self.following = max(self.peak, other.peak), max(self.following, other.following)
        for key, count in other.failures.items():
            self.failures[key] = self.failures.get(key, 0) + count
            self.kept[key] = [*self.kept.get(key, []), *other.kept.get(key, [])][:_KEPT]


@dataclass(frozen=True)
class Order:
    """What a host shall do.

    Attributes:
        seed: of the run.
        start: the number of the first input.
        inputs: how many at most.
        seconds: how long at most.
        failures: the folder for inputs that failed.
    """

    seed: int
    start: int
    inputs: int
    seconds: float
    failures: Path


def made_input(target: Target, seeds: list[bytes], seed: int, number: int) -> bytes:
    """Input `number` of a target: first the good ones as they are, then damaged ones, the same for the same seed."""
    if number < len(seeds):
        return seeds[number]
    rng = random.Random(f"{seed}/{target.name}/{number}")
    known = Known(seeds, target.dictionary)
    sealed = rng.random() < _SEALED
    return target.mutated(rng.choice(seeds), lambda data: mutate(data, rng, known, target.mutators), sealed)


def serve(target: Target, order: Order, folder: Path) -> Tally:
    """Be the host of one target, in a process of its own and a folder of its own."""
    _move_into(folder)
    try:
        seeds = _prepared(target, order, folder)
        if not seeds:
            raise ValueError("the target has no good input")
    except BaseException as error:
        return Tally(target.name, failures={f"cannot be prepared: {_described(error)}": 1})
    tally = Tally(target.name, following=order.start)
    board = mmap.mmap(-1, 8 * len(_FIELDS))
    log = folder.parent / f"{folder.name}.log"
    accepted_seeds, began = 0.0, time.monotonic()
    last = order.start + order.inputs
    while tally.following < last and (left := order.seconds - (time.monotonic() - began)) > 0:
        first = tally.following
        board[:] = bytes(len(board))
        _put(board, "next", first)
        numbers = range(first, min(last, first + _BATCH))
        pid = _forked(partial(_work, target, seeds, order, folder, board, log, numbers, left))
        ended = _watched(pid, board, target.seconds)
        if ended == "done" and _get(board, "began"):
            ended = "the process ended itself"
        tally.following = int(_get(board, "next"))
        tally.accepted += int(_get(board, "accepted"))
        tally.refused += int(_get(board, "refused"))
        tally.tracebacks += int(_get(board, "raised"))
        tally.peak = max(tally.peak, int(_get(board, "peak")))
        accepted_seeds += _get(board, "seeds_accepted")
        if ended != "done":
            kind = f"signal {ended}" if ended.startswith("SIG") else ended
            tally.hangs += ended == "hang"
            tally.signals += ended != "hang"
            data = made_input(target, seeds, order.seed, tally.following)
            with log.open("a") as file:
                print(json.dumps([kind, _keep(target, data, order.failures)]), file=file)
            tally.following += 1
    tally.tried = tally.following - order.start
    tally.seconds = time.monotonic() - began
    if order.start == 0 and tally.tried >= len(seeds) and not accepted_seeds:
        tally.failures["no good input is accepted"] = 1
    if log.exists():
        for line in log.read_text().splitlines():
            key, file = json.loads(line)
            tally.failures[key] = tally.failures.get(key, 0) + 1
            if file is not None and file not in tally.kept.setdefault(key, []) and len(tally.kept[key]) < _KEPT:
                tally.kept[key].append(file)
    return tally


def _prepared(target: Target, order: Order, folder: Path) -> list[bytes]:
    """The good inputs. A RuntimeError is written beside the failures, and a second try begins in an empty folder.

    Torch has raised one in `aminmax` (`as_rgb`), in 2 of about 12 runs of all targets. Its message was not kept then, and
    its cause is not known. Tried in vain: some 120 preparations in forked processes, those of caches, shards, checkpoints,
    runs (which call it) among them, under a load of 10 and more; the kernels of other processors
    (ATEN_CPU_CAPABILITY). It is no lack of threads after the fork: hosts have one, and the tensors are below the size from
    which torch divides its work. When it comes again, the file says what it was.
    """
    try:
        return target.seeds_in(folder)
    except RuntimeError:
        order.failures.mkdir(parents=True, exist_ok=True)
        (order.failures / f"{target.name}-preparation.txt").write_text(traceback.format_exc())
        shutil.rmtree(folder)
        folder.mkdir()
        return target.seeds_in(folder)


def _forked(work: Callable[[], None]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)


def die_with_parent() -> None:
    """Ask the kernel to end this process with the one that forked it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _watched(pid: int, board: mmap.mmap, limit: float) -> str:
    """Wait for a worker, and end it if one input takes too long: "done", "hang" or what ended it."""
    hung = False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        began = _get(board, "began")
        if began and time.monotonic() - began > limit and not hung:
            hung = True
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        time.sleep(_LOOK)
    with suppress(ProcessLookupError, PermissionError):  # processes that it has left behind
        os.killpg(pid, signal.SIGKILL)
    if hung:
        return "hang"
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return "done"
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


def _work(
    target: Target, seeds: list[bytes], order: Order, folder: Path, board: mmap.mmap, log: Path, numbers: range, left: float
) -> None:
    """Be a worker: try inputs until the batch or the time is over."""
    os.setsid()
    die_with_parent()
    _hush()
    target.begin(folder)
    _limit_memory(target.memory)
    before = _resident()
    until = time.monotonic() + left
    counts: dict[str, int] = {}
    for number in numbers:
        data = made_input(target, seeds, order.seed, number)
        _put(board, "began", time.monotonic())
        outcome, key = attempt(target, folder, data)
        _put(board, "began", 0)
        _put(board, outcome, _get(board, outcome) + 1)
        if outcome == "accepted" and number < len(seeds):
            _put(board, "seeds_accepted", _get(board, "seeds_accepted") + 1)
        if key is not None:
            counts[key] = counts.get(key, 0) + 1
            file = _keep(target, data, order.failures) if counts[key] <= _KEPT else None
            with log.open("a") as out:
                print(json.dumps([key, file]), file=out)
        _put(board, "peak", max(0, _highest() - before))
        _put(board, "next", number + 1)
        if time.monotonic() > until:
            break


def attempt(target: Target, folder: Path, data: bytes) -> tuple[str, str | None]:
    """Parse one input: what came of it, and a description where it is a failure."""
    try:
        target.run_in(folder, data)
    except target.refusals:
        return "refused", None
    except BaseException as error:
        return "raised", _described(error)
    return "accepted", None


def _described(error: BaseException) -> str:
    """An exception by its kind and place, which is what distinguishes failures."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/reprogram/" in frame.filename] or list(frames)
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}" if ours else "?"
    if frames and ours[-1] is not frames[-1]:
        place += f" > {Path(frames[-1].filename).name}:{frames[-1].name}"
    return f"{type(error).__name__} at {place}"


def _keep(target: Target, data: bytes, failures: Path) -> str:
    failures.mkdir(parents=True, exist_ok=True)
    path = failures / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return str(path)


def _move_into(folder: Path) -> None:
    """Make the folder the current one, and the place of caches, of temporary files and of the home."""
    folder.mkdir(parents=True)
    for name in ("home", "temporary", "cache", "here"):
        (folder.parent / f"{folder.name}-{name}").mkdir()
    os.environ["HOME"] = f"{folder}-home"
    os.environ["TMPDIR"] = f"{folder}-temporary"
    os.environ["REPROGRAM_CACHE"] = f"{folder}-cache"
    os.chdir(f"{folder}-here")
    import tempfile

    tempfile.tempdir = None


def _hush() -> None:
    """Say nothing, ask nothing, warn of nothing."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_memory(growth: int) -> None:
    """Let this process take so many bytes more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + growth
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def _highest() -> int:
    """The most memory that this process, or one that it started, had."""
    return 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _put(board: mmap.mmap, name: str, value: float) -> None:
    struct.pack_into("d", board, 8 * _FIELDS.index(name), value)


def _get(board: mmap.mmap, name: str) -> float:
    value: float = struct.unpack_from("d", board, 8 * _FIELDS.index(name))[0]
    return value
