"""Decode once: all images of a split as one memory-mapped file, so that epochs cost no decoding.

`<key>.npy` holds the pixels, uint8 (n, 3, size, size), and `<key>.json` what belongs to them: SHA-256 of all pixels, the
bad images, the fingerprints. The key says what they hold (the content keys of all images, the size, the interpolation).
Both are written beside their places and moved into them when they are complete, the JSON file last. They are checked when
they are opened; what is cut short, damaged or of another kind is built again. One process builds; others wait for it.
"""

import errno
import hashlib
import io
import math
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from reprogram.data.dataset import Outcome, Split
from reprogram.errors import ReprogramError, first_line
from reprogram.files import locked, read_sealed, remove_abandoned, write_sealed
from reprogram.images.pictures import Interpolation
from reprogram.processes import WorkerPool
from reprogram.progress import Progress, Sized

_FORMAT = 3
_CHUNK = 128
_WORTH_PROCESSES = 1000  # below this many images, starting processes costs more than it saves
_ABANDONED = 24 * 3600.0  # seconds after which an unfinished file belongs to nobody who still runs
_PATIENCE = 24 * 3600.0
_MOST_FACTS = 2**30  # bytes: those of 20 million images
_ZEROS = bytes(1 << 20)
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class Decoded:
    """A decoded split.

    Attributes:
        pixels: uint8 (n, 3, size, size); zeros in the rows of bad images.
        failures: what is wrong with the bad images, by their place.
        fingerprints: of all n images.
    """

    pixels: Tensor
    failures: dict[int, str]
    fingerprints: list[str]


def decode_in_memory(split: Split, size: int, interpolation: Interpolation, progress: Progress) -> Decoded:
    """Decode a split with threads, and keep nothing on disk."""
    pixels = torch.zeros(len(split), 3, size, size, dtype=torch.uint8)
    outcome = split.decode_into(pixels, range(len(split)), interpolation, progress)
    return Decoded(pixels, outcome.failures, list(outcome.fingerprints.values()))


def decode_through(
    folder: Path, split: Split, size: int, interpolation: Interpolation, processes: int, progress: Progress
) -> Decoded:
    """Take a decoded split from the cache folder; one that is not there is decoded into it first.

    Raises:
        OSError: the folder cannot be written to, or has no room.
    """
    key, shape = _key(split, size, interpolation), (len(split), 3, size, size)
    found, lock = _open(folder, key, shape), folder / f".{key}.lock"
    if found is not None:
        remove_abandoned(lock)  # its process had done its work when it was killed
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(
            lock,
            f"the cache {str(folder)!r}",
            wait=_PATIENCE,
            on_wait=lambda: progress.say("waiting for another process that decodes the same images"),
        ):
            found = _open(folder, key, shape)
            if found is None:
                _build(folder, key, split, size, interpolation, processes, progress)
                found = _open(folder, key, shape)
    if found is None:
        raise OSError(errno.EIO, "what was written there cannot be read back", str(folder))
    return found


def _key(split: Split, size: int, interpolation: Interpolation) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {size} {interpolation}\n".encode())
    for index in range(len(split)):
        digest.update(split.content_key(index).encode(errors="surrogateescape"))
        digest.update(b"\n")
    return digest.hexdigest()[:40]


def _build(
    folder: Path, key: str, split: Split, size: int, interpolation: Interpolation, processes: int, progress: Progress
) -> None:
    _remove_abandoned(folder, key)
    count, shape, pixel_file = len(split), (len(split), 3, size, size), folder / f".{key}-{secrets.token_hex(4)}.npy.tmp"
    try:
        _reserve(pixel_file, shape)
        chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
        if processes > 1 and split.cheap_to_send and count >= _WORTH_PROCESSES:
            jobs = [(split, pixel_file, shape, interpolation, chunk) for chunk in chunks]
            outcome = Outcome({}, {})
            with WorkerPool(processes) as pool:
                for part in progress.track(Sized(pool.map(_fill_chunk, jobs), len(jobs)), "decoding images"):
                    outcome.failures.update(part.failures)
                    outcome.fingerprints.update(part.fingerprints)
        else:
            outcome = split.decode_into(_map(pixel_file, "r+", shape), range(count), interpolation, progress)
        facts = {
            "key": key,
            "shape": list(shape),
            "pixels": _digests(_map(pixel_file, "r+", shape)),
            "bad": {str(place): text for place, text in outcome.failures.items()},
            "fingerprints": list(outcome.fingerprints.values()),
        }
        # not brought to the disk at once, which takes as long as writing does: what a crash of the machine leaves of the
        # pixels is found by their SHA-256, and decoded again
        pixel_file.replace(folder / f"{key}.npy")
        write_sealed(folder / f"{key}.json", facts)
    finally:
        pixel_file.unlink(missing_ok=True)


def _fill_chunk(job: tuple[Split, Path, tuple[int, ...], Interpolation, range]) -> Outcome:
    split, path, shape, interpolation, chunk = job
    return split.decode_into(_map(path, "r+", shape), chunk, interpolation)


def _reserve(path: Path, shape: tuple[int, ...]) -> None:
    """Write an array's header and reserve its room: a mapped file that outgrows the disk ends the process without a word."""
    with path.open("wb") as file:
        file.write(_header(shape))
        file.flush()
        start, length = file.tell(), math.prod(shape)
        try:
            os.posix_fallocate(file.fileno(), start, max(1, length))
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _UNSUPPORTED:
                raise OSError(error.errno, error.strerror, str(path.parent)) from None
            for written in range(0, max(1, length), len(_ZEROS)):  # no such call here: room is what can be written
                file.write(_ZEROS[: max(1, length) - written])


def _open(folder: Path, key: str, shape: tuple[int, ...]) -> Decoded | None:
    """The valid content of the cache under this key, or None."""
    try:
        return check_cached(folder, key, shape)
    except ReprogramError:
        return None


class _Facts(BaseModel):
    """What a cache tells of its pixels."""

    model_config = ConfigDict(strict=True)
    key: str
    shape: tuple[int, int, int, int] = Field(strict=False)
    pixels: list[str]
    bad: dict[str, str]
    fingerprints: list[str]


def check_cached(folder: Path, key: str, shape: tuple[int, ...] | None = None) -> Decoded:
    """The content of the cache under this key, or what is wrong with it."""
    remedy = "remove it: it is made again when it is needed"
    facts = _Facts.model_validate(read_sealed(folder / f"{key}.json", "cache", _Facts, remedy=remedy, most=_MOST_FACTS))
    file = folder / f"{key}.npy"
    failures = {int(place): text for place, text in facts.bad.items() if place.isdecimal() and len(place) < 16}
    sound = facts.key == key and shape in (None, facts.shape) and min(facts.shape) >= 0
    if not sound or {*facts.bad} != {*map(str, failures)} or not {*failures} <= {*range(len(facts.fingerprints))}:
        raise ReprogramError(f"the parts of cache {str(file)!r} do not fit together; {remedy}")
    try:
        pixels = _map(file, "c", facts.shape)  # copy-on-write: nobody can change the file
    except (OSError, ValueError) as error:
        raise ReprogramError(f"cache {str(file)!r} is damaged ({first_line(error)}); {remedy}") from None
    if len(facts.fingerprints) != len(pixels) or facts.pixels != _digests(pixels):
        raise ReprogramError(f"cache {str(file)!r} has changed since it was written (its SHA-256 differs); {remedy}")
    return Decoded(pixels, failures, facts.fingerprints)


def _header(shape: tuple[int, ...]) -> bytes:
    """How an array file of such pixels begins."""
    text = io.BytesIO()
    np.lib.format.write_array_header_1_0(text, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return text.getvalue()


def _map(path: Path, mode: Literal["r+", "c"], shape: tuple[int, ...]) -> Tensor:
    """The pixels of a file that begins as it should and is as long as it should be: no header has to be understood."""
    header, length = _header(shape), math.prod(shape)
    with path.open("rb") as file:
        if file.read(len(header)) != header or os.fstat(file.fileno()).st_size != len(header) + max(1, length):
            raise ValueError(f"it does not hold pixels of shape {shape}")
    if not length:
        return torch.zeros(shape, dtype=torch.uint8)
    array: np.memmap[Any, Any] = np.memmap(path, np.uint8, mode, len(header), shape)
    return torch.from_numpy(array)


def _digests(pixels: Tensor) -> list[str]:
    """SHA-256 of each chunk of rows, all of them: reading them now is what the first epoch need not wait for."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda chunk: hashlib.sha256(chunk.numpy().data).hexdigest(), pixels.split(_CHUNK)))


def _remove_abandoned(folder: Path, key: str) -> None:
    """Remove what killed processes have left: all of this key, whose lock we hold, and what is old of others."""
    for path in folder.glob(".*.tmp"):
        try:
            if path.name.startswith(f".{key}-") or time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
        except OSError:  # another process was faster
            continue
