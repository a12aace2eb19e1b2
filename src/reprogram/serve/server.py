"""uvicorn with three changes: a signal ends it with code 0, its refusals are JSON, and a head may not come too slowly."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import h11
import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from reprogram.text import json_text

_HEAD_SECONDS = 15.0  # that a client may take for the head of a request
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Protocol(H11Protocol):
    """HTTP/1.1 that closes connections on which no request comes, and refuses what is no HTTP with a sentence in JSON."""

    _timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer is not None and self.cycle is not None:
            self._timer.cancel()
            self._timer = None

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @override
    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that sends no more may still be waiting for the answer to what it has sent as a whole."""
        waits = self.cycle is not None and not self.cycle.response_complete
        if waits and self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self.cycle.keep_alive = False
            return True
        return None

    def _give_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    @override
    def send_400_response(self, msg: str) -> None:
        body = json_text({"error": "the request is not readable as HTTP; check what is sent"}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        try:
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer is on its way already
            pass
        self.transport.close()


class Server(uvicorn.Server):
    """A server that a signal ends gracefully: what was accepted is answered, and the exit code is 0.

    Args:
        config: of uvicorn.
        drain: called once, as soon as the end begins.
    """

    def __init__(self, config: uvicorn.Config, drain: Callable[[str], None]) -> None:
        super().__init__(config)
        self._drain = drain

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
        kept = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before: dict[int, Any] = {number: signal.signal(number, self.handle_exit) for number in kept}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self._drain(signal.Signals(sig).name)
        super().handle_exit(sig, frame)
