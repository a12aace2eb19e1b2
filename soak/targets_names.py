"""Fuzz targets of lists of names."""

from pathlib import Path

from reprogram.names import plain_name, read_names
from soak.structure import JSON
from soak.targets import FileTarget, Target


def _seeds(folder: Path) -> list[bytes]:
    return [b"cat\ndog\n\nforest_broad-leaved\n", b'["cat", "dog", 3]', "\ufeffKatze\nKälbchen\n".encode()]


def _run(path: Path) -> None:
    for name in read_names(str(path), "--classes"):
        plain_name(name)


TARGETS: list[Target] = [FileTarget("names", _seeds, _run, file="names.txt", mutators=JSON)]
