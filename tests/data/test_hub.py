"""Data sets of the datasets library, built on the spot."""

import io
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from reprogram.data.hub import load_hub
from reprogram.errors import ReprogramError

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("no network in tests")

    monkeypatch.setattr(datasets, "load_dataset", refuse)


def pictures(count, start=0):
    result = []
    for index in range(start, start + count):
        buffer = io.BytesIO()
        Image.new("RGB", (10, 8), (index * 10,) * 3).save(buffer, "PNG")
        result.append({"bytes": buffer.getvalue(), "path": None})
    return result


def table(count, start=0, labels=None, feature=None, column="label"):
    labels = [index % 2 for index in range(count)] if labels is None else labels
    features = datasets.Features(
        {"img": datasets.Image(), column: feature or datasets.ClassLabel(names=["cat", "dog", "owl"])}
    )
    return datasets.Dataset.from_dict({"img": pictures(count, start), column: labels}, features=features)


def test_a_saved_data_set_with_its_splits(tmp_path):
    saved = datasets.DatasetDict({"train": table(6), "validation": table(2, 6), "test": table(4, 8)})
    saved.save_to_disk(str(tmp_path / "pets"))
    data = load_hub(str(tmp_path / "pets"))
    assert data.name == "pets"
    assert data.classes == ("cat", "dog", "owl")
    assert (len(data.train), len(data.val), len(data.test)) == (6, 2, 4)
    assert data.test.pixels(5)[:, 0, 0, 0].tolist() == [80, 90, 100, 110]
    part = pickle.loads(pickle.dumps(data.train.subset(torch.tensor([4, 1]))))
    assert part.read(0, None, "bilinear").shape == (3, 8, 10)
    assert part.labels.tolist() == [0, 1]
    assert part.content_key(0) == data.train.content_key(4) != data.train.content_key(3)


def test_without_a_test_split_the_seed_draws_one(tmp_path):
    table(10).save_to_disk(str(tmp_path / "one"))
    data = load_hub(str(tmp_path / "one"), split_seed=1)
    assert (len(data.train), len(data.test), data.val) == (8, 2, None)
    datasets.DatasetDict({"train": table(10), "validation": table(4)}).save_to_disk(str(tmp_path / "two"))
    data = load_hub(str(tmp_path / "two"))
    assert (len(data.train), len(data.val), len(data.test)) == (8, 4, 2)


def test_labels_that_are_text_or_numbers(tmp_path):
    table(10, labels=["10", "9"] * 5, feature=datasets.Value("string"), column="kind").save_to_disk(str(tmp_path / "text"))
    assert load_hub(str(tmp_path / "text")).classes == ("9", "10")
    table(10, labels=[7, 3] * 5, feature=datasets.Value("int64")).save_to_disk(str(tmp_path / "int"))
    data = load_hub(str(tmp_path / "int"))
    assert data.classes == ("3", "7")
    assert set(data.train.labels.tolist()) == {0, 1}


def test_image_files_and_a_bad_image(tmp_path):
    Image.new("L", (5, 5), 9).save(tmp_path / "a.png")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = {"image": [str(tmp_path / "a.png")] * 5 + [{"bytes": b"rubbish", "path": None}] * 5, "label": [0] * 5 + [1] * 5}
    whole = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": whole, "test": whole}).save_to_disk(str(tmp_path / "d"))
    data = load_hub(str(tmp_path / "d"))
    assert data.train.read(0, 3, "bilinear").unique().tolist() == [9]
    assert data.train.content_key(0)
    with pytest.raises(ReprogramError, match="image 'test/7' cannot be decoded"):
        data.test.read(7, 3, "bilinear")
    rows["image"][7] = None
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "holes"))
    holes = load_hub(str(tmp_path / "holes"))
    keys = [part.content_key(index) for part in (holes.train, holes.test) for index in range(len(part))]
    assert sum("is empty in its table" in key for key in keys) == 1


def test_mistakes_are_one_sentence(tmp_path):
    datasets.Dataset.from_dict({"x": [1, 2]}).save_to_disk(str(tmp_path / "numbers"))
    (tmp_path / "plain").mkdir()
    table(4, labels=[0, 1, -1, 0]).save_to_disk(str(tmp_path / "unlabelled"))
    datasets.DatasetDict({"a": table(4), "b": table(4)}).save_to_disk(str(tmp_path / "splits"))
    for name, words in [
        ("numbers", "one column of type Image"),
        ("plain", "no folder written by save_to_disk"),
        ("missing", "does not exist"),
        ("unlabelled", "without a label"),
        ("splits", "splits a, b"),
    ]:
        with pytest.raises(ReprogramError, match=words):
            load_hub(str(tmp_path / name))


def test_only_a_name_that_is_no_path_goes_to_the_hub(monkeypatch):
    with pytest.raises(ReprogramError, match=r"cannot be loaded from the Hub .no network in tests"):
        load_hub("somebody/pets")
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: asked.append(given) or table(10))
    assert len(load_hub("somebody/pets:small").train) == 8
    assert asked == [("somebody/pets", "small")]
    assert np.isfinite(load_hub("somebody/pets").train.pixels(4).numpy()).all()
