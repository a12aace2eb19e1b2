"""Decode once: all images of a split as one memory-mapped uint8 file, so that epochs cost no decoding.

A cache file is named after what it holds (the content keys of all images, the size, the interpolation), written beside
its place and moved into it when it is complete. It starts with a header and is checked when it is opened; one that is
cut short, damaged or of another kind is built again.
"""

import hashlib
import json
import os
import struct
import tempfile
import zlib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from reprogram.data.dataset import DataSet, Split, bad_images
from reprogram.errors import ReprogramError
from reprogram.images.pictures import Interpolation
from reprogram.progress import Progress, Sized

_MAGIC = b"RPGPIXELS1\n\0\0\0\0\0"
_DATA_START = 4096
_SAMPLED_ROWS = 64
_CHUNK = 128
_WORTH_PROCESSES = 1000  # below this many images, starting processes costs more than it saves


def decode_data(
    data: DataSet,
    sizes: dict[str, int],
    interpolation: Interpolation = "bilinear",
    *,
    cache: Path | None = None,
    skip_bad: bool = False,
    processes: int = 0,
    progress: Progress | None = None,
) -> tuple[DataSet, list[str]]:
    """Decode every split of a data set and keep the pixels, so that `Split.pixels` gives them without work.

    Args:
        data: the data set.
        sizes: the side that the images of each split (train, val, test) are brought to.
        interpolation: how they are resized.
        cache: folder of the cache; None decodes into memory.
        skip_bad: leave images out that cannot be decoded, instead of raising an error that names them.
        processes: how many processes decode a large split into the cache; 0 uses threads only. A script that asks for
            processes must start its work under `if __name__ == "__main__"`.
        progress: where to show progress.

    Returns:
        The data set, without the bad images, and what was wrong with each of those.
    """
    progress = progress or Progress()
    changed: dict[str, Any] = {}
    failures: dict[int, str] = {}
    skipped: list[str] = []
    for name, size in sizes.items():
        split: Split | None = getattr(data, name)
        if split is None:
            continue
        pixels, bad = _decoded(split, size, interpolation, cache, processes, progress)
        failures |= {len(failures) + offset: reason for offset, reason in enumerate(bad.values())}
        if bad:
            good = torch.tensor([index for index in range(len(split)) if index not in bad])
            if not len(good):
                raise ReprogramError(f"no image of the {name} split can be decoded; the first: {next(iter(bad.values()))}")
            split, pixels = split.subset(good), pixels[good]
            skipped += bad.values()
        split.keep(size, interpolation, pixels)
        changed[name] = split
    if failures and not skip_bad:
        raise bad_images(failures)
    return replace(data, **changed), skipped


def _decoded(
    split: Split, size: int, interpolation: Interpolation, cache: Path | None, processes: int, progress: Progress
) -> tuple[Tensor, dict[int, str]]:
    if cache is None:
        pixels = torch.zeros(len(split), 3, size, size, dtype=torch.uint8)
        return pixels, split.decode_into(pixels, range(len(split)), interpolation, progress)
    key = _key(split, size, interpolation)
    path = cache / f"{key}.pixels"
    if (found := _open(path, key, len(split), size)) is not None:
        return found
    cache.mkdir(parents=True, exist_ok=True)
    _build(path, key, split, size, interpolation, processes, progress)
    found = _open(path, key, len(split), size)
    if found is None:
        raise ReprogramError(f"the cache file {str(path)!r} cannot be read back; free some space or use --no-cache")
    return found


def _key(split: Split, size: int, interpolation: Interpolation) -> str:
    digest = hashlib.sha256(f"{_MAGIC!r} {size} {interpolation}\n".encode())
    for index in range(len(split)):
        digest.update(split.content_key(index).encode(errors="surrogateescape"))
        digest.update(b"\n")
    return digest.hexdigest()[:40]


def _build(
    path: Path, key: str, split: Split, size: int, interpolation: Interpolation, processes: int, progress: Progress
) -> None:
    row = 3 * size * size
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        os.truncate(handle, _DATA_START + row * len(split))
        os.close(handle)
        chunks = [range(start, min(start + _CHUNK, len(split))) for start in range(0, len(split), _CHUNK)]
        failures: dict[int, str] = {}
        if processes > 1 and split.cheap_to_send and len(split) >= _WORTH_PROCESSES:
            jobs = [(split, temporary, len(split), size, interpolation, chunk) for chunk in chunks]
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                for part in progress.track(Sized(pool.map(_fill_chunk, jobs), len(jobs)), "decoding images"):
                    failures |= part
        else:
            failures = split.decode_into(_map(temporary, len(split), size), range(len(split)), interpolation, progress)
        pixels = _map(temporary, len(split), size)
        header = {"key": key, "bad": {str(i): text for i, text in sorted(failures.items())}, "crc": _checksum(pixels)}
        content = json.dumps(header).encode()
        with temporary.open("r+b") as file:
            if len(content) > _DATA_START - len(_MAGIC) - 4:  # many bad files: their list goes behind the pixels
                file.seek(0, os.SEEK_END)
                file.write(content)
                content = json.dumps({"key": key, "behind": len(content)}).encode()
                file.seek(0)
            file.write(_MAGIC + struct.pack("<I", len(content)) + content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _fill_chunk(job: tuple[Split, Path, int, int, Interpolation, range]) -> dict[int, str]:
    split, path, count, size, interpolation, chunk = job
    return split.decode_into(_map(path, count, size), chunk, interpolation)


def _open(path: Path, key: str, count: int, size: int) -> tuple[Tensor, dict[int, str]] | None:
    """The pixels and the bad images of a valid cache file, or None."""
    end = _DATA_START + 3 * size * size * count
    try:
        with path.open("rb") as file:
            start = file.read(_DATA_START)
            if not start.startswith(_MAGIC):
                return None
            (length,) = struct.unpack_from("<I", start, len(_MAGIC))
            header = json.loads(start[len(_MAGIC) + 4 : len(_MAGIC) + 4 + length])
            behind = int(header.get("behind", 0))
            if file.seek(0, os.SEEK_END) != end + behind:
                return None
            if behind:
                file.seek(end)
                header = json.loads(file.read())
        pixels = _map(path, count, size)
        if header["key"] != key or header["crc"] != _checksum(pixels):
            return None
        return pixels, {int(index): text for index, text in header["bad"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return None


def _map(path: Path, count: int, size: int) -> Tensor:
    shape = (count, 3, size, size)
    if not path.stat().st_size >= _DATA_START + 3 * size * size * count:
        raise OSError(f"{path} is too short")
    # building maps the file itself; a finished file is mapped copy-on-write, so that nobody can change it
    mode: Literal["r+", "c"] = "r+" if path.suffix == ".tmp" else "c"
    return torch.from_numpy(np.memmap(path, np.uint8, mode, _DATA_START, shape))


def _checksum(pixels: Tensor) -> int:
    """CRC-32 over evenly spaced rows: finds a file of zeros or of other content without reading all of it."""
    crc = 0
    for place in range(0, len(pixels), max(1, len(pixels) // _SAMPLED_ROWS)):
        crc = zlib.crc32(pixels[place].numpy().tobytes(), crc)
    return crc
