"""One policy of decoding for data sets and for splits."""

import errno
import os

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import draw_folder
from reprogram import ReprogramError, load_data
from reprogram.data.decode import Decoding
from reprogram.progress import Progress

SIZES = {"train": 24, "test": 24}


class Listener(Progress):
    """Hears what is said."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


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
        Decoding(tmp_path / "cache").decode(data, SIZES)
    assert all(f"disc/{name}" in str(caught.value) for name in BAD)
    assert "3 images" in str(caught.value)
    assert "--skip-bad" in str(caught.value)
    assert len(str(caught.value)) < 240


@pytest.mark.parametrize("with_cache", [True, False])
def test_skipping_keeps_all_that_can_be_decoded_and_lists_the_rest(tmp_path, with_cache):
    folder = dirty_folder(tmp_path / "set")
    for _ in range(2):  # the second time from the cache
        policy = Decoding(tmp_path / "cache" if with_cache else False, skip_bad=True)
        data, skipped = policy.decode(load_data(folder), SIZES)
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
        Decoding(cache=False, skip_bad=True).decode(data, SIZES)


def test_many_bad_files_are_listed_or_named_in_a_short_line(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=60)
    for path in sorted((folder / "disc").iterdir())[:50]:
        path.write_bytes(b"")
    for _ in range(2):
        _, skipped = Decoding(tmp_path / "cache", skip_bad=True).decode(load_data(folder), SIZES)
        assert len(skipped) == 50
        with pytest.raises(ReprogramError, match=r"50 images .* and 47 more") as caught:
            Decoding(tmp_path / "cache").decode(load_data(folder), SIZES)
        assert len(str(caught.value)) < 240


def test_one_split_is_decoded_by_the_same_policy(tmp_path):
    split = load_data(dirty_folder(tmp_path / "set")).train
    with pytest.raises(ReprogramError, match="--skip-bad"):
        Decoding(tmp_path / "cache").decode(split, 20)
    rest, skipped = Decoding(tmp_path / "cache", skip_bad=True).decode(split, 20, "bicubic")
    assert len(rest) + len(skipped) == len(split)
    assert rest.pixels(20, "bicubic").shape == (len(rest), 3, 20, 20)
    assert rest.fingerprints() == load_data(tmp_path / "set").train.subset(places_of(rest, split)).fingerprints()


def places_of(part, whole):
    return torch.tensor([whole.names.index(name) for name in part.names])


def test_one_bad_image_is_told_with_its_reason(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=5)
    (folder / "disc" / "001.png").write_bytes(b"not a picture")
    with pytest.raises(ReprogramError, match=r"disc/001.png' cannot be decoded \(cannot identify.* --skip-bad"):
        Decoding(cache=False).decode(load_data(folder), SIZES)


def test_what_is_decoded_already_is_left_alone(tmp_path, monkeypatch):
    data, _ = Decoding(cache=False).decode(load_data(draw_folder(tmp_path / "set")), SIZES)

    def fail(*_, **__):
        raise AssertionError("decoded again")

    monkeypatch.setattr("reprogram.data.dataset.read_image", fail)
    again, skipped = Decoding(cache=False).decode(data, SIZES)
    assert again.train is data.train
    assert skipped == []


def test_the_users_cache_folder_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("REPROGRAM_CACHE", str(tmp_path / "mine"))
    Decoding().decode(load_data(draw_folder(tmp_path / "set")), SIZES)
    assert len(list((tmp_path / "mine").glob("*.npy"))) == 2
    monkeypatch.setenv("REPROGRAM_CACHE", str(tmp_path / "other"))
    Decoding(cache=False).decode(load_data(tmp_path / "set"), SIZES)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ["a file", "below a file", "no permission"])
def test_a_cache_that_cannot_be_written_is_done_without_and_said_once(tmp_path, kind, monkeypatch):
    folder, place = draw_folder(tmp_path / "set"), tmp_path / "cache"
    if kind == "no permission":  # as root, nothing is forbidden: what the system would say is said here

        def forbidden(*_, **__):
            raise PermissionError(13, os.strerror(13), str(place))

        monkeypatch.setattr("reprogram.data.cache._reserve", forbidden)
    else:
        place.write_text("here is no room for a folder")
        place = place / "deeper" if kind == "below a file" else place
    listener = Listener()
    data, skipped = Decoding(place).decode(load_data(folder), SIZES, progress=listener)
    assert skipped == []
    assert torch.equal(data.train.pixels(24), load_data(folder).train.pixels(24))
    assert len(listener.lines) == 1
    assert all(word in listener.lines[0] for word in (str(place), "REPROGRAM_CACHE", "--no-cache"))


def test_a_full_disk_under_the_cache_is_noticed_before_it_is_mapped(tmp_path, monkeypatch):
    """Room is reserved before the file is mapped; where there is none, images are decoded into memory, and it is said."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    folder, listener = draw_folder(tmp_path / "set"), Listener()
    data, _ = Decoding(tmp_path / "cache").decode(load_data(folder), SIZES, progress=listener)
    assert torch.equal(data.train.pixels(24), load_data(folder).train.pixels(24))
    assert list((tmp_path / "cache").iterdir()) == []
    assert len(listener.lines) == 1
    assert all(word in listener.lines[0] for word in ("No space left", "REPROGRAM_CACHE", "--no-cache"))
