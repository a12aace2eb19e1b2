"""Where tasks come from: runs that were named, a folder of them that is watched, and artefacts that clients send."""

import io
import os
import re
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from reprogram.errors import ReprogramError
from reprogram.files import is_leftover, settle_folder, write_file, write_folder
from reprogram.files.foreign import listed
from reprogram.mappings.places import FILES, check_free, holds_artefact
from reprogram.serve.journal import Journal
from reprogram.serve.limits import Refusal
from reprogram.serve.tasks import Read, Stamp, Tasks, unknown_task

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TICK = 1.0  # seconds between two looks at a folder
_NEEDED = FILES[:2]


def found_tasks(
    paths: Iterable[Path], is_task: Callable[[Path], bool] = holds_artefact
) -> tuple[dict[str, Path], Path | None]:
    """The tasks that some paths mean, by name, and the one folder of tasks among them.

    Args:
        paths: runs and artefacts, which are tasks, and at most one other folder, which holds them.
        is_task: whether a folder is one.
    """
    tasks: dict[str, Path] = {}
    folder: Path | None = None
    for path in paths:
        settle_folder(path)
        if is_task(path):
            _add(tasks, _name_of(path), path)
        elif folder is None:
            folder = path
        else:
            raise ReprogramError(f"{str(folder)!r} and {str(path)!r} are folders of runs, but one is expected; give one")
    if folder is not None:
        for path in _inside(folder, is_task):
            _add(tasks, path.name, path)
    return tasks, folder


def _name_of(path: Path) -> str:
    whole = path.resolve()
    return whole.parent.name if whole.name == "artefact" else whole.name


def _add(tasks: dict[str, Path], name: str, path: Path) -> None:
    if name in tasks and tasks[name].resolve() != path.resolve():
        raise ReprogramError(
            f"{str(tasks[name])!r} and {str(path)!r} would both be called {name!r}; rename one of the folders"
        )
    tasks[name] = path


def _inside(folder: Path, is_task: Callable[[Path], bool]) -> list[Path]:
    return [path for path in listed(folder) if not path.name.startswith(".") and path.is_dir() and is_task(path)]


class Store:
    """Keeps the tasks in line with a folder, and takes artefacts from clients.

    Args:
        tasks: the tasks.
        folder: which holds runs and artefacts, and gets what clients send.
        watched: whether changes in it are followed.
        journal: where changes are told.
    """

    def __init__(self, tasks: Tasks, folder: Path | None, journal: Journal, *, watched: bool = True) -> None:
        self.tasks, self.folder, self.journal = tasks, folder, journal
        self.watched = watched and folder is not None
        self._refused: dict[str, Stamp] = {}
        self._own: set[str] = set()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def begin(self, found: dict[str, Path]) -> None:
        """Serve the tasks that were found at the start, and load the models that they need.

        A run that was named has to be good; one that lies in the folder is left out if it is not, and told.
        """
        for name, path in found.items():
            try:
                self.tasks.add(name, path, uploaded=self._inside(path) and _removable(path), new_model=True)
            except ReprogramError as error:
                if not self._inside(path):
                    raise
                self._refused[name] = self.tasks.stamp(self.tasks.place(path))
                self.journal.tell("task-refused", task=name, why=str(error))

    def start(self) -> None:
        """Begin to watch."""
        if self.watched:
            self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_TICK):
            try:
                self.look()
            except (ReprogramError, OSError) as error:  # the folder is gone for a moment, perhaps
                self.journal.tell("watch-failed", error=str(error))

    def look(self) -> None:
        """Follow what has changed in the folder."""
        if self.folder is None:
            return
        with self._lock:
            found = {path.name: path for path in _inside(self.folder, self.tasks.is_task)}
            for name, path in found.items():
                with suppress(OSError, ReprogramError):  # it went away between two looks
                    self._follow(name, path)
            for name in [name for name, entry in self.tasks.entries.items() if self._inside(entry.folder)]:
                if name not in found:
                    self.tasks.remove(name)
                    self.journal.tell("task-removed", task=name, why="its folder is gone")
            self._refused = {name: stamp for name, stamp in self._refused.items() if name in found}

    def _inside(self, path: Path) -> bool:
        return path.parent == self.folder

    def _follow(self, name: str, path: Path) -> None:
        stamp = self.tasks.stamp(self.tasks.place(path))
        entry = self.tasks.entries.get(name)
        if entry is not None and (entry.folder != path or entry.stamp == stamp):
            return
        if self._refused.get(name) == stamp:
            return
        try:
            self.tasks.add(name, path, uploaded=_removable(path))
            self.journal.tell("task-added", task=name, why="found in the folder" if entry is None else "changed on the disk")
        except ReprogramError as error:
            self._refused[name] = stamp
            self.journal.tell("task-refused", task=name, why=str(error))

    def put(self, name: str, files: dict[str, bytes]) -> bool:
        """Take an artefact from a client; tell whether the task is new. Nothing is kept of one that is refused.

        Args:
            name: what it shall be called; a plain word, so that it can be no path.
            files: the content of `artefact.json` and `artefact.safetensors`, perhaps of `labels.csv`.
        """
        path = self._place(name)
        with self._lock:
            self._check_ours(name, path)
            missing = [file for file in _NEEDED if file not in files]
            if missing:
                raise Refusal(422, f"the artefact lacks {missing[0]}; send {_NEEDED[0]} and {_NEEDED[1]}, or a zip of them")

            def fill(fresh: Path) -> None:
                for file in FILES:
                    if file in files:
                        _write(fresh / file, files[file])
                try:
                    read.append(self.tasks.read(name, fresh))
                except ReprogramError as error:
                    raise Refusal(422, str(error).replace(str(fresh), name)) from None

            read: list[Read] = []
            new = name not in self.tasks.entries
            try:
                write_folder(path, fill, lambda: check_free(path))
                self.tasks.admit(read[0], path, uploaded=True)
            except ReprogramError as error:
                raise Refusal(422, str(error).replace(str(path), name)) from None
            except OSError as error:
                raise Refusal(
                    503, f"the artefact cannot be kept ({error.strerror}); tell whoever runs this service"
                ) from None
        self.journal.tell("task-added", task=name, why="uploaded" if new else "uploaded again")
        return new

    def delete(self, name: str) -> None:
        """Remove a task that a client has sent, from memory and from the disk."""
        with self._lock:
            entry = self.tasks.entries.get(name)
            if entry is None:
                raise unknown_task(name)
            path = self._place(name)
            self._check_ours(name, path)
            self.tasks.remove(name)
            aside = path.with_name(f".unfinished-removed-{name}")
            with suppress(OSError):
                path.rename(aside)  # in one step: half of an artefact is never seen
            shutil.rmtree(aside, ignore_errors=True)
        self.journal.tell("task-removed", task=name, why="deleted")

    def _place(self, name: str) -> Path:
        if self.folder is None or not _NAME.fullmatch(name):
            raise Refusal(
                422, "a task is called by letters, digits and ._- (at most 100, a letter or digit first); rename it"
            )
        return self.folder / name

    def _check_ours(self, name: str, path: Path) -> None:
        entry = self.tasks.entries.get(name)
        # neither what a link leads to, nor what lies there and cannot be served, came from a client
        foreign = path.is_symlink() or (entry is None and os.path.lexists(path))
        if foreign or (entry is not None and not (entry.uploaded and entry.folder == path)):
            raise Refusal(422, f"task {name!r} was not uploaded, so it stays as it is; choose another name")


def _removable(path: Path) -> bool:
    """Whether a folder is a plain artefact, as clients send them, and no run and no link."""
    if path.is_symlink():
        return False
    return (path / FILES[0]).is_file() and all(entry.name in FILES or is_leftover(entry) for entry in path.iterdir())


def unpacked(content: bytes, most: int) -> dict[str, bytes]:
    """The files of an artefact in a zip archive, by their plain names; what else is in it is refused.

    Args:
        content: of the archive.
        most: bytes that its files may have together, whatever the archive says of itself.
    """
    damaged = Refusal(422, "the zip archive is damaged, or of a kind that is not read here; make it again")
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) > 16:
                raise Refusal(
                    422, f"the zip archive has {len(members):,} files, but an artefact has three; send those alone"
                )
            for member in members:
                name = member.filename.rpartition("/")[2]
                if name not in FILES or name in files:
                    raise Refusal(422, f"the zip archive holds {member.filename[:100]!r}, which is no file of an artefact")
                with archive.open(member) as file:
                    files[name] = file.read(most + 1)
                most -= len(files[name])
                if most < 0:
                    raise Refusal(413, "the zip archive unpacks to more than is accepted; send the files as they are")
    except Refusal:
        raise
    except Exception:  # whatever a damaged archive leads the reader into
        raise damaged from None
    return files


def _write(path: Path, content: bytes) -> None:
    write_file(path, lambda temporary: temporary.write_bytes(content))
