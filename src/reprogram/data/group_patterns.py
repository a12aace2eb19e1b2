"""Patterns that read a group off the name of an image: `{group}_*.jpg`. Nothing here imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Self

from reprogram.errors import ReprogramError, shown

PLACE = "{group}"
_LONGEST = 500


@dataclass(frozen=True)
class GroupPattern:
    """A pattern on the end of a path, part by part: `{group}` is what names the group, `*` is anything.

    A pattern of two parts, such as `{group}/*`, is compared with the last folder and the name. Neither `{group}` nor `*`
    goes over a `/`, and `{group}` is never empty. Where several readings are possible, the leftmost of them takes all it
    can: `{group}_*` reads `my_cat_07.jpg` as `my_cat`. A pattern with several `{group}` names groups by all of them
    together. Comparing takes a time that grows with the length of the name alone, whatever the name.

    Attributes:
        text: as it was written.
        parts: for each part of the path, the texts that must be there, and what stands between them: `{group}` or `*`.

    >>> pattern = GroupPattern.read("{group}/*-{group}.png")
    >>> pattern.group_of("cats/tom/night-7.png"), pattern.group_of("tom/night.png")
    ('tom/7', None)
    """

    text: str
    parts: tuple[tuple[tuple[str, ...], tuple[bool, ...]], ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Understand a pattern, or say what is wrong with it."""
        if PLACE not in text:
            raise ReprogramError(
                f"--group {shown(text)} has no {PLACE}, but a pattern on file names is expected for these data; write one "
                f"such as '{PLACE}_*.jpg' or '{PLACE}/*'"
            )
        if len(text) > _LONGEST:
            raise ReprogramError(
                f"--group has {len(text)} letters, but at most {_LONGEST} are expected; write a shorter one"
            )
        return cls(text, tuple(_read_part(text, part) for part in text.split("/")))

    def group_of(self, path: str) -> str | None:
        """The group of an image by its path, or None if the pattern does not fit."""
        ends = PurePath(path).parts[-len(self.parts) :]
        if len(ends) < len(self.parts):
            return None
        found: list[str] = []
        for end, (texts, named) in zip(ends, self.parts, strict=True):
            between = _between(end, texts, named)
            if between is None:
                return None
            found += [value for value, is_group in zip(between, named, strict=True) if is_group]
        return "/".join(found)

    def groups_of(self, paths: Sequence[str], what: str) -> tuple[list[str], list[str]]:
        """The groups of many images, and notes; an image that the pattern does not fit is a group of its own.

        Raises:
            ReprogramError: it fits none of them.
        """
        found = [self.group_of(path) for path in paths]
        strange = [path for path, group in zip(paths, found, strict=True) if group is None]
        if len(strange) == len(paths):
            raise ReprogramError(
                f"--group {shown(self.text)} fits no image of {what}, such as {shown(strange[0])}; write a pattern of the "
                f"end of their paths, with {PLACE} for what names the group and * for the rest"
            )
        notes = []
        if strange:
            notes.append(
                f"{len(strange)} of {len(paths)} images do not fit --group {shown(self.text)}, such as {shown(strange[0])}; "
                "each of them is a group of its own"
            )
        return [path if group is None else group for path, group in zip(paths, found, strict=True)], notes


def _read_part(text: str, part: str) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    texts, named = [""], list[bool]()
    rest = part
    while rest:
        if rest.startswith(PLACE) or rest[0] == "*":
            if named and not texts[-1]:
                raise ReprogramError(
                    f"--group {shown(text)} has two of {PLACE} and * side by side, so that nobody can tell where one ends; "
                    "write what stands between them"
                )
            named.append(rest[0] != "*")
            texts.append("")
            rest = rest[1:] if rest[0] == "*" else rest[len(PLACE) :]
        elif rest[0] in "{}":
            raise ReprogramError(f"--group {shown(text)} has a brace that is not of {PLACE}; write {PLACE} and * alone")
        else:
            texts[-1] += rest[0]
            rest = rest[1:]
    return tuple(texts), tuple(named)


def _between(name: str, texts: Sequence[str], named: Sequence[bool]) -> list[str] | None:
    """What stands between the texts in a name: each is looked for from the right, so the leftmost gap is the longest."""
    if not named:
        return [] if name == texts[0] else None
    end = len(name) - len(texts[-1])
    if end < len(texts[0]) or not name.startswith(texts[0]) or not name.endswith(texts[-1]):
        return None
    found: list[str] = []
    for place in range(len(named) - 1, 0, -1):
        last = end - named[place]  # a group is not empty
        start = name.rfind(texts[place], len(texts[0]), last) if last >= len(texts[0]) else -1
        if start < 0:
            return None
        found.append(name[start + len(texts[place]) : end])
        end = start
    if end - len(texts[0]) < named[0]:
        return None
    return [name[len(texts[0]) : end], *reversed(found)]
