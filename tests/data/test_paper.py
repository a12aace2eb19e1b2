"""The paper's twelve sets, each from a small replica of every layout."""

import json
import os
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from replicas import encoded, write_cifar, write_coop
from reprogram.data.paper import PAPER, check_paper, find_paper, load_paper
from reprogram.data.safe_pickle import read_cifar_pickle, read_plain_pickle
from reprogram.errors import ReprogramError
from reprogram.progress import Progress

COOP = [name for name, entry in PAPER.items() if entry.layouts[0][0] == "Coop"]


def write_lmdb(path, records, extra=None):
    lmdb = pytest.importorskip("lmdb")
    path.parent.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(path), subdir=path.is_dir(), map_size=1 << 24) as opened, opened.begin(write=True) as transaction:
        keys = [str(index).encode("ascii") for index in range(len(records))]
        for key, record in zip(keys, records, strict=True):
            transaction.put(key, record if isinstance(record, bytes) else pickle.dumps(record))
        for key, value in ({b"__keys__": keys, b"__len__": len(keys)} if extra is None else extra).items():
            transaction.put(key, value if isinstance(value, bytes) else pickle.dumps(value))


def test_the_table_holds_the_protocol():
    names = "flowers102 dtd ucf101 food101 gtsrb eurosat oxfordpets stanfordcars sun397 cifar10 cifar100 svhn"
    assert " ".join(PAPER) == names
    assert [entry.classes for entry in PAPER.values()] == [102, 47, 101, 101, 43, 10, 37, 196, 397, 10, 100, 10]
    assert {name for name, entry in PAPER.items() if entry.image_size == 32} == {"cifar10", "cifar100", "svhn", "gtsrb"}
    assert {name for name, entry in PAPER.items() if entry.batch_size == 64} == {"dtd", "oxfordpets"}
    assert {name for name, entry in PAPER.items() if not entry.flip_safe} == {"gtsrb", "svhn"}
    assert PAPER["gtsrb"].counts == {"train": 39_209, "val": None, "test": 12_630}
    assert all(entry.how_to_get and "\n" not in entry.how_to_get for entry in PAPER.values())
    assert len(set(PAPER["gtsrb"].layouts[0][1]["names"])) == 43


@pytest.mark.parametrize("name", COOP)
def test_coop_layout(tmp_path, name):
    assert find_paper(name, tmp_path) is None
    base = write_coop(tmp_path, name)
    assert find_paper(name, tmp_path) == base / PAPER[name].layouts[0][1]["split_file"]
    data = load_paper(name, tmp_path)
    assert data.name == name
    assert data.classes == ("big cat", "t shirt")
    assert (len(data.train), len(data.val), len(data.test)) == (4, 2, 3)
    assert data.train.labels.tolist() == [0, 1, 0, 1]
    assert data.test.pixels(4)[:, 0, 0, 0].tolist() == [100, 101, 100]
    assert (data.image_size, data.flip_safe) == (128, True)
    title, entry = PAPER[name].title, PAPER[name]
    assert f"{title} has 2 classes here, but {entry.classes} in the paper" in data.notes
    assert f"{title} has 4 training images here, but {entry.train:,} in the paper" in data.notes
    assert f"{title} has 3 test images here, but {entry.test:,} in the paper" in data.notes


def test_the_folder_may_have_the_papers_name_and_a_class_may_be_absent(tmp_path):
    rows = {"train": [["a.jpg", 0, "a"]], "test": [["b.jpg", 3, "d"]]}
    write_coop(tmp_path, "flowers102", rows, folder="flowers102")
    data = load_paper("flowers102", tmp_path)
    assert data.classes == ("a", "class 1", "class 2", "d")
    assert data.val is None


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "a/../../b.png", "C:\\x.png", "..\\x.png", ""])
def test_paths_that_lead_out_are_refused(tmp_path, path):
    base = write_coop(tmp_path, "dtd")
    rows = {"train": [["a.png", 0, "a"], [path, 1, "b"]], "test": [["a.png", 0, "a"]]}
    (base / "split_zhou_DescribableTextures.json").write_text(json.dumps(rows))
    with pytest.raises(ReprogramError, match="leads out of the folder"):
        load_paper("dtd", tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a readable JSON"),
        ("[]", "no lists 'train' and 'test'"),
        ('{"train": [], "test": []}', "lists no image in 'train'"),
        ('{"train": [["a", "0", "x"]], "test": []}', "label, name. is expected"),
        ('{"train": [["a", 0, "x"], ["b", 0, "y"]], "test": [["a", 0, "x"]]}', "class 0 both 'x' and 'y'"),
        ('{"train": [["a", 99999999, "x"]], "test": [["a", 0, "x"]]}', "which no data set has"),
    ],
)
def test_a_damaged_split_file_is_named(tmp_path, content, words):
    base = write_coop(tmp_path, "eurosat")
    (base / "split_zhou_EuroSAT.json").write_text(content)
    with pytest.raises(ReprogramError, match=words):
        load_paper("eurosat", tmp_path)


def test_missing_sets_and_unknown_names(tmp_path):
    with pytest.raises(ReprogramError, match=r"is not under the data root.*split_zhou_SUN397"):
        load_paper("sun397", tmp_path)
    with pytest.raises(ReprogramError, match="did you mean 'flowers102'"):
        find_paper("flowers", tmp_path)


def test_check_decodes_every_file_and_compares_the_counts(tmp_path, monkeypatch):
    from dataclasses import replace

    base = write_coop(tmp_path, "ucf101")
    monkeypatch.setitem(PAPER, "ucf101", replace(PAPER["ucf101"], classes=2, train=4, val=2, test=3))
    assert load_paper("ucf101", tmp_path).notes == ()
    assert check_paper("ucf101", tmp_path, Progress()) == []
    (base / "UCF-101-midframes" / "val_1" / "a 1.png").write_text("no image")
    (base / "UCF-101-midframes" / "test_0" / "a 0.png").unlink()
    monkeypatch.setitem(PAPER, "ucf101", replace(PAPER["ucf101"], test=5))
    count, first, second = check_paper("ucf101", tmp_path)
    assert count == "UCF101 has 3 test images here, but 5 in the paper"
    assert "a 1.png' cannot be decoded" in first
    assert "a 0.png' does not exist" in second


@pytest.mark.parametrize("pattern", ["food101/{}.lmdb", "food101_{}.lmdb"])
@pytest.mark.parametrize("as_folder", [False, True])
def test_lmdb_layout(tmp_path, pattern, as_folder):
    for part, count in (("train", 5), ("test", 3)):
        path = tmp_path / pattern.format(part)
        if as_folder:
            path.mkdir(parents=True)
        write_lmdb(path, [(encoded(50 + index, size=(7, 9)), index % 2) for index in range(count)])
    data = load_paper("food101", tmp_path)
    assert data.classes[:2] == ("class 0", "class 1")
    assert len(data.classes) == 101
    assert "class names are not known" in data.notes[0]
    assert (len(data.train), len(data.test), data.val) == (5, 3, None)
    assert data.train.labels.tolist() == [0, 1, 0, 1, 0]
    part = pickle.loads(pickle.dumps(data.train.subset(torch.tensor([3, 0]))))
    assert part.pixels(4)[:, 0, 0, 0].tolist() == [53, 50]
    assert part.content_key(0) == data.train.content_key(3) != part.content_key(1)
    assert len(check_paper("food101", tmp_path)) == 3


def test_lmdb_takes_class_names_from_the_split_file_beside_it(tmp_path):
    for part in ("train", "test"):
        write_lmdb(tmp_path / "dtd" / f"{part}.lmdb", [(encoded(9), 0), (encoded(8), 1)])
    rows = [["x/1.jpg", 0, "Banded_X"], ["x/2.jpg", 1, "Dotted"]]
    (tmp_path / "dtd" / "split.json").write_text(json.dumps({"train": rows, "val": [], "test": rows}))
    data = load_paper("dtd", tmp_path)
    assert data.classes == ("banded x", "dotted")
    assert "DTD has 2 classes here, but 47 in the paper" in data.notes


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.parametrize("where", ["record", "label", "keys", "length"])
def test_a_malicious_lmdb_record_is_refused_and_not_run(tmp_path, where):
    marker = tmp_path / "was-run"
    pickle.loads(pickle.dumps(Evil(tmp_path / "proof")))  # it would work with a plain unpickler
    assert (tmp_path / "proof").exists()
    evil, good = Evil(marker), (encoded(1), 0)
    records = {"record": [good, evil], "label": [good, (encoded(1), evil)]}.get(where, [good])
    extra = {b"__keys__": [b"0", b"1"][: len(records)], b"__len__": len(records)}
    extra |= {"keys": {b"__keys__": evil}, "length": {b"__len__": evil}}.get(where, {})
    write_lmdb(tmp_path / "svhn" / "train.lmdb", records, extra)
    write_lmdb(tmp_path / "svhn" / "test.lmdb", [good])
    with pytest.raises(ReprogramError, match=r"is refused, because reading it would call (posix|nt)\.system"):
        load_paper("svhn", tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_no_class_at_all_is_admitted(protocol):
    plain = (b"bytes", 3, ["a", -(2**70)])
    if protocol > 2:  # older protocols write bytes through a function call
        assert read_plain_pickle(pickle.dumps(plain, protocol), "x") == plain
    for value in (Image.Image, np.int64(3), np.zeros(2), print, complex(1, 2)):
        with pytest.raises(ReprogramError, match="x is refused"):
            read_plain_pickle(pickle.dumps(value, protocol), "x")
    for rubbish in (b"", b"rubbish", pickle.dumps(plain, protocol)[:-4], b"cos\nsystem\n(S'true'\ntR", b"Pposix\n."):
        with pytest.raises(ReprogramError, match=r"x (is refused|cannot be read)"):
            read_plain_pickle(rubbish, "x")


def test_damaged_lmdb_files_are_named(tmp_path):
    good = [(encoded(1), 0)]
    folder = tmp_path / "eurosat"
    write_lmdb(folder / "train.lmdb", good)
    with pytest.raises(ReprogramError, match=r"has no 'test\.lmdb' beside it"):
        load_paper("eurosat", tmp_path)
    (folder / "test.lmdb").write_bytes(b"no lmdb" * 1000)
    with pytest.raises(ReprogramError, match=r"cannot be read .*no readable LMDB file"):
        load_paper("eurosat", tmp_path)
    for number, (records, extra, words) in enumerate(
        [
            ([("text", 0)], None, "no pair of image bytes"),
            ([(b"x", "0")], None, "no pair of image bytes"),
            (good, {b"__keys__": [b"0", b"9"]}, "record '9' .* is missing"),
            (good, {b"__keys__": 3}, "no list of bytes"),
            (good, {b"__keys__": [b"0"], b"__len__": 2}, "says that it has 2 records but lists 1"),
        ]
    ):
        root = tmp_path / str(number)
        write_lmdb(root / "eurosat" / "train.lmdb", records, extra)
        write_lmdb(root / "eurosat" / "test.lmdb", good, extra={})
        with pytest.raises(ReprogramError, match=words):
            load_paper("eurosat", root)


def test_lmdb_without_a_list_of_keys_uses_their_numbers(tmp_path):
    for part in ("train", "test"):
        write_lmdb(tmp_path / "eurosat" / f"{part}.lmdb", [(encoded(index), index % 10) for index in range(12)], extra={})
    assert load_paper("eurosat", tmp_path).train.labels.tolist() == [index % 10 for index in range(12)]


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize(("binary", "protocol"), [(True, 2), (False, 2), (False, 4)])
def test_cifar(tmp_path, fine, binary, protocol):
    name = "cifar100" if fine else "cifar10"
    folder = write_cifar(tmp_path / (name if binary else ""), fine, binary, protocol)
    assert find_paper(name, tmp_path) == folder
    data = load_paper(name, tmp_path)
    assert data.classes[1] == "kind 1"
    assert data.k_target == (100 if fine else 10)
    assert data.test.labels.tolist() == [3, 1, 2, 9]
    assert len(data.train) == (4 if fine else 20)
    image = data.test.read(2, None, "bilinear")
    assert (image[0, 5, 5], image[1, 5, 5], image[2, 0, 1], image[2, 1, 0]) == (2, 100, 200, 0)
    assert f"{PAPER[name].title} has 4 test images here, but 10,000 in the paper" in data.notes
    assert data.image_size == 32


def test_a_cifar_batch_as_python_2_wrote_it():
    """Text and bytes are one type there, and the array's bytes are such a text."""
    raw = bytes(range(256)) * 12
    batch = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + b"T"
        + len(raw).to_bytes(4, "little")
        + raw
        + b"tbU\x06labels]K\x05au."
    )
    content = read_cifar_pickle(batch, "batch")
    assert content["labels"] == [5]
    assert content["data"].shape == (1, 3072)
    assert content["data"].tobytes() == raw


def test_a_malicious_or_damaged_cifar_batch_is_refused(tmp_path):
    folder = write_cifar(tmp_path, fine=False, binary=False)
    marker = tmp_path / "was-run"
    (folder / "data_batch_3").write_bytes(pickle.dumps({"data": Evil(marker), "labels": []}))
    with pytest.raises(ReprogramError, match=r"data_batch_3' is refused, because reading it would call (posix|nt)\.system"):
        load_paper("cifar10", tmp_path)
    assert not marker.exists()
    for content, words in [
        ({"data": np.zeros((1, 3072)), "labels": [1]}, "cannot be read .an array of 'f8' instead of bytes"),
        ({"data": np.array([{}, {}]), "labels": [1]}, "cannot be read"),
        ({"data": np.zeros((1, 9), np.uint8), "labels": [1]}, "does not hold CIFAR's data"),
        ([1], "holds a list"),
    ]:
        (folder / "data_batch_3").write_bytes(pickle.dumps(content, 2))
        with pytest.raises(ReprogramError, match=words):
            load_paper("cifar10", tmp_path)
    (folder / "data_batch_3").unlink()
    with pytest.raises(ReprogramError, match="data_batch_3' cannot be read"):
        load_paper("cifar10", tmp_path)


def test_a_truncated_binary_cifar_batch_is_named(tmp_path):
    folder = write_cifar(tmp_path, fine=True, binary=True)
    (folder / "test.bin").write_bytes(b"123")
    with pytest.raises(ReprogramError, match="no multiple of 3074"):
        load_paper("cifar100", tmp_path)


def test_svhn(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    (tmp_path / "svhn").mkdir()
    for part, count in (("train", 5), ("test", 3)):
        images = np.zeros((32, 32, 3, count), np.uint8)
        images[0, 1, 2] = np.arange(count) + 7
        labels = np.array([10, 1, 9, 2, 10], np.uint8)[:count, None]
        scipy_io.savemat(tmp_path / "svhn" / f"{part}_32x32.mat", {"X": images, "y": labels})
    data = load_paper("svhn", tmp_path)
    assert data.classes == tuple("0123456789")
    assert data.train.labels.tolist() == [0, 1, 9, 2, 0]
    assert data.test.read(2, None, "bilinear")[2, 0, 1] == 9
    assert data.flip_safe is False
    assert data.notes[0] == "SVHN has 5 training images here, but 73,257 in the paper"
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(b"rubbish")
    with pytest.raises(ReprogramError, match="no readable SVHN file"):
        load_paper("svhn", tmp_path)


def write_gtsrb(root, archive="Training", table="gtsrb"):
    base = root / "gtsrb" / "GTSRB"
    for label, count in ((0, 3), (14, 2)):
        folder = base / archive / f"{label:05}"
        folder.mkdir(parents=True)
        (folder / f"GT-{label:05}.csv").write_text("Filename;Width\n")
        for index in range(count):
            (folder / f"00000_{index:05}.ppm").write_bytes(encoded(label, "PPM"))
    images = base / "Final_Test" / "Images"
    images.mkdir(parents=True)
    lines = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    for index, label in enumerate((14, 0, 42)):
        (images / f"{index:05}.ppm").write_bytes(encoded(label, "PPM"))
        lines.append(f"{index:05}.ppm;12;10;1;1;9;9;{label}")
    (root / table / "GT-final_test.csv").write_text("\r\n".join(lines) + "\r\n")
    return base


@pytest.mark.parametrize(
    ("archive", "table"), [("Training", "gtsrb"), ("Final_Training/Images", "gtsrb/GTSRB/Final_Test/Images")]
)
def test_gtsrb(tmp_path, archive, table):
    write_gtsrb(tmp_path, archive, table)
    data = load_paper("gtsrb", tmp_path)
    assert data.k_target == 43
    assert data.classes[14] == "stop"
    assert data.train.labels.tolist() == [0, 0, 0, 14, 14]
    assert data.test.labels.tolist() == [14, 0, 42]
    assert data.test.pixels(4)[:, 0, 0, 0].tolist() == [14, 0, 42]
    assert "39,209 (GTSRB_Final_Training_Images.zip" in data.notes[0]
    assert "26,640 (GTSRB-Training_fixed.zip" in data.notes[0]


def test_gtsrb_says_which_archive_was_used(tmp_path, monkeypatch):
    from dataclasses import replace

    write_gtsrb(tmp_path)
    entry = replace(PAPER["gtsrb"], test=3, train=9, archives={9: "the paper's zip", 5: "torchvision's zip"})
    monkeypatch.setitem(PAPER, "gtsrb", entry)
    assert list(load_paper("gtsrb", tmp_path).notes) == [
        "GTSRB has the 5 training images of torchvision's zip; the paper's are the 9 of the paper's zip"
    ]
    assert check_paper("gtsrb", tmp_path) == []


def test_damaged_gtsrb_folders_are_named(tmp_path):
    base = write_gtsrb(tmp_path)
    table = tmp_path / "gtsrb" / "GT-final_test.csv"
    table.write_text("Filename;ClassId\n../../x.ppm;3\n")
    with pytest.raises(ReprogramError, match="leads out of the folder"):
        load_paper("gtsrb", tmp_path)
    table.write_text("Filename,ClassId\na.ppm,3\n")
    with pytest.raises(ReprogramError, match="divided by semicolons"):
        load_paper("gtsrb", tmp_path)
    table.unlink()
    with pytest.raises(ReprogramError, match="lacks the test images"):
        load_paper("gtsrb", tmp_path)
    (base / "Training" / "00077").mkdir()
    with pytest.raises(ReprogramError, match="none of GTSRB's classes"):
        load_paper("gtsrb", tmp_path)


def test_every_set_can_be_an_lmdb():
    assert all("Lmdb" in dict(entry.layouts) for entry in PAPER.values())
