"""What a child process is told to do in tests/test_child.py: to succeed, to fail, and to behave as parsers in C can."""

import ctypes
import os
import sys
import time
from pathlib import Path

from reprogram.errors import ReprogramError


def succeed(path: Path) -> None:
    print("a library that prints")
    with Path(f"{path}.log").open("a") as file:
        file.write("tried\n")


def say(path: Path) -> None:
    raise ReprogramError(f"file {path.name!r} is wrong; mend it")


def stumble(path: Path) -> None:
    raise KeyError(f"odd {path.read_text()}\nand more")


def crash(path: Path) -> None:
    ctypes.string_at(0)


def hang(path: Path) -> None:
    time.sleep(1000)


def turn(path: Path) -> None:
    while True:
        pass


def fill(path: Path) -> None:
    bytearray(3 * 2**30)


def leave(path: Path) -> None:
    sys.exit(0)


def vanish(path: Path) -> None:
    os._exit(7)


def look(path: Path) -> None:
    assert "" not in sys.path
    assert str(Path.cwd()) not in sys.path
    assert "torch" not in sys.modules
    assert sys.stdin.read() == ""
