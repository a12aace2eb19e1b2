"""Single bits flipped in every file that the product writes: whoever reads it must refuse, and say which file it is.

A flip in the cache is another matter: what is there can be made again, so it must be, with the same pixels.
"""

import contextlib
import io
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from soak.faults import Server, build_library
from soak.verbs import SMALL, TRAINED, draw

#: What is made for the flips, by the folder that holds it.
_COMMANDS = (
    ("fit", "--data", "data/shapes", *TRAINED, "--program", "padding", "--mapping", "blm", "--out", "run"),
    ("fit", "--data", "data/shapes", *TRAINED, "--mapping", "auto", "--program", "none", "--out", "chosen"),
    ("logits", "--data", "data/shapes", *SMALL, "--shard-size", "8", "--out", "shards"),
    ("logits", "--data", "data/shapes", *SMALL, "--shard-size", "8", "--format", "parquet", "--out", "tables"),
    ("map", "shards", "--mapping", "blm", "--out", "mapping"),
)
_KEPT = 5  # examples of what went wrong, for each file


@dataclass
class Tally:
    """What came of the flips in one file.

    Attributes:
        reader: who read it.
        file: which.
        tried: how many bits were flipped, one at a time.
        refused: how many of them were refused in a sentence that names the file and says what to do, or mended.
        problems: what went wrong, with the bit; the first few.
    """

    reader: str
    file: str
    tried: int = 0
    refused: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Count those of another tally of the same file, too."""
        self.tried += other.tried
        self.refused += other.refused
        self.problems = (self.problems + other.problems)[:_KEPT]


@dataclass(frozen=True)
class Reader:
    """Somebody who reads files.

    Attributes:
        name: in words.
        files: patterns of what it reads, below the material's folder.
        read: reads them; an error of ours is a refusal.
        cost: how many times as long it takes as the fastest; it gets fewer flips.
        quietly: whether it mends what is damaged instead; `read` then raises where the result is another.
    """

    name: str
    files: tuple[str, ...]
    read: Callable[[Path], object]
    cost: int = 1
    quietly: bool = False


def make_material(folder: Path) -> None:
    """Make one of everything that the product writes: a run, shards, a mapping, a cache."""
    draw(folder / "data")
    with _inside(folder):
        for words in _COMMANDS:
            _command(*words)


def readers(folder: Path) -> list[Reader]:
    """Who reads what, in the folder of `make_material`."""
    from reprogram.answers import AnswerMapping
    from reprogram.errors import ReprogramError
    from reprogram.reprogrammed import Reprogrammed
    from reprogram.run.folder import seen_images, stored_config
    from reprogram.run.verify import verify

    def resumed(_: Path) -> None:
        _command("fit", "--resume", "--out", "run")

    def mapped(_: Path, shards: str) -> None:
        _command("map", shards, "--mapping", "blm", "--out", "other", "--replace")

    def verified(path: Path | str) -> None:
        for problem in (checked.problem for checked in verify(path) if checked.problem is not None):
            raise ReprogramError(problem)

    written = ("run/*", "run/*/*", "mapping/*", "shards/*", "tables/*", "own-cache/*")
    tensors = ("artefact.json", "artefact.safetensors")
    return [
        Reader("verify all", written, lambda path: verified(path.relative_to(folder).parts[0]), cost=6),
        Reader("verify", (*written, "chosen/selection.json"), verified),
        Reader("load a mapping", tuple(f"mapping/{name}" for name in tensors), lambda _: AnswerMapping.load("mapping")),
        Reader(
            "load a model", tuple(f"run/artefact/{name}" for name in tensors), lambda _: Reprogrammed.load("run"), cost=8
        ),
        Reader("read a configuration", ("run/config.json",), lambda _: stored_config(Path("run"))),
        Reader("read the images seen", ("run/images.txt",), lambda _: seen_images(Path("run"))),
        Reader("resume", ("run/checkpoint/*", "run/config.json"), resumed, cost=60),
        Reader("map npz", ("shards/*",), lambda path: mapped(path, "shards"), cost=20),
        Reader("map parquet", ("tables/*",), lambda path: mapped(path, "tables"), cost=20),
        Reader("decode", ("own-cache/*",), _Decoding(folder).again, cost=8, quietly=True),
    ]


class _Decoding:
    """The images through the cache: always the same pixels, and a cache that is whole afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pixels = self._decode()

    def _decode(self) -> list[bytes]:
        from reprogram.data.decode import Decoding
        from reprogram.data.load import load_data

        data = load_data(str(self.folder / "data" / "shapes")).with_validation(0.25, 0)
        sizes = {"train": 64, "val": 64, "test": 64}
        decoded, _ = Decoding(cache=self.folder / "own-cache").decode(data, sizes)
        return [split.pixels(64, "bilinear").numpy().tobytes() for split in decoded.splits.values()]

    def again(self, _: Path) -> None:
        if self._decode() != self.pixels:
            raise AssertionError("the pixels are others")


def files_of(folder: Path, reader: Reader) -> list[Path]:
    """The files that a reader reads, each once."""
    found = {path for pattern in reader.files for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in found if not path.name.startswith("."))


def bits_of(path: Path, count: int, seed: int) -> list[int]:
    """The bits to flip, in a random order: all of a small file, else `count`, some of them in its first and last bytes."""
    total = 8 * path.stat().st_size
    rng = random.Random(f"{seed} {path.name}")
    if total <= count:
        return rng.sample(range(total), total)
    ends = [*range(min(total, 512)), *range(max(0, total - 512), total)]
    chosen = {*rng.sample(ends, min(len(ends), count // 8)), *rng.sample(range(total), count)}
    return rng.sample(sorted(chosen), count)


def flip(path: Path, reader: Reader, bits: Sequence[int], seconds: float = math.inf) -> Tally:
    """Flip bits of a file one by one, read it each time, and put it back, until the time is over."""
    from reprogram.errors import ReprogramError

    whole = path.read_bytes()
    tally = Tally(reader.name, path.name)
    until = time.monotonic() + seconds
    for bit in bits:
        if time.monotonic() > until:
            break
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        problem = "it was not noticed"
        try:
            reader.read(path)
            if reader.quietly:
                problem = "" if path.read_bytes() == whole else "the file was not made again"
        except ReprogramError as error:
            problem = _unclear(str(error), path)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        finally:
            path.write_bytes(whole)
        tally.tried += 1
        if problem:
            tally.problems = [*tally.problems, f"bit {bit} of {path.name}: {problem}"][:_KEPT]
        else:
            tally.refused += 1
    return tally


def _unclear(text: str, path: Path) -> str:
    """What is wrong with a refusal; nothing if it names the file and says what to do."""
    if path.name not in text:
        return f"the file is not named: {text}"
    return "" if ";" in text else f"it does not say what to do: {text}"


def try_flips(
    folder: str, flips: str, seconds: str, seed: str, part: str = "0", parts: str = "1", only: str = ""
) -> list[dict[str, object]]:
    """Make the material and flip bits of all its files; in a process of its own, so all arguments are texts.

    Args:
        folder: a new folder.
        flips: how many bits of each file the fastest reader gets at most.
        seconds: how long in all; each file and reader has an equal share of it.
        seed: of the bits.
        part: of `parts`: each takes another share of the files.
        parts: how many processes there are.
        only: the name of one reader.
    """
    place = Path(folder).resolve()
    place.mkdir(parents=True, exist_ok=True)
    make_material(place)
    tallies: dict[tuple[str, str], Tally] = {}
    with _inside(place):
        jobs = [(reader, path) for reader in readers(place) for path in files_of(place, reader) if only in ("", reader.name)]
        jobs, until = jobs[int(part) :: int(parts)], time.monotonic() + float(seconds)
        for done, (reader, path) in enumerate(jobs):
            share = (until - time.monotonic()) / (len(jobs) - done)  # what the others have not used
            tally = flip(path, reader, bits_of(path, max(4, int(flips) // reader.cost), int(seed)), share)
            tallies.setdefault((reader.name, _kind(path)), Tally(reader.name, _kind(path))).add(tally)
    shutil.rmtree(place, ignore_errors=True)
    return [asdict(tally) for tally in tallies.values()]


def _kind(path: Path) -> str:
    """What sort of file it is: shards and cache files have numbers and keys for names."""
    if path.suffix == ".npy" or path.parent.name == "own-cache":
        return f"cache *{path.suffix}"
    if path.suffix in (".npz", ".parquet"):
        return f"shard *{path.suffix}"
    return f"{path.parent.name}/{path.name}"


def _command(*words: str) -> None:
    """Carry out a command in this process; a refusal becomes the error that it was."""
    from reprogram.cli.main import main
    from reprogram.errors import ReprogramError

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(list(words))
    if code:
        raise ReprogramError(said.getvalue().strip())


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder, with the cache in it."""
    before, cache = Path.cwd(), os.environ.get("REPROGRAM_CACHE")
    os.chdir(folder)
    os.environ["REPROGRAM_CACHE"] = str(folder / "cache")
    try:
        yield
    finally:
        os.chdir(before)
        del os.environ["REPROGRAM_CACHE"]
        if cache is not None:
            os.environ["REPROGRAM_CACHE"] = cache


def merged(parts: Iterable[Sequence[dict[str, Any]]]) -> list[Tally]:
    """The tallies of several processes together."""
    found: dict[tuple[str, str], Tally] = {}
    for part in parts:
        for facts in part:
            tally = Tally(**facts)
            found.setdefault((tally.reader, tally.file), Tally(tally.reader, tally.file)).add(tally)
    return list(found.values())


def soak_flips(
    base: Path, *, seed: int = 0, flips: int = 4000, minutes: float = 4.0, workers: int = 2, library: Path | None = None
) -> list[Tally]:
    """Flip bits of everything, in several processes, until the time is over."""
    library = library or build_library(base)

    def work(number: int) -> list[dict[str, Any]]:
        with Server(base / f"flips-{number}", library, limit=60 * minutes + 300) as server:
            place = str(base / f"flips-{number}" / "material")
            words = (str(flips), str(60 * minutes), str(seed), str(number), str(workers))
            found: list[dict[str, Any]] = server.call("soak.flips:try_flips", place, *words)
            return found

    with ThreadPoolExecutor(workers) as pool:
        return sorted(merged(pool.map(work, range(workers))), key=lambda tally: (tally.reader, tally.file))
