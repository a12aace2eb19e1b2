"""Image files → pixels, in processes of their own, while the model works on what was decoded before.

Each process is asked over a pipe and answers with the pixels themselves, which are read straight into the array that the
model gets: no shared memory, which a container may have little of and a killed process leaves behind. A picture that ends
its process is tried once more in a new one, and then has a problem like any other that cannot be decoded. Nothing here
imports torch, so that such a process starts in a fraction of a second and takes little memory.
"""

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self

import numpy as np

from reprogram.errors import ReprogramError, first_line
from reprogram.images.decoding import Interpolation, LargeImageError, Pixels, large_images_allowed, read_pixels
from reprogram.processes import start_process

_PIXELS, _LARGE, _PROBLEM, _READY = b"P", b"L", b"E", b"R"
_SOME, _ONE = b"s", b"o"  # requests: large images are told and left, or decoded
_PATIENCE = 5.0  # seconds for a process to end


@dataclass(frozen=True)
class Decoded:
    """Some images.

    Attributes:
        pixels: uint8 (n, 3, size, size); zeros where there is a problem.
        problems: for each image what is wrong with it, or None.
    """

    pixels: Pixels
    problems: list[str | None]


class Decoder:
    """Decodes images in several processes; used as a context manager, which ends them.

    Args:
        workers: how many processes; 0 decodes in a thread of this one. A script that asks for processes must start its
            work under `if __name__ == "__main__"`.
        size: side of the result.
        interpolation: how images are resized.
    """

    def __init__(self, workers: int, size: int, interpolation: Interpolation) -> None:
        self.workers, self.size, self.interpolation = workers, size, interpolation
        self._closed = threading.Event()
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._processes = [_Process(size, interpolation, self._closed) for _ in range(workers)]
        for process in self._processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(max(1, workers), "decode")
        self._alone = threading.Lock()  # for images that take much memory, whichever process decodes them
        self._allowed = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if not self.workers:
            self._allowed.enter_context(large_images_allowed())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closed.set()
        for process in self._processes:
            process.stop()  # so that nobody waits for it, but its pipe is closed by whoever reads it
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.end()
        self._allowed.close()

    def submit(self, paths: Sequence[str]) -> "Future[Decoded]":
        """Ask for images; they are decoded in the order in which they were asked for, as far as processes are free."""
        return self._threads.submit(self._decode if self.workers else self._decode_here, list(paths))

    def _decode_here(self, paths: list[str]) -> Decoded:
        found = _nothing(len(paths), self.size)
        for place, path in enumerate(paths):
            try:
                found.pixels[place] = read_pixels(path, self.size, self.interpolation)
            except ReprogramError as error:
                found.problems[place] = str(error)
        return found

    def _decode(self, paths: list[str]) -> Decoded:
        process = self._idle.get()
        try:
            found = _nothing(len(paths), self.size)
            large = process.fill(found, paths, range(len(paths)))
            for place in large:
                with self._alone:
                    process.fill(found, paths, range(place, place + 1), large=True)
            return found
        finally:
            self._idle.put(process)


def _nothing(count: int, size: int) -> Decoded:
    return Decoded(np.zeros((count, 3, size, size), np.uint8), [None] * count)


class _Process:
    """One process that decodes, started when it is needed and again when it has died."""

    def __init__(self, size: int, interpolation: Interpolation, closed: threading.Event) -> None:
        self._arguments, self._closed = (size, interpolation), closed
        self._connection: Connection | None = None
        self._process: BaseProcess | None = None

    def fill(self, found: Decoded, paths: list[str], places: range, *, large: bool = False) -> list[int]:
        """Decode images into their places; tells which were left because they are large."""
        left: list[int] = []
        start, failed = places.start, -1
        while start < places.stop:
            connection = self._started()
            try:
                request = b"\0".join(map(os.fsencode, paths[start : places.stop]))
                connection.send_bytes((_ONE if large else _SOME) + request)
                for place in range(start, places.stop):
                    start = place
                    self._take(connection, found, place, left)
                start = places.stop
            except (EOFError, OSError):
                how = self._ended()
                if start == failed:  # twice: it is the picture, and not what killed the process
                    found.problems[start] = (
                        f"image {paths[start]!r} cannot be decoded (its decoder ended with {how}); replace it or take it "
                        "out of the data"
                    )
                    start += 1
                else:
                    failed = start
        return left

    def _take(self, connection: Connection, found: Decoded, place: int, left: list[int]) -> None:
        answer = connection.recv_bytes()
        kind, text = answer[:1], answer[1:]
        if kind == _PIXELS:
            connection.recv_bytes_into(found.pixels[place].reshape(-1).data)
        elif kind == _LARGE:
            left.append(place)
        else:
            found.problems[place] = text.decode("utf-8", "surrogatepass")

    def _started(self) -> Connection:
        if self._closed.is_set():
            raise ReprogramError("decoding has ended")
        if self._connection is None:
            self._connection, theirs = Pipe()
            try:
                self._process = start_process(_serve, (theirs, *self._arguments))
                theirs.close()
                if self._connection.recv_bytes() != _READY:
                    raise EOFError
            except (EOFError, OSError) as error:
                theirs.close()
                how = self._ended() if isinstance(error, EOFError) else first_line(error)
                raise ReprogramError(
                    f"a process that decodes images cannot be started ({how}); decode in this one with --workers 0, and in "
                    'a script begin under if __name__ == "__main__"'
                ) from None
        return self._connection

    def _ended(self) -> str:
        """Forget a process that is dying, and tell what it died of."""
        process = self._process
        if process is not None:
            process.join(_PATIENCE)
        code = None if process is None else process.exitcode
        self.end()
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return signal.Signals(-code).name
        return f"code {code}"

    def stop(self) -> None:
        """Make the process end, whatever it does."""
        if (process := self._process) is not None:
            process.terminate()

    def end(self) -> None:
        """End the process, and wait until it has ended."""
        connection, process, self._connection, self._process = self._connection, self._process, None, None
        if process is not None:
            process.terminate()
            process.join(_PATIENCE)
            if process.exitcode is None:
                process.kill()
                process.join()
        if connection is not None:
            connection.close()


def _serve(connection: Connection, size: int, interpolation: Interpolation) -> None:
    """What such a process does: decode what it is asked for until nobody asks any more."""
    with large_images_allowed(), contextlib.suppress(EOFError, OSError):
        connection.send_bytes(_READY)
        while True:
            request = connection.recv_bytes()
            for name in request[1:].split(b"\0"):
                try:
                    pixels = read_pixels(os.fsdecode(name), size, interpolation, large=request[:1] == _ONE)
                except LargeImageError:
                    connection.send_bytes(_LARGE)
                except ReprogramError as error:
                    connection.send_bytes(_PROBLEM + str(error).encode("utf-8", "surrogatepass"))
                else:
                    connection.send_bytes(_PIXELS)
                    connection.send_bytes(pixels.reshape(-1).data)
