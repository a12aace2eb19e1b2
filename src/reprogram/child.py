"""Files whose parsers can crash, hang or fill the memory are read by a child process first, and only then by this one.

Parsers in C (scipy's `.mat`, LMDB, pyarrow) can be led to a segmentation fault by a damaged file. A child that walks
through everything that will be read dies in our place, and the caller gets a sentence.
"""

import importlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

from reprogram.errors import ReprogramError, first_line

_GIB = 2**30
# What a child may take: room for its packages, and several copies of a file that is not compressed.
_MEMORY, _MEMORY_PER_BYTE = 2 * _GIB, 8
# Seconds: a cold start of its packages, and what a slow disk delivers.
_SECONDS, _BYTES_PER_SECOND = 120.0, 4_000_000
_REMEDY = "take it from a backup, or make it again"
# One thread per library: each reserves memory, and the walk does not compute.
_CALM = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_IO_THREADS"), "1")
# -P: the current folder is no place to import from. The arguments are: folder of this package, task, path, bytes, seconds.
_START = (
    "import sys; sys.argv[1] in sys.path or sys.path.insert(0, sys.argv[1]); "
    "from reprogram.child import _main; _main(*sys.argv[2:])"
)

Identity = tuple[tuple[str, int, int, int], ...]
_passed: set[tuple[str, Identity]] = set()


def tried_in_child(
    task: str, path: Path, what: str, remedy: str = _REMEDY, *, memory: int | None = None, seconds: float | None = None
) -> None:
    """Run a task on a file or folder in a child process with limited memory and time; pass if it does.

    What passed is not tried again in this process until its size, its time of change or its inode is another one.

    Args:
        task: "module:function"; the function takes the path, and raises if the file is not as it should be. A
            `ReprogramError` of its own reaches the caller as it is.
        path: a file, or a folder of files.
        what: what an error calls it, such as "data" or "shard".
        remedy: the end of that sentence: what to do.
        memory: bytes that the child may take; by default 2 GiB and eight times the file. Not limited where the
            platform cannot.
        seconds: time that it may take; by default two minutes and a second for each 4 MB.

    Raises:
        ReprogramError: there is no such file, or the child failed, crashed, took too much memory or too long.
    """
    identity = _identity(path, what)
    if (task, identity) in _passed:
        return
    size = sum(entry[1] for entry in identity)
    memory = _MEMORY + _MEMORY_PER_BYTE * size if memory is None else memory
    seconds = _SECONDS + size / _BYTES_PER_SECOND if seconds is None else seconds
    here = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-P", "-c", _START, here, task, str(path.absolute()), str(memory), str(int(seconds) + 1)]
    named = f"{what} {str(path)!r}"
    try:
        done = subprocess.run(  # the arguments are ours; the path is one of them and no shell sees it
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            env={**os.environ, **_CALM},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ReprogramError(f"{named} takes more than {seconds:.0f} seconds to read; {remedy}") from None
    except OSError as error:
        raise ReprogramError(
            f"{named} is read by a process of its own first, which cannot be started ({first_line(error)}); "
            "end other processes, or raise their limit"
        ) from None
    if done.returncode == 0:
        _passed.add((task, identity))
        return
    if done.returncode == -getattr(signal, "SIGXCPU", 0):
        raise ReprogramError(f"{named} takes more than {seconds:.0f} seconds to read; {remedy}")
    if done.returncode < 0:
        raise ReprogramError(f"{named} is damaged: its reader ended with {_signal_name(-done.returncode)}; {remedy}")
    try:
        verdict = json.loads(done.stdout)
        kind, words = str(verdict["kind"]), str(verdict["words"])
    except (ValueError, KeyError, TypeError):
        raise ReprogramError(f"{named} is damaged: its reader ended with code {done.returncode}; {remedy}") from None
    if kind == "ours":
        raise ReprogramError(words)
    if kind == "memory":
        raise ReprogramError(f"{named} takes more than {memory / _GIB:.1f} GiB of memory to read; {remedy}")
    raise ReprogramError(f"{named} cannot be read ({words}); {remedy}")


def _identity(path: Path, what: str) -> Identity:
    """The files that are meant, each with its size, its time of change and its inode; none that could block a reader."""
    try:
        about = path.stat()
        if not stat.S_ISDIR(about.st_mode):
            return (_entry(path, about, what),)
        return tuple(
            _entry(file, found, what)
            for folder, _, files in sorted(os.walk(path))
            for file in (Path(folder, name) for name in sorted(files))
            if (found := file.stat())
        )
    except FileNotFoundError as error:
        raise ReprogramError(f"{what} {error.filename!r} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise ReprogramError(f"{what} {str(path)!r} cannot be read ({first_line(error)}); check the path") from None


def _entry(path: Path, about: os.stat_result, what: str) -> tuple[str, int, int, int]:
    if not stat.S_ISREG(about.st_mode):
        raise ReprogramError(f"{what} {str(path)!r} is no plain file, but a file on a disk is expected; copy it to one")
    return str(path.absolute()), about.st_size, about.st_mtime_ns, about.st_ino


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _main(task: str, path: str, memory: str, seconds: str) -> None:
    """What the child does: limit itself, run the task, and say in one line of JSON what went wrong."""
    answer = os.dup(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # a library that prints must not write into the answer
    _limit(int(memory), int(seconds))
    module, _, name = task.partition(":")
    kind, words = "", ""
    try:
        getattr(importlib.import_module(module), name)(Path(path))
    except ReprogramError as error:
        kind, words = "ours", str(error)
    except MemoryError:
        kind = "memory"
    except BaseException as error:  # readers raise whatever a damaged file leads them into, an exit included
        # pyarrow's and torch's own words for a failed allocation
        kind = "memory" if any(hint in str(error) for hint in ("malloc of", "alloc", "not enough memory")) else "other"
        words = first_line(error)
    if kind:
        os.write(answer, json.dumps({"kind": kind, "words": words}).encode())
    os._exit(1 if kind else 0)  # without the exit handlers of libraries, which may stumble over what they have read


def _limit(memory: int, seconds: int) -> None:
    try:
        import resource
    except ModuleNotFoundError:  # not on this platform: the time limit of the parent remains
        return
    # RLIMIT_DATA counts what can be written to, and not the files that LMDB and pyarrow map, or address space held back.
    for kind, value in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))
