"""Files that are either whole or not there: each is written beside its place and then moved into it."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprogram.errors import ReprogramError
from reprogram.text import json_text

if TYPE_CHECKING:  # so that files can be looked for before torch is imported
    from torch import Tensor

_FOLDER_PREFIX = ".unfinished-"


def cache_folder() -> Path:
    """Where what can be computed again is kept: `REPROGRAM_CACHE`, or `reprogram` in the user's cache folder."""
    if given := os.environ.get("REPROGRAM_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "reprogram"


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8", errors="surrogateescape"))


def write_json(path: Path, content: Any) -> None:
    """Replace a JSON file in one step; a number that is not finite becomes null."""
    write_text(path, json_text(content, indent=2) + "\n")


def read_json(path: Path, what: str) -> Any:
    """Read a JSON file, or say in one sentence that there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except FileNotFoundError:
        raise ReprogramError(f"{what} {str(path)!r} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise ReprogramError(f"{what} {str(path)!r} is not a readable JSON file ({error}); write it again") from None


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", header: Any = None) -> None:
    """Replace a safetensors file in one step; `header` is any JSON value that belongs to the tensors."""
    from safetensors.torch import save_file

    contiguous = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    write_file(path, lambda temporary: save_file(contiguous, temporary, metadata={"header": json.dumps(header)}))


def read_tensors(path: Path, what: str) -> "tuple[dict[str, Tensor], Any]":
    """Read what `write_tensors` wrote: the tensors and the header."""
    from safetensors import safe_open

    if not path.is_file():
        raise ReprogramError(f"{what} {str(path)!r} does not exist; check the path")
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, json.loads((file.metadata() or {})["header"])  # noqa: SIM118
    except Exception as error:  # a file of another kind fails in many ways, all meaning the same to the caller
        raise ReprogramError(
            f"{what} {str(path)!r} is damaged or of another kind ({type(error).__name__}); "
            "take it from a backup, or make it again"
        ) from None


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Replace a folder: `fill` writes into a new one beside it, which takes its place only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{path.name}-", dir=path.parent))
    try:
        fill(fresh)
        fresh.chmod(0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{path.name}-old-", dir=path.parent))
            path.replace(old / path.name)
            try:
                fresh.replace(path)
            except BaseException:
                (old / path.name).replace(path)
                raise
            finally:
                shutil.rmtree(old, ignore_errors=True)
        else:
            fresh.replace(path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process had begun to write in a folder and below it."""
    for path in folder.rglob(".*"):
        if path.name.endswith(".tmp") and path.is_file():
            path.unlink(missing_ok=True)
        elif path.name.startswith(_FOLDER_PREFIX) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def claimed_folder(folder: Path, *, numbered: bool = False) -> Iterator[Path]:
    """Make a folder, and take it back with the parents made for it if the block fails and has left it empty.

    With `numbered`, a folder that exists is left alone and folder-2, folder-3, ... is made instead, so that two processes
    never get the same one.
    """
    candidate, number = folder, 1
    made = [path for path in folder.parents if not path.exists()]
    while True:
        try:
            candidate.mkdir(parents=True)
        except FileExistsError:
            if not numbered:
                break
            number += 1
            candidate = folder.with_name(f"{folder.name}-{number}")
        else:
            made.insert(0, candidate)
            break
    try:
        yield candidate
    except BaseException:
        for path in made:
            with suppress(OSError):  # not empty: it stays
                path.rmdir()
        raise


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Replace a file of any kind in one step: `write` fills the temporary path that it is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_umask())  # as any new file: some writers make theirs private
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    """The user's mask for new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
