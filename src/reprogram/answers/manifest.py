"""What stands beside shards that `reprogram logits` wrote: which model, which images, which labels, which files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reprogram.errors import ReprogramError
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
    shards, names = content.get("shards"), [content.get(key) for key in ("source_labels", "classes")]
    if not isinstance(shards, dict) or not all(_are_texts(part) for part in names):
        raise ReprogramError(
            f"manifest {str(file)!r} is damaged; write the shards again with reprogram logits, or move it away to do without"
        )
    return content if all(path.name in shards for path in paths) else None


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
