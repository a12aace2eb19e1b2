"""Processes that decode: the same pixels, and whatever they die of is the problem of one image."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dying
from reprogram import ReprogramError
from reprogram.images import decoding
from reprogram.predict import decode
from reprogram.predict.decode import Decoder


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(6):
        Image.fromarray(rng.integers(0, 255, (20 + number, 30, 3), np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "bad.png").write_bytes(b"no image")
    os.mkfifo(tmp_path / "pipe.png")
    odd = os.fsdecode(b"\xff\nodd.png")
    (tmp_path / odd).write_bytes((tmp_path / "0.png").read_bytes())
    return [str(tmp_path / name) for name in ("0.png", "bad.png", "1.png", odd, "pipe.png", "nowhere.png", "5.png")]


def decoded(paths, workers):
    with Decoder(workers, 16, "bilinear") as decoder:
        parts = [decoder.submit(paths[start : start + 3]) for start in range(0, len(paths), 3)]
        found = [part.result() for part in parts]
    return np.concatenate([part.pixels for part in found]), [problem for part in found for problem in part.problems]


def test_processes_give_the_pixels_and_the_problems_of_this_one(images, monkeypatch):
    pixels, problems = decoded(images, 0)
    assert [problem is None for problem in problems] == [True, False, True, True, False, False, True]
    assert "is no plain file" in problems[4]
    assert "does not exist" in problems[5]
    there = decoded(images, 2)
    assert np.array_equal(there[0], pixels)
    assert there[1] == problems


def test_a_picture_that_ends_its_process_is_one_problem(images, tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "_serve", dying.serve)
    paths = [images[0], str(tmp_path / "killer.png"), images[2], str(tmp_path / "once.png"), images[6]]
    for place in (1, 3):
        Path(paths[place]).write_bytes(Path(images[0]).read_bytes())
    pixels, problems = decoded(paths, 1)
    assert "killer.png' cannot be decoded (its decoder ended with SIGSEGV)" in problems[1]
    assert problems[:1] + problems[2:] == [None] * 4
    assert np.array_equal(pixels[3], pixels[0])  # killed by something else, and tried once more
    assert not pixels[1].any()


def test_a_process_that_cannot_start_is_no_problem_of_an_image(images, monkeypatch):
    monkeypatch.setattr(decode, "_serve", dying.fail)
    with pytest.raises(ReprogramError, match=r"cannot be started \(code 3\); .*--workers 0"):
        decoded(images, 1)


def test_large_images_wait_for_each_other(images, monkeypatch):
    """The process that is asked first only looks at its header."""
    asked = []
    real = decode._Process.fill

    def fill(self, found, paths, places, *, large=False):
        left = real(self, found, paths, places, large=large)
        asked.append((list(places), large, left))
        return left

    monkeypatch.setattr(decode._Process, "fill", fill)
    huge = Image.new("L", (6000, 6000))
    huge.save(images[5])
    _, problems = decoded(images[4:], 1)
    assert problems[1:] == [None, None]
    assert asked == [([0, 1, 2], False, [1]), ([1], True, [])]
    assert decoding.LARGE < 6000 * 6000


def test_a_decoder_that_is_left_early_leaves_no_process(images):
    with Decoder(1, 16, "bilinear") as decoder:
        futures = [decoder.submit(images * 20) for _ in range(20)]
        futures[0].result()
        pid = decoder._processes[0]._process.pid
    assert any(future.cancelled() for future in futures)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_processes_end_with_the_one_that_started_them_and_know_no_torch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time\n"
        "from reprogram.predict.decode import Decoder\n"
        "if __name__ == '__main__':\n"
        "    with Decoder(1, 16, 'bilinear') as decoder:\n"
        "        decoder.submit(['nowhere.png']).result()\n"
        "        print(decoder._processes[0]._process.pid, 'torch' in sys.modules, flush=True)\n"
        "        time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    pid, torch = parent.stdout.readline().split()
    assert torch == "False"
    assert Path("/proc", pid).exists()
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    until = time.monotonic() + 20
    while (state := _state(pid)) not in (None, "Z") and time.monotonic() < until:
        time.sleep(0.02)
    assert state in (None, "Z")


def _state(pid):
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None
