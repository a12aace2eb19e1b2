"""Tables of images."""

import csv

import pytest
import torch
from PIL import Image

from reprogram.data.tables import load_table
from reprogram.errors import ReprogramError


@pytest.fixture
def pictures(tmp_path):
    """Twelve small pictures, each of its own grey."""
    (tmp_path / "pics").mkdir()
    for index in range(12):
        Image.new("RGB", (9, 7), (index * 20,) * 3).save(tmp_path / "pics" / f"ä {index}.png")
    return [f"pics/ä {index}.png" for index in range(12)]


def write_csv(path, rows, header=("path", "label"), encoding="utf-8", delimiter=","):
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def test_a_csv_without_splits_is_split_by_the_seed(tmp_path, pictures):
    table = write_csv(tmp_path / "t.csv", [(name, index % 2) for index, name in enumerate(pictures)], encoding="utf-8-sig")
    data = load_table(table, split_seed=3)
    assert data.name == "t"
    assert data.classes == ("0", "1")
    assert (len(data.train), len(data.test), data.val) == (10, 2, None)
    assert sorted(data.train.names + data.test.names) == sorted(str(tmp_path / name) for name in pictures)
    assert load_table(table, split_seed=3).test.names == data.test.names
    assert data.train.pixels(4).shape == (10, 3, 4, 4)


def test_splits_aliases_other_columns_and_absent_classes(tmp_path, pictures):
    words = ["train", "Training", "valid", "TEST", "train", "testing"]
    labels = ["10", "9", "9", "10", "11", "9"]
    rows = [(i, w, label, p) for i, (w, label, p) in enumerate(zip(words, labels, pictures, strict=False))]
    data = load_table(write_csv(tmp_path / "t.tsv", rows, ("id", "Split", "label", " Path"), delimiter="\t"))
    assert data.classes == ("9", "10", "11")
    assert data.train.labels.tolist() == [1, 0, 2]
    assert data.val is not None
    assert data.val.labels.tolist() == [0]
    assert data.test.labels.tolist() == [1, 0]
    assert torch.equal(data.test.read(0, 5, "bilinear"), torch.full((3, 5, 5), 60, dtype=torch.uint8))


def test_parquet(tmp_path, pictures):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {"path": pictures, "label": [2, 10] * 6, "split": ["train"] * 8 + ["test"] * 4, "weight": [0.5] * 12}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    data = load_table(tmp_path / "t.parquet")
    assert data.classes == ("2", "10")
    assert (len(data.train), len(data.test)) == (8, 4)
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(ReprogramError, match=r"bad\.parquet' cannot be read"):
        load_table(tmp_path / "bad.parquet")
    with pytest.raises(ReprogramError, match="does not exist"):
        load_table(tmp_path / "none.parquet")
    pq.write_table(pa.table({"path": pictures, "label": [None, "a"] * 6}), tmp_path / "null.parquet")
    with pytest.raises(ReprogramError, match="no label in row 1"):
        load_table(tmp_path / "null.parquet")


def test_a_class_spelled_in_two_ways_is_refused(tmp_path, pictures):
    labels = ["pug", "cat", "dog"] * 2 + ["PUG", "cat", "dog"] * 2
    rows = list(zip(pictures, labels, ["train"] * 6 + ["test"] * 6, strict=True))
    with pytest.raises(ReprogramError, match="'pug' in train and 'PUG' in test"):
        load_table(write_csv(tmp_path / "t.csv", rows, ("path", "label", "split")))


def test_classes_that_a_split_lacks_are_noted(tmp_path, pictures):
    rows = list(zip(pictures, ["a", "b", "c"] * 4, ["train"] * 9 + ["test"] * 3, strict=True))[:11]
    data = load_table(write_csv(tmp_path / "t.csv", rows, ("path", "label", "split")))
    assert data.notes == ("the test split has no image of class 'c'",)


def test_absolute_paths_are_the_users_own_business(tmp_path, pictures):
    (tmp_path / "other").mkdir()
    rows = [(tmp_path / name, "ab"[index % 2]) for index, name in enumerate(pictures)]
    assert len(load_table(write_csv(tmp_path / "other" / "t.csv", rows)).train) == 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("path,label\n", "no row"),
        ("file,label\na,b\n", "columns file, label.*rename the column path"),
        ("path\nx\n", "add or rename the column label"),
        ("path,label\nx.png,a\n", r"'x\.png' in row 1, but there is no file"),
        ("path,label\npics/ä 0.png\n", "no label in row 1"),
        ("path,label\npics/ä 0.png,a\npics/ä 1.png,a\n", "one class 'a'"),
        ("path,label,split\npics/ä 0.png,a,train\npics/ä 1.png,b,dev\n", "split 'dev' in row 2"),
        ("path,label,split\npics/ä 0.png,a,train\npics/ä 1.png,b,train\n", "no image for test"),
        ("path,label\npics/ä 0.png,a\npics/ä 1.png,b\n", "too few images"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, pictures, text, words):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ReprogramError, match=words) as caught:
        load_table(tmp_path / "t.csv")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_or_not_there(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ReprogramError, match="cannot be read"):
        load_table(tmp_path / "t.csv")
    with pytest.raises(ReprogramError, match="does not exist"):
        load_table(tmp_path / "none.csv")
