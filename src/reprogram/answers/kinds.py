"""Whether a word on the command line means files of answers or labelled images; nothing here imports numpy or torch."""

import csv
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from reprogram.answers.registry import READERS
from reprogram.child import tried_in_child
from reprogram.data.parquet import read_columns
from reprogram.data.registry import FORMATS
from reprogram.errors import ReprogramError, extra_missing, shown
from reprogram.files.foreign import expanded, is_file, is_folder, listed, opened_text

_ANSWERS = re.compile(r"logits|logits:.*|logit_\d+|topk_labels|labels|tags|predictions")
_LONGEST_HEADER = 1 << 20


def holds_answers(words: Sequence[str]) -> bool:
    """Whether these words mean shards of logits or answers; else they are one word that means labelled images.

    A table of images has the column `path`, and a folder of images has folders in it. What is not there at all is taken for
    a name of data, whose own error says what there is.
    """
    kinds = [_is_answers(word) for word in words]
    if len(words) > 1 and not all(kinds):
        word = words[kinds.index(False)]
        raise ReprogramError(f"{shown(word)} holds no answers of a model; give shards alone, or one word that means images")
    return bool(kinds) and all(kinds)


def _is_answers(word: str) -> bool:
    path = expanded(word)
    suffix = path.suffix.lower()
    if is_folder(path):
        inside = [entry for entry in listed(path) if not entry.name.startswith(".")]
        return not any(map(is_folder, inside)) and any(entry.suffix.lower() in READERS for entry in inside)
    if not is_file(path):
        return re.search(r"[*?[]", word) is not None
    if suffix not in READERS:
        return False
    if not any(record.matches(word) for record in FORMATS.values()):
        return True  # a kind of file that images never come in
    if suffix == ".npz":
        return any(name in ("logits.npy", "topk_labels.npy") for name in _members(path))
    columns = _columns(path, suffix)
    return "path" not in columns or any(_ANSWERS.fullmatch(name) for name in columns if name != "labels")


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return []  # whoever reads it says what is wrong


def _columns(path: Path, suffix: str) -> list[str]:
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ModuleNotFoundError:
            raise extra_missing("pyarrow", "data", f"file {str(path)!r}") from None
        tried_in_child("reprogram.data.parquet:read_columns", path, "file", "write it as Parquet again")
        return [name.strip().lower() for name in read_columns(path)[0]]
    with opened_text(path, "file", "save it as CSV in UTF-8", newline="") as file:
        line = file.readline(_LONGEST_HEADER)
    row = next(csv.reader([line], delimiter="\t" if suffix == ".tsv" else ","), [])
    return [name.strip().lower() for name in row]
