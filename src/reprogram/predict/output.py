"""A table that takes hours to fill: what is done is kept on the way, and the file is in its place when it is complete.

Beside `rows.csv`, hidden, `.rows.csv.partial` grows by whole batches, and `.rows.csv.journal` says how much of it counts:
how many rows and bytes, their SHA-256, that of the paths, and what was asked. The journal is replaced in one step after the
rows are on the disk, so a kill at any moment loses the rows since then and nothing else; what stands in the partial file
beyond them is cut off. Both are gone when the table is complete.
"""

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from reprogram.errors import ReprogramError
from reprogram.files import claimed_folder, locked, read_sealed, sha256, write_file, write_sealed
from reprogram.files.tables import Column, Row, TableForm, parquet_of_lines, table_head, table_line
from reprogram.files.writing import beside, sync_folder
from reprogram.predict.words import Meant

FORMAT = 1
_SECONDS = 20.0  # after which rows are kept, however few
_BLOCK = 2**20


def refuse_output(out: Path, *, resume: bool, replace: bool) -> None:
    """Raise if something stands where a table shall go, and nothing was said about it."""
    if out.is_dir():
        raise ReprogramError(f"--out {str(out)!r} is a folder, but a file is expected; name one in it")
    if resume or replace:
        return
    if os.path.lexists(beside(out, "journal")):
        raise ReprogramError(
            f"{str(out)!r} was begun before and is not complete; add --resume to continue it, or --replace to begin anew"
        )
    if os.path.lexists(out):
        raise ReprogramError(
            f"{str(out)!r} exists already; choose another --out, add --replace, or --resume to leave it if it is complete"
        )


class _Kept(BaseModel):
    """What the journal says."""

    model_config = ConfigDict(strict=True)
    format: int
    identity: dict[str, Any]
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    content_sha256: str
    paths_sha256: str
    failed: int = Field(ge=0)
    complete: bool


@contextlib.contextmanager
def output(
    out: Path,
    form: TableForm,
    columns: Sequence[Column],
    identity: Mapping[str, Any],
    *,
    resume: bool = False,
    replace: bool = False,
    save_every: int = 1024,
) -> Iterator["Output"]:
    """Open a table to fill it, alone; at the end of the block it is complete, and if that fails it can be continued.

    Args:
        out: the file.
        form: its format.
        columns: of its rows.
        identity: what the rows depend on, as plain JSON values: another one cannot continue them.
        resume: continue what was begun, if anything was.
        replace: begin anew, and replace what stands there in the end.
        save_every: rows after which they are kept; fewer if that takes long.
    """
    with (
        claimed_folder(out.parent),
        locked(beside(out, "lock"), f"the file {str(out)!r}", remedy=", or choose another --out"),
    ):
        refuse_output(out, resume=resume, replace=replace)
        filling = Output(out, form, columns, identity, save_every, begun=resume)
        with filling:
            yield filling


class Output:
    """A table that is being filled; see `output`.

    Attributes:
        rows: that are in it.
        failed: those of them that have an error.
        complete: whether nothing is missing any more.
    """

    def __init__(
        self,
        out: Path,
        form: TableForm,
        columns: Sequence[Column],
        identity: Mapping[str, Any],
        save_every: int,
        *,
        begun: bool,
    ) -> None:
        self.out, self.form, self.columns, self.identity, self.save_every = out, form, columns, dict(identity), save_every
        self.partial, self.journal = beside(out, "partial"), beside(out, "journal")
        self.rows = self.failed = self._bytes = 0
        self.complete = False
        self._waiting: list[str] = []
        self._content, self._paths = hashlib.sha256(), hashlib.sha256()
        self._new, self._since = 0, time.monotonic()
        self._descriptor, self._keeping = -1, False
        self._before = self._kept() if begun else None
        if begun and self._before is None and os.path.lexists(out):
            self.complete = True

    def __enter__(self) -> Self:
        if self.complete:
            return self
        if self._before is None:
            self.journal.unlink(missing_ok=True)  # first: the partial file means nothing without it
            self._open(os.O_TRUNC)
            self._waiting.append(table_head(self.form, self.columns))
        elif not self._before.complete:
            self._continue(self._before)
        elif self.partial.exists():
            self._check_content(self._before)
        else:
            self._check_placed(self._before)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                with contextlib.suppress(OSError):  # whatever is wrong has been said
                    self._abandon()
            elif not self.complete:
                self._finish()
        finally:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def rest_of(self, images: Iterator[Meant]) -> Iterator[Meant]:
        """The images whose rows are missing, after those that are there have been compared with what they were.

        Raises:
            ReprogramError: other images came first when the table was begun.
        """
        before = self._before
        if before is None:
            return images
        for _ in range(before.rows):
            image = next(images, None)
            if image is None:
                break
            self._paths.update(_path_bytes(image.path))
        more = before.complete and next(images, None) is not None
        if more or self._paths.hexdigest() != before.paths_sha256:
            raise ReprogramError(
                f"the first {before.rows:,} images are others than those that {str(self.out)!r} was begun with; give the "
                "same ones, or begin anew with --replace"
            )
        self.rows, self.failed = before.rows, before.failed
        return iter(()) if before.complete else images

    def add(self, rows: Sequence[Row]) -> None:
        """Add the rows of a batch; they are kept when there are enough of them."""
        for row in rows:
            self._waiting.append(table_line(self.form, self.columns, row))
            self._paths.update(_path_bytes(row["image"]))
            self.failed += row["error"] is not None
        self.rows += len(rows)
        self._new += len(rows)
        if self._new >= self.save_every or time.monotonic() - self._since > _SECONDS:
            self._keep()

    def _keep(self, *, complete: bool = False) -> None:
        """Bring the rows to the disk, and then say so in the journal."""
        content = "".join(self._waiting).encode("utf-8", "surrogateescape")
        rest, self._keeping = memoryview(content), True
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        os.fsync(self._descriptor)
        self._waiting, self._new = [], 0
        self._bytes += len(content)
        self._content.update(content)
        kept = _Kept(
            format=FORMAT,
            identity=self.identity,
            rows=self.rows,
            bytes=self._bytes,
            content_sha256=self._content.hexdigest(),
            paths_sha256=self._paths.hexdigest(),
            failed=self.failed,
            complete=complete,
        )
        write_sealed(self.journal, kept.model_dump())
        self._since, self._keeping = time.monotonic(), False

    def _finish(self) -> None:
        if self._before is None or not self._before.complete:
            self._keep(complete=True)
        if self.partial.exists():  # else a kill came between putting it into its place and saying so
            if self.form == "parquet":
                write_file(self.out, lambda temporary: parquet_of_lines(self.partial, temporary, self.columns))
                self.partial.unlink()
            else:
                self.partial.replace(self.out)
                sync_folder(self.out.parent)
        self.journal.unlink()
        self.complete = True

    def _abandon(self) -> None:
        """Keep what is done, or leave nothing where nothing is."""
        if self.complete or (self._before is not None and self._before.complete):
            return
        if self._keeping:
            if not os.path.lexists(self.journal):  # no row counts, and where the disk is full, the room is missed
                self.partial.unlink(missing_ok=True)
        elif self.rows:
            self._keep()
        elif self._before is None:
            self.journal.unlink(missing_ok=True)
            self.partial.unlink(missing_ok=True)

    def _open(self, how: int) -> None:
        if os.path.lexists(self.partial) and not stat.S_ISREG(self.partial.lstat().st_mode):
            raise ReprogramError(f"{str(self.partial)!r} is no file, but rows are to be kept in it; remove it")
        flags = os.O_RDWR | os.O_CREAT | how | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(self.partial, flags, 0o666)

    def _kept(self) -> _Kept | None:
        """What an earlier run has kept, if it was the same one."""
        if not os.path.lexists(self.journal):
            return None
        anew = "begin anew with --replace"
        kept = _Kept.model_validate(read_sealed(self.journal, "the journal", _Kept, remedy=anew))
        for name in sorted({*kept.identity, *self.identity}):
            if kept.identity.get(name) != self.identity.get(name) or kept.format != FORMAT:
                raise ReprogramError(
                    f"{str(self.out)!r} was begun with another {name.replace('_', ' ')} ({kept.identity.get(name)}, now "
                    f"{self.identity.get(name)}); continue it as it was begun, or {anew}"
                )
        return kept

    def _continue(self, before: _Kept) -> None:
        self._check_content(before)
        os.ftruncate(self._descriptor, before.bytes)
        os.lseek(self._descriptor, before.bytes, os.SEEK_SET)
        self._bytes = before.bytes

    def _check_placed(self, before: _Kept) -> None:
        """Raise unless the rows that were complete are in their place: somebody may have removed or replaced the file."""
        try:  # of Parquet nobody knows more than that it is there: its bytes are not those of the rows
            placed = self.out.exists() and (self.form == "parquet" or sha256(self.out) == before.content_sha256)
        except OSError:
            placed = False
        if not placed:
            raise ReprogramError(
                f"the rows of {str(self.out)!r} were complete, but neither there nor in {self.partial.name!r} are they any "
                "more; begin anew with --replace"
            )

    def _check_content(self, before: _Kept) -> None:
        self._open(0)
        left = before.bytes
        while left and (block := os.read(self._descriptor, min(left, _BLOCK))):
            self._content.update(block)
            left -= len(block)
        if left or self._content.hexdigest() != before.content_sha256:
            raise ReprogramError(
                f"what was kept of {str(self.out)!r} in {self.partial.name!r} has changed since it was written (its SHA-256 "
                "differs); begin anew with --replace"
            )


def _path_bytes(path: str) -> bytes:
    return os.fsencode(path) + b"\0"
