"""Data as notebooks show them."""

import torch

from card_reader import Card
from reprogram.data.dataset import ArraySplit, DataSet, FileSplit
from reprogram.data.folders import load_folder

HOSTILE = ("<script>alert(1)</script>", "\u202egpj\n", "n" * 300, "plain")


def split(counts, **options):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return ArraySplit(torch.zeros(len(labels), 3, 6, 9, dtype=torch.uint8), labels, **options)


def test_a_data_set_counts_its_images():
    data = DataSet("<i>", HOSTILE, split([5, 4, 3, 2]), split([1, 1, 1, 1]), notes=("3 images <b>are</b> twice",))
    read = Card(data._repr_html_())
    assert "train 14, test 4" in read.words
    assert "9 x 6 px" in read.words
    assert "3 images <b>are</b> twice" in read.words
    table = read.words[read.words.index("class") :]
    assert table[:6] == ["class", "train", "test", HOSTILE[0], "5", "1"]
    assert "val" not in table


def test_of_many_classes_those_with_the_fewest_images_are_shown():
    counts = [10] * 50
    counts[33] = 2
    names = tuple(f"class {i}" for i in range(50))
    data = DataSet("many", names, split(counts), split([1] * 50))
    read = Card(data._repr_html_())
    table = read.words[read.words.index("classes with the fewest training images") :]
    assert table[3:6] == ["class 33", "2", "1"]
    assert "and 38 classes with more" in read.words
    alone = Card(data.train._repr_html_())
    assert alone.words[alone.words.index("classes with the fewest images") :][2:4] == ["class 33", "2"]


def test_a_split_without_classes_and_groups_are_told(shapes):
    read = Card(split([2, 3]).with_groups(["a", "a", "b", "b", "<c>"])._repr_html_())
    assert read.words[:5] == ["ArraySplit", " ", "images", "5", "groups"]
    assert read.words[5] == "3"
    assert "FileSplit" in Card(load_folder(shapes).train._repr_html_()).words


def test_no_file_is_opened_for_a_card(tmp_path):
    missing = FileSplit([tmp_path / "no\udcff.png"], [0])
    assert "no\\udcff.png" in Card(missing._repr_html_()).text
