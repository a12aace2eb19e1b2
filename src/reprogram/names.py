"""Names of classes and labels: when two spellings mean one thing, and lists of them as people write them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from reprogram.errors import ReprogramError, shown
from reprogram.files import parse_json
from reprogram.files.foreign import expanded, is_file, is_text, read_list

#: The longest name of a class or label, in letters.
LONGEST_NAME = 4096
_TAXONOMY = 7  # parts: number, class, order, family, genus, species, common name
_REMEDY = "write a JSON list, or one name per line, in UTF-8"


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
    many = "," in given
    path = given if many and given.startswith("~") else expanded(given, what)
    if not is_file(path):
        if not many:
            raise ReprogramError(
                f"{what} {shown(given)} is neither a file nor names with commas between them; check the path"
            )
        return _checked([name.strip() for name in given.split(",")], given, what)
    text = read_list(Path(path), what, _REMEDY)
    if not text.lstrip().startswith("["):
        return _checked([line.strip() for line in text.splitlines() if line.strip()], given, what)
    names = parse_json(text, f"{what} {shown(given)} cannot be read", _REMEDY)
    if not isinstance(names, list) or not all(isinstance(name, (str, int)) and not isinstance(name, bool) for name in names):
        raise ReprogramError(f"{what} {shown(given)} does not hold a JSON list of names; write one, or one name per line")
    return _checked([str(name).strip() for name in names], given, what)


def short_names(labels: Iterable[str]) -> dict[str, str]:
    """What each label is called where there is little room.

    SpeciesNet names a species by a number and its whole taxonomy. What is shown is the common name at the end, or else genus
    and species; a name that two of them share stays whole.

    >>> lion = "ddf59264-185a-4d35-b647-2785792bdf54;mammalia;carnivora;felidae;panthera;leo;lion"
    >>> short_names([lion, "crane"])[lion]
    'lion'
    """
    names = {label: _common_name(label) for label in labels}
    count = Counter(names.values())
    return {label: name if count[name] == 1 else label for label, name in names.items()}


def _common_name(label: str) -> str:
    parts = [part.strip() for part in label.split(";")]
    if len(parts) != _TAXONOMY or not any(parts[1:]):
        return label
    if not parts[-1] and parts[-3] and parts[-2]:
        return f"{parts[-3]} {parts[-2]}"
    return next(part for part in reversed(parts) if part)


def first_twice(names: Iterable[str]) -> str | None:
    """The first name that stands in a list for the second time, if one does.

    >>> first_twice(["cat", "dog", "cat"]), first_twice(["cat", "dog"])
    ('cat', None)
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _checked(names: list[str], given: str, what: str) -> list[str]:
    """The names, if each is one: a text that can be written, of a length that somebody can read."""
    for place, name in enumerate(names, start=1):
        problem = "" if name else "is empty"
        if len(name) > LONGEST_NAME:
            problem = f"has {len(name)} letters, where {LONGEST_NAME} are the most"
        elif not is_text(name):
            problem = f"is {shown(name)}, which holds half a character"
        if problem:
            raise ReprogramError(f"name {place} of {what} {shown(given)} {problem}; write a plain name")
    return names
