"""A folder whose one sealed JSON file lists the SHA-256 of all others, such as what `reprogram export` writes."""

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from reprogram.errors import ReprogramError
from reprogram.files.reading import Schema, read_sealed
from reprogram.files.seals import sha256
from reprogram.files.writing import write_sealed

#: The file of an exported folder that lists the others.
EXPORTED = "export.json"
#: What an exported folder says that it is.
EXPORT_KIND = "reprogram export"
_AGAIN = "export it again"


class Listing(BaseModel):
    """What every listing has."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(pattern=f"^{EXPORT_KIND}$")
    files: dict[str, str]


def write_listing(folder: Path, content: dict[str, Any]) -> None:
    """Write the listing of a folder whose other files stand there already."""
    found = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    write_sealed(folder / EXPORTED, {"kind": EXPORT_KIND, **content, "files": found})


def read_listing(folder: Path, schema: type[Schema] | None = None) -> dict[str, Any]:
    """The content of a folder's listing, checked; its files are named but not looked at."""
    content = read_sealed(folder / EXPORTED, "export", schema or Listing, remedy=_AGAIN)
    for name in content["files"]:
        if not name or os.path.basename(name) != name or name in (".", "..", EXPORTED) or "\0" in name:  # noqa: PTH119
            raise ReprogramError(f"{str(folder / EXPORTED)!r} lists {name[:80]!r}, which is no file beside it; {_AGAIN}")
    return content


def check_listed(path: Path, expected: str) -> None:
    """Raise unless a file is there and has the SHA-256 that the listing names."""
    if not path.is_file():
        raise ReprogramError(f"{str(path)!r} is missing; {_AGAIN}")
    if sha256(path) != expected:
        raise ReprogramError(f"{str(path)!r} has changed since it was written (its SHA-256 differs); {_AGAIN}")
