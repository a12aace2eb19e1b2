"""torchvision's classification sets, from replicas of their files."""

import json
import struct

import numpy as np
import pytest
from PIL import Image

from reprogram import load_data
from reprogram.data.torchvision_sets import load_torchvision
from reprogram.errors import ReprogramError
from reprogram.sources.load import import_torchvision


def write_mnist(root):
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for part, count in (("train", 6), ("t10k", 4)):
        images = np.stack([np.full((28, 28), index * 20, np.uint8) for index in range(count)])
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        labels = np.arange(count, dtype=np.uint8)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def test_a_set_with_train_true_or_false(tmp_path):
    write_mnist(tmp_path)
    data = load_torchvision("MNIST", tmp_path)
    assert data.name == "MNIST"
    assert len(data.classes) == 10
    assert data.classes[3] == "3 - three"
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.test.pixels(28)[:, 2, 5, 5].tolist() == [0, 20, 40, 60]


def test_a_set_with_named_splits(tmp_path):
    base = tmp_path / "food-101"
    (base / "meta").mkdir(parents=True)
    for part, count in (("train", 3), ("test", 2)):
        lists = {name: [f"{name}/{part}{index}" for index in range(count)] for name in ("apple_pie", "baklava")}
        (base / "meta" / f"{part}.json").write_text(json.dumps(lists))
        for path in (path for paths in lists.values() for path in paths):
            (base / "images" / path).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (12, 10), (200, 0, 0)).save(base / "images" / f"{path}.jpg")
    data = load_torchvision("Food101", tmp_path)
    assert data.classes == ("apple_pie", "baklava")
    assert (len(data.train), len(data.test), data.val) == (6, 4, None)
    assert data.train.native_size() == 10


def test_a_set_without_parts_is_split_by_the_seed(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(5):
            Image.new("RGB", (4, 4)).save(tmp_path / name / f"{index}.png")
    data = load_torchvision("ImageFolder", tmp_path)
    assert data.classes == ("a", "b")
    assert (len(data.train), len(data.test)) == (8, 2)


def test_mistakes_are_one_sentence(tmp_path):
    with pytest.raises(ReprogramError, match="did you mean 'CIFAR10'"):
        load_torchvision("CIFR10", tmp_path)
    with pytest.raises(ReprogramError, match="with --download"):
        load_torchvision("cifar10", tmp_path)
    with pytest.raises(ReprogramError, match="has no split called train"):
        load_torchvision("EMNIST", tmp_path)
    with pytest.raises(ReprogramError, match="cannot be loaded from"):
        load_torchvision("DTD", tmp_path)


def test_a_download_is_made_only_when_it_is_allowed(tmp_path, monkeypatch):
    asked = []

    class Fetched:
        """Stands for a set that is not there."""

        classes = ("a", "b")

        def __init__(self, root, train=True, download=False):
            asked.append(download)
            if not download:
                raise RuntimeError("Dataset not found.")
            self.targets = [0, 1] * 3

        def __len__(self):
            return 6

        def __getitem__(self, index):
            return Image.new("RGB", (4, 4)), self.targets[index]

    sets = import_torchvision().datasets
    monkeypatch.setattr(sets, "CIFAR10", Fetched)
    with pytest.raises(ReprogramError, match=r"torchvision:CIFAR10' .*Dataset not found.* or let .* with --download"):
        load_data("torchvision:CIFAR10", root=tmp_path)
    assert asked == [False]
    data = load_data("torchvision:cifar10", root=tmp_path, download=True)
    assert (len(data.train), asked) == (6, [False, True, True])


def test_a_set_that_cannot_be_fetched_does_not_offer_it(tmp_path):
    with pytest.raises(ReprogramError) as caught:
        load_torchvision("ImageNet", tmp_path)
    assert "--download" not in str(caught.value)


def test_a_set_whose_class_unpickles_is_refused(tmp_path):
    with pytest.raises(ReprogramError, match="LSUN' is refused"):
        load_torchvision("lsun", tmp_path)
