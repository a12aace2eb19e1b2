"""Another process that holds a lock until it is killed."""

import subprocess
import sys
from contextlib import contextmanager

_CODE = """
import sys, time, pathlib
from reprogram.files import locked
with locked(pathlib.Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held(path):
    process = subprocess.Popen([sys.executable, "-c", _CODE, path], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
