"""Words → the images that they mean, one after the other: files, folders, patterns, and a list that is read as it comes.

Nothing here holds all paths. What lies in a folder is sorted, so that the same words mean the same images in the same order
whatever the file system says; of a folder with very many entries, sorted parts wait in a temporary file. Nothing here
imports torch, so that words without an image are told before it is.
"""

import heapq
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from reprogram.data.file_kinds import counted_kinds, is_meant, kind_of_file
from reprogram.errors import ReprogramError, shown
from reprogram.files.foreign import is_folder
from reprogram.predict.words import LIST, MAGIC, Meant, is_pattern

_IN_MEMORY = 50_000  # names of a folder that are sorted at once
_BLOCK = 2**16
_LONGEST = 2**20  # bytes of a path in a list: the system allows 4,096
_KINDS = 1000  # kinds of files that are told apart
_TOLD = 4  # words that stand in a sentence


@dataclass
class Overlooked:
    """What words meant besides images.

    Attributes:
        kinds: files in folders that are no images, by their kind.
        empty: words that meant no image, the first few.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    empty: list[str] = field(default_factory=list)

    def add(self, kind: str) -> None:
        """Count a file; names without end are not all told apart."""
        self.kinds[kind if kind in self.kinds or len(self.kinds) < _KINDS else "others"] += 1

    def notes(self) -> list[str]:
        """What is worth saying, in words."""
        total = self.kinds.total()
        told = [f"{total} {'file was' if total == 1 else 'files were'} left out: {counted_kinds(self.kinds, 5)}"]
        return (told if total else []) + [f"{shown(word)} means no image" for word in self.empty]


def meant_images(
    words: Iterable[str | Path], *, listed: IO[bytes] | None = None, null: bool = False, overlooked: Overlooked | None = None
) -> Iterator[Meant]:
    """The images that words mean, in order, one after the other; memory does not depend on how many there are.

    A file is taken as it is. Of a folder, the files below it are taken that image folders of data sets have: by suffix, or
    by how they begin if they have none; not what is hidden, and no linked folders, which may lead in circles. A pattern is
    matched against those files; `**` means any folders. A folder that cannot be read comes with its problem.

    Args:
        words: files, folders, patterns, and `-` for a list.
        listed: that list, one path per line, such as `sys.stdin.buffer`.
        null: whether a zero byte ends each path of the list, and not a line end, which a name may hold.
        overlooked: told what was left out.
    """
    overlooked = Overlooked() if overlooked is None else overlooked
    for word in map(str, words):
        if word == LIST and listed is not None:
            yield from _listed(listed, null)
            continue
        path, found = os.path.expanduser(word), False  # noqa: PTH111  # the word as it was written, ./ and all
        if is_folder(path):
            inside = _images(path, overlooked)
        elif not os.path.lexists(path) and is_pattern(path):
            inside = _matching(path, overlooked)
        else:
            yield Meant(path)
            continue
        for image in inside:
            found = True
            yield image
        if not found and len(overlooked.empty) < 5:
            overlooked.empty.append(word)


def some_images(words: Sequence[str], images: Iterator[Meant], overlooked: Overlooked) -> Iterator[Meant]:
    """The same images, or an error that names the words if there is none.

    Args:
        words: what was given, one at least.
        images: what they mean; the first of them is looked for now.
        overlooked: knows what was left out on the way.
    """
    first = next(images, None)
    if first is None:
        *others, last = _places(words)
        places = f"{', '.join(others)} and {last}" if others else last
        left = f" ({counted_kinds(overlooked.kinds, 5)} left out)" if overlooked.kinds else ""
        raise ReprogramError(
            f"no image was found {places}{left}; give image files, folders that hold some, or patterns such as '*.jpg'"
        )
    return itertools.chain([first], images)


def _places(words: Sequence[str]) -> list[str]:
    """Where was looked, in words; of very many, the first."""
    told = [
        "in the list on standard input"
        if word == LIST
        else f"{'in folder' if is_folder(os.path.expanduser(word)) else 'by pattern'} {shown(word)}"  # noqa: PTH111
        for word in words[:_TOLD]
    ]
    return [*told, f"{len(words) - _TOLD:,} more"] if len(words) > _TOLD else told


def _listed(stream: IO[bytes], null: bool) -> Iterator[Meant]:
    first = True
    for number, line in enumerate(_parts(stream, b"\0" if null else b"\n"), start=1):
        if len(line) > _LONGEST:
            raise ReprogramError(
                f"path {number} of the list is longer than {_LONGEST:,} bytes; give one path per line, or with --null one "
                "before each zero byte"
            )
        if not null:
            line = line.removesuffix(b"\r")
            line = line.removeprefix(b"\xef\xbb\xbf") if first else line
            if b"\0" in line:
                raise ReprogramError(
                    f"line {number} of the list holds a zero byte, which no path can; add --null if zero bytes end the paths"
                )
        first = False
        if line:
            yield Meant(os.fsdecode(line))


def _parts(stream: IO[bytes], end: bytes) -> Iterator[bytes]:
    """What stands before each end mark, as soon as it has come."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    rest = b""
    while block := read(_BLOCK):
        *whole, rest = (rest + block).split(end)
        yield from whole
        if len(rest) > _LONGEST:
            break
    if rest:
        yield rest


def _images(folder: str, overlooked: Overlooked) -> Iterator[Meant]:
    """The images below a folder."""
    for path, problem in _below(folder, lambda _: True):
        if problem is not None:
            yield Meant(path, problem)
        elif kind := kind_of_file(Path(path)):
            overlooked.add(kind)
        else:
            yield Meant(path)


def _matching(pattern: str, overlooked: Overlooked) -> Iterator[Meant]:
    """The images whose paths match a pattern; the part before its first sign is where they are looked for."""
    parts = pattern.split("/")
    fixed = next(place for place, part in enumerate(parts) if MAGIC.search(part))
    base, wanted = "/".join(parts[:fixed]) or ("/" if fixed else "."), [part for part in parts[fixed:] if part]
    if any("**" in part and part != "**" for part in wanted):
        raise ReprogramError(f"pattern {shown(pattern)} has ** beside other letters; write it as a part of its own")
    if wanted[-1] == "**":
        wanted.append("*")
    deep, skipped = "**" in wanted, len(os.path.join(base, ""))  # noqa: PTH118  # with the bar behind it
    if not is_folder(base):
        return

    def inner(path: str) -> bool:
        names = path[skipped:].split("/")
        return deep or (len(names) < len(wanted) and all(map(fnmatchcase, names, wanted)))

    for path, problem in _below(base, inner, links=not deep):
        if problem is None and not _matches(path[skipped:].split("/"), wanted):
            continue
        if problem is not None:
            yield _without_dot(Meant(path, problem), base, pattern)
        elif kind := kind_of_file(Path(path)):
            overlooked.add(kind)
        else:
            yield _without_dot(Meant(path), base, pattern)


def _without_dot(image: Meant, base: str, pattern: str) -> Meant:
    """A pattern without a folder means files that are called by their names alone."""
    return image._replace(path=image.path.removeprefix("./")) if base == "." and not pattern.startswith(".") else image


def _matches(names: list[str], wanted: list[str]) -> bool:
    """Whether the parts of a path match those of a pattern.

    >>> _matches(["a", "b", "c.png"], ["**", "*.png"]), _matches(["c.png"], ["*", "*.png"])
    (True, False)
    """
    reached = {0}  # how many parts of the pattern can have been used up so far
    for name in names:
        reached = _skipping(reached, wanted)
        reached = {
            place + (wanted[place] != "**")
            for place in reached
            if place < len(wanted) and (wanted[place] == "**" or fnmatchcase(name, wanted[place]))
        }
    return len(wanted) in _skipping(reached, wanted)


def _skipping(reached: set[int], wanted: list[str]) -> set[int]:
    """`**` may mean no folder at all."""
    found = set(reached)
    for place, part in enumerate(wanted):
        if place in found and part == "**":
            found.add(place + 1)
    return found


def _below(folder: str, inner: Callable[[str], bool], *, links: bool = False) -> Iterator[Meant]:
    """The files below a folder, sorted by the parts of their paths; and the folders that cannot be read.

    Args:
        folder: where to begin.
        inner: whether a folder is looked into.
        links: whether links to folders are, too.
    """
    try:
        waiting = [(folder, _entries(folder, links))]
    except OSError as error:
        yield Meant(folder, _unreadable(folder, error))
        return
    while waiting:
        place, entries = waiting[-1]
        for name, is_real_folder in entries:
            path = os.path.join(place, name)  # noqa: PTH118  # fast, and as it was written
            if not is_real_folder:
                yield Meant(path)
            elif inner(path):
                try:
                    waiting.append((path, _entries(path, links)))
                except OSError as error:
                    yield Meant(path, _unreadable(path, error))
                    continue
                break
        else:
            waiting.pop()


def _unreadable(folder: str, error: OSError) -> str:
    return f"folder {shown(folder)} cannot be read ({error.strerror}); change its permissions or leave it out"


def _entries(folder: str, links: bool) -> Iterator[tuple[str, bool]]:
    """The names in a folder that count, sorted, and whether each is a folder."""
    names: list[tuple[str, bool]] = []
    sorted_parts: _SortedParts | None = None
    with os.scandir(folder) as found:
        for entry in found:
            if not is_meant(entry.name):
                continue
            names.append((entry.name, _is_folder(entry, links)))
            if len(names) == _IN_MEMORY:
                sorted_parts = sorted_parts or _SortedParts()
                sorted_parts.add(sorted(names))
                names = []
    if sorted_parts is None:
        return iter(sorted(names))
    return sorted_parts.merged(sorted(names))


def _is_folder(entry: "os.DirEntry[str]", links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=links)
    except OSError:  # a link in a circle
        return False


class _SortedParts:
    """Sorted lists of names in one temporary file, which has no name and ends with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # read until the last part is
        self._ends = [0]

    def add(self, names: list[tuple[str, bool]]) -> None:
        """Put a list away."""
        content = b"".join(b"%s/%d\0" % (os.fsencode(name), is_folder) for name, is_folder in names)
        self._file.write(content)
        self._ends.append(self._ends[-1] + len(content))

    def merged(self, last: list[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
        """All lists as one, and a last one that was not put away; each is read in small blocks."""
        with self._file:
            self._file.flush()
            spans = zip(self._ends, self._ends[1:], strict=False)
            yield from heapq.merge(last, *(self._part(*span) for span in spans))

    def _part(self, start: int, end: int) -> Iterator[tuple[str, bool]]:
        rest = b""
        while start < end:
            block = os.pread(self._file.fileno(), min(2**14, end - start), start)
            start += len(block)
            *whole, rest = (rest + block).split(b"\0")
            for entry in whole:
                name, _, kind = entry.rpartition(b"/")
                yield os.fsdecode(name), kind == b"1"
