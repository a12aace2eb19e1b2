"""Text that others wrote (class names, file names, labels, messages) made safe for a terminal, a spreadsheet and JSON."""

import csv
import json
import math
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Control characters move the cursor and start escape sequences, marks of direction reorder what is read, others are not
# seen at all; a lone surrogate cannot be written. Joiners (U+200C, U+200D) stay: scripts and emoji are made with them.
_UNSAFE = re.compile(
    "(?P<flag>\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f)"  # such as the flag of Wales: tags that are seen
    "|[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # a lone surrogate that does not stand for a byte of a file name
_JOINING = "\u200c\u200d\ufe0e\ufe0f"
# What a spreadsheet program takes for a formula, also behind blanks; the full-width signs are those of East Asian input.
_FORMULA = r"(?:\s*[=+\-@＝＋－＠]|[\t\r\n\0])"
_TO_GUARD = re.compile(f"'*{_FORMULA}")
_GUARDED = re.compile(f"'+{_FORMULA}")


def printable(text: str) -> str:
    r"""A text on one line that cannot steer a terminal: what is not a visible character is shown as Python writes it.

    >>> print(printable("caf\u00e9 \U0001f408\u200d\u2b1b \x1b[31m red\nnext \u202egpj"))
    café 🐈‍⬛ \x1b[31m red\nnext \u202egpj
    """
    return _UNSAFE.sub(lambda found: found[0] if found["flag"] else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, most: int = 48) -> str:
    """A text that takes at most so many places of a terminal: of a longer one the beginning and the end are left.

    >>> shortened("Forest"), shortened("camera-7/2024-05-01/" + "0" * 300 + "17.jpg", 30)
    ('Forest', 'camera-7/2024-05-01…000017.jpg')
    """
    if 2 * len(text) <= most or sum(map(_places, text)) <= most:
        return text
    end = _within(reversed(text), most // 3)[::-1]
    while end and (unicodedata.combining(end[0]) or end[0] in _JOINING):  # which would join the ellipsis
        end = end[1:]
    return f"{_within(text, most - 1 - sum(map(_places, end)))}…{end}"


def _within(characters: Iterable[str], most: int) -> str:
    taken: list[str] = []
    for character in characters:
        most -= _places(character)
        if most < 0:
            break
        taken.append(character)
    return "".join(taken)


def _places(character: str) -> int:
    """How many places of a terminal a character takes; marks on another one count, too, as there may be hundreds of them."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def csv_cell(text: str) -> str:
    """A text as a cell that no spreadsheet program takes for a formula: with an apostrophe before it, where it would be.

    A text that begins with apostrophes and then so gets another one, so that `csv_text` can always tell.

    >>> csv_cell("=1+1"), csv_cell("'-tis"), csv_cell("'tis"), csv_cell("cat")
    ("'=1+1", "''-tis", "'tis", 'cat')
    """
    return f"'{text}" if _TO_GUARD.match(text) else text


def csv_text(cell: str) -> str:
    """The text that `csv_cell` made this cell of.

    >>> csv_text("'=1+1"), csv_text("''-tis"), csv_text("'tis")
    ('=1+1', "'-tis", "'tis")
    """
    return cell[1:] if _GUARDED.match(cell) else cell


def csv_line(cells: Iterable[str]) -> str:
    r"""A line of a CSV file, with its end.

    Unlike Python's writer (before 3.13), it quotes a carriage return, at which readers would end the row.

    >>> csv_line(["a", "b, c", "d\re"])
    'a,"b, c","d\re"\n'
    """
    return ",".join(map(_quoted, map(whole, cells))) + "\n"


def _quoted(cell: str) -> str:
    if cell == cell.strip() and not any(character in cell for character in ',"\r\n\0'):
        return cell
    doubled = cell.replace('"', '""')
    return f'"{doubled}"'


def whole(text: str) -> str:
    """The same text, where it can be encoded; half of a character, which nothing can write, becomes U+FFFD.

    Bytes of file names that are no text (U+DC80 to U+DCFF, as Python has them) stay: they are written as those bytes.
    """
    return _HALF.sub("\ufffd", text)


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file that this library wrote, each cell the text that it was written for."""
    with Path(path).open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return [{name: csv_text(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def json_text(content: Any, *, ascii_only: bool = False, indent: int | None = None) -> str:
    r"""JSON that every parser reads and every terminal bears: NaN and infinity are null, unsafe characters are escaped.

    >>> print(json_text({"label": "猫\x9b\udcff", "share": float("nan")}))
    {"label": "猫\u009b\udcff", "share": null}
    """
    return escaped_json(json.dumps(finite(content), ensure_ascii=ascii_only, allow_nan=False, indent=indent))


def escaped_json(text: str) -> str:
    """The same JSON text with every character escaped that a terminal would obey or no file can hold."""
    return _UNSAFE.sub(lambda found: found[0] if found["flag"] or found[0] == "\n" else _json_escaped(found[0]), text)


def _json_escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def finite(content: Any) -> Any:
    """The same JSON value with null for each number that is not finite.

    >>> finite({"loss": float("inf"), "accuracy": [0.5, float("nan")]})
    {'loss': None, 'accuracy': [0.5, None]}
    """
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return content
