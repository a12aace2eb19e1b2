import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import draw_folder
from reprogram import ReprogramError, load_data
from reprogram.data.load import decode_data

SIZES = {"train": 24, "test": 24}


@pytest.fixture
def folder(tmp_path):
    return draw_folder(tmp_path / "set", per_class=6)


def cached(folder, cache, **options):
    data, skipped = decode_data(load_data(folder), SIZES, cache=cache, **options)
    return data, skipped


def test_the_cache_gives_the_pixels_that_decoding_gives(folder, tmp_path):
    data, skipped = cached(folder, tmp_path / "cache")
    assert skipped == []
    assert torch.equal(data.train.pixels(24), load_data(folder).train.pixels(24))
    assert len(list((tmp_path / "cache").iterdir())) == 2


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
    bigger, _ = decode_data(load_data(folder), {"train": 30}, cache=tmp_path / "cache")
    assert bigger.train.pixels(30).shape[-1] == 30


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    path.write_bytes(os.urandom(path.stat().st_size))


def zero_pixels(path):
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)


def other_key(path):
    content = path.read_bytes()
    path.write_bytes(content.replace(path.stem.encode(), b"0" * len(path.stem), 1))


@pytest.mark.parametrize("damage", [truncate, empty, foreign, zero_pixels, other_key])
def test_a_damaged_cache_is_built_again_not_trusted(folder, tmp_path, damage):
    expected = cached(folder, tmp_path / "cache")[0].train.pixels(24).clone()
    for path in (tmp_path / "cache").iterdir():
        damage(path)
    assert torch.equal(cached(folder, tmp_path / "cache")[0].train.pixels(24), expected)


def test_writing_into_the_pixels_does_not_change_the_cache(folder, tmp_path):
    data, _ = cached(folder, tmp_path / "cache")
    expected = data.train.pixels(24).clone()
    data.train.pixels(24).zero_()
    assert torch.equal(cached(folder, tmp_path / "cache")[0].train.pixels(24), expected)


LOAD = """
import sys
from reprogram import load_data
from reprogram.data.load import decode_data
if __name__ == "__main__":
    data, _ = decode_data(load_data(sys.argv[1]), {"train": 24, "test": 24}, cache=__import__("pathlib").Path(sys.argv[2]),
                          processes=int(sys.argv[3]))
    print(int(data.train.pixels(24).long().sum()))
"""


def test_two_simultaneous_first_loads_end_in_one_valid_cache(folder, tmp_path):
    script = tmp_path / "load.py"
    script.write_text(LOAD)
    command = [sys.executable, script, folder, tmp_path / "cache", "0"]
    together = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    sums = {process.communicate(timeout=120)[0].strip() for process in together}
    assert sums == {str(int(load_data(folder).train.pixels(24).long().sum()))}
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".pixels", ".pixels"]
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


def dirty_folder(root):
    """Good images of three classes, and one of each kind of trouble among the discs."""
    draw_folder(root, per_class=12)
    disc = root / "disc"
    Image.new("RGB", (64, 64), "blue").save(disc / "whole.jpg")
    content = (disc / "whole.jpg").read_bytes()
    (disc / "truncated.jpg").write_bytes(content[: len(content) // 2])
    (disc / "text.jpg").write_text("this is not a picture")
    (disc / "zero.jpg").write_bytes(b"")
    frames = [Image.new("P", (32, 32), colour) for colour in (1, 2, 3)]
    frames[0].save(disc / "animated.gif", save_all=True, append_images=frames[1:])
    Image.new("CMYK", (32, 32), (10, 200, 30, 5)).save(disc / "cmyk.jpg")
    Image.fromarray(np.full((32, 32), 40000, dtype=np.uint16)).save(disc / "sixteen.png")
    Image.new("RGB", (1, 1), "green").save(disc / "one.png")
    Image.new("1", (12000, 9000)).save(disc / "huge.png")
    Image.new("RGB", (32, 32)).save(disc / "ünïcode with spaces 图.png")
    return root


BAD = {"truncated.jpg", "text.jpg", "zero.jpg"}


def test_each_bad_file_is_named_and_stops_the_run(tmp_path):
    data = load_data(dirty_folder(tmp_path / "set"))
    with pytest.raises(ReprogramError) as caught:
        decode_data(data, SIZES, cache=tmp_path / "cache")
    assert all(name in str(caught.value) for name in BAD)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("with_cache", [True, False])
def test_skipping_keeps_all_that_can_be_decoded_and_lists_the_rest(tmp_path, with_cache):
    folder = dirty_folder(tmp_path / "set")
    for _ in range(2):  # the second time from the cache
        data, skipped = decode_data(
            load_data(folder), SIZES, cache=tmp_path / "cache" if with_cache else None, skip_bad=True
        )
        names = [name.rsplit("/", 1)[1] for name in data.train.names + data.test.names]
        assert len(skipped) == 3
        assert all(any(bad in text for text in skipped) for bad in BAD)
        assert not BAD & set(names)
        assert {"animated.gif", "cmyk.jpg", "sixteen.png", "one.png", "huge.png", "ünïcode with spaces 图.png"} <= set(names)
        assert len(data.train.pixels(24)) == len(data.train.labels) == len(data.train.names)


def test_a_split_of_nothing_but_bad_images_is_an_error_also_when_skipping(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=5)
    data = load_data(folder)
    for path in data.test.paths:
        path.write_bytes(b"")
    with pytest.raises(ReprogramError, match="no image of the test split can be decoded"):
        decode_data(data, SIZES, skip_bad=True)


def test_many_bad_files_fit_into_the_header(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=60)
    for path in sorted((folder / "disc").iterdir())[:50]:
        path.write_bytes(b"")
    for _ in range(2):
        _, skipped = decode_data(load_data(folder), SIZES, cache=tmp_path / "cache", skip_bad=True)
        assert len(skipped) == 50


def test_few_shots_and_fractions_are_stratified_nested_and_seeded(shapes):
    data = load_data(shapes)
    three, five = (set(data.with_fewer(shots=n, seed=1).train.names) for n in (3, 5))
    assert len(three) == 9
    assert three < five
    assert data.with_fewer(fraction=0.25).train.labels.bincount().tolist() == [8, 8, 8]
    assert data.with_fewer(shots=3, seed=1).train.names != data.with_fewer(shots=3, seed=2).train.names
    assert data.with_fewer(shots=3).test is data.test
    for wrong in ({"shots": 99}, {"shots": 0}, {"fraction": 1.5}, {"shots": 1, "fraction": 0.5}):
        with pytest.raises(ReprogramError):
            data.with_fewer(**wrong)
    assert replace(data).with_fewer() == data
