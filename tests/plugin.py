"""A package of somebody else's, installed in a folder of the test: a real entry point of the group `reprogram`."""

import os
import subprocess
import sys


def install(place, name, source, entry=None):
    """Write a module with its metadata; return the environment in which both are found."""
    metadata = place / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (place / f"{name}.py").write_text(source)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[reprogram]\n{name} = {entry or name}\n")
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def python(code, env, **options):
    """What a program prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=300, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout
