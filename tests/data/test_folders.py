import os
import shutil

import pytest
import torch
from PIL import Image, features

from conftest import draw_folder
from hostile import special_files
from reprogram import ReprogramError, load_data
from reprogram.data.decode import Decoding
from reprogram.data.folders import load_labelled


def test_a_folder_with_splits(shapes):
    data = load_data(shapes)
    assert data.classes == ("disc", "square", "stripes")
    assert (len(data.train), len(data.test), data.val) == (96, 30, None)
    assert data.train.labels.bincount().tolist() == [32, 32, 32]
    assert data.train.pixels(32).shape == (96, 3, 32, 32)
    assert data.train.pixels(32).dtype == torch.uint8
    assert data.train.native_size() == 40


def test_a_folder_of_class_folders_is_split_by_the_seed(tmp_path):
    draw_folder(tmp_path / "all", per_class=10)
    first, again, other = (load_data(tmp_path / "all", split_seed=seed) for seed in (0, 0, 1))
    assert (len(first.train), len(first.test)) == (24, 6)
    assert first.test.labels.bincount().tolist() == [2, 2, 2]
    assert first.test.names == again.test.names
    assert first.test.names != other.test.names
    assert not set(first.train.names) & set(first.test.names)


def test_a_class_that_a_split_lacks_keeps_its_number(tmp_path, shapes):
    """Trap 2: classes are counted from the folders, never from the labels seen."""
    shutil.copytree(shapes, tmp_path / "gap")
    shutil.rmtree(tmp_path / "gap" / "test" / "square")
    data = load_data(tmp_path / "gap")
    assert data.classes == ("disc", "square", "stripes")
    assert sorted(data.test.labels.unique().tolist()) == [0, 2]
    assert data.notes == ("the test split has no image of class 'square'",)
    shutil.rmtree(tmp_path / "gap" / "train" / "disc")
    assert "the train split has no image of class 'disc'" in load_data(tmp_path / "gap").notes


def test_validation_given_or_taken(tmp_path, shapes):
    data = load_data(shapes)
    carved = data.with_validation(0.25)
    assert (len(carved.train), len(carved.val)) == (72, 24)
    assert carved.val.labels.bincount().tolist() == [8, 8, 8]
    assert not set(carved.train.names) & set(carved.val.names)
    assert data.with_validation(0).val is None
    shutil.copytree(shapes, tmp_path / "own")
    shutil.copytree(shapes / "test", tmp_path / "own" / "val")
    assert len(load_data(tmp_path / "own").with_validation(0.25).val) == 30


def test_other_files_and_hidden_ones_are_passed_over(tmp_path):
    folder = draw_folder(tmp_path / "all", per_class=5)
    (folder / "disc" / "Thumbs.db").write_bytes(b"x")
    (folder / "disc" / ".hidden.png").write_bytes(b"x")
    (folder / ".cache").mkdir()
    (folder / "disc" / "deeper").mkdir()
    shutil.copy(folder / "disc" / "000.png", folder / "disc" / "deeper" / "ünïcode name.PNG")
    data = load_data(folder)
    assert data.classes == ("disc", "square", "stripes")
    assert len(data.train) + len(data.test) == 16


@pytest.mark.parametrize(
    ("train", "val", "test"),
    [
        ("Train", "Val", "Test"),
        ("TRAIN", "VALID", "TEST"),
        ("Training", "Validation", "testing"),
        ("training", "val", "Test"),
    ],
)
def test_splits_are_known_in_any_capitals(tmp_path, train, val, test):
    for name, count in ((train, 5), (val, 2), (test, 3)):
        draw_folder(tmp_path / name, per_class=count)
    data = load_data(tmp_path)
    assert data.classes == ("disc", "square", "stripes")
    assert (len(data.train), len(data.val), len(data.test)) == (15, 6, 9)
    assert data.notes == ()
    assert len(load_labelled(tmp_path, "test", data.classes)) == 9


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("train", "Train", "test"), "has both Train/ and train/"),
        (("train", "training", "test"), "has both train/ and training/"),
        (("Train", "Evaluation"), "Train/ but no test split beside Evaluation/"),
        (("train", "bus", "plane"), "no test split beside bus/ and plane/.*rename train/ if it is a class"),
        (("trainset", "testset"), "testset/ and trainset/, which look like splits"),
        (("dev", "eval"), "dev/ and eval/, which look like splits"),
        (("Test", "cats"), "Test/ but no train split beside cats/"),
    ],
)
def test_folders_that_may_be_splits_are_asked_about(tmp_path, names, message):
    for name in names:
        draw_folder(tmp_path / name, per_class=3)
    with pytest.raises(ReprogramError, match=message) as caught:
        load_data(tmp_path)
    assert "\n" not in str(caught.value)


def test_folders_beside_the_splits_are_noted(tmp_path):
    for name in ("train", "test", "labels"):
        draw_folder(tmp_path / name, per_class=3)
    assert load_data(tmp_path).notes == ("left out beside the splits: labels/",)


def test_a_class_spelled_in_two_ways_is_refused(tmp_path):
    draw_folder(tmp_path / "train", per_class=3)
    draw_folder(tmp_path / "test", per_class=3)
    (tmp_path / "test" / "disc").rename(tmp_path / "test" / "Disc")
    with pytest.raises(ReprogramError, match="'disc' in train and 'Disc' in test"):
        load_data(tmp_path)


def test_what_can_be_read_is_read_and_the_rest_is_counted(tmp_path):
    folder = draw_folder(tmp_path / "all", per_class=5)
    disc, picture = folder / "disc", Image.new("RGB", (9, 9), "red")
    picture.save(disc / "a.jfif", "JPEG")
    picture.save(disc / "scan", "TIFF")
    picture.save(disc / "phone", "PNG")
    if features.check("avif"):
        picture.save(disc / "b.avif")
    for index in range(8):
        (disc / f"IMG_{index}.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    (folder / "square" / "notes.txt").write_text("text")
    (folder / "square" / "README").write_text("Make: text")
    for name in ("one.png", "two"):
        (folder / "stripes" / name).symlink_to(tmp_path / "gone")
    (folder / "stripes" / "Thumbs.db").write_bytes(b"x")
    (folder / "stripes" / ".ipynb_checkpoints").mkdir()
    picture.save(folder / "stripes" / ".ipynb_checkpoints" / "copy.png")
    data = load_data(folder)
    assert len(data.train) + len(data.test) == 18 + features.check("avif")
    assert data.notes == ("12 files were left out: 8 .heic, 2 broken links, 1 without a suffix, 1 .txt",)
    Decoding(cache=False).decode(data, {"train": 8, "test": 8})


def test_a_class_of_other_files_says_what_they_are(tmp_path):
    folder = draw_folder(tmp_path / "all", per_class=5)
    (folder / "phone").mkdir()
    (folder / "phone" / "a.heic").write_bytes(b"x")
    with pytest.raises(ReprogramError, match=r"phone' holds no image \(1 .heic\)"):
        load_data(folder)


def test_which_images_are_drawn_belongs_to_the_data(tmp_path):
    """The draw that every earlier result was measured on stays what it was."""
    data = load_data(draw_folder(tmp_path / "all", per_class=10)).with_validation(0.25)
    drawn = [" ".join(f"{path.parent.name}/{path.stem}" for path in split.paths) for split in (data.test, data.val)]
    assert drawn[0] == "disc/006 disc/009 square/000 square/003 stripes/003 stripes/008"
    assert drawn[1] == "disc/003 disc/008 square/004 square/006 stripes/000 stripes/001"


def test_bad_images_are_named_before_training(tmp_path):
    folder = draw_folder(tmp_path / "all", per_class=5)
    for index in range(3):
        (folder / "disc" / f"00{index}.png").write_bytes(b"not a picture")
    data = load_data(folder)
    with pytest.raises(ReprogramError, match=r"\d images cannot be decoded: disc/00\d.png, disc/00\d.png.*--skip-bad"):
        data.train.pixels(16)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "is neither a folder"),
        (lambda root: root.mkdir(), "has 0 class folders"),
        (lambda root: draw_folder(root, classes=("disc",)), "has 1 class folders"),
        (lambda root: draw_folder(root / "train"), "no test split"),
        (lambda root: draw_folder(root / "test"), "no train split"),
        (lambda root: (draw_folder(root), (root / "empty").mkdir()), "empty' holds no image"),
        (lambda root: draw_folder(root, per_class=1), "too few images"),
    ],
)
def test_folders_that_cannot_be_used(tmp_path, make, message):
    make(tmp_path / "set")
    with pytest.raises(ReprogramError, match=message):
        load_data(tmp_path / "set")


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(ReprogramError, match="did you mean 'digits'"):
        load_data("digit")


def test_what_is_no_file_or_leads_in_circles_is_counted_and_passed_over(tmp_path):
    folder = draw_folder(tmp_path / "all", per_class=5)
    for path in special_files(folder / "disc"):
        path.rename(path.with_name(f"{path.name}.png"))
    (folder / "disc" / "back").symlink_to(folder)
    (folder / "disc" / "back again").symlink_to(folder)
    data = load_data(folder)
    assert len(data.train) + len(data.test) == 15
    assert data.notes == ("6 files were left out: 3 special files, 2 linked folders, 1 broken link",)


def test_names_that_are_no_text_and_names_with_lines(tmp_path):
    """Classes and images are found by the bytes of their names; what is shown of them is on one line."""
    folder = draw_folder(tmp_path / "all", per_class=5)
    odd = folder / "two\nlines\x1b[31m"
    (folder / "disc").rename(odd)
    (folder / "square").rename(folder / "\udcff\udcfe")  # as Python has the bytes FF FE
    next(iter(odd.iterdir())).rename(odd / "\udcff\n.png")
    data = load_data(folder)
    assert data.classes == ("stripes", "two\nlines\x1b[31m", "\udcff\udcfe")
    assert data.train.pixels(8).shape == (12, 3, 8, 8)
    shutil.rmtree(folder / "stripes")
    with pytest.raises(ReprogramError, match=r"has a class 'two\\nlines\\x1b\[31m', but the model has cat") as raised:
        load_labelled(folder, "test", ["cat", "\udcff\udcfe"])
    assert "\n" not in str(raised.value)
    assert raised.value.args[0].isprintable()


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    """Nested so deeply that no path leads to the end: what is below would be missing without a word."""
    folder = draw_folder(tmp_path / "all", per_class=5)
    monkeypatch.chdir(folder / "disc")
    for _ in range(20):
        os.mkdir("d" * 250)  # noqa: PTH102
        os.chdir("d" * 250)
    with pytest.raises(ReprogramError, match=r"folder '.*ddd' cannot be read \(File name too long\)"):
        load_data(folder)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReprogramError, match="neither a folder"):
        load_data("d" * 5000)


@pytest.mark.parametrize("folders", [["artefact"], ["artefact", "checkpoint"]])
def test_a_run_is_no_folder_of_images(tmp_path, folders):
    run = tmp_path / "run"
    for name in folders:
        (run / name).mkdir(parents=True)
    for name in ("config.json", "environment.json"):
        (run / name).write_text("{}")
    with pytest.raises(ReprogramError, match="is a run of reprogram, but images are expected; name what it was fitted to"):
        load_data(str(run))
