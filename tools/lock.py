"""Write `locked/demo.txt` and `locked/all.txt`: the pins of `constraints.txt` with the SHA-256 of their wheels.

Run it with the Python of `.venv` (`make lock`) after a change of `constraints.txt`. pip itself is asked, without installing
anything, which wheel it would take on each of the platforms and Pythons below, and what its hash is.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minimums import canonical
from packages import DEMO, LOCKED, UNHASHED, Locked, closure, installed, pins

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: Name to the platform tags that pip is told, the preferred one first.
PLATFORMS = {
    "Linux on x86-64": [
        *(f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)),
        "manylinux2014_x86_64",
        "linux_x86_64",
    ],
    "Linux on ARM": [*(f"manylinux_2_{minor}_aarch64" for minor in range(28, 16, -1)), "manylinux2014_aarch64"],
    "macOS 14 on ARM": ["macosx_14_0_arm64"],
}
#: What builds the project itself, so that nothing is fetched for that.
BUILD = ("hatchling", "editables")
HEADER = """\
# Made by `make lock` from constraints.txt; do not edit. Wheels for {platforms}, Python {pythons}.
# Installed with: pip install --require-hashes --no-deps --only-binary :all: -r {file}
# Without hashes: {unhashed}.
"""


def ask(requirements: Iterable[str], python: str, tags: list[str]) -> tuple[dict[str, Locked], list[str]]:
    """The wheels that pip would install there, by canonical name, and the requirements for which it has none."""
    wanted = list(requirements)
    missing: list[str] = []
    while True:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            words = [
                "--dry-run",
                "--ignore-installed",
                "--no-deps",
                "--only-binary=:all:",
                "--report",
                str(report),
                "--quiet",
            ]
            words += ["--python-version", python, "--implementation", "cp", "--target", f"{folder}/never-made"]
            words += [word for tag in tags for word in ("--platform", tag)]
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *words, *wanted]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return dict(map(chosen, json.loads(report.read_text(encoding="utf-8"))["install"])), missing
        absent = re.findall(r"No matching distribution found for (\S+)", done.stderr)
        if not absent or absent[0] not in wanted:
            raise SystemExit(done.stderr)
        wanted.remove(absent[0])
        missing.append(absent[0])


def chosen(entry: dict[str, dict[str, dict[str, dict[str, str]]]]) -> tuple[str, Locked]:
    """Canonical name and wheel of one entry of a report of pip."""
    download = entry["download_info"]
    file = str(download["url"]).rpartition("/")[2].replace("%2B", "+")
    return canonical(str(entry["metadata"]["name"])), Locked(file, download["archive_info"]["hashes"]["sha256"])


def find(pinned: dict[str, str]) -> tuple[dict[str, set[Locked]], list[str]]:
    """All wheels of pinned packages (canonical name to requirement), and sentences about those that a platform lacks."""
    found: dict[str, set[Locked]] = defaultdict(set)
    first, *others = [(python, platform) for python in PYTHONS for platform in PLATFORMS]
    answers = [(first, ask(pinned.values(), first[0], PLATFORMS[first[1]]))]
    # a wheel for every platform and Python 3 serves all of them
    general = {name for name, wheel in answers[0][1][0].items() if wheel.file.endswith("py3-none-any.whl")}
    special = [pin for name, pin in pinned.items() if name not in general]
    with ThreadPoolExecutor(3) as pool:
        answers += zip(others, pool.map(lambda place: ask(special, place[0], PLATFORMS[place[1]]), others), strict=True)
    notes = []
    for (python, platform), (wheels, missing) in answers:
        for name, wheel in wheels.items():
            found[name].add(wheel)
        notes += [f"{platform}, Python {python}: no wheel of {pin}" for pin in missing]
    return found, notes


def write(path: Path, first: str, names: Iterable[str], pinned: dict[str, str], found: dict[str, set[Locked]]) -> None:
    """Write one file, packages in alphabetical order, each with its wheels and their hashes in the same order."""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in UNHASHED.items())
    file = f"{path.parent.name}/{path.name}"
    lines = [HEADER.format(platforms=", ".join(PLATFORMS), pythons=", ".join(PYTHONS), file=file, unhashed=reasons) + first]
    for name in sorted(names):
        wheels = sorted(found[name])
        lines += [f"# {wheel.file}" for wheel in wheels]
        lines.append(" \\\n    ".join([pinned[name], *(f"--hash=sha256:{wheel.sha256}" for wheel in wheels)]))
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Ask pip and write both files."""
    pinned = {name: f"{written}=={version}" for name, (written, version) in pins().items() if name not in UNHASHED}
    there = installed()
    strange = sorted(set(there) - set(pins()) - {"pip", "reprogram"})
    if strange:
        raise SystemExit(f"installed, but not in constraints.txt: {', '.join(strange)}; pin them there, or take them out")
    start = [("reprogram", DEMO), *((name, ()) for name in BUILD)]
    demo = closure(start, there, here=False) & set(pinned)
    found, notes = find(pinned)
    bare = [name for name in pinned if not found[name]]
    if bare:
        raise SystemExit(f"no wheel of {', '.join(bare)} was found: install it from another source, or add it to UNHASHED")
    write(LOCKED[0], "", demo, pinned, found)
    write(LOCKED[1], f"-r {LOCKED[0].name}\n", set(pinned) - demo, pinned, found)
    print("\n".join([f"{len(pinned)} packages, {sum(map(len, found.values()))} wheels", *notes]))


if __name__ == "__main__":
    main()
