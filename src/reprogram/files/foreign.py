"""Files that somebody else wrote: is it a file, how large is it, are its letters letters; each mistake is one sentence."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from reprogram.errors import ReprogramError, first_line, shown

if TYPE_CHECKING:
    import numpy as np

MIB = 2**20
#: The most that one row of a text file may take; what a reader needs for it in memory is at the most some thirty times that.
LARGEST_ROW = 16 * MIB
#: The most that a file may hold which is read as a whole: a list of names, templates.
LARGEST_LIST = 64 * MIB


def expanded(text: str | Path, what: str = "path") -> Path:
    """A path as somebody wrote it: `~` is the user's own folder, and what can be no path is said to be none."""
    _check_zero(text, what)
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ReprogramError(
            f"{what} {shown(str(text))} begins with ~ and a user that is not known here; write the whole path"
        ) from None


def _check_zero(text: str | Path, what: str) -> None:
    if "\0" in str(text):
        raise ReprogramError(f"{what} {shown(str(text))} holds a zero byte, which no path can; check the path")


def is_file(path: str | Path) -> bool:
    """Whether a plain file is there; what can be no path, such as a text of many names, is no file."""
    return os.path.isfile(path)  # noqa: PTH113  # Path.is_file raises where the text is too long for a name


def is_folder(path: str | Path) -> bool:
    """Whether a folder is there; what can be no path is no folder."""
    return os.path.isdir(path)  # noqa: PTH112  # as above


def absolute(path: str | Path) -> Path:
    """Where a path leads, links followed; one that leads in circles stays as it is."""
    return Path(os.path.realpath(path))  # Path.resolve raises for circles


def is_unicode(content: bytes, kind: "np.dtype[Any]") -> bool:
    """Whether the bytes of an array of texts are characters: other numbers make texts that break whatever touches them."""
    import numpy as np

    if kind.kind != "U" or not kind.itemsize:
        return True
    return not bool((np.frombuffer(content, f"{kind.str[0]}u4") > 0x10FFFF).any())


def listed(folder: Path, what: str = "folder") -> list[Path]:
    """What lies in a folder, sorted."""
    try:
        return sorted(folder.iterdir())
    except (OSError, ValueError) as error:
        raise ReprogramError(f"{what} {str(folder)!r} cannot be read ({first_line(error)}); check its permissions") from None


@contextmanager
def opened(path: Path, what: str, remedy: str) -> Iterator[BinaryIO]:
    """Open a plain file to read its bytes; never waits, as it would for a pipe.

    Args:
        path: the file.
        what: what an error calls it, such as "shard".
        remedy: the end of that sentence: what to do.

    Raises:
        ReprogramError: there is no such file, it is a pipe, socket, device or folder, or it cannot be read, also by what
            the block does with it.
    """
    _check_zero(path, what)
    try:
        # looked at before it is opened, because opening a device can do something; and after, because it may be another one
        if stat.S_ISREG(path.stat().st_mode):
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            with os.fdopen(descriptor, "rb") as file:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    yield file
                    return
    except FileNotFoundError:
        raise ReprogramError(f"{what} {str(path)!r} does not exist; check the path") from None
    except UnicodeDecodeError as error:
        raise ReprogramError(f"{what} {str(path)!r} cannot be read ({_no_text(error)}); {remedy}") from None
    except OSError as error:
        raise ReprogramError(f"{what} {str(path)!r} cannot be read ({error.strerror or error}); {remedy}") from None
    raise ReprogramError(f"{what} {str(path)!r} is no plain file, but a file on a disk is expected; copy it to one")


@contextmanager
def opened_text(path: Path, what: str, remedy: str, newline: str | None = None) -> Iterator[IO[str]]:
    """`opened` as a text in UTF-8, with or without the byte order mark that a spreadsheet program begins its file with."""
    with opened(path, what, remedy) as file, TextIOWrapper(file, encoding="utf-8-sig", newline=newline) as text:
        yield text


def read_list(path: Path, what: str, remedy: str) -> str:
    """The whole text of a file that holds a list; its size is looked at first."""
    with opened_text(path, what, remedy) as file:
        text = file.read(LARGEST_LIST + 1)
    if len(text) > LARGEST_LIST:
        raise ReprogramError(
            f"{what} {str(path)!r} holds more than {LARGEST_LIST // MIB} MiB, which is no list of names; check the path"
        )
    return text


class Lines(Iterator[str]):
    """The lines of a text file, of which those of one row may not be longer than `LARGEST_ROW` together.

    Args:
        file: the file, open as a text.
        path: its path, for the error.
        what: what an error calls it.
    """

    def __init__(self, file: IO[str], path: Path, what: str) -> None:
        self._file, self._path, self._what = file, path, what
        self._left = LARGEST_ROW
        self._first = ""
        self.rows = 0

    def peek(self) -> str:
        """The first line, or as much of it as a row may have, which still comes; before any other."""
        self._first = self._file.readline(LARGEST_ROW + 1)
        return self._first

    def __next__(self) -> str:
        line, self._first = self._first or self._file.readline(self._left + 1), ""
        self._left -= len(line)
        if self._left < 0:
            raise ReprogramError(
                f"row {self.rows} of {self._what} {str(self._path)!r} is longer than {LARGEST_ROW // MIB} MiB; "
                "check that its lines end and that its quotes are closed"
            )
        if not line:
            raise StopIteration
        return line

    def end_row(self) -> int:
        """Begin the next row; tells how many letters the last one had."""
        taken, self._left = LARGEST_ROW - self._left, LARGEST_ROW
        self.rows += 1
        return taken


def is_text(text: str) -> bool:
    r"""Whether a text can be written: JSON can hold halves of characters, which cannot.

    Bytes of file names that are no letters, as Python has them (U+DC80 to U+DCFF), can.

    >>> is_text("crane"), is_text("\ud800"), is_text("\udcff")
    (True, False, True)
    """
    if text.isascii():
        return True
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _no_text(error: UnicodeDecodeError) -> str:
    if error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "it is in UTF-16"
    return f"byte {error.object[error.start]:#x} is not UTF-8"
