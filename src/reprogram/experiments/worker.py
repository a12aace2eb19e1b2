"""A process that carries out cells: it reads one as a line on standard input, and answers with a line on standard output.

It ends when its standard input does, at once: whoever has started it is gone, or wants it gone, and what it was at can be
continued.
"""

import json
import os
import queue
import sys
import threading
from typing import Any


def main() -> None:
    """Work until nobody asks any more."""
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what native code prints is no answer
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    from reprogram.experiments.carry_out import Work, carry_out
    from reprogram.experiments.origin import Origins
    from reprogram.memory import keep_freed_memory

    keep_freed_memory()
    origins = Origins()
    while True:
        content: dict[str, Any] = json.loads(asked.get())
        note = carry_out(Work(**content), origins)
        answers.write(note.model_dump_json() + "\n")
        answers.flush()


def _listen(asked: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
