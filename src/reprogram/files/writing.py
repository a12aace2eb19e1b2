"""Files and folders that are either whole or not there.

Each is written beside its place, brought to the disk, and then moved into its place in one step. Whatever a killed
process had begun is removed by the next one that writes there.
"""

import ctypes
import errno
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprogram.errors import ReprogramError
from reprogram.files.foreign import absolute
from reprogram.files.locks import held_by_another, locked, remove_abandoned, still_there
from reprogram.files.seals import HEADER, encoded, sealed_json, tensor_digest

if TYPE_CHECKING:  # so that files can be looked for before torch is imported
    from torch import Tensor

_FOLDER_PREFIX = ".unfinished-"
_REPLACED_PREFIX = ".replaced-"
_PATIENCE = 60.0  # seconds to wait for another process that is saving to the same place
_ROOM = 200  # bytes of a name that can be repeated in a longer one: names are limited to 255


def cache_folder() -> Path:
    """Where what can be computed again is kept: `REPROGRAM_CACHE`, or `reprogram` in the user's cache folder."""
    if given := os.environ.get("REPROGRAM_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "reprogram"


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    write_file(path, lambda temporary: temporary.write_bytes(encoded(text)))


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file in one step; its last key is a SHA-256 of the others. Numbers must be finite."""
    try:
        text = sealed_json(content)
    except ValueError:
        raise ReprogramError(
            f"{str(path)!r} would hold NaN or infinity, which JSON does not know; give finite numbers, or None"
        ) from None
    write_text(path, text)


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", header: Any = None) -> str:
    """Replace a safetensors file in one step, and return the SHA-256 of its content, which it also holds.

    Args:
        path: where.
        tensors: by name; any device.
        header: any JSON value that belongs to the tensors.
    """
    from safetensors.torch import save

    plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    text = json.dumps(header, allow_nan=False)
    digest = tensor_digest(plain, text)
    content = save(plain, metadata={HEADER: f"{digest} {text}"})  # bytes, so that a full disk is an OSError
    write_file(path, lambda temporary: temporary.write_bytes(content))
    return digest


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Replace a file of any kind in one step: `write` fills the temporary path that it is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stem = _stem(path)
    for leftover in path.parent.glob(f"{_escaped(stem)}*.tmp"):
        remove_abandoned(leftover)
    temporary, descriptor = _new_temporary(path.parent, stem)
    try:
        write(temporary)
        os.fsync(descriptor)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # what the user knows, and where the room is missing
        raise
    finally:
        os.close(descriptor)


def write_folder(path: Path, fill: Callable[[Path], None], check: Callable[[], object] | None = None) -> None:
    """Replace a folder: `fill` writes into a new one beside it, which takes its place only when it is complete.

    `check` raises if what stands there must not be replaced; nobody can put something else there after it.
    Where the system can exchange two folders, there is no moment without one of them; elsewhere `settle_folder` puts the
    old one back after a kill in between.
    """
    path = absolute(path)  # a link to a folder stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    with _saving(path, _PATIENCE):
        _settle(path)
        if check is not None:
            check()
        fresh = path.with_name(f"{_FOLDER_PREFIX}{secrets.token_hex(4)}-{_short(path.name)}")
        fresh.mkdir()
        try:
            fill(fresh)
            sync_folder(fresh)
            if not path.exists():
                fresh.replace(path)
            elif not _exchange(fresh, path):
                _replace_by_two_steps(fresh, path)
            sync_folder(path.parent)
        finally:  # what is there now is unfinished, or was exchanged for what is finished
            shutil.rmtree(fresh, ignore_errors=True)


def settle_folder(path: Path) -> None:
    """Bring the place of a folder in order if a process was killed there.

    The folder is put back if that had moved it aside to replace it, and leftovers are removed. Nothing is done while
    another process is saving there.
    """
    path = absolute(path)
    with suppress(OSError, ReprogramError):  # a name that leaves no room for ours beside it has nothing there to settle
        if path.name and (_lock(path).exists() or _replaced(path).exists() or any(_unfinished(path))):
            with _saving(path, 0.0 if path.exists() else _PATIENCE):
                _settle(path)


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Raise if one of these in a folder is a link, by which something outside would be written."""
    for name in names:
        if (folder / name).is_symlink():
            raise ReprogramError(
                f"{str(folder / name)!r} is a link, and what it leads to would be overwritten; put the folder itself there"
            )


def is_leftover(path: Path) -> bool:
    """Whether this is something that a process of ours holds, or has left behind: no content."""
    unfinished = path.name.startswith((_FOLDER_PREFIX, _REPLACED_PREFIX))
    return path.name.startswith(".") and (unfinished or path.name.endswith((".tmp", ".lock")))


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes had begun to write in a folder and below it; its owner calls this while it is locked."""
    for path in folder.rglob(".*"):
        if path.name.endswith(".tmp") and path.is_file():
            remove_abandoned(path)
        elif path.name.startswith(_FOLDER_PREFIX) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name.startswith(_REPLACED_PREFIX) and path.is_dir():
            settle_folder(path.with_name(path.name.removeprefix(_REPLACED_PREFIX)))
        elif path.name.endswith(".lock") and path.is_file():
            remove_abandoned(path)


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


def beside(path: Path, what: str) -> Path:
    """Where something hidden that belongs to a file is kept: in the same folder.

    >>> beside(Path("rows.csv"), "journal").name
    '.rows.csv.journal'
    """
    return path.with_name(f".{_short(path.name)}.{what}")


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system knows how."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _stem(path: Path) -> str:
    """How the temporary names of a file begin."""
    return f".{_short(path.name)}-"


def _short(name: str) -> str:
    """A name for use within longer ones: itself, or its digest if there would be no room."""
    content = os.fsencode(name)
    return name if len(content) <= _ROOM else hashlib.sha256(content).hexdigest()


def _escaped(name: str) -> str:
    """A name in a pattern that matches only itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _new_temporary(folder: Path, stem: str) -> tuple[Path, int]:
    """A new file that is locked while it is written, by which others see that it is no leftover."""
    while True:
        temporary = folder / f"{stem}{secrets.token_hex(4)}.tmp"
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if not held_by_another(descriptor) and still_there(descriptor, temporary):
            return temporary, descriptor
        os.close(descriptor)  # somebody took it for a leftover before it was locked


def _lock(path: Path) -> Path:
    return beside(path, "lock")


def _saving(path: Path, wait: float) -> AbstractContextManager[None]:
    """The lock of everyone who replaces this folder; each holds it for a moment only."""
    return locked(_lock(path), f"folder {str(path)!r}", wait=wait)


def _unfinished(path: Path) -> Iterator[Path]:
    """What was begun for this folder and for no other, whose name may begin or end alike."""
    return path.parent.glob(f"{_FOLDER_PREFIX}{'[0-9a-f]' * 8}-{_escaped(_short(path.name))}")


def _replaced(path: Path) -> Path:
    return path.with_name(f"{_REPLACED_PREFIX}{_short(path.name)}")


def _settle(path: Path) -> None:
    aside = _replaced(path)
    if aside.is_dir() and not path.exists():
        aside.replace(path)
    for leftover in (aside, *_unfinished(path)):
        shutil.rmtree(leftover, ignore_errors=True)


def _replace_by_two_steps(fresh: Path, path: Path) -> None:
    aside = _replaced(path)
    path.replace(aside)
    try:
        fresh.replace(path)
    except BaseException:
        aside.replace(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where this system or file system cannot."""
    names = os.fsencode(one), os.fsencode(other)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            failed = library.renameat2(-100, names[0], -100, names[1], 2)  # AT_FDCWD, RENAME_EXCHANGE
        elif sys.platform == "darwin":
            failed = library.renamex_np(*names, 2)  # RENAME_SWAP
        else:
            return False
    except (AttributeError, OSError, TypeError):  # no such call in this library
        return False
    if failed and ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))
    return not failed
