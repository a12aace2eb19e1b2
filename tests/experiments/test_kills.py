"""`reprogram compare` killed again and again ends with the numbers of one that was left alone."""

import json
import os
import random
import signal
import subprocess
import sys
import time

from command import reprogram
from reprogram.files import read_sealed

KILLS = 20


def numbers(folder):
    found = {path.parent.name: read_sealed(path, "result") for path in sorted(folder.glob("runs/*/result.json"))}
    return {name: (result["accuracy"], result["per_class"], result["files"]) for name, result in found.items()}


def epochs(folder):
    return sum(len(path.read_text().splitlines()) for path in folder.glob("runs/*/metrics.jsonl"))


def processes_of(folder):
    """Who still works on a grid: those whose command line or standard input leads there would be hard to tell apart, so
    every worker that this test has started is asked for by the session of its parent."""
    return [path for path in folder.glob("runs/*/.lock") if _alive(path)]


def _alive(lock):
    try:
        os.kill(int(lock.read_text() or 0), 0)
    except (OSError, ValueError):
        return False
    return True


def test_twenty_kills_lose_no_run_and_no_epoch_that_was_kept(shapes, tmp_path):
    recipe = tmp_path / "recipe.json"
    small = {"model": "timm:test_resnet", "pretrained": False, "canvas": 32, "batch_size": 16, "calibration": "none"}
    grid = {"program": ["padding"], "mapping": ["blm", "blm+"], "seed": [0, 1]}
    recipe.write_text(json.dumps({"settings": {**small, "data": str(shapes), "epochs": 24}, "grid": grid}))
    command = ["compare", str(recipe), "--jobs", "2", "--no-report"]
    reprogram(*command, "--out", tmp_path / "undisturbed")

    disturbed, draw, kills, kept = tmp_path / "disturbed", random.Random(0), 0, 0
    for _ in range(200):
        if kills == KILLS:
            break
        process = subprocess.Popen(
            [sys.executable, "-m", "reprogram", *command, "--out", str(disturbed)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # once something new was kept, at any moment: so that twenty kills come before the end
        wanted, until = kept + draw.choice([1, 1, 2, 3]), time.monotonic() + 60
        while epochs(disturbed) < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.05))
        process.send_signal(draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        process.wait()
        kills += process.returncode != 0
        until = time.monotonic() + 10
        while processes_of(disturbed) and time.monotonic() < until:  # its workers end with it
            time.sleep(0.01)
        assert not processes_of(disturbed)
        now = epochs(disturbed)
        assert now >= kept  # nothing that was kept is lost
        kept = now
    assert kills == KILLS
    reprogram(*command, "--out", disturbed)
    assert numbers(disturbed) == numbers(tmp_path / "undisturbed")
    leftovers = [path for path in disturbed.rglob("*") if path.name.endswith(".tmp") or "unfinished" in path.name]
    assert leftovers == []
