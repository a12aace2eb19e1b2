"""Runs of a study in one file: each is written when it is done, and is not done again."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from reprogram.files import locked, write_file
from reprogram.run.folder import environment


class Kept:
    """Runs by what they are, in one file that two processes may write to.

    Args:
        path: the file.
        minutes: begin no run after so many.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.end = path, time.monotonic() + 60 * minutes

    def read(self) -> dict[str, Any]:
        """All runs."""
        return json.loads(self.path.read_text()) if self.path.exists() else {"runs": {}}

    def run(self, key: list[Any], make: Callable[[], dict[str, Any]]) -> None:
        """Make what is not there, unless time is up."""
        name = json.dumps(key, sort_keys=True)
        if name in self.read()["runs"] or time.monotonic() > self.end:
            return
        started = time.process_time()
        found = {**make(), "processor_seconds": round(time.process_time() - started, 1)}
        with locked(self.path.with_suffix(".lock"), str(self.path), wait=60):
            content = self.read()
            content["environment"] = environment(torch.device("cpu"))
            content["runs"][name] = found
            write_file(self.path, lambda path: path.write_text(json.dumps(content, indent=1) + "\n"))
        told = {part: value for part, value in found.items() if part != "curve"}
        print(name, json.dumps(told), flush=True)
