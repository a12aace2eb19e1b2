"""The formats of shards, by the suffix of the file: one record each. Nothing here imports numpy or torch."""

from dataclasses import dataclass
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
    """

    suffix: str
    read: Any
    trial: str | None = None

    def load(self) -> Any:
        """The function."""
        return imported(self.read)


READERS: Registry[Reader] = Registry("shard format")


def register_reader(suffix: str, read: Any, trial: str | None = None) -> None:
    """Make a format of shards known; the arguments are those of `Reader`."""
    if not suffix.startswith(".") or suffix != suffix.lower():
        raise ReprogramError(f"suffix {suffix!r} was given, but one like '.npz' in lower case is expected; write it so")
    READERS.register(suffix, Reader(suffix, read, trial))


for _suffix, _where in {
    ".npz": "npz:read_npz",
    ".csv": "tables:read_csv",
    ".tsv": "tables:read_csv",
    ".parquet": "tables:read_parquet",
    ".jsonl": "json_lines:read_json_lines",
    ".ndjson": "json_lines:read_json_lines",
}.items():
    _trial = "reprogram.answers.tables:walk_parquet" if _suffix == ".parquet" else None
    register_reader(_suffix, f"reprogram.answers.{_where}", _trial)
