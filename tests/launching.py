"""Processes as `torchrun` starts them."""

import os
import subprocess
import sys
from pathlib import Path

import reprogram

PATHS = (str(Path(reprogram.__file__).parents[1]), str(Path(__file__).parent))


def command(count, *words):
    """`torchrun --standalone --nproc-per-node COUNT WORDS`, of this Python."""
    run = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count))
    return [*run, *map(str, words)]


def environment(**more):
    found = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    found["PYTHONPATH"] = os.pathsep.join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
    if sys.platform == "linux":
        found["GLOO_SOCKET_IFNAME"] = "lo"
    return found


def launch(count, *words, check=True, **more):
    done = subprocess.run(
        command(count, *words), capture_output=True, text=True, timeout=300, check=False, env=environment(**more)
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done
