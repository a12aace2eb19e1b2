"""Fuzz targets with faults that the harness must notice."""

import ctypes
import os
import time
from pathlib import Path

from reprogram.errors import ReprogramError
from soak.targets import BytesTarget, FileTarget, FolderTarget

_LIMITS = {"seconds": 30.0, "memory": 1 << 28}


def _seeds(folder: Path) -> list[bytes]:
    return [b"good"]


def _rarely(act, share=2):
    """A parser with a fault for one damaged input in a few, and in no good one."""

    def run(data: bytes) -> None:
        if data != b"good":
            if sum(data) % share == 0:
                act()
            raise ReprogramError("refused")

    return run


def _raise() -> None:
    {}["missing"]


def _hang() -> None:
    time.sleep(60)


def _crash() -> None:
    ctypes.string_at(0)


def _take_memory() -> None:
    taken = []
    while True:
        taken.append(bytearray(1 << 26))


def _leave() -> None:
    os._exit(0)


def _refuse(data: bytes) -> None:
    raise ReprogramError("refused")


def _make(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    (folder / "inner").mkdir()
    (folder / "inner" / "b.txt").write_text("b")


_TRIES: list[Path] = []


def _make_at_the_second_try(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    _TRIES.append(folder)
    if len(_TRIES) == 1:
        raise RuntimeError("not now")
    (folder / "inner").mkdir()
    (folder / "inner" / "b.txt").write_text("b")


def _read_folder(folder: Path) -> None:
    damaged = [name for name in ("a.txt", "inner/b.txt") if (folder / name).read_bytes() != name[-5:-4].encode()]
    assert len(damaged) <= 1, "more than one file is damaged at a time"
    if damaged == ["inner/b.txt"] and (folder / damaged[0]).stat().st_size > 3:
        os.kill(os.getpid(), 9)  # and leaves the folder as it is
    if damaged:
        raise ReprogramError("refused")


TARGETS = [
    BytesTarget("sound", _seeds, _rarely(lambda: None), **_LIMITS),
    BytesTarget("raises", _seeds, _rarely(_raise), **_LIMITS),
    BytesTarget("hangs", _seeds, _rarely(_hang, 7), **{**_LIMITS, "seconds": 1.5}),
    BytesTarget("crashes", _seeds, _rarely(_crash), **_LIMITS),
    BytesTarget("takes memory", _seeds, _rarely(_take_memory, 4), **_LIMITS),
    BytesTarget("leaves", _seeds, _rarely(_leave), **_LIMITS),
    BytesTarget("refuses all", _seeds, _refuse, **_LIMITS),
    FileTarget("cannot be prepared", lambda folder: 1 / 0, _refuse),
    FolderTarget("folder", _make, _read_folder, **_LIMITS),
    FolderTarget("second try", _make_at_the_second_try, _read_folder, **_LIMITS),
]
