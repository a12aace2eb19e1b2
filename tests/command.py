"""The command line in a process of its own, as a person starts it."""

import subprocess
import sys


def reprogram(*arguments, cwd=None, check=True, **options):
    command = [sys.executable, "-m", "reprogram", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, **options)
    if check:
        assert done.returncode == 0, done.stderr
    return done
