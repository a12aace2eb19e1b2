import errno
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import draw_folder
from reprogram import load_data
from reprogram.data.decode import Decoding

SIZES = {"train": 24, "test": 24}


@pytest.fixture
def folder(tmp_path):
    return draw_folder(tmp_path / "set", per_class=6)


def cached(folder, cache, **options):
    return Decoding(cache, **options).decode(load_data(folder), SIZES)


def test_the_cache_gives_the_pixels_that_decoding_gives(folder, tmp_path):
    data, skipped = cached(folder, tmp_path / "cache")
    assert skipped == []
    assert torch.equal(data.train.pixels(24), load_data(folder).train.pixels(24))
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".json", ".json", ".npy", ".npy"]


def test_a_second_load_decodes_nothing(folder, tmp_path, monkeypatch):
    expected = cached(folder, tmp_path / "cache")[0].train.pixels(24).clone()

    def fail(*_, **__):
        raise AssertionError("decoded again")

    monkeypatch.setattr("reprogram.data.dataset.read_image", fail)
    assert torch.equal(cached(folder, tmp_path / "cache")[0].train.pixels(24), expected)


def test_a_changed_image_another_size_and_another_order_have_caches_of_their_own(folder, tmp_path):
    cached(folder, tmp_path / "cache")
    path = folder / "disc" / "000.png"
    Image.new("RGB", (40, 40), "red").save(path)
    os.utime(path, ns=(1, 1))
    data, _ = cached(folder, tmp_path / "cache")
    everything = torch.cat([data.train.pixels(24), data.test.pixels(24)])
    assert bool((everything == torch.tensor([255, 0, 0], dtype=torch.uint8)[:, None, None]).all((1, 2, 3)).any())
    bigger, _ = Decoding(tmp_path / "cache").decode(load_data(folder), {"train": 30})
    assert bigger.train.pixels(30).shape[-1] == 30


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    path.write_bytes(os.urandom(path.stat().st_size))


def zero_pixels(path):
    content = bytearray(path.read_bytes())
    content[128:] = bytes(len(content) - 128)
    path.write_bytes(content)


def one_pixel(path):
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)


def text(path):
    path.write_text("no longer what it was")


def nested(path):
    path.write_text("[" * 100_000)


def other_key(path):
    path.write_bytes(path.read_bytes().replace(path.stem.encode(), b"0" * len(path.stem), 1))


def no_fingerprints(path):
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "fingerprints": []}))


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [truncate, empty, foreign, remove, text])
@pytest.mark.parametrize("suffix", [".npy", ".json"])
def test_a_damaged_cache_is_built_again_not_trusted(folder, tmp_path, damage, suffix):
    expect_rebuilt(folder, tmp_path / "cache", damage, suffix)


@pytest.mark.parametrize(
    ("damage", "suffix"),
    [(zero_pixels, ".npy"), (one_pixel, ".npy"), (other_key, ".json"), (no_fingerprints, ".json"), (nested, ".json")],
)
def test_a_cache_of_other_content_is_built_again(folder, tmp_path, damage, suffix):
    expect_rebuilt(folder, tmp_path / "cache", damage, suffix)


def expect_rebuilt(folder, cache, damage, suffix):
    before = cached(folder, cache)[0]
    expected, fingerprints = before.train.pixels(24).clone(), before.train.fingerprints()
    del before
    for path in cache.glob(f"*{suffix}"):
        damage(path)
    after = cached(folder, cache)[0].train
    assert torch.equal(after.pixels(24), expected)
    assert after.fingerprints() == fingerprints


def test_an_array_of_another_shape_or_type_is_not_taken_for_pixels(folder, tmp_path):
    expected = cached(folder, tmp_path / "cache")[0].train.pixels(24).clone()
    for path in (tmp_path / "cache").glob("*.npy"):
        np.save(path, np.zeros((3, 3, 24, 24), dtype=np.float32))
    assert torch.equal(cached(folder, tmp_path / "cache")[0].train.pixels(24), expected)


def test_a_replaced_image_of_the_same_size_and_date_is_noticed(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=5)
    paths = sorted((folder / "disc").iterdir())
    for path, colour in zip(paths, ("red", "blue", "red", "blue", "red"), strict=True):
        Image.new("RGB", (24, 24), colour).save(path.with_suffix(".bmp"))
        path.unlink()
    path = paths[0].with_suffix(".bmp")
    before, first = path.stat(), cached(folder, tmp_path / "cache")[0]
    path.write_bytes(paths[1].with_suffix(".bmp").read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    again = cached(folder, tmp_path / "cache")[0]
    assert again.digest() != first.digest()


@pytest.mark.parametrize("missing", [True, False])
def test_a_system_that_cannot_reserve_writes_zeros_instead(folder, tmp_path, monkeypatch, missing):
    def unsupported(*_):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    if missing:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    else:
        monkeypatch.setattr(os, "posix_fallocate", unsupported, raising=False)
    data, _ = cached(folder, tmp_path / "cache")
    assert torch.equal(data.train.pixels(24), load_data(folder).train.pixels(24))
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2


def test_files_that_a_killed_process_left_behind_go(folder, tmp_path):
    (tmp_path / "cache").mkdir()
    for name, age in ((".old.npy.tmp", 7 * 24 * 3600), (".new.npy.tmp", 60)):
        (tmp_path / "cache" / name).write_bytes(b"x")
        os.utime(tmp_path / "cache" / name, (time.time() - age,) * 2)
    cached(folder, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").glob(".*")] == [".new.npy.tmp"]


def test_cached_files_can_be_read_by_whom_the_user_lets(folder, tmp_path):
    before = os.umask(0o022)
    try:
        cached(folder, tmp_path / "cache")
    finally:
        os.umask(before)
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "cache").iterdir()} == {"0o644"}


def test_writing_into_the_pixels_does_not_change_the_cache(folder, tmp_path):
    data, _ = cached(folder, tmp_path / "cache")
    expected = data.train.pixels(24).clone()
    data.train.pixels(24).zero_()
    assert torch.equal(cached(folder, tmp_path / "cache")[0].train.pixels(24), expected)


LOAD = """
import sys
from reprogram import load_data
from pathlib import Path
from reprogram.data.decode import Decoding
if __name__ == "__main__":
    policy = Decoding(Path(sys.argv[2]), processes=int(sys.argv[3]))
    data, _ = policy.decode(load_data(sys.argv[1]), {"train": 24, "test": 24})
    print(int(data.train.pixels(24).long().sum()))
"""


def test_two_simultaneous_first_loads_end_in_one_valid_cache(folder, tmp_path):
    script = tmp_path / "load.py"
    script.write_text(LOAD)
    command = [sys.executable, script, folder, tmp_path / "cache", "0"]
    together = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    sums = {process.communicate(timeout=120)[0].strip() for process in together}
    assert sums == {str(int(load_data(folder).train.pixels(24).long().sum()))}
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".json", ".json", ".npy", ".npy"]
    assert cached(folder, tmp_path / "cache")[0].train.pixels(24).sum() > 0


def test_a_large_split_is_decoded_by_processes(tmp_path):
    draw_folder(tmp_path / "set", per_class=2)
    for index in range(1400):
        (tmp_path / "set" / "disc" / f"more{index}.png").write_bytes((tmp_path / "set" / "disc" / "000.png").read_bytes())
    script = tmp_path / "load.py"
    script.write_text(LOAD)
    command = [sys.executable, script, tmp_path / "set", tmp_path / "cache", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == int(load_data(tmp_path / "set").train.pixels(24).long().sum())
