"""Commands in processes that are killed, stopped or hindered at a chosen call which writes.

One server process imports torch and the command line once, with `faults.c` preloaded. For each command it forks a child, so
that a trial costs a fraction of a second instead of the seconds of a new start. The child is the real command: its
arguments go to `reprogram.cli.main.main`, its output into files.
"""

import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent
#: What happens at the chosen call; the numbers are those of `enum manner` in faults.c.
MANNERS = {
    "count": 0,
    "before": 1,
    "after": 2,
    "half": 3,
    "no-space": 4,
    "io-error": 5,
    "short": 6,
    "full-disk": 7,
    "stop": 8,
}
_WARM = ("torch", "numpy", "safetensors.torch", "pyarrow.parquet", "rich.progress")
_QUIET = {  # one thread each, and an allocator that needs none; jemalloc starts its thread anyway, but knows of forks
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
_PACE = 0.002
_PATIENCE = 3.0  # seconds for which a command may wait for one that was stopped, before that goes on


@dataclass(frozen=True)
class Call:
    """One call that changes files.

    Attributes:
        number: its place, from 1 on.
        kind: open, write, fsync, rename, link, mkdir, rmdir, unlink, truncate, fallocate, chmod or msync.
        size: bytes to write.
        path: of the file or folder that it changes.
    """

    number: int
    kind: str
    size: int
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path}" + (f" ({self.size} bytes)" if self.size else "")


@dataclass(frozen=True)
class Command:
    """What a child does.

    Attributes:
        arguments: of `reprogram`; or, where `call` is given, of that function.
        call: "module:function", called instead; what it returns becomes the text of the standard output, as JSON.
        manner: one of `MANNERS`.
        number: the call at which it happens.
        signal: sent to the child `after` so many seconds, if it is still there.
        plant: "module:function", called first: a fault that the harness should notice.
    """

    arguments: tuple[str, ...]
    call: str | None = None
    manner: str = "count"
    number: int = 0
    signal: int = 0
    after: float = 0.0
    plant: str | None = None


@dataclass(frozen=True)
class Ended:
    """How a child ended: exit code, or minus the signal; what it printed; the calls that it came to."""

    code: int
    output: str
    errors: str
    seconds: float
    calls: tuple[Call, ...] = field(repr=False, default=())
    waited: bool = False


def build_library(folder: Path) -> Path:
    """Compile faults.c into a folder."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the soak needs a C compiler: install gcc and libc6-dev, or set CC")
    library = folder / "faults.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(Path(__file__).with_name("faults.c")), "-ldl"],
        check=True,
    )
    return library


class Server:
    """A process from which commands are forked; they write below `base / "trial"`, which is what is watched.

    Args:
        base: a folder of its own, which keeps its path, because some files hold absolute paths.
        library: faults.so.
        limit: seconds after which a command counts as hanging.
        needs: modules that take seconds to import and that only some commands use.
    """

    def __init__(self, base: Path, library: Path, limit: float = 60.0, needs: Iterable[str] = ()) -> None:
        self.base, self.trial, self.limit = base.resolve(), base.resolve() / "trial", limit
        self.cache = self.trial / "cache"
        self.trial.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            **_QUIET,
            "LD_PRELOAD": str(library),
            "REPROGRAM_CACHE": str(self.cache),
            "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT), str(ROOT / "src")]),
        }
        self.log = (self.base / "server.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "soak.faults", str(library), str(self.trial), *sorted(set(needs))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            cwd=ROOT,
            text=True,
        )
        self._read()  # it says so when it is warm

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        self.log.close()

    def run(self, *arguments: str, **options: Any) -> Ended:
        """Run one command."""
        return self.run_all([Command(arguments, **options)])[0]

    def call(self, function: str, *arguments: str) -> Any:
        """What a function, "module:name", returns in a child; it is not counted."""
        ended = self.run(*arguments, call=function)
        if ended.code != 0:
            raise RuntimeError(f"{function} failed in the child:\n{ended.errors}")
        return json.loads(ended.output.splitlines()[-1])

    def run_all(self, commands: Sequence[Command]) -> list[Ended]:
        """Run commands that are there at the same time: the next starts when the one before has stopped or has begun."""
        assert self.process.stdin is not None
        request = {"limit": self.limit, "commands": [vars(command) for command in commands]}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        return [
            Ended(
                code=one["code"],
                output=_text(self.base / f"{place}.out"),
                errors=_text(self.base / f"{place}.err"),
                seconds=one["seconds"],
                calls=_calls(self.base / f"{place}.calls", self.trial),
                waited=one["waited"],
            )
            for place, one in enumerate(answer)
        ]

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the fork server ended:\n{_text(self.base / 'server.log')}")
        return json.loads(line)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _calls(path: Path, trial: Path) -> tuple[Call, ...]:
    found = []
    for line in _text(path).splitlines():
        number, kind, size, where = line.split("\t", 3)
        found.append(Call(int(number), kind, int(size), os.path.relpath(where, trial)))
    return tuple(found)


def serve(library: str, trial: str, *needs: str) -> None:
    """The server: import everything, then fork a child for each command on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in (*_WARM, *_own_modules(), *needs):
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    _named("soak.verbs:warm_up")()
    others = [_text(task / "comm").strip() for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
    if set(others) - {"jemalloc_bg_thd"}:  # others would be missing in a child, and what they hold would stay held
        raise SystemExit(f"threads are alive, so nothing can be forked: {others}")
    faults = ctypes.CDLL(library)
    faults.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    gc.collect()
    gc.freeze()
    answers.write('"warm"\n')
    answers.flush()
    for line in sys.stdin:
        request = json.loads(line)
        children = _Children(faults, Path(trial), request["limit"])
        answers.write(json.dumps(children.run([Command(**one) for one in request["commands"]])) + "\n")
        answers.flush()


def _own_modules() -> list[str]:
    """All modules of the library that the verbs may import."""
    source = Path(importlib.import_module("reprogram").__path__[0])
    names = [
        ".".join(("reprogram", *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(source.rglob("*.py"))
        if path.name != "__main__.py"
    ]
    return [*names, "soak.verbs"]


class _Children:
    """The children of one request."""

    def __init__(self, faults: ctypes.CDLL, trial: Path, limit: float) -> None:
        self.faults, self.trial, self.limit = faults, trial, limit

    def run(self, commands: list[Command]) -> list[dict[str, Any]]:
        started, pids, codes = [], [], {}
        waited = [False] * len(commands)
        for place, command in enumerate(commands):
            started.append(time.perf_counter())
            pids.append(self._start(place, command))
            if command.manner == "stop" and place + 1 < len(commands):
                codes[place] = self._wait(pids[place], self.limit, stopped=True)
            elif place and commands[place - 1].manner == "stop":
                codes[place] = self._wait(pids[place], _PATIENCE)
                waited[place] = codes[place] is None
            elif command.signal:
                codes[place] = self._wait(pids[place], command.after)
                if codes[place] is None:
                    os.kill(pids[place], command.signal)
        for pid, command in zip(pids, commands, strict=True):
            if command.manner == "stop":
                os.kill(pid, signal.SIGCONT)
        ended = []
        for place, pid in enumerate(pids):
            code = codes.get(place)
            if code is None:
                code = self._wait(pid, self.limit)
            if code is None:  # it hangs
                os.kill(pid, signal.SIGKILL)
                self._wait(pid, self.limit)
                code = -signal.SIGALRM
            ended.append({"code": code, "seconds": time.perf_counter() - started[place], "waited": waited[place]})
        return ended

    def _wait(self, pid: int, limit: float, stopped: bool = False) -> int | None:
        """The exit code, or minus the signal; None where it is still there, or has stopped, if that is waited for."""
        until = time.perf_counter() + limit
        while True:
            found, status = os.waitpid(pid, os.WNOHANG | (os.WUNTRACED if stopped else 0))
            if found:
                return None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
            if time.perf_counter() >= until:
                return None
            time.sleep(_PACE)

    def _start(self, place: int, command: Command) -> int:
        base = self.trial.parent
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.chdir(self.trial)
            files = [
                os.open(base / f"{place}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                for name in ("out", "err", "calls")
            ]
            os.dup2(files[0], 1)
            os.dup2(files[1], 2)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            if command.plant is not None:
                _named(command.plant)()
            if command.call is not None:
                print(json.dumps(_named(command.call)(*command.arguments)))
                code = 0
            else:
                from reprogram.cli.main import main

                self.faults.faults_arm(os.fsencode(self.trial), command.number, MANNERS[command.manner], files[2])
                code = main(list(command.arguments))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            self.faults.faults_disarm()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _named(name: str) -> Any:
    module, attribute = name.split(":")
    return getattr(importlib.import_module(module), attribute)


def scratch(name: str) -> Path:
    """A new folder for trials, in memory where that is possible: their time goes into forks, not into a disk."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix=f"reprogram-{name}-", dir=memory if os.access(memory, os.W_OK) else None))


if __name__ == "__main__":
    serve(*sys.argv[1:])
