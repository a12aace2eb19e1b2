"""JSON that is too large to be read as a whole: the members of an object and the items of a list, one after another."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from reprogram.errors import ReprogramError, first_line
from reprogram.files.foreign import LARGEST_ROW, MIB
from reprogram.files.reading import check_depth, no_number

_CHUNK = MIB
_BLANKS = re.compile(r"[ \t\n\r]*")


class JsonStream:
    """Reads JSON values from an open text, of which each may be `LARGEST_ROW` long; never holds more than one and a chunk.

    The values of the text may stand one after another, as in JSON lines.

    Args:
        file: the file, open as a text.
        path: its path, for errors.
        what: what an error calls it.
        remedy: the end of that sentence: what to do.
    """

    def __init__(self, file: IO[str], path: Path, what: str, remedy: str) -> None:
        self._file, self._name, self._remedy = file, f"{what} {str(path)!r}", remedy
        self._decoder = json.JSONDecoder(parse_constant=no_number)
        self._text, self._at, self._before, self._ended = "", 0, 0, False
        #: How many letters the last value had.
        self.letters = 0

    def peek(self) -> str:
        """The next character that is no blank, or "" at the end."""
        while True:
            found = _BLANKS.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on(_CHUNK):
                return ""

    def value(self) -> Any:
        """The next value."""
        if not self.peek():
            raise self._wrong("it ends before its end")
        while True:
            problem = ""
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:  # or the text is not all there yet
                problem = f"{error.msg} at letter {self._before + error.pos + 1:,}"
            except RecursionError:
                raise self._wrong("nested too deeply") from None
            except ValueError as error:
                raise self._wrong(first_line(error)) from None
            if not problem and (end < len(self._text) or self._ended):  # a number at the end of the text may go on
                break
            held = len(self._text) - self._at
            if held > LARGEST_ROW:
                raise self._wrong(f"it has a part of more than {LARGEST_ROW // MIB} MiB")
            if not self._read_on(max(_CHUNK, held)) and problem:
                raise self._wrong(problem)
        try:
            check_depth(value)
        except ValueError as error:
            raise self._wrong(first_line(error)) from None
        self.letters, self._at = end - self._at, end
        return value

    def items(self) -> Iterator[Any]:
        """The items of the list that comes next."""
        for _ in self._parts("[", "]"):
            yield self.value()

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next; the value of each must be read before the next one is asked for."""
        for _ in self._parts("{", "}"):
            key = self.value()
            if not isinstance(key, str):
                raise self._wrong("a key is no text")
            self._take(":")
            yield key

    def _parts(self, begin: str, end: str) -> Iterator[None]:
        self._take(begin)
        if self.peek() == end:
            self._at += 1
            return
        while True:
            yield
            if self.peek() == end:
                self._at += 1
                return
            self._take(",")

    def _take(self, mark: str) -> None:
        found = self.peek()
        if found != mark:
            where = f"at letter {self._before + self._at + 1:,}" if found else "before its end"
            raise self._wrong(f"{mark} is missing {where}")
        self._at += 1

    def _read_on(self, most: int) -> bool:
        """Read more of the file; whether there was any."""
        more = self._file.read(most)
        self._before += self._at
        self._text, self._at, self._ended = self._text[self._at :] + more, 0, not more
        return bool(more)

    def _wrong(self, reason: str) -> ReprogramError:
        return ReprogramError(f"{self._name} is no JSON ({reason}); {self._remedy}")
