"""The format of MegaDetector and of those who classify its detections: which one speaks for an image, and what it says."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprogram.answers.services import Row, ranked
from reprogram.errors import ReprogramError, shown

#: How sure a detection must be where the file does not say itself what is typical for its detector.
THRESHOLD = 0.2
_REMEDY = "write the file again with the tool that made it"


@dataclass(frozen=True)
class Categories:
    """What the members beside `images` say about all of them.

    Attributes:
        kinds: the names of detections, such as animal, by their numbers.
        names: the names of classifications by their numbers; where two have one name, with the number behind it.
        threshold: how sure a detection must be to count.
    """

    kinds: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, Any] = field(default_factory=dict)
    threshold: float = THRESHOLD

    @classmethod
    def read(cls, path: Path, members: Mapping[str, Any]) -> "Categories":
        """Take them from the members of the file."""
        kinds, names = ({} if members.get(key) is None else members[key] for key in _TABLES)
        for key, table in zip(_TABLES, (kinds, names), strict=True):
            if not isinstance(table, Mapping):
                raise ReprogramError(f"{key} of shard {str(path)!r} is {shown(table)}, but an object is expected; {_REMEDY}")
        count = Counter(name for name in names.values() if isinstance(name, str))
        names = {key: f"{name} ({key})" if count.get(str(name), 0) > 1 else name for key, name in names.items()}
        facts: Any = members
        for key in ("info", "detector_metadata", "typical_detection_threshold"):
            facts = facts.get(key) if isinstance(facts, Mapping) else None
        typical = facts if type(facts) in (int, float) and 0 < facts <= 1 else THRESHOLD
        return cls(kinds, names, typical)

    def row(self, path: Path, number: int, content: Any) -> Row:
        """The answer about one image: what its surest detection was classified as, or else the kind of that detection.

        An image without a detection that is sure enough, and one that could not be read, has an empty answer.
        """
        if not isinstance(content, Mapping) or "file" not in content:
            raise ReprogramError(
                f"image {number} of shard {str(path)!r} is {shown(content)}, but an object with file and detections is "
                f"expected; {_REMEDY}"
            )
        best, surest = None, -math.inf
        detections = content.get("detections")
        for detection in [] if detections is None else _list(path, number, "detections", detections):
            sure = detection.get("conf") if isinstance(detection, Mapping) else None
            if not isinstance(sure, (int, float)) or isinstance(sure, bool):
                raise ReprogramError(
                    f"a detection of image {number} of shard {str(path)!r} is {shown(detection)}, but an object with the "
                    f"number conf is expected; {_REMEDY}"
                )
            if sure > surest:
                best, surest = detection, sure
        values: Row = {"image": content["file"], "topk_labels": [], "topk_scores": []}
        if best is None or surest < self.threshold:
            return values
        classified = best.get("classifications")
        pairs = [] if classified is None else _list(path, number, "classifications", classified)
        named = [self._named(path, number, "classification", self.names, pair) for pair in pairs]
        if not named:
            named = [self._named(path, number, "detection", self.kinds, [best.get("category"), surest])]
        values["topk_labels"], values["topk_scores"] = ranked([name for name, _ in named], [score for _, score in named])
        return values

    def _named(self, path: Path, number: int, what: str, names: Mapping[str, Any], pair: Any) -> tuple[Any, Any]:
        key = str(pair[0]) if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], (str, int)) else None
        if key is None or key not in names:
            raise ReprogramError(
                f"image {number} of shard {str(path)!r} has the {what} {shown(pair)}, but a category of the file and a "
                f"score are expected; {_REMEDY}"
            )
        return names[key], pair[1]


_TABLES = ("detection_categories", "classification_categories")


def _list(path: Path, number: int, what: str, value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise ReprogramError(
        f"{what} of image {number} of shard {str(path)!r} are {shown(value)}, but a list is expected; {_REMEDY}"
    )
