"""Memory that a process has freed and will need again in a moment, kept instead of being given back to the system.

A pass through a network allocates and frees hundreds of megabytes, the same ones in every batch. glibc gives large blocks
back to the system at once, and the system hands them out again page by page, each filled with zeros: on a CPU that can take
longer than the network itself. Nothing here imports torch.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Mapping

#: How names in the environment begin by which a user has said how memory is to be managed.
_DECIDED_BY = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_")
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of <malloc.h>
_NEVER, _NONE = -1, 0
_DONE = 1


def _decided(environment: Mapping[str, str]) -> bool:
    return any(value and name.startswith(_DECIDED_BY) for name, value in environment.items())


def keep_freed_memory(environment: Mapping[str, str] | None = None) -> bool:
    """Let this process keep what it frees, where its C library is glibc and the user has not decided otherwise.

    What was freed is used again before the process grows; only the peak stays with it until it ends. On other systems,
    nothing happens.

    Returns:
        Whether it keeps memory from now on.
    """
    environment = os.environ if environment is None else environment
    if not sys.platform.startswith("linux") or _decided(environment):
        return False
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        if library.gnu_get_libc_version:
            # large blocks come from the heap like small ones, and the heap never shrinks
            return bool(library.mallopt(_MMAP_MAX, _NONE) == library.mallopt(_TRIM_THRESHOLD, _NEVER) == _DONE)
    return False
