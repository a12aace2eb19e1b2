"""Words mean images in an order that the file system does not decide, and nothing holds them all."""

import io
import os
import re
import subprocess
from pathlib import Path

import pytest

from hostile import special_files
from reprogram import ReprogramError
from reprogram.data.folders import _images_below
from reprogram.predict import paths
from reprogram.predict.paths import Overlooked, meant_images, some_images

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Images and other things, in folders and beside them."""
    names = (
        "b/2.png",
        "b/10.JPG",
        "a.png",
        "b.png",
        "c/d/e/x.webp",
        "c/d.png",
        "c/.hidden.png",
        ".git/y.png",
        "b/Thumbs.db",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "b" / "raw").write_bytes(PNG)
    (tmp_path / "b" / "notes").write_bytes(b"no image")
    (tmp_path / "b" / "notes.txt").write_bytes(PNG)
    (tmp_path / "c" / "circle").symlink_to(tmp_path)
    (tmp_path / "c" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "c" / "linked.png").symlink_to(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*words, **options):
    return [image.path for image in meant_images(words, **options)]


BELOW = ["a.png", "b/10.JPG", "b/2.png", "b/raw", "b.png", "c/d/e/x.webp", "c/d.png", "c/linked.png"]


def test_a_folder_means_what_it_means_as_data_and_in_that_order(tree):
    overlooked = Overlooked()
    assert found(".", overlooked=overlooked) == [f"./{path}" for path in BELOW]
    images, others = _images_below(tree)
    assert found(str(tree)) == list(map(str, images))
    assert overlooked.kinds == others
    assert overlooked.notes() == ["4 files were left out: 1 without a suffix, 1 .txt, 1 linked folder, 1 broken link"]


@pytest.mark.parametrize("most", [1, 2, 50])
def test_a_folder_of_very_many_entries_is_sorted_in_parts(tree, monkeypatch, most):
    expected = found(".")
    monkeypatch.setattr(paths, "_IN_MEMORY", most)
    assert found(".") == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a.png", "b.png"]),
        ("b/*.png", ["b/2.png"]),
        ("./b/*.png", ["./b/2.png"]),
        ("*/*.png", ["b/2.png", "c/d.png", "c/linked.png"]),
        ("c/circle/*.png", ["c/circle/a.png", "c/circle/b.png"]),
        ("**/*.png", ["a.png", "b/2.png", "b.png", "c/d.png", "c/linked.png"]),
        ("**", BELOW),
        ("c/**/e/*", ["c/d/e/x.webp"]),
        ("b/[0-9].png", ["b/2.png"]),
        ("nowhere/*.png", []),
        ("**/**/x.*", ["c/d/e/x.webp"]),
    ],
)
def test_a_pattern_means_the_images_that_match(tree, pattern, expected):
    overlooked = Overlooked()
    assert found(pattern, overlooked=overlooked) == expected
    assert found(f"{tree}/{pattern.removeprefix('./')}") == [f"{tree}/{path.removeprefix('./')}" for path in expected]
    assert overlooked.empty == ([] if expected else [pattern])
    with pytest.raises(ReprogramError, match=r"has \*\* beside other letters"):
        found("c/**x/*")


def test_a_file_is_taken_by_its_name_and_one_that_looks_like_a_pattern_too(tree):
    (tree / "b[1].png").write_bytes(b"")
    (tree / "b1.png").write_bytes(b"")
    assert found("b[1].png", "b/notes.txt", Path("nowhere.png")) == ["b[1].png", "b/notes.txt", "nowhere.png"]
    (tree / "b[1].png").unlink()
    assert found("b[1].png") == ["b1.png"]


def test_no_image_at_all_is_an_error_that_names_every_word(tree):
    """And what was found instead; where there is one, all come as they were."""
    for words, message in (
        (["e"], "no image was found in folder 'e'; give image files, folders that hold some, or patterns such as '*.jpg'"),
        (["n*.png"], "no image was found by pattern 'n*.png'; give"),
        (["-"], "no image was found in the list on standard input; give"),
        (["e", "b/*.txt"], "no image was found in folder 'e' and by pattern 'b/*.txt' (1 .txt left out); give"),
        (["e", "-", "n*", "e"], "in folder 'e', in the list on standard input, by pattern 'n*' and in folder 'e'; give"),
        (["e"] * 6, "in folder 'e', in folder 'e', in folder 'e', in folder 'e' and 2 more; give"),
    ):
        (tree / "e").mkdir(exist_ok=True)
        overlooked = Overlooked()
        images = meant_images(words, listed=io.BytesIO(b""), overlooked=overlooked)
        with pytest.raises(ReprogramError, match=re.escape(message)):
            some_images(words, images, overlooked)
    words = ["e", "b"]
    assert [image.path for image in some_images(words, meant_images(words), Overlooked())] == found("b")


def test_a_list_is_read_as_it_comes():
    names = ["a.png", "é.png", os.fsdecode(b"\xff.png"), " b "]
    lines = b"\xef\xbb\xbf" + b"\n\r\n".join(map(os.fsencode, names))
    assert found("x.png", "-", "y.png", listed=io.BytesIO(lines)) == ["x.png", *names, "y.png"]
    assert found("-", listed=io.BytesIO(b"two\nlines\r\0b\0\0"), null=True) == ["two\nlines\r", "b"]
    assert found("-", listed=io.BytesIO(b"")) == []
    with pytest.raises(ReprogramError, match=r"line 2 of the list holds a zero byte.*--null"):
        found("-", listed=io.BytesIO(b"a\nb\0c"))
    with pytest.raises(ReprogramError, match="path 2 of the list is longer than"):
        found("-", listed=io.BytesIO(b"a\n" + b"x" * (2**20 + 2**17)))
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream, os.fdopen(write, "wb", buffering=0) as writer:
        writer.write(b"a\nb")
        assert next(meant_images(["-"], listed=stream)).path == "a"  # though the end has not come


def test_pipes_devices_and_names_of_any_bytes(tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    special = len(special_files(folder))
    for name in (b"\xff.png", b"two\nlines.png", b"=1+1.png"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"")
    overlooked = Overlooked()
    assert len(found(str(folder), overlooked=overlooked)) == 3
    assert overlooked.kinds.total() == special


def test_a_folder_that_cannot_be_read_is_told_and_the_others_are_taken(tree, monkeypatch):
    scandir = os.scandir

    def refused(path):
        if str(path).endswith("c/d"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    images = list(meant_images(["."]))
    (problem,) = [image for image in images if image.problem]
    assert problem.path == "./c/d"
    assert problem.problem.startswith("folder './c/d' cannot be read (Permission denied)")
    assert [image.path for image in images if not image.problem] == [f"./{path}" for path in BELOW if path != "c/d/e/x.webp"]


def test_folders_in_folders_without_end(tmp_path):
    """Deeper than Python recurses."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("x.png", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    images = found(str(tmp_path))
    subprocess.run(["rm", "-r", str(tmp_path / "d")], check=True)  # pytest's own way recurses
    assert [image[-10:] for image in images] == ["/d/d/x.png"]
