"""Images in an LMDB file as the ILM-VP authors publish them: records are pickles of (image bytes, label)."""

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.data.dataset import Split, content_hash, file_key
from reprogram.data.safe_pickle import read_plain_pickle
from reprogram.errors import ReprogramError
from reprogram.images.pictures import Interpolation, read_image

# LMDB lets a process open a file once at a time; opening takes microseconds, decoding takes milliseconds.
_ONE_AT_A_TIME = threading.Lock()


class LmdbSplit(Split):
    """Some records of an LMDB file, which is opened for each read, so that the split can travel to other processes."""

    cheap_to_send = True

    def __init__(self, path: Path, keys: Sequence[bytes], labels: Tensor) -> None:
        super().__init__(labels, [f"{path}#{key.decode('ascii', 'replace')}" for key in keys])
        self.path, self.keys = path, list(keys)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the keys and all labels."""
        with _transaction(path) as transaction:
            keys = _keys(transaction, path)
            labels = [_record(transaction, path, key)[1] for key in keys]
        return cls(path, keys, torch.tensor(labels, dtype=torch.int64))

    @override
    def read(self, index: int, size: int | None = None, interpolation: Interpolation = "bilinear") -> Tensor:
        return read_image(io.BytesIO(self._bytes(index)), size, interpolation, name=self.names[index])

    @override
    def content_key(self, index: int) -> str:
        return f"{file_key(self.path / 'data.mdb' if self.path.is_dir() else self.path)} {self.keys[index]!r}"

    @override
    def fingerprint(self, index: int) -> str:
        try:
            return content_hash(self._bytes(index))
        except ReprogramError:
            return ""

    def _bytes(self, index: int) -> bytes:
        with _transaction(self.path) as transaction:
            return _record(transaction, self.path, self.keys[index])[0]

    @override
    def subset(self, indices: Tensor) -> Self:
        return type(self)(self.path, [self.keys[i] for i in indices.tolist()], self.labels[indices])


@contextmanager
def _transaction(path: Path) -> Iterator[Any]:
    try:
        import lmdb
    except ModuleNotFoundError:
        raise ReprogramError(
            f"data {str(path)!r} needs lmdb, which is not installed; run: pip install 'reprogram[data]'"
        ) from None
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
        raise ReprogramError(f"data {str(path)!r} says that it has {count} records but lists {len(keys)}; download it again")
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
    ):
        raise ReprogramError(f"{name} holds no pair of image bytes and a whole number; download the file again")
    return record[0], record[1]
