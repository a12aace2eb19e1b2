"""What a client may ask for at the most, and the sentence that it gets when it asks for more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Refusal(Exception):  # noqa: N818  # it is an answer, not an error of ours
    """What a client is told instead of a prediction: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True)
class Limits:
    """What is accepted.

    Attributes:
        upload: bytes of a request.
        pixels: of an image, told by its header before it is decoded.
        images: of a request.
        batch: images that go through the model at once.
        queue: images that may wait for the model.
        seconds: that a client may take to send a request.
        draining_seconds: the same, while the service is being ended.
    """

    upload: int = 32 * 2**20
    pixels: int = 2**26
    images: int = 64
    batch: int = 4
    queue: int = 512
    seconds: float = 30.0
    draining_seconds: float = 3.0

    @property
    def held(self) -> int:
        """Bytes of requests that are held in memory at once, over all clients."""
        return max(8 * self.upload, 64 * 2**20)


class Room:
    """How much of something bounded is taken: bytes of requests that are being received.

    >>> room = Room(10)
    >>> room.take(8), room.take(3), room.take(2)
    (True, False, True)
    """

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0
        self._lock = threading.Lock()

    def take(self, amount: int) -> bool:
        """Take some, if there is so much."""
        with self._lock:
            if self.taken + amount > self.most:
                return False
            self.taken += amount
            return True

    def give(self, amount: int) -> None:
        """Give some back."""
        with self._lock:
            self.taken -= amount

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """A part of the room that is given back at the end of the block, whatever happens in it."""
        share = Share(self)
        try:
            yield share
        finally:
            self.give(share.taken)


class Share:
    """What one request has taken of a room."""

    def __init__(self, room: Room) -> None:
        self.room, self.taken = room, 0

    def take(self, amount: int) -> None:
        """Take more, or refuse the request."""
        if not self.room.take(amount):
            raise Refusal(429, "too many requests are being received at once; try again in a second")
        self.taken += amount
