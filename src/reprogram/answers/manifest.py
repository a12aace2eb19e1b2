"""What stands beside shards that `reprogram logits` wrote: which model, which images, which labels, which files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reprogram.files import read_json

MANIFEST = "manifest.json"
KIND = "reprogram logits"


def manifest_beside(paths: Sequence[Path]) -> dict[str, Any] | None:
    """The manifest of the one folder that all these shards are listed in, or None."""
    folders = {path.parent for path in paths}
    file = paths[0].parent / MANIFEST
    if len(folders) > 1 or not file.is_file():
        return None
    content = read_json(file, "manifest")
    if not isinstance(content, dict) or content.get("kind") != KIND:
        return None  # somebody else's file of that name
    return content if all(path.name in content["shards"] for path in paths) else None
