"""Shards: files that hold a frozen model's answers to labelled images, read in blocks whatever their size."""

import glob
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reprogram.answers.block import Block
from reprogram.answers.json_lines import read_json_lines
from reprogram.answers.npz import read_npz
from reprogram.answers.tables import read_csv, read_parquet
from reprogram.errors import ReprogramError

__all__ = ["SHARD_SUFFIXES", "Block", "find_shards", "read_blocks"]

_READERS: dict[str, Callable[..., Iterator[Block]]] = {
    ".npz": read_npz,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
}
SHARD_SUFFIXES = tuple(_READERS)


def find_shards(files: str | Path | Sequence[str | Path]) -> list[Path]:
    """All shards meant by paths, folders and patterns such as `shards/*.npz`, each once and sorted within each word."""
    found: dict[Path, None] = {}
    for word in [files] if isinstance(files, (str, Path)) else files:
        path = Path(word)
        if path.is_dir():
            inside = sorted(entry for entry in path.iterdir() if _is_shard(entry))
            if not inside:
                raise ReprogramError(f"folder {str(path)!r} holds no {', '.join(_READERS)} file; give a folder of shards")
        elif path.is_file():
            if path.suffix.lower() not in _READERS:
                raise ReprogramError(f"file {str(path)!r} is none of {', '.join(_READERS)}; rename or convert it")
            inside = [path]
        else:
            matches = glob.glob(str(word), recursive=True)  # noqa: PTH207  # a Path's own glob takes no absolute patterns
            inside = sorted(entry for entry in map(Path, matches) if _is_shard(entry))
            if not inside:
                raise ReprogramError(f"no shard matches {str(word)!r} (known: {', '.join(_READERS)}); check the path")
        found |= dict.fromkeys(inside)
    if not found:
        raise ReprogramError("no shard was given; give files, folders or patterns such as 'shards/*.npz'")
    return list(found)


def read_blocks(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """The rows of one shard, block after block; memory does not depend on how many there are.

    Args:
        path: a `.npz`, `.csv`, `.tsv`, `.parquet` or `.jsonl` file.
        logits: False leaves out the logits themselves, which is cheaper where only their number is needed.
    """
    if not path.is_file():
        raise ReprogramError(f"shard {str(path)!r} does not exist; check the path, also on the machines that read it")
    yield from _READERS[path.suffix.lower()](path, logits=logits)


def _is_shard(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in _READERS and not path.name.startswith(".")
