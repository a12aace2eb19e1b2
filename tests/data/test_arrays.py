"""Arrays, tensors, .npz files, and torch data sets."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from reprogram.data.arrays import from_arrays, from_dataset, from_datasets, load_npz
from reprogram.errors import ReprogramError


def grey(count, size=6):
    return np.stack([np.full((size, size), index * 10, np.uint8) for index in range(count)])


@pytest.mark.parametrize("shape", ["nhw", "nhwc", "nchw"])
def test_every_order_of_the_sides_gives_the_same_pixels(tmp_path, shape):
    images = grey(10)
    if shape != "nhw":
        images = np.repeat(images[..., None], 3, axis=-1)
    if shape == "nchw":
        images = images.transpose(0, 3, 1, 2)
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(10) % 2, split=["train"] * 6 + ["val"] * 2 + ["test"] * 2)
    data = load_npz(tmp_path / "a.npz")
    assert data.name == "a"
    assert data.classes == ("0", "1")
    assert (len(data.train), len(data.val), len(data.test)) == (6, 2, 2)
    assert data.test.pixels(6)[:, :, 0, 0].tolist() == [[80] * 3, [90] * 3]


def test_parts_and_class_names_of_an_npz(tmp_path):
    arrays = {"train_images": grey(4), "train_labels": [0, 1, 0, 1], "test_images": grey(2), "test_labels": [0, 0]}
    np.savez(tmp_path / "a.npz", **arrays, classes=["ant", "bee", "cow"])
    data = load_npz(tmp_path / "a.npz")
    assert data.classes == ("ant", "bee", "cow")
    assert data.val is None
    assert data.test.labels.tolist() == [0, 0]
    np.savez(tmp_path / "b.npz", **arrays, val_images=grey(2), val_labels=[1, 2])
    data = load_npz(tmp_path / "b.npz")
    assert data.classes == ("0", "1", "2")
    assert data.val.labels.tolist() == [1, 2]


def test_pixel_types():
    for images, expected in [
        (np.full((6, 4, 4), 65535, np.uint16), 255),
        (np.full((6, 4, 4), 7, np.int64), 7),
        (np.ones((6, 4, 4), bool), 255),
        (np.full((6, 4, 4), 0.5, np.float64), 128),
        (torch.full((6, 3, 4, 4), 0.5), 128),
    ]:
        data = from_arrays(images, [0, 1] * 3)
        assert data.train.pixels(4).unique().tolist() == [expected]


def test_string_labels_and_given_classes():
    data = from_arrays(grey(6), ["cat", "dog"] * 3, classes=["bird", "cat", "dog"])
    assert data.classes == ("bird", "cat", "dog")
    assert set(data.train.labels.tolist()) == {1, 2}


@pytest.mark.parametrize(
    ("images", "labels", "options", "words"),
    [
        (grey(4), [0, 1], {}, "4 images and 2 labels"),
        (np.zeros((4, 3, 3, 3), np.uint8), [0, 1, 0, 1], {}, "channels='first'"),
        (np.zeros((4, 9), np.uint8), [0, 1, 0, 1], {}, "have shape"),
        (np.full((4, 4, 4), 300), [0, 1, 0, 1], {}, "from 300 to 300"),
        (grey(4), [0, 0, 0, 0], {}, "at least 2"),
        (grey(4), [0.5, 1, 0, 1], {}, "labels are float64"),
        (grey(4), ["a", "b", "a", "b"], {"classes": ["a", "c"]}, "label 'b' is none"),
        (grey(4), [0, 1, 0, 5], {"classes": ["a", "b"]}, "too few|labels from"),
        (grey(4), [0, 1, 0, 1], {"split": ["train"]}, "1 splits were given"),
        (grey(4), [0, 1, 0, 1], {"split": ["train"] * 3 + ["exam"]}, "split 'exam' in row 4"),
    ],
)
def test_mistakes_are_one_sentence(images, labels, options, words):
    with pytest.raises(ReprogramError, match=words):
        from_arrays(images, labels, **options)


def test_an_npz_with_pickles_or_other_names_is_refused(tmp_path):
    np.savez(tmp_path / "objects.npz", images=np.array([{}], dtype=object), labels=[0])
    with pytest.raises(ReprogramError, match="cannot be read"):
        load_npz(tmp_path / "objects.npz")
    np.savez(tmp_path / "names.npz", x=grey(2), y=[0, 1])
    with pytest.raises(ReprogramError, match="holds x, y, but images"):
        load_npz(tmp_path / "names.npz")
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(ReprogramError, match="cannot be read"):
        load_npz(tmp_path / "text.npz")
    np.save(tmp_path / "one.npy", grey(2))
    with pytest.raises(ReprogramError, match="holds one array"):
        load_npz(tmp_path / "one.npy")
    with pytest.raises(ReprogramError, match="does not exist"):
        load_npz(tmp_path / "none.npz")


class Pictures(Dataset):
    """Items of every kind that counts as an image."""

    classes = ("a", "b", "c")

    def __init__(self, count=10):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        kinds = [
            Image.new("L", (8, 6), 50),
            torch.full((3, 6, 8), 50, dtype=torch.uint8),
            torch.full((6, 8), 50 / 255),
            np.full((6, 8, 3), 50, np.uint8),
            np.full((6, 8), 50, np.uint8),
        ]
        return kinds[index % 5], torch.tensor(index % 2)


def test_any_torch_data_set():
    data = from_datasets(Pictures(), Pictures(5), val=Pictures(2))
    assert data.classes == ("a", "b", "c")
    assert data.train.labels.tolist() == [0, 1] * 5
    assert data.train.pixels(4).unique().tolist() == [50]
    assert [data.train.read(index, None, "bilinear").shape for index in range(5)] == [(3, 6, 8)] * 5
    part = pickle.loads(pickle.dumps(data.train.subset(torch.tensor([7, 2]))))
    assert part.names == ["train/7", "train/2"]
    assert part.labels.tolist() == [1, 0]
    assert part.content_key(0) == data.train.content_key(7)


def test_one_data_set_is_split_by_the_seed_and_string_labels_become_classes():
    pairs = [(Image.new("RGB", (4, 4)), name) for name in ["x", "y"] * 5]
    data = from_dataset(pairs, name="pairs")
    assert data.classes == ("x", "y")
    assert (len(data.train), len(data.test)) == (8, 2)
    tensors = from_dataset(TensorDataset(torch.rand(10, 1, 4, 4), torch.arange(10) % 2))
    assert tensors.classes == ("0", "1")


def test_listed_labels_count_only_where_the_items_have_them():
    class Shifted(Pictures):
        targets = tuple(range(10))

    assert from_datasets(Shifted(), Shifted()).train.labels.tolist() == [0, 1] * 5

    class Counted(Pictures):
        reads = 0
        targets = tuple(index % 2 for index in range(10))

        def __getitem__(self, index):
            Counted.reads += 1
            return super().__getitem__(index)

    from_datasets(Counted(), Counted())
    assert Counted.reads == 6


def test_mistaken_data_sets():
    class Stream(IterableDataset):
        def __iter__(self):
            yield 1

    with pytest.raises(ReprogramError, match="without a length"):
        from_dataset(Stream())
    with pytest.raises(ReprogramError, match="pair"):
        from_dataset([1, 2])
    with pytest.raises(ReprogramError, match="empty"):
        from_dataset([])
    bad = from_dataset([("text", index % 2) for index in range(10)])
    with pytest.raises(ReprogramError, match=r"image '\d' cannot be decoded \(image is a str"):
        bad.train.read(0, 4, "bilinear")
    assert "cannot be decoded" in bad.train.content_key(0)
