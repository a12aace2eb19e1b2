"""Shards: files that hold a frozen model's answers to labelled images, read in blocks whatever their size."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from reprogram.answers.block import Block
from reprogram.answers.manifest import MANIFEST
from reprogram.answers.registry import READERS
from reprogram.answers.truth import LabelTable
from reprogram.child import tried_in_child
from reprogram.errors import ReprogramError, shown
from reprogram.files.foreign import expanded, is_file, is_folder, listed

_MAGIC = re.compile(r"[*?[]")
Files = str | Path | Sequence[str | Path]


def find_shards(files: Files) -> list[Path]:
    """All shards meant by paths, folders and patterns such as `shards/*.npz`, each once and sorted within each word.

    `~` is the user's own folder, also where no shell has put it in.
    """
    found: dict[Path, None] = {}
    for word in [files] if isinstance(files, (str, Path)) else files:
        path = expanded(word, "shard")
        if is_folder(path):
            inside = [entry for entry in listed(path) if _is_shard(entry)]
            if not inside:
                raise ReprogramError(f"folder {str(path)!r} holds no {', '.join(READERS)} file; give a folder of shards")
        elif is_file(path):
            if path.suffix.lower() not in READERS or path.name == MANIFEST:
                raise ReprogramError(f"file {str(path)!r} is none of {', '.join(READERS)}; rename or convert it")
            inside = [path]
        else:
            inside = sorted(entry for entry in _matching(path) if _is_shard(entry))
            if not inside:
                raise ReprogramError(f"no shard matches {shown(str(word))} (known: {', '.join(READERS)}); check the path")
        found |= dict.fromkeys(inside)
    if not found:
        raise ReprogramError("no shard was given; give files, folders or patterns such as 'shards/*.npz'")
    return list(found)


def read_blocks(
    path: Path, *, logits: bool = True, labels: LabelTable | None = None, others: bool = False
) -> Iterator[Block]:
    """The rows of one shard, block after block; memory does not depend on how many there are.

    Args:
        path: a file of a registered format: `.npz`, `.csv`, `.tsv`, `.parquet`, `.jsonl` and others.
        logits: False leaves out the logits themselves, which is cheaper where only their number is needed.
        labels: a table of the true labels, which replace those of the file.
        others: whether rows that this table does not name come, too, without a label.
    """
    before = _state(path)
    if before is None:
        raise ReprogramError(
            f"shard {str(path)!r} is no plain file that is there; check the path, also on the machines that read it"
        )
    reader = READERS[path.suffix.lower()]
    if reader.trial is not None:
        tried_in_child(reader.trial, path, "shard", "write it again")
    try:
        blocks: Iterator[Block] = reader.load()(path, logits=logits)
        rows = 0
        for block in blocks:
            rows += block.rows
            if labels is None:
                yield block
                continue
            labelled = labels.labelled(block, rows - block.rows, others=others)
            if labelled.rows:
                yield labelled
        if labels is not None:
            labels.check_count(path, rows)
    except MemoryError:
        raise ReprogramError(
            f"shard {str(path)!r} needs more memory than there is; cut it into smaller shards, or give the process more"
        ) from None
    if _state(path) != before:
        raise ReprogramError(
            f"shard {str(path)!r} was changed while it was read; wait until it is complete, then do this again"
        )


def _state(path: Path) -> tuple[int, int, int] | None:
    """By which a file is known to be as it was, or None where there is none."""
    if not is_file(path):
        return None
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _matching(pattern: Path) -> Iterator[Path]:
    """The paths that a pattern means; links to folders are not followed by `**`, because they may lead in circles."""
    parts = pattern.parts
    fixed = next((place for place, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    if fixed == len(parts):
        return
    base, rest = Path(*parts[:fixed]), [*parts[fixed:], *(["*"] if parts[-1] == "**" else [])]
    if any("**" in part and part != "**" for part in rest):
        raise ReprogramError(f"pattern {shown(str(pattern))} has ** beside other letters; write it as a part of its own")
    for path in base.glob("/".join(rest)):
        if not any(part.startswith(".") for part in path.parts[fixed:]):
            yield path


def _is_shard(path: Path) -> bool:
    suffix = path.suffix.lower()
    if not is_file(path) or suffix not in READERS or path.name.startswith(".") or path.name == MANIFEST:
        return False
    return READERS[suffix].takes(path)
