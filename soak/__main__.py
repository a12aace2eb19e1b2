"""`python -m soak --minutes 30`: kills, flipped bits and damaged inputs, until the time is over.

It prints what was survived, refused and tried, writes the same as tables into docs/results/soak.md, and ends with
exit code 1 if anything was lost, different, unnoticed or unhandled. Each failure is printed with the command that repeats
it alone.
"""

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from soak.faults import ROOT, build_library, scratch
from soak.flips import Tally, soak_flips
from soak.kills import Bench, soak_kills
from soak.trials import HINDRANCES, KILLS, RIVALS, Report, Trial
from soak.verbs import SCENARIOS

_RESULTS = "docs/results/soak.md"
_PARTS = ("kills", "flips", "fuzz")
_SHARES = {"kills": 0.58, "flips": 0.05, "fuzz": 0.37}
_PACKAGES = ("reprogram", "torch", "numpy", "timm", "pillow", "safetensors", "pyarrow")
_TRIED = re.compile(r"^([\d,]+) inputs for", re.MULTILINE)


@dataclass
class _Results:
    """What the parts found."""

    kills: Report | None = None
    flips: list[Tally] = field(default_factory=list)
    fuzz: str = ""
    failed: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="how long in all (default: 30)")
    parser.add_argument("--kills", type=int, default=1000, help="processes to end at least (default: 1000)")
    parser.add_argument("--flips", type=int, default=4000, help="bits of each file to flip at most (default: 4000)")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="damaged inputs to try at least (default: 1,000,000)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random (default: 0)")
    parser.add_argument("--processes", type=int, default=2, help="at the same time (default: 2)")
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"of {', '.join(_PARTS)}; the others are left out")
    parser.add_argument("--scenarios", default="", help="kill only these, with commas between them")
    parser.add_argument("--trial", default=None, help="make this one trial again and keep its folder")
    parser.add_argument("--results", type=Path, default=None, help=f"where the tables go (all parts: {_RESULTS})")
    given = parser.parse_args(arguments)
    if given.trial is not None:
        return _repeat(Trial.read(given.trial))
    parts = [part for part in _PARTS if part in given.parts.split(",")]
    if not parts:
        parser.error(f"--parts {given.parts} names none of {', '.join(_PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what is made for the trials goes, too
    base = scratch("soak")
    try:
        results = _run(given, parts, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    command = " ".join(["python -m soak", *(sys.argv[1:] if arguments is None else arguments)])
    page = _page(results, command, given.seed)
    print(f"\n{page}")
    whole = len(parts) == len(_PARTS) and not given.scenarios
    if path := given.results or (ROOT / _RESULTS if whole else None):
        path.write_text(page, encoding="utf-8")
    return int(results.failed)


def _run(given: argparse.Namespace, parts: list[str], base: Path) -> _Results:
    results = _Results()
    minutes = {part: given.minutes * _SHARES[part] / sum(_SHARES[one] for one in parts) for part in parts}
    print(f"seed {given.seed}; " + ", ".join(f"{part} {minutes[part]:.1f} minutes" for part in parts), flush=True)
    if "kills" in parts:
        names = [name.strip() for name in given.scenarios.split(",") if name.strip()]
        report = soak_kills(
            base,
            seed=given.seed,
            kills=given.kills,
            minutes=minutes["kills"],
            workers=given.processes,
            names=names,
            say=lambda text: print(text, flush=True),
        )
        results.kills = report
        print(f"{report.kills} kills, {len(report.outcomes)} trials, {len(report.failed)} not survived", flush=True)
        if report.kills < given.kills:
            print(f"{given.kills} kills were asked for; give more --minutes")
        results.failed |= bool(report.failed) or report.kills < given.kills
    if "flips" in parts:
        options = {"seed": given.seed, "flips": given.flips, "workers": given.processes}
        results.flips = soak_flips(base, minutes=minutes["flips"], **options)
        tried, refused = (sum(getattr(tally, name) for tally in results.flips) for name in ("tried", "refused"))
        print(f"{refused} of {tried} flipped bits refused or mended", flush=True)
        for problem in (problem for tally in results.flips for problem in tally.problems):
            print(f"    {problem}")
        results.failed |= refused < tried or not tried
    if "fuzz" in parts:
        words = ["--seconds", f"{60 * minutes['fuzz']:.0f}", "--inputs", str(given.inputs), "--seed", str(given.seed)]
        done = subprocess.run(
            [sys.executable, "-m", "soak.fuzz", *words, "--processes", str(given.processes)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
        results.fuzz = done.stdout
        found = _TRIED.search(done.stdout)
        tried = int(found[1].replace(",", "")) if found else 0
        print(f"{tried:,} inputs tried, exit code {done.returncode}", flush=True)
        results.failed |= done.returncode != 0 or tried < given.inputs
    return results


def _repeat(trial: Trial) -> int:
    base = scratch("trial")
    bench = Bench(base / "worker-0", build_library(base), SCENARIOS[trial.scenario].needs)
    try:
        outcome = bench.make(trial)
    finally:
        bench.close()
    print(outcome if outcome.problems else f"survived: {trial}, {outcome.where}")
    print(f"the folder as it was left: {bench.trial}")
    return int(bool(outcome.problems))


def _page(results: _Results, command: str, seed: int) -> str:
    """The tables as a page."""
    lines = [
        "# Kills, flipped bits, damaged inputs",
        "",
        f"`{command}`, seed {seed}, {time.strftime('%Y-%m-%d')}, {_machine()}.",
        "",
    ]
    if results.kills is not None:
        lines += _kills_section(results.kills)
    if results.flips:
        lines += _flips_section(results.flips)
    if results.fuzz:
        lines += ["## Damaged inputs", "", "Every parser, in processes with limits of memory and time.", "", results.fuzz]
    return "\n".join(lines).rstrip() + "\n"


def _kills_section(report: Report) -> list[str]:
    manners = {
        manner: sum(one.trial.manner == manner for one in report.outcomes) for manner in (*KILLS, *HINDRANCES, *RIVALS)
    }
    return [
        "## Kills",
        "",
        f"{report.kills} processes were ended, and {len(report.outcomes)} trials were made in "
        f"{report.seconds / 60:.1f} minutes: {len(report.failed)} not survived.",
        "Survived means: right afterwards the old or the new state is there; the same command ends well; every file then",
        "equals that of an undisturbed run byte by byte, without the times in it; nothing is left over. A call that fails",
        "(full disk, I/O error, short write) must besides end in one sentence and exit code 2, or do no harm. A rival is",
        "the same command, or one with another result, that runs while the first is stopped at a call.",
        "",
        *_table(("command", "chosen calls", "kills", "failing calls", "rivals"), report.table()),
        "",
        "Trials by manner: " + ", ".join(f"{manner} {count}" for manner, count in manners.items() if count) + ".",
        "",
        *(
            ["Not survived:", "", *(f"- `{one.trial}` {one.where}: {one.problems[0]}" for one in report.failed[:50]), ""]
            if report.failed
            else []
        ),
    ]


def _flips_section(tallies: list[Tally]) -> list[str]:
    tried, refused = (sum(getattr(tally, name) for tally in tallies) for name in ("tried", "refused"))
    rows = [[tally.reader, tally.file, f"{tally.refused:,} of {tally.tried:,}"] for tally in tallies]
    return [
        "## Flipped bits",
        "",
        f"{refused:,} of {tried:,} single flipped bits were refused in a sentence that names the file; in the cache, the",
        "images were decoded again, with the same pixels.",
        "",
        *_table(("reader", "file", "refused"), rows),
        "",
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _machine() -> str:
    model = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.is_file():
        model = next(
            (line.split(": ", 1)[1] for line in cpus.read_text().splitlines() if line.startswith("model name")), model
        )
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, {versions}"


if __name__ == "__main__":
    sys.exit(main())
