"""What lies in a folder of images: which names count, which files are images, and what the others are. No torch."""

import os
from collections import Counter
from pathlib import Path

from reprogram.errors import short
from reprogram.files.foreign import is_file, is_folder
from reprogram.images.decoding import SUFFIXES, begins_like_an_image

_NOT_MEANT = frozenset({"thumbs.db", "desktop.ini"})  # file managers leave them behind


def is_meant(name: str) -> bool:
    """Whether a file or folder of this name counts: it is not hidden, and nothing that file managers leave behind."""
    return not name.startswith(".") and name.lower() not in _NOT_MEANT


def kind_of_file(path: Path) -> str:
    """What something in a folder of images is, if it is no image; else nothing."""
    suffix = path.suffix.lower()
    if suffix in SUFFIXES and is_file(path):
        return ""
    if is_folder(path):  # not followed: it may lead back here
        return "linked folder"
    if path.is_symlink() and not os.path.exists(path):  # noqa: PTH110  # a link to itself is broken, too
        return "broken link"
    if not is_file(path):
        return "special file"  # a pipe would never end
    return suffix or ("" if begins_like_an_image(path) else "without a suffix")


def counted_kinds(kinds: Counter[str], most: int | None = None) -> str:
    """How many files there are of each kind, in words; of the `most` frequent ones.

    >>> counted_kinds(Counter({".txt": 2, "broken link": 2, ".xmp": 1}), 2)
    '2 .txt, 2 broken links ...'
    """
    countable = ("broken link", "linked folder", "special file")
    told = (
        f"{count} {short(kind)}{'s' if count > 1 and kind in countable else ''}" for kind, count in kinds.most_common(most)
    )
    return ", ".join(told) + (" ..." if most is not None and len(kinds) > most else "")
