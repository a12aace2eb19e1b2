import shutil
from dataclasses import replace

import pytest
import torch
from PIL import Image

from conftest import draw_folder
from reprogram import ReprogramError, load_data
from reprogram.data import ArraySplit, DataSet


def test_a_decoded_split_is_kept():
    split = ArraySplit(torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 0]))
    assert split.pixels(16) is split.pixels(16)
    assert split.pixels(8).shape == (3, 3, 8, 8)
    assert torch.equal(split.subset(torch.tensor([2, 0])).pixels(16), split.pixels(16)[[2, 0]])


def test_the_validation_fraction_is_checked():
    split = ArraySplit(torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ReprogramError, match=r"fraction 1\.5"):
        DataSet("x", ("a", "b"), train=split, test=split).with_validation(1.5)


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


def test_images_are_recognised_by_content_wherever_they_lie(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=10)
    data = load_data(folder)
    shutil.copytree(folder, tmp_path / "copy")
    for index, path in enumerate(sorted((tmp_path / "copy").rglob("*.png"))):
        path.rename(path.with_name(f"other-{index}.png"))
    copy = load_data(tmp_path / "copy")
    trained = data.train.fingerprints()
    assert copy.train.count_among(trained) + copy.test.count_among(trained) == len(data.train)
    assert data.test.count_among(trained) == 0
    assert data.train.subset(torch.tensor([3, 1])).fingerprints() == [trained[3], trained[1]]


def test_fingerprints_come_with_decoding_and_cost_no_second_read(tmp_path, monkeypatch):
    data = load_data(draw_folder(tmp_path / "set", per_class=5))
    expected = data.train.fingerprints()
    again = load_data(tmp_path / "set")
    again.train.pixels(8)

    def fail(*_):
        raise AssertionError("read again")

    monkeypatch.setattr("reprogram.data.dataset.file_fingerprint", fail)
    assert again.train.fingerprints() == expected


def test_an_unreadable_image_has_no_fingerprint_and_is_among_none(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=5)
    data = load_data(folder)
    data.test.paths[0].unlink()
    assert data.test.fingerprints()[0] == ""
    assert data.test.count_among(["", *data.test.fingerprints()[1:]]) == len(data.test) - 1


def test_arrays_of_other_types_are_other_images():
    whole, real = ArraySplit(torch.ones(2, 1, 4, 4, dtype=torch.uint8), [0, 1]), ArraySplit(torch.ones(2, 1, 4, 4), [0, 1])
    assert whole.fingerprints()[0] == whole.fingerprints()[1]
    assert whole.count_among(real.fingerprints()) == 0


def test_the_digest_knows_classes_labels_and_pixels_but_no_names(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=10)
    data = load_data(folder).with_validation(0.2)
    digest = data.digest()
    assert load_data(folder).with_validation(0.2).digest() == digest
    folder.rename(tmp_path / "moved")
    moved = load_data(tmp_path / "moved").with_validation(0.2)
    assert moved.digest() == digest
    assert replace(moved, classes=("a", "b", "c")).digest() != digest
    assert replace(moved, val=None).digest() != digest
    assert moved.with_fewer(shots=2).digest() != digest
    relabelled = replace(moved, train=moved.train.subset(torch.arange(len(moved.train))))
    assert relabelled.digest() == digest
    relabelled.train.labels[0] = 2
    assert relabelled.digest() != digest
    Image.new("RGB", (40, 40)).save(moved.test.paths[0])
    assert load_data(tmp_path / "moved").with_validation(0.2).digest() != digest
