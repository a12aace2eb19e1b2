"""The formats of shards, by the suffix of the file: one record each. Nothing here imports numpy or torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprogram.errors import ReprogramError
from reprogram.registry import Registry, imported


@dataclass(frozen=True)
class Reader:
    """A format of shards.

    Attributes:
        suffix: how the names of its files end, in lower case, such as `.npz`.
        read: a function `(path, *, logits=True)` that yields `Block`s, or "module:function"; with `logits=False` it leaves
            out the logits themselves and tells their number only.
        trial: "module:function" that reads a file to its end; a child process does so first, where a damaged file could
            crash the reader.
        knows: a function of a path, or "module:function", that tells whether a file holds answers; for suffixes that other
            files have, too, which may lie in the same folder.
    """

    suffix: str
    read: Any
    trial: str | None = None
    knows: Any = None

    def load(self) -> Any:
        """The function."""
        return imported(self.read)

    def takes(self, path: Path) -> bool:
        """Whether a file of this suffix that lies in a folder is one of this format."""
        return self.knows is None or bool(imported(self.knows)(path))


READERS: Registry[Reader] = Registry("shard format")


def register_reader(suffix: str, read: Any, trial: str | None = None, knows: Any = None) -> None:
    """Make a format of shards known; the arguments are those of `Reader`."""
    if not suffix.startswith(".") or suffix != suffix.lower():
        raise ReprogramError(f"suffix {suffix!r} was given, but one like '.npz' in lower case is expected; write it so")
    READERS.register(suffix, Reader(suffix, read, trial, knows))


for _suffix, _where in {
    ".npz": "npz:read_npz",
    ".csv": "tables:read_csv",
    ".tsv": "tables:read_csv",
    ".parquet": "tables:read_parquet",
    ".jsonl": "json_lines:read_json_lines",
    ".ndjson": "json_lines:read_json_lines",
    ".json": "documents:read_document",
    ".txt": "tables:read_csv",
}.items():
    _trial = "reprogram.answers.tables:walk_parquet" if _suffix == ".parquet" else None
    _knows = {".json": "reprogram.answers.documents:is_document", ".txt": "reprogram.answers.tables:is_birdnet"}.get(_suffix)
    register_reader(_suffix, f"reprogram.answers.{_where}", _trial, _knows)
