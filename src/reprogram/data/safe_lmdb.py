"""Images in an LMDB file as the ILM-VP authors publish them: records are pickles of (image bytes, label)."""

import importlib
import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.child import tried_in_child
from reprogram.data.dataset import Split
from reprogram.data.fingerprints import content_hash, file_key
from reprogram.data.safe_pickle import read_plain_pickle
from reprogram.errors import ReprogramError
from reprogram.images.pictures import Interpolation, read_image

#: A label above this would only fill the memory with names of classes.
MOST_CLASSES = 100_000
# LMDB lets a process open a file once at a time; opening takes microseconds, decoding takes milliseconds.
_ONE_AT_A_TIME = threading.Lock()


class LmdbSplit(Split):
    """Some records of an LMDB file, which is opened for each read, so that the split can travel to other processes."""

    cheap_to_send = True

    def __init__(self, path: Path, keys: Sequence[bytes], labels: Tensor) -> None:
        super().__init__(labels, [f"{path}#{key.decode('ascii', 'replace')}" for key in keys])
        self.path, self.keys = path, list(keys)
        self._file = path / "data.mdb" if path.is_dir() else path
        self._opened = file_key(self._file)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the keys and all labels."""
        _import_lmdb(path)
        # LMDB reads a file as memory: where that is cut short or its pages are damaged, the process ends without a word.
        tried_in_child("reprogram.data.walks:walk_lmdb", path, "data", "it is no readable LMDB file: download it again")
        with _transaction(path) as transaction:
            keys = _keys(transaction, path)
            labels = [_record(transaction, path, key)[1] for key in keys]
        if not keys:
            raise ReprogramError(f"data {str(path)!r} holds no record; download it again")
        return cls(path, keys, torch.tensor(labels, dtype=torch.int64))

    @override
    def read(self, index: int, size: int | None = None, interpolation: Interpolation = "bilinear") -> Tensor:
        return read_image(io.BytesIO(self._bytes(index)), size, interpolation, name=self.names[index])

    @override
    def content_key(self, index: int) -> str:
        return f"{file_key(self._file)} {self.keys[index]!r}"

    @override
    def fingerprint(self, index: int) -> str:
        try:
            return content_hash(self._bytes(index))
        except ReprogramError:
            return ""

    def _bytes(self, index: int) -> bytes:
        if file_key(self._file) != self._opened:  # a file that has become shorter would end the process
            raise ReprogramError(f"data {str(self.path)!r} have changed since they were opened; start again")
        with _transaction(self.path) as transaction:
            return _record(transaction, self.path, self.keys[index])[0]

    @override
    def subset(self, indices: Tensor) -> Self:
        keys = [self.keys[i] for i in indices.tolist()]
        return type(self)(self.path, keys, self.labels[indices]).grouped_as(self, indices)


def _import_lmdb(path: Path) -> ModuleType:
    try:
        return importlib.import_module("lmdb")
    except ModuleNotFoundError:
        raise ReprogramError(
            f"data {str(path)!r} needs lmdb, which is not installed; run: pip install 'reprogram[data]'"
        ) from None


@contextmanager
def _transaction(path: Path) -> Iterator[Any]:
    lmdb = _import_lmdb(path)
    with _ONE_AT_A_TIME:
        try:
            opened = lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, meminit=False)
        except lmdb.Error as error:
            raise ReprogramError(f"data {str(path)!r} is no readable LMDB file ({error}); download it again") from None
        try:
            with opened.begin(write=False) as transaction:
                yield transaction
        except lmdb.Error as error:
            raise ReprogramError(f"data {str(path)!r} is damaged ({error}); download it again") from None
        finally:
            opened.close()


def _keys(transaction: Any, path: Path) -> list[bytes]:
    """The list under `__keys__`; without it, all keys but the special ones, in the order of their numbers."""
    stored = transaction.get(b"__keys__")
    if stored is None:
        found = [bytes(key) for key in transaction.cursor().iternext(values=False) if not key.startswith(b"__")]
        return sorted(found, key=lambda key: (len(key), key))
    keys = read_plain_pickle(stored, f"the list of keys in {str(path)!r}")
    if not isinstance(keys, (list, tuple)) or not all(isinstance(key, bytes) for key in keys):
        raise ReprogramError(f"data {str(path)!r} has no list of bytes under '__keys__'; download it again")
    length = transaction.get(b"__len__")
    if length is not None and (count := read_plain_pickle(length, f"the length in {str(path)!r}")) != len(keys):
        claimed = count if isinstance(count, int) else type(count).__name__  # a nested list could be long beyond measure
        raise ReprogramError(
            f"data {str(path)!r} says that it has {claimed} records but lists {len(keys)}; download it again"
        )
    return list(keys)


def _record(transaction: Any, path: Path, key: bytes) -> tuple[bytes, int]:
    name = f"record {key.decode('ascii', 'replace')!r} of {str(path)!r}"
    stored = transaction.get(key)
    if stored is None:
        raise ReprogramError(f"{name} is missing; download the file again")
    record = read_plain_pickle(stored, name)
    if (
        not isinstance(record, (tuple, list))
        or len(record) < 2
        or not isinstance(record[0], bytes)
        or not isinstance(record[1], int)
        or not 0 <= record[1] < MOST_CLASSES
    ):
        raise ReprogramError(f"{name} holds no pair of image bytes and a class number; download the file again")
    return record[0], record[1]
