"""What is pinned, what is locked, and what installed packages say about themselves: shared by the tools beside this file."""

import importlib.metadata
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from minimums import canonical

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
LOCKED = (ROOT / "locked" / "demo.txt", ROOT / "locked" / "all.txt")
#: What the demo needs of the extras; everything else comes with `all` and `dev`.
DEMO = ("models", "sklearn")
#: Pinned packages without hashes, and why.
UNHASHED = {
    "torch": "its builds (CPU, CUDA, ROCm) share one version and the index that pip uses decides which one comes",
}
#: What licences are called in the metadata of packages that do not use SPDX names.
SPELLINGS = {
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "3-clause bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}


class Locked(NamedTuple):
    """One wheel that may be installed: its file name and the SHA-256 of its bytes."""

    file: str
    sha256: str


def pins(path: Path = CONSTRAINTS) -> dict[str, tuple[str, str]]:
    """Canonical name to (name as written, version) of every line of a file of constraints."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonical(name): (name, version) for name, version in pairs}


def locked(paths: Iterable[Path] = LOCKED) -> dict[str, tuple[str, tuple[Locked, ...]]]:
    """Canonical name to (version, wheels) of everything in the files that `lock.py` writes."""
    found: dict[str, tuple[str, tuple[Locked, ...]]] = {}
    for path in paths:
        files: list[str] = []
        blocks = re.sub(r" \\\n +", " ", path.read_text(encoding="utf-8"))
        for line in blocks.splitlines():
            if line.endswith(".whl"):
                files.append(line.removeprefix("# "))
            elif "==" in line and not line.startswith("#"):
                requirement, *hashes = line.split()
                name, version = requirement.split("==")
                sums = [text.removeprefix("--hash=sha256:") for text in hashes]
                found[canonical(name)] = version, tuple(Locked(*pair) for pair in zip(files, sums, strict=True))
                files = []
    return found


def installed() -> dict[str, importlib.metadata.Distribution]:
    """Canonical name to distribution of everything installed beside the running Python.

    What a package brings along in a folder of its own is not installed, and yet `sys.path` may name it: importing Ray
    puts its copies of psutil and colorama there.
    """
    places = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    found: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions(path=list(places)):
        found.setdefault(canonical(distribution.metadata["Name"]), distribution)  # the first on the path is imported
    return dict(sorted(found.items()))


def _asks_for(requirement: Requirement, extras: Iterable[str], here: bool) -> bool:
    """Whether a requirement counts for some extra: on this machine, or on any."""
    if requirement.marker is None:
        return True
    if here:
        return any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    text = str(requirement.marker)
    return "extra ==" not in text or any(f'extra == "{extra}"' in text for extra in extras)


def needs(
    distribution: importlib.metadata.Distribution, extras: Iterable[str] = (), here: bool = True
) -> Iterator[tuple[str, frozenset[str]]]:
    """Direct requirements as (canonical name, extras); with `here` false also those of other machines."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if _asks_for(requirement, tuple(extras), here):
            yield canonical(requirement.name), frozenset(requirement.extras)


def closure(
    start: Iterable[tuple[str, Iterable[str]]], there: Mapping[str, importlib.metadata.Distribution], here: bool = True
) -> set[str]:
    """Names of all packages of `there` that the given (name, extras) need, directly or not, with the start itself."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(canonical(name), frozenset(extras)) for name, extras in start]
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen or name not in there:
            continue
        seen.add((name, extras))
        todo += needs(there[name], extras, here)
    return {name for name, _ in seen}


def wheel_of(distribution: importlib.metadata.Distribution, wheels: Iterable[Locked]) -> Locked | None:
    """The one of several wheels that was installed, told by the tags that it left behind; None when it is none of them."""
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    own = {_plain(line.removeprefix("Tag: ")) for line in lines if line.startswith("Tag: ")}
    for wheel in wheels:
        if own and own <= {_plain(str(tag)) for tag in parse_wheel_filename(wheel.file)[3]}:
            return wheel
    return None


def _plain(tag: str) -> str:
    """A tag without the version of Linux's C library: some wheels were renamed after they were built."""
    return re.sub(r"manylinux(_\d+_\d+|\d+)_", "linux_", tag)


def licence(distribution: importlib.metadata.Distribution) -> str:
    """The licence as an SPDX expression where that can be told, else as the package calls it.

    Raises:
        ValueError: the package says nothing that is understood.
    """
    about = distribution.metadata
    own = str((about.get_all("License") or [""])[0])
    said: list[str] = [*(about.get_all("License-Expression") or ()), own]
    said += [text.rpartition(" :: ")[2] for text in about.get_all("Classifier") or () if text.startswith("License :: ")]
    for text in said:
        if 0 < len(text) < 100 and text not in ("UNKNOWN", "BSD", "BSD License"):  # longer ones are the licence itself
            return SPELLINGS.get(text.lower(), text)
    texts = [own, *_licence_files(distribution)]
    for text in texts:
        if "Redistribution and use in source and binary forms" in text:
            return "BSD-3-Clause" if re.search("neither the names? of", text, flags=re.IGNORECASE) else "BSD-2-Clause"
        if re.search(r"Apache License,?\s+Version 2\.0", text):
            return "Apache-2.0"
        if text.strip().startswith("MIT License"):
            return "MIT"
    raise ValueError(f"the licence of {about['Name']} {distribution.version} is not understood: {said}")


def _licence_files(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for file in sorted(distribution.files or (), key=str):
        if ".dist-info" in str(file) and re.match("LICEN[CS]E|COPYING", file.name, flags=re.IGNORECASE):
            yield Path(str(file.locate())).read_text(encoding="utf-8", errors="replace")
