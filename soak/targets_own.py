"""Fuzz targets of what the library writes itself."""

import json
from pathlib import Path

from reprogram.files import read_json
from soak.structure import JSON
from soak.targets import FileTarget, Target


def _json_seeds(folder: Path) -> list[bytes]:
    contents = ({"a": [1, 2.5, None, True, "text"], "b": {"c": []}}, [["x", 1], ["y", -1e-3]], "é", 3)
    return [json.dumps(content, ensure_ascii=False).encode() for content in contents]


TARGETS: list[Target] = [
    FileTarget("own.json", _json_seeds, lambda path: read_json(path, "file"), file="file.json", mutators=JSON),
]
