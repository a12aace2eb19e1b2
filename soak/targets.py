r"""What a fuzz target is, and how one is added.

A target is one parser. Make a file `soak/targets_<what>.py` with a list `TARGETS`; every such file is found by itself.
Most parsers read one file, and need no more than this:

    def _seeds(folder: Path) -> list[bytes]:           # good inputs, made on the spot by the library itself
        numpy.savez(folder / "good.npz", logits=..., labels=...)
        return [(folder / "good.npz").read_bytes()]

    def _run(path: Path) -> None:                      # what is called with each damaged input
        for block in read_npz(path):
            ...

    TARGETS = [FileTarget("answers.npz", _seeds, _run, file="shard.npz", mutators=ZIPS, dictionary=(b"logits.npy",))]

A parser of a folder is a `FolderTarget`: its `make(folder)` writes a good folder, and each input is that folder with one
file of it damaged (`files` says which may be). `run(folder)` gets the folder.

`run` must return, or raise `ReprogramError` (or what `refusals` lists). Any other exception, a signal, a run of more than
`seconds`, or more memory than `memory` is a finding. At least one good input must be accepted, or the target tests nothing.

- `mutators`: see `soak.mutate`; `BYTES` (always good), `JSON`, `TEXT`, `NPY`, `ZIPS`, `SAFETENSORS`, or a tuple of your own.
- `dictionary`: words of the format, which are put anywhere.
- `seal`: makes a damaged input pass the checksum, so that the code behind it is reached; used for three of four inputs.
- `warm`: imports what it needs, once for all targets that name the same function, before processes are forked.
- `slow=True`: an input costs more than about 20 ms; the short run then tries ten inputs instead of hundreds.
- `weight`: its share of the time, 1 unless there is a reason.

Try one: `python -m soak.fuzz --seconds 20 --targets answers.npz`. Repeat a failure: the report prints the command.
"""

import importlib
import pkgutil
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol

import soak
from reprogram.errors import ReprogramError
from soak.mutate import BYTES, Mutator

_GB = 1 << 30


class Target(Protocol):
    """What the harness needs of a target; inputs are always bytes."""

    name: str
    mutators: Sequence[Mutator]
    dictionary: Sequence[bytes]
    refusals: tuple[type[BaseException], ...]
    warm: Callable[[], Any] | None
    seconds: float
    memory: int
    slow: bool
    weight: float

    def seeds_in(self, folder: Path) -> list[bytes]:
        """Good inputs; `folder` is empty and stays as it is left, for `run_in`."""

    def mutated(self, data: bytes, change: Callable[[bytes], bytes], sealed: bool) -> bytes:
        """An input with its content changed; `sealed` asks for one that passes the checksum."""

    def begin(self, folder: Path) -> None:
        """Mend what an input that ended its process has left in the folder."""

    def run_in(self, folder: Path, data: bytes) -> None:
        """Parse an input."""


@dataclass
class FileTarget:
    """A parser of one file: `run(path)` is called with the damaged file.

    Attributes:
        name: what it is called in the table.
        seeds: makes the good files; a folder is given for what it needs on the way.
        run: the parser.
        file: how the file is called.
        prepare: writes what stands beside the file.
        seal: makes a damaged content pass the checksum.
        warm: imports.
        (the others: see the module)
    """

    name: str
    seeds: Callable[[Path], list[bytes]]
    run: Callable[[Path], Any]
    file: str = "input.bin"
    prepare: Callable[[Path], None] | None = None
    seal: Callable[[bytes], bytes] | None = None
    warm: Callable[[], Any] | None = None
    mutators: Sequence[Mutator] = BYTES
    dictionary: Sequence[bytes] = ()
    refusals: tuple[type[BaseException], ...] = (ReprogramError,)
    seconds: float = 10.0
    memory: int = 2 * _GB
    slow: bool = False
    weight: float = 1.0

    def seeds_in(self, folder: Path) -> list[bytes]:
        """The good files, made in a folder that does not stay."""
        if self.warm is not None:
            self.warm()
        making = folder / "making"
        making.mkdir()
        found = self.seeds(making)
        shutil.rmtree(making)
        if self.prepare is not None:
            self.prepare(folder)
        return found

    def mutated(self, data: bytes, change: Callable[[bytes], bytes], sealed: bool) -> bytes:
        """The file with its content changed."""
        return _sealed(self.seal, change(data), sealed)

    def begin(self, folder: Path) -> None:
        """Nothing stays of an input."""

    def run_in(self, folder: Path, data: bytes) -> None:
        """Write the file and read it."""
        path = folder / self.file
        path.write_bytes(data)
        self.run(path)


@dataclass
class BytesTarget:
    """A parser of bytes: `run(data)` is called with them. The attributes are those of `FileTarget`."""

    name: str
    seeds: Callable[[Path], list[bytes]]
    run: Callable[[bytes], Any]
    warm: Callable[[], Any] | None = None
    mutators: Sequence[Mutator] = BYTES
    dictionary: Sequence[bytes] = ()
    refusals: tuple[type[BaseException], ...] = (ReprogramError,)
    seconds: float = 10.0
    memory: int = 2 * _GB
    slow: bool = False
    weight: float = 1.0

    def seeds_in(self, folder: Path) -> list[bytes]:
        """The good inputs."""
        if self.warm is not None:
            self.warm()
        return self.seeds(folder)

    def mutated(self, data: bytes, change: Callable[[bytes], bytes], sealed: bool) -> bytes:
        """The bytes changed."""
        return change(data)

    def begin(self, folder: Path) -> None:
        """Nothing stays of an input."""

    def run_in(self, folder: Path, data: bytes) -> None:
        """Parse them."""
        self.run(data)


@dataclass
class FolderTarget:
    r"""A parser of a folder: `run(folder)` is called with one file of it damaged.

    An input is the damaged file's path in the folder, a zero byte, and its content.

    Attributes:
        name: what it is called in the table.
        make: writes a good folder.
        run: the parser.
        files: patterns of the files that are damaged.
        seal: given the file's path in the folder and its damaged content, makes it pass the checksum.
        settle: given the folder and the damaged file's path in it, makes the files that name its checksum agree with it.
        fresh: whether the folder is written anew for each input, because the parser changes it.
        (the others: see the module)
    """

    name: str
    make: Callable[[Path], None]
    run: Callable[[Path], Any]
    files: Sequence[str] = ("*",)
    seal: Callable[[str, bytes], bytes] | None = None
    settle: Callable[[Path, str], None] | None = None
    fresh: bool = False
    warm: Callable[[], Any] | None = None
    mutators: Sequence[Mutator] = BYTES
    dictionary: Sequence[bytes] = ()
    refusals: tuple[type[BaseException], ...] = (ReprogramError,)
    seconds: float = 10.0
    memory: int = 2 * _GB
    slow: bool = False
    weight: float = 1.0
    _good: dict[str, bytes] = field(default_factory=dict, repr=False)

    def seeds_in(self, folder: Path) -> list[bytes]:
        """Each file of the good folder."""
        if self.warm is not None:
            self.warm()
        good = folder / "good"
        good.mkdir()
        self.make(good)
        for path in sorted(good.rglob("*")):
            if path.is_file():
                self._good[path.relative_to(good).as_posix()] = path.read_bytes()
        names = [name for name in self._good if any(fnmatch(name, pattern) for pattern in self.files)]
        return [name.encode(errors="surrogateescape") + b"\0" + self._good[name] for name in names]

    def mutated(self, data: bytes, change: Callable[[bytes], bytes], sealed: bool) -> bytes:
        """The same file with its content changed."""
        name, _, content = data.partition(b"\0")
        seal = self.seal
        file = name.decode(errors="surrogateescape")
        bound = None if seal is None else lambda changed: seal(file, changed)
        return name + b"\0" + _sealed(bound, change(content), sealed)

    def begin(self, folder: Path) -> None:
        """Write the good folder anew."""
        place = folder / "good"
        shutil.rmtree(place, ignore_errors=True)
        for name, content in self._good.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)

    def run_in(self, folder: Path, data: bytes) -> None:
        """Put the damaged file into the folder, read the folder, and put the good files back."""
        raw, _, content = data.partition(b"\0")
        name = raw.decode(errors="surrogateescape")
        place = folder / "good"
        if name not in self._good:
            raise ValueError(f"{name!r} is no file of the folder of {self.name}")
        if self.fresh:
            self.begin(folder)
        (place / name).write_bytes(content)
        try:
            if self.settle is not None:
                self.settle(place, name)
            self.run(place)
        finally:
            for file in self._good if self.settle is not None else [name]:
                (place / file).write_bytes(self._good[file])


def _sealed(seal: Callable[[bytes], bytes] | None, data: bytes, sealed: bool) -> bytes:
    """The content made to pass the checksum, where that can be done: a file without its form has no place for one."""
    if seal is None or not sealed:
        return data
    try:
        return seal(data)
    except Exception:
        return data


def all_targets(modules: Sequence[str] = ()) -> dict[str, Target]:
    """The targets by name: of all `soak/targets_*.py`, or of the modules given."""
    names = modules or [f"soak.{info.name}" for info in pkgutil.iter_modules(soak.__path__) if info.name[:8] == "targets_"]
    found: dict[str, Target] = {}
    for name in names:
        for target in importlib.import_module(name).TARGETS:
            if target.name in found:
                raise ValueError(f"two fuzz targets are called {target.name!r}; rename one")
            found[target.name] = target
    return found
