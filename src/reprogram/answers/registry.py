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
    """

    suffix: str
    read: Any

    def load(self) -> Any:
        """The function."""
        return imported(self.read)


READERS: Registry[Reader] = Registry("shard format")


def register_reader(suffix: str, read: Any) -> None:
    """Make a format of shards known; the arguments are those of `Reader`."""
    if not suffix.startswith(".") or suffix != suffix.lower():
        raise ReprogramError(f"suffix {suffix!r} was given, but one like '.npz' in lower case is expected; write it so")
    READERS.register(suffix, Reader(suffix, read))


for _suffix, _where in {
    ".npz": "npz:read_npz",
    ".csv": "tables:read_csv",
    ".tsv": "tables:read_csv",
    ".parquet": "tables:read_parquet",
    ".jsonl": "json_lines:read_json_lines",
    ".ndjson": "json_lines:read_json_lines",
}.items():
    register_reader(_suffix, f"reprogram.answers.{_where}")
