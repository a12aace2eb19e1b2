"""How many CPUs there really are for this process, and threads that sleep while they wait.

Threads of torch's OpenMP runtime spin while they wait for each other. On a machine that is busy with other work, or in a
container that is granted a share of its CPUs, a spinning thread takes the very time that the one it waits for needs. None
of this module imports torch: the environment counts only until torch is imported.
"""

import math
import os
from collections.abc import MutableMapping
from pathlib import Path

_CGROUP_2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_1 = (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))


def granted_cpus() -> int:
    """How many CPUs this process may use: by its affinity and by the quota of its container, at least 1."""
    quota = _quota()
    return max(1, _visible_cpus() if quota is None else min(_visible_cpus(), math.ceil(quota)))


def sleep_while_waiting(environment: MutableMapping[str, str] | None = None) -> None:
    """Set what makes waiting threads sleep and their number fit the granted CPUs, for a torch that is imported after this.

    What the user has set wins.
    """
    environment = os.environ if environment is None else environment
    if "OMP_WAIT_POLICY" not in environment:
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        environment.setdefault("GOMP_SPINCOUNT", "0")  # libgomp spins a little even so
        environment.setdefault("KMP_BLOCKTIME", "0")  # the same for Intel's and LLVM's runtimes
    if granted_cpus() < _visible_cpus():  # a quota, which OpenMP does not know of
        environment.setdefault("OMP_NUM_THREADS", str(granted_cpus()))


def _visible_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota() -> float | None:
    """The share of CPUs that a control group grants, or None where it grants all."""
    try:
        if _CGROUP_2.is_file():
            limit, period = _CGROUP_2.read_text().split()[:2]
            return None if limit == "max" else int(limit) / int(period)
        limit, period = (path.read_text() for path in _CGROUP_1)
        return None if int(limit) <= 0 else int(limit) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
