"""Where a model errs: worst classes, every mistake, and the files that list them; and the cards of results."""

import csv
import io
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from card_reader import Card
from reprogram import fit
from reprogram.scores import Score
from reprogram.text import csv_text, whole
from reprogram.training.evaluation import Evaluation
from reprogram.training.mistakes import COLUMNS, Mistake, confused_classes, mistakes_csv, mistakes_json
from sides import build, small_data

ANY = st.text(st.characters(codec=None, categories=None), max_size=20)


def test_a_class_that_is_surely_bad_comes_before_one_that_may_be():
    labels = torch.tensor([0] + [1] * 100 + [2] * 50)
    predicted = torch.tensor([1] + [1] * 40 + [0] * 20 + [2] * 40 + [2] * 50)
    found = confused_classes(labels, predicted, ("once", "often", "never"))
    assert [one.name for one in found] == ["often", "once"]
    assert found[0].others == (("never", 40), ("once", 20))
    assert (found[0].score.correct, found[0].score.n) == (40, 100)
    assert found[0].taken_for(1) == "never (40) and 20 others"
    assert found[0].to_json()["taken_for"][1] == {"predicted": "once", "images": 20}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_all_mistakes_are_counted_once(pairs):
    labels, predicted = (torch.tensor(column) for column in zip(*pairs, strict=True))
    sure = torch.rand(len(pairs), generator=torch.Generator().manual_seed(0))
    outcome = Evaluation(labels, predicted, sure, ("a", "b", "c", "d"), tuple(map(str, range(len(pairs)))))
    found = outcome.mistakes()
    assert {int(one.image) for one in found} == {place for place, (label, other) in enumerate(pairs) if label != other}
    assert all("abcd"[pairs[int(one.image)][0]] == one.label for one in found)
    assert all("abcd"[pairs[int(one.image)][1]] == one.predicted for one in found)
    assert [one.confidence for one in found] == sorted((one.confidence for one in found), reverse=True)
    confused = outcome.confusions()
    assert sum(images for one in confused for _, images in one.others) == len(found)
    per_class = outcome.per_class()
    assert all(per_class[one.name] == one.score for one in confused)
    assert {one.name for one in confused} == {one.label for one in found}


@given(st.lists(st.tuples(ANY, ANY, ANY, st.floats(0, 1)), max_size=4))
def test_any_name_comes_back_from_the_files(rows):
    mistakes = [Mistake(*row) for row in rows]
    text = "".join(mistakes_csv(mistakes)).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    header, *lines = csv.reader(io.StringIO(text, newline=""))
    assert header == list(COLUMNS)
    told = [[csv_text(cell).encode("utf-8", "surrogateescape") for cell in line[:3]] for line in lines]
    assert told == [[whole(cell).encode("utf-8", "surrogateescape") for cell in row[:3]] for row in rows]
    content = json.loads(mistakes_json(mistakes, [], run="r"))
    assert content["mistakes"] == [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    assert content["run"] == "r"


@pytest.fixture(scope="module")
def result():
    return fit(build("blm"), small_data(), epochs=2, lr=0.1)


def test_a_result_says_what_it_is_worth(result):
    read = Card(result._repr_html_())
    assert f"{result.test.score}; the model as it is left, epoch {result.selected_epoch}" in read.words
    assert f"{result.model.program.free_parameters:,} trainable of " in read.text
    assert len(read.sources) == 1
    assert len(result._repr_html_()) < 30_000


def test_an_evaluation_names_its_worst_classes():
    labels, predicted = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 1, 1])
    read = Card(Evaluation(labels, predicted, torch.ones(4), ("<b>", "n" * 300))._repr_html_())
    assert str(Score(2, 4)) in read.words
    table = read.words[read.words.index("taken for") + 1 :]
    assert table == ["<b>", "0.0% (0 to 66), 0 of 2", f"{'n' * 18}…{'n' * 9} (2)"]
