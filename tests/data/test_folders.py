import shutil

import pytest
import torch

from conftest import draw_folder
from reprogram import ReprogramError, load_data


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
    first, again, other = (load_data(tmp_path / "all", seed=seed) for seed in (0, 0, 1))
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


def test_validation_given_or_taken(tmp_path, shapes):
    data = load_data(shapes)
    carved = data.with_validation(0.25, seed=0)
    assert (len(carved.train), len(carved.val)) == (72, 24)
    assert carved.val.labels.bincount().tolist() == [8, 8, 8]
    assert not set(carved.train.names) & set(carved.val.names)
    assert data.with_validation(0, seed=0).val is None
    shutil.copytree(shapes, tmp_path / "own")
    shutil.copytree(shapes / "test", tmp_path / "own" / "val")
    assert len(load_data(tmp_path / "own").with_validation(0.25, seed=0).val) == 30


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


def test_bad_images_are_named_before_training(tmp_path):
    folder = draw_folder(tmp_path / "all", per_class=5)
    for index in range(3):
        (folder / "disc" / f"00{index}.png").write_bytes(b"not a picture")
    data = load_data(folder)
    with pytest.raises(ReprogramError, match=r"disc/00\d.png' cannot be decoded .*and \d more: .*disc/00\d.png"):
        data.train.pixels(16)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "is neither a folder"),
        (lambda root: root.mkdir(), "has 0 class folders"),
        (lambda root: draw_folder(root, classes=("disc",)), "has 1 class folders"),
        (lambda root: draw_folder(root / "train"), "no test split"),
        (lambda root: draw_folder(root / "test"), "no train/"),
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
