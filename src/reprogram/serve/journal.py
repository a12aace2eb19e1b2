"""The log: one line of JSON for each thing that happened; what others wrote cannot steer a terminal or fake a line."""

import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from reprogram.text import json_text

_LONGEST = 200  # letters of a text in a line


class Journal:
    """Writes lines such as `{"time": "...", "event": "request", "path": "/v1/tasks", "status": 200, "ms": 1.2}`.

    Args:
        stream: where they go; standard error by default. None for nowhere.
    """

    def __init__(self, stream: TextIO | None = sys.stderr) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def tell(self, event: str, **facts: Any) -> None:
        """Write a line; a stream that is gone or full never ends the service."""
        if self._stream is None:
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        told = {name: _clipped(value) for name, value in facts.items() if value is not None}
        line = json_text({"time": time, "event": event, **told}, ascii_only=True)
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None


class ToJournal(logging.Handler):
    """What a library says by Python's own means, as lines of the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it."""
        self._journal.tell(
            "server", said=record.getMessage(), error=None if record.exc_info is None else str(record.exc_info[1])
        )


def _clipped(value: Any) -> Any:
    return f"{value[:_LONGEST]} ..." if isinstance(value, str) and len(value) > _LONGEST else value
