"""What the words of a command mean, as far as that can be told without torch."""

import re
from typing import NamedTuple

#: The word for a list of paths on standard input.
LIST = "-"
MAGIC = re.compile(r"[*?]|\[[^]]+\]")


class Meant(NamedTuple):
    """A path that is to be classified, or why nothing can be."""

    path: str
    problem: str | None = None


def is_pattern(word: str) -> bool:
    """Whether a word that is no file is a pattern.

    >>> is_pattern("photos/**/*.jpg"), is_pattern("photo[12].jpg"), is_pattern("photo[1")
    (True, True, False)
    """
    return bool(MAGIC.search(word))
