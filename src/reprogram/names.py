"""Names of classes and labels: when two spellings mean one thing, and lists of them as people write them."""

import json
from collections.abc import Sequence
from pathlib import Path

from reprogram.errors import ReprogramError, first_line


def plain_name(name: str) -> str:
    """A class name as it stands in a text and as names are compared: lower case, `_` and `-` as spaces, single spaces.

    >>> plain_name("Forest_Broad-Leaved")
    'forest broad leaved'
    """
    return " ".join(name.lower().replace("_", " ").replace("-", " ").split())


def read_names(given: str | Sequence[str], what: str) -> list[str]:
    """Names from a file (one per line, or a JSON list), from a text with commas between them, or as a list.

    Args:
        given: the path, the text or the list.
        what: what an error calls it, such as `--classes`.

    >>> read_names("cat, dog,crane,crane", "labels")
    ['cat', 'dog', 'crane', 'crane']
    """
    if not isinstance(given, str):
        return [str(name) for name in given]
    path = Path(given).expanduser()
    if not path.is_file():
        if "," not in given:
            raise ReprogramError(f"{what} {given!r} is neither a file nor names with commas between them; check the path")
        return [name.strip() for name in given.split(",")]
    try:
        text = path.read_text(encoding="utf-8-sig")
        if not text.lstrip().startswith("["):
            return [line.strip() for line in text.splitlines() if line.strip()]
        names = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ReprogramError(
            f"{what} {given!r} cannot be read ({first_line(error)}); write a JSON list, or one name per line, in UTF-8"
        ) from None
    if not isinstance(names, list) or not all(isinstance(name, (str, int)) for name in names):
        raise ReprogramError(f"{what} {given!r} does not hold a JSON list of names; write one, or one name per line")
    return [str(name) for name in names]
