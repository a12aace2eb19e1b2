"""Try every parser on damaged inputs: `python -m soak.fuzz --seconds 720 --inputs 1000000 --seed 0`.

Each target of `soak/targets_*.py` gets its share of the time, in processes with limits of memory and time. A table says what
came of the inputs. The exit code is 1 if any of them raised anything but our error, ended its process, or took too long;
such inputs are kept under `soak/failures`, with the command that repeats them.
"""

import argparse
import faulthandler
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from soak.report import findings, table
from soak.targets import Target, all_targets
from soak.workers import Order, Tally, die_with_parent, serve

# before numpy and torch are imported: hosts are forked; and a damaged name is no reason to ask the network
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "HF_HUB_OFFLINE"), "1")
_FAILURES = Path(__file__).parent / "failures"
_SLOW = 30  # by how much fewer inputs a slow target gets where a number for each is asked for
_FEWEST = 5
_ENDLESS = 1 << 60
_USED = 0.8  # of the time is shared out; the rest goes into preparation
_PREPARING = 90.0  # seconds that making the good inputs may take


@dataclass
class _Host:
    """A target that is being tried: its process, where its tally arrives, and when it must have ended."""

    target: Target
    pid: int
    pipe: int
    until: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m soak.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long in all (default: 60)")
    parser.add_argument("--inputs", type=int, default=None, help="stop when so many were tried in all")
    parser.add_argument("--each", type=int, default=None, help="so many for every target instead, a 30th for slow ones")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same inputs (default: 0)")
    parser.add_argument("--targets", default=None, help="names with commas between them; `name*` for all that begin so")
    parser.add_argument("--processes", type=int, default=2, help="targets tried at the same time (default: 2)")
    parser.add_argument("--module", action="append", default=[], help="take the targets of this module instead")
    parser.add_argument("--failures", type=Path, default=_FAILURES, help="where failing inputs are kept")
    parser.add_argument("--repeat", type=Path, default=None, help="try this one file and show the traceback")
    parser.add_argument("--list", action="store_true", help="say what targets there are")
    given = parser.parse_args(arguments)
    os.environ |= _ENVIRONMENT
    targets = _chosen(all_targets(given.module), given.targets, parser)
    if given.list:
        print("\n".join(target.name for target in targets))
        return 0
    with _scratch() as scratch:
        if given.repeat is not None:
            return _repeat(targets[0], given.repeat, scratch)
        began = time.monotonic()
        _warm(targets, common=not given.module)
        tallies = run(
            targets,
            seconds=given.seconds,
            inputs=given.inputs,
            each=given.each,
            seed=given.seed,
            processes=given.processes,
            failures=given.failures.absolute(),
            scratch=scratch,
        )
    print(table(tallies))
    tried = sum(tally.tried for tally in tallies)
    wall = time.monotonic() - began
    print(f"\n{tried:,} inputs for {len(tallies)} parsers in {wall:.0f} s, seed {given.seed}")
    if found := findings(tallies):
        print(f"\nfound:\n{found}")
        return 1
    return 0


def run(
    targets: Sequence[Target],
    *,
    seconds: float,
    inputs: int | None,
    each: int | None,
    seed: int,
    processes: int,
    failures: Path,
    scratch: Path,
) -> list[Tally]:
    """Try all targets, and go on with the fastest until enough inputs were tried or the time is over.

    Args:
        targets: what to try.
        seconds: how long in all.
        inputs: how many inputs in all; None for as many as there is time for.
        each: how many for each target, however long that takes up to `seconds`; None for shares of the time.
        seed: of the inputs.
        processes: how many targets at the same time.
        failures: where failing inputs are kept.
        scratch: a folder for the files of the targets.
    """
    until = time.monotonic() + seconds
    tallies = {target.name: Tally(target.name) for target in targets}
    waiting, turn = list(targets), 0
    while waiting:
        hosts: list[_Host] = []
        weights, whole = sum(target.weight for target in waiting), processes * max(1.0, until - time.monotonic())
        while waiting or hosts:
            while waiting and len(hosts) < processes:
                target = waiting.pop(0)
                left = until - time.monotonic()
                share = seconds if each else max(1.0, min(left, _USED * whole * target.weight / weights))
                start = tallies[target.name].following
                turn += 1
                order = Order(seed, start, _wanted(target, each), share, failures)
                hosts.append(_start(target, order, scratch / str(turn)))
            for host in list(hosts):
                tally = _ended(host)
                if tally is not None:
                    hosts.remove(host)
                    tallies[tally.target].add(tally)
            time.sleep(0.01)
        tried = sum(tally.tried for tally in tallies.values())
        if each is None and inputs is not None and tried < inputs and time.monotonic() < until - 2:
            rates = sorted(targets, key=lambda target: -tallies[target.name].tried / (tallies[target.name].seconds or 1e9))
            waiting = [target for target in rates[: 2 * processes] if tallies[target.name].tried]
    return list(tallies.values())


def _wanted(target: Target, each: int | None) -> int:
    if each is None:
        return _ENDLESS
    return max(_FEWEST, each // _SLOW) if target.slow else each


def _warm(targets: Sequence[Target], common: bool) -> None:
    """Import what targets need once, before hosts are forked."""
    if common:
        import torch

        import reprogram.answers
        import reprogram.cli.main
        import reprogram.data  # noqa: F401

        torch.set_num_threads(1)
    for warm in dict.fromkeys(target.warm for target in targets if target.warm is not None):
        with suppress(Exception):  # its host will say it
            warm()


def _start(target: Target, order: Order, folder: Path) -> _Host:
    """Fork the host of a target."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Host(target, pid, reading, time.monotonic() + order.seconds + target.seconds + _PREPARING)
    try:
        die_with_parent()
        os.close(reading)
        tally = serve(target, order, folder)
        with os.fdopen(writing, "w") as file:
            json.dump(asdict(tally), file)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _ended(host: _Host) -> Tally | None:
    """The tally of a host that has ended, or None while it works."""
    ended, status = os.waitpid(host.pid, os.WNOHANG)
    if not ended:
        if time.monotonic() > host.until:  # its preparation hangs: workers are watched by the host itself
            os.kill(host.pid, signal.SIGKILL)
        return None
    with os.fdopen(host.pipe) as file:
        text = file.read()
    if status or not text:
        return Tally(host.target.name, failures={f"its preparation did not end well (status {status})": 1})
    return Tally(**json.loads(text))


def _chosen(targets: dict[str, Target], words: str | None, parser: argparse.ArgumentParser) -> list[Target]:
    if words is None:
        return list(targets.values())
    found: dict[str, Target] = {}
    for word in words.split(","):
        matching = [name for name in targets if name == word or (word.endswith("*") and name.startswith(word[:-1]))]
        if not matching:
            parser.error(f"target {word!r} is not known; there are: {', '.join(targets)}")
        found |= {name: targets[name] for name in matching}
    return list(found.values())


class _scratch:  # noqa: N801
    """A folder for the files of a run, in memory where the system has such a place, which goes with it."""

    def __enter__(self) -> Path:
        memory = Path("/dev/shm")
        place = memory if os.access(memory, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="reprogram-fuzz-", dir=place))
        return self.folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _repeat(target: Target, file: Path, scratch: Path) -> int:
    """Try one input in this process, with everything that it says."""
    faulthandler.enable()
    data = file.read_bytes()
    folder = scratch / "again"
    folder.mkdir()
    target.seeds_in(folder)
    try:
        target.run_in(folder, data)
    except target.refusals as error:
        print(f"refused: {error}")
    else:
        print("accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
