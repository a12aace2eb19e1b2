"""Prior knowledge from names alone: which source labels are called like a class, or nearly so. Nothing is downloaded."""

import re
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from reprogram.names import plain_name

#: How alike a class and one name of a source label are, the closest first; a class takes the labels of its closest kind.
KINDS = (
    "the same name",
    "the same words, but for their endings",
    "a kind of it",  # tabby cat, for cat
    "a kind of what one of its words means",  # flamingo, for flamingo head
    "a word that ends with it",  # bullfrog, for frog
    "a word in common, or one that begins with it",  # river horse, for river; lakeside, for lake
)
_SHORTEST = 4  # letters of a word that may be part of a longer one, and of the other part where it is the beginning
_SMALL = frozenset(["a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"])


def similar_names(source_labels: Sequence[str], classes: Sequence[str]) -> Tensor:
    """A prior (k_S, k_T): each class has equal shares of the source labels whose names are closest to its own.

    Case, `_`, `-`, AnnualCrop for annual crop, and endings such as -s or -ed do not matter, and one synonym of a
    comma-separated source label suffices. A class that no label resembles has a column of zeros: nothing is known about it.

    >>> labels = ["tabby, tabby cat", "Persian cat", "goldfish, Carassius auratus", "lakeside, lakeshore"]
    >>> similar_names(labels, ["cat", "Goldfish", "SeaLake", "yin_yang"]).T.tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    """
    return _similar_names(tuple(source_labels), tuple(classes)).clone()


@lru_cache(maxsize=8)  # mappings are made anew for every shard and every change of classes
def _similar_names(source_labels: tuple[str, ...], classes: tuple[str, ...]) -> Tensor:
    known = [(number, name) for number, label in enumerate(source_labels) for name in _Name.all_of(label)]
    having: dict[str, list[int]] = {}
    for place, (_, name) in enumerate(known):
        for word in {*name.words, *name.whole, name.plain}:
            having.setdefault(word, []).append(place)
    prior = torch.zeros(len(source_labels), len(classes))
    for column, text in enumerate(classes):
        own = _Name(text)
        near = {word for word in having if own.touches(word)}
        places = sorted({place for word in near for place in having[word]})
        kinds = {place: own.kind(known[place][1]) for place in places}
        closest = min(kinds.values(), default=len(KINDS))
        if closest < len(KINDS):
            chosen = sorted({known[place][0] for place in places if kinds[place] == closest})
            prior[chosen, column] = 1 / len(chosen)
    return prior


class _Name:
    """One name, and the words that it is made of."""

    def __init__(self, text: str) -> None:
        self.plain = plain_name(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))
        words = [word for word in re.findall(r"\w+", self.plain) if word not in _SMALL]
        self.words = [stem(word) for word in words] or [self.plain]
        self.head = self.words[-1]
        self.whole = words
        self.long = [word for word in words if len(word) >= _SHORTEST]

    @classmethod
    def all_of(cls, label: str) -> list["_Name"]:
        """The whole label, and each of its synonyms."""
        return [cls(name) for name in dict.fromkeys([label, *label.split(",")]) if name.strip()] or [cls(label)]

    def touches(self, word: str) -> bool:
        """Whether a word, or a whole name, of a source label may make it similar."""
        return (
            word == self.plain or word in self.words or any(_begins(word, part) or word.endswith(part) for part in self.long)
        )

    def kind(self, other: "_Name") -> int:
        """Which of `KINDS` a source label's name is to this class; their number where it is none."""
        mine, theirs = set(self.words), set(other.words)
        found = (
            self.plain == other.plain,
            self.words == other.words,
            self.head == other.head and mine <= theirs,
            other.head in mine,
            any(word.endswith(part) for word in other.whole for part in self.long),
            bool(mine & theirs) or any(_begins(word, part) for word in other.whole for part in self.long),
        )
        return found.index(True) if any(found) else len(KINDS)


def _begins(word: str, part: str) -> bool:
    return word.startswith(part) and len(word) - len(part) >= _SHORTEST - 1


def stem(word: str) -> str:
    """A word without its ending, so that nearby forms of it become one; often no word any more.

    >>> [stem(word) for word in ("cats", "berries", "berry", "cobwebbed", "cobweb", "stripes", "striped", "glass")]
    ['cat', 'berr', 'berr', 'cobweb', 'cobweb', 'strip', 'strip', 'glass']
    """
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = re.sub(r"(?<=[sxz])es$|(?<=[cs]h)es$|ies$|s$", lambda end: "y" if end[0] == "ies" else "", word)
    if (found := re.fullmatch(r"(\w*[aeiouy]\w+?)(ed|ing)", word)) and len(found[1]) >= 3:
        word = re.sub(r"([^aeiouls])\1$", r"\1", found[1])
    return word[:-1] if len(word) > 3 and word[-1] in "ey" else word
