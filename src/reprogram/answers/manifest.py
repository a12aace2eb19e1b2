"""What stands beside shards that `reprogram logits` wrote: which model, which images, which labels, which files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from reprogram.errors import ReprogramError
from reprogram.files import read_json, read_sealed, sha256

MANIFEST = "manifest.json"
KIND = "reprogram logits"
FORMAT = 2
_REMEDY = "write the shards again with reprogram logits, or move it away to do without"


class _Shard(BaseModel):
    """What a manifest tells of a shard."""

    model_config = ConfigDict(strict=True)
    rows: int = Field(ge=0)
    sha256: str


class _Manifest(BaseModel):
    """What a manifest must tell for its shards to be read; the rest says how they were made."""

    model_config = ConfigDict(strict=True)
    format: int
    source_labels: list[str]
    classes: list[str]
    shards: dict[Annotated[str, Field(pattern=r"^[^/\\]+$")], _Shard]


def read_manifest(folder: Path, remedy: str = _REMEDY) -> dict[str, Any] | None:
    """The manifest in a folder, its SHA-256 checked; None where there is none, or somebody else's file of that name."""
    file = folder / MANIFEST
    if not file.is_file():
        return None
    content = read_json(file, "manifest")
    ours = isinstance(content, dict) and (content.get("kind") == KIND or {"shards", "sha256"} <= content.keys())
    if not ours:
        return None
    if content.get("format") != FORMAT:
        raise ReprogramError(f"manifest {str(file)!r} is not of format {FORMAT}, which this version reads; {remedy}")
    return read_sealed(file, "manifest", _Manifest, remedy=remedy)


def check_shard(path: Path, checksums: Mapping[str, str]) -> None:
    """Raise if a shard differs from what a manifest says of it."""
    if path.name in checksums and sha256(path) != checksums[path.name]:
        raise ReprogramError(
            f"shard {str(path)!r} is not as it was written (its checksum differs from the manifest's); write it again with "
            "the same reprogram logits command"
        )


def manifest_beside(paths: Sequence[Path]) -> dict[str, Any] | None:
    """The manifest of the one folder that all these shards are listed in, or None."""
    folders = {path.parent for path in paths}
    content = read_manifest(paths[0].parent) if len(folders) == 1 else None
    return content if content is not None and all(path.name in content["shards"] for path in paths) else None
