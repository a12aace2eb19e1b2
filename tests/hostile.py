"""Files that nobody means well with, made on the spot."""

import io
import os
import socket
import struct
import tracemalloc
import zipfile
from contextlib import contextmanager

import numpy as np


def npy(array, *, descr=None, shape=None, fortran=False, header=None, version=1, length=None):
    """An array as `np.save` writes it, with a header that may say something else."""
    array = np.asarray(array)
    if header is None:
        said = array.dtype.str if descr is None else descr
        header = f"{{'descr': {said!r}, 'fortran_order': {fortran}, 'shape': {shape or array.shape}, }}\n"
    count = len(header) if length is None else length
    start = b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", count)
    return start + header.encode("latin-1") + array.tobytes()


def npz(path, method=zipfile.ZIP_STORED, /, **members):
    """An archive of such arrays, or of what `np.save` writes."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            if not isinstance(content, bytes):
                buffer = io.BytesIO()
                np.save(buffer, content)
                content = buffer.getvalue()
            archive.writestr(f"{name}.npy", content)
    return path


def special_files(folder):
    """A pipe that nobody writes to, a socket, a link to an endless device and a link to itself, by suffix-less name."""
    os.mkfifo(folder / "pipe")
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)  # the path of a socket may be no longer than 108 bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")
    finally:
        os.fchdir(here)
        os.close(here)
    (folder / "device").symlink_to("/dev/zero")
    (folder / "loop").symlink_to("loop")
    return [folder / name for name in ("pipe", "socket", "device", "loop")]


@contextmanager
def memory_below(limit):
    """Fails if the block holds more bytes at once."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / 1e6:.0f} MB were taken"
