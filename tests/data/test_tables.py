"""Tables of images."""

import csv

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from hostile import memory_below, special_files
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"path,label\n{'a' * 300},x\n", "'aaa.* in row 1, but there is no file"),
        (f"path,label\n{'a' * 5000},x\n", "has the path 'aaa.* in row 1, but a plain text"),
        ("path,label\na\0b,x\n", r"'a\\x00b' in row 1, but there is no file"),
        ("path,label\npipe,x\n", "'pipe' in row 1, but there is no file"),
        ("path,label\ndevice,x\n", "'device' in row 1, but there is no file"),
        ("path,label,Path\na,b,c\n", "has 2 columns path, but one is expected"),
        (f"path,label\n{'a' * 140_000},x\n", r"cannot be read \(field larger"),
        (",".join(f"column {number}" for number in range(100_000)), r"column 11 \.\.\., but path"),
        (f"{'a' * 5000},label\n", "has the columns 'aaa"),
        ("path,label,split\npics/ä 0.png,x,test\npics/ä 1.png,y," + "t" * 4000, "the split 'ttt.* in row 2"),
        ('path,label\n"' + "pics\n" * 100_000, r"cannot be read \(field larger"),
    ],
)
def test_hostile_tables_are_one_short_sentence(tmp_path, pictures, text, words):
    special_files(tmp_path)
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ReprogramError, match=words) as caught:
        load_table(tmp_path / "t.csv")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_table_that_is_no_plain_file_or_without_end(tmp_path):
    for path in special_files(tmp_path):
        for suffix in ("csv", "parquet"):
            with pytest.raises(ReprogramError, match=r"no plain file|cannot be read|does not exist"):
                load_table(path.rename(path.with_name(f"{path.stem}.{suffix}")))
            path = path.with_name(f"{path.stem}.{suffix}")
    (tmp_path / "t.csv").write_text("path,label\na,x\n")
    with (tmp_path / "t.csv").open("ab") as file:
        file.truncate(2**32)
    with memory_below(100e6), pytest.raises(ReprogramError, match=r"row 2 of table '.*t.csv' is longer than 16 MiB"):
        load_table(tmp_path / "t.csv")


def test_labels_of_thousands_of_digits_are_names(tmp_path, pictures):
    rows = [(name, "12"[index % 2] * 4000) for index, name in enumerate(pictures)]
    assert load_table(write_csv(tmp_path / "t.csv", rows)).classes == ("1" * 4000, "2" * 4000)


def test_hostile_parquet(tmp_path, pictures):
    """Rows that take no room, a column twice, bytes for texts, numbers with a point."""
    table, path = pa.table({"path": ["x"] * 1_000_000, "label": ["y"] * 1_000_000}), tmp_path / "t.parquet"
    pq.write_table(table, path, compression="zstd")
    with pytest.raises(ReprogramError, match=r"claims 1000000 rows in \d+ bytes"):
        load_table(path)
    columns = [pa.array(["x"]), pa.array(["y"]), pa.array(["z"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["path", "label", "label"]), path)
    with pytest.raises(ReprogramError, match="has 2 columns label"):
        load_table(path)
    pq.write_table(pa.table({"path": [name.encode() for name in pictures], "label": [b"x", b"y"] * 6}), path)
    assert load_table(path).classes == ("x", "y")
    pq.write_table(pa.table({"path": pictures, "label": [1.0, 2.0] * 6}), path)
    assert load_table(path).classes == ("1", "2")
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56
    path.write_bytes(content)
    with pytest.raises(ReprogramError, match=r"t\.parquet' (cannot be read|is damaged)"):
        load_table(path)
