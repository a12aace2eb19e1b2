"""Figures over runs: their data, hostile names, files, and what they refuse."""

import xml.etree.ElementTree as ElementTree

import pytest

from grids import HOSTILE, grid, outcome
from reprogram.errors import ReprogramError
from reprogram.experiments.figures import methods_drawing, numeric_drawing
from reprogram.experiments.pairs import compare_pair
from reprogram.experiments.ranks import rank
from reprogram.figures.drawing import painted, write_drawing
from reprogram.text import read_csv


def against(levels=("0.01", "0.1", "1", "10", "100"), mapping=("blm", "ilm"), **axes):
    return grid(data=("a", "b"), mapping=mapping, **{"λ": levels}, **axes)


def outside(figure):
    """Texts that reach beyond the picture."""
    figure.draw_without_rendering()
    whole = figure.bbox
    for text in figure.findobj(lambda one: hasattr(one, "get_window_extent") and hasattr(one, "get_text")):
        if text.get_visible() and text.get_text().strip("−0123456789. %"):
            box = text.get_window_extent()
            if box.x0 < whole.x0 - 2 or box.x1 > whole.x1 + 2 or box.y0 < whole.y0 - 2 or box.y1 > whole.y1 + 2:
                yield text.get_text()


def test_the_data_of_methods_are_those_of_the_statistics():
    runs = grid(mapping=("blm", "blm+", "ilm", "flm"))
    drawing = methods_drawing(runs, "mapping")
    ranks = rank(runs, "mapping")
    whole = [row for row in drawing.rows if row["unit"] == "all"]
    assert {row["method"]: row["average_rank"] for row in whole} == dict(zip(ranks.levels, ranks.average, strict=True))
    best = whole[0]
    assert best["average_rank"] == min(ranks.average)
    assert best["difference"] is None
    for row in whole[1:]:
        found = compare_pair(runs, "mapping", row["method"], best["method"]).difference
        assert (row["difference"], row["interval_low"], row["interval_high"]) == (found.mean, *found.interval)
    assert len(drawing.rows) == 4 + 3 * 4  # each unit of each other method
    other = methods_drawing(runs, "mapping", reference="flm")
    assert {row["against"] for row in other.rows} == {"flm"}


@pytest.mark.filterwarnings("ignore:.*[Gg]lyph.*missing")
@pytest.mark.parametrize("dark", [False, True])
def test_methods_with_hostile_names(dark, tmp_path):
    runs = grid(mapping=HOSTILE[:6])
    assert not list(outside(painted(methods_drawing(runs, "mapping"), dark=dark)))
    path = write_drawing(methods_drawing(runs, "mapping"), tmp_path / "m.svg", dark=dark)
    text = path.read_text()
    assert "<script" not in text
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert len(read_csv(write_drawing(methods_drawing(runs, "mapping"), tmp_path / "m.csv"))) == 6 + 5 * 4


def test_methods_on_one_data_set_and_without_a_common_one():
    assert not list(outside(painted(methods_drawing(grid(data=("a",)), "mapping"))))
    apart = [outcome({"data": name, "mapping": name}, 0, 0.5) for name in "ab"]
    drawing = methods_drawing(apart, "mapping")
    assert [row["difference"] for row in drawing.rows] == [None, None]
    painted(drawing)


def test_accuracy_against_numbers():
    runs = against()
    drawing = numeric_drawing(runs, "λ", lines="mapping", apart="data")
    assert len(drawing.rows) == 5 * 2 * 2
    assert [row["λ"] for row in drawing.rows[:5]] == [0.01, 0.1, 1, 10, 100]
    own = [run.accuracy["selected"] for run in runs if run.labels == {"data": "a", "mapping": "blm", "λ": "10"}]
    assert drawing.rows[3]["mean"] == pytest.approx(sum(own) / 3)
    figure = painted(drawing)
    assert not list(outside(figure))
    assert sum(one.get_xscale() == "log" for one in figure.axes) == 2


def test_gain_against_the_number_of_classes():
    runs = grid()
    drawing = numeric_drawing(runs, "classes", lines="mapping", baseline="ilm")
    assert {(row["data"], row["classes"]) for row in drawing.rows} == {("a", 10), ("b", 20), ("c", 30), ("d", 40)}
    row = next(row for row in drawing.rows if (row["data"], row["line"]) == ("c", "blm"))
    matched = [run for run in runs if run.labels["data"] == "c"]
    mean = {
        name: sum(run.accuracy["selected"] for run in matched if run.labels["mapping"] == name) / 3
        for name in ("blm", "ilm")
    }
    assert row["mean"] == pytest.approx(mean["blm"] - mean["ilm"])
    assert not list(outside(painted(drawing)))


@pytest.mark.filterwarnings("ignore:.*[Gg]lyph.*missing")
def test_curves_with_hostile_names(tmp_path):
    runs = grid(data=HOSTILE[:2], mapping=HOSTILE[1:4], shots=("1", "2", "4"))
    drawing = numeric_drawing(runs, "shots", lines="mapping", apart="data")
    assert not list(outside(painted(drawing)))
    for end in ("png", "svg", "csv"):
        assert write_drawing(drawing, tmp_path / f"f.{end}").stat().st_size > 500
    first = (tmp_path / "f.svg").read_bytes()
    write_drawing(numeric_drawing(runs[::-1], "shots", lines="mapping", apart="data"), tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_bytes() == first


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ReprogramError, match="axis 'data' varies, too, and would be mixed"):
        numeric_drawing(against(), "λ", lines="mapping")
    with pytest.raises(ReprogramError, match=r"'blm' of run .* is no number"):
        numeric_drawing(grid(data=("a",)), "mapping")
    with pytest.raises(ReprogramError, match="axis 'lambda' is not known"):
        numeric_drawing(against(), "lambda")
    with pytest.raises(ReprogramError, match="mapping 'bln' is not known; did you mean 'blm'"):
        numeric_drawing(against(), "λ", lines="mapping", apart="data", baseline="bln")
    with pytest.raises(ReprogramError, match="but no axis that it is a level of"):
        numeric_drawing(against(mapping=("blm",)), "λ", apart="data", baseline="blm")
    with pytest.raises(ReprogramError, match="has a single level"):
        methods_drawing(grid(mapping=("blm",)), "mapping")
    runs = grid(data=("a",), mapping=tuple("abcdefghijk"), shots=("1", "2"))
    with pytest.raises(ReprogramError, match="11 lines in 1 panels were asked for"):
        numeric_drawing(runs, "shots", lines="mapping")
