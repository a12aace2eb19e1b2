"""Shards: files that hold a frozen model's answers to labelled images, read in blocks whatever their size."""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path

from reprogram.answers.block import Block
from reprogram.answers.registry import READERS
from reprogram.errors import ReprogramError

Files = str | Path | Sequence[str | Path]


def find_shards(files: Files) -> list[Path]:
    """All shards meant by paths, folders and patterns such as `shards/*.npz`, each once and sorted within each word.

    `~` is the user's own folder, also where no shell has put it in.
    """
    found: dict[Path, None] = {}
    for word in [files] if isinstance(files, (str, Path)) else files:
        path = Path(word).expanduser()
        if path.is_dir():
            inside = sorted(entry for entry in path.iterdir() if _is_shard(entry))
            if not inside:
                raise ReprogramError(f"folder {str(path)!r} holds no {', '.join(READERS)} file; give a folder of shards")
        elif path.is_file():
            if path.suffix.lower() not in READERS:
                raise ReprogramError(f"file {str(path)!r} is none of {', '.join(READERS)}; rename or convert it")
            inside = [path]
        else:
            matches = glob.glob(str(path), recursive=True)  # noqa: PTH207  # a Path's own glob takes no absolute patterns
            inside = sorted(entry for entry in map(Path, matches) if _is_shard(entry))
            if not inside:
                raise ReprogramError(f"no shard matches {str(word)!r} (known: {', '.join(READERS)}); check the path")
        found |= dict.fromkeys(inside)
    if not found:
        raise ReprogramError("no shard was given; give files, folders or patterns such as 'shards/*.npz'")
    return list(found)


def read_blocks(path: Path, *, logits: bool = True) -> Iterator[Block]:
    """The rows of one shard, block after block; memory does not depend on how many there are.

    Args:
        path: a file of a registered format: `.npz`, `.csv`, `.tsv`, `.parquet`, `.jsonl` and others.
        logits: False leaves out the logits themselves, which is cheaper where only their number is needed.
    """
    if not path.is_file():
        raise ReprogramError(f"shard {str(path)!r} does not exist; check the path, also on the machines that read it")
    yield from READERS[path.suffix.lower()].load()(path, logits=logits)


def _is_shard(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in READERS and not path.name.startswith(".")
