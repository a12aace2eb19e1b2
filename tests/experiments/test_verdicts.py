"""Ours beside the paper's: by runs that are made up, from their files to the verdict."""

import math
import statistics

import pytest

from grids import make_up
from reprogram.experiments.comparison import status_of
from reprogram.experiments.folder import GridFolder
from reprogram.experiments.items import ITEMS, item_recipe
from reprogram.experiments.published import PublishedNumber, published_table
from reprogram.experiments.verdicts import USUAL_STD, Line, Sample, allowance, lines_of


def number(mean, std=None, quantity="accuracy"):
    return PublishedNumber(1, "row", "column", mean, std, quantity, {"data": "paper:dtd"})


def line(values, published, quantity="accuracy"):
    name = "best_on_test" if quantity == "accuracy" else quantity
    return Line("paper:dtd", {}, quantity, published, {name: Sample(tuple(values))} if values else {})


def test_the_rule_by_hand():
    ours, paper = Sample((42.0, 43.0, 44.0)), number(40.0, 0.6)
    assert ours.std == 1.0
    assert allowance(ours, paper) == pytest.approx(2 * math.sqrt(1 / 3 + 0.36 / 3) + 0.05)
    assert allowance(Sample((42.0,)), paper) == pytest.approx(2 * math.sqrt(2 * 0.36 / 3) + 0.05)
    assert allowance(ours, number(40.0)) == pytest.approx(2 * math.sqrt(2 / 3) + 0.05)
    assert allowance(Sample((42.0,)), number(40.0)) == pytest.approx(2 * math.sqrt(2 * USUAL_STD**2 / 3) + 0.05)


def test_the_usual_std_is_that_of_the_paper():
    stds = [std for table in (1, 2, 9) for row in published_table(table).cells.values() for _, std in row.values()]
    assert round(statistics.fmean(stds), 2) == USUAL_STD


@pytest.mark.parametrize(
    ("values", "published", "quantity", "verdict"),
    [
        ((42.0, 43.0, 44.0), number(42.0, 0.6), "accuracy", "agrees"),
        ((42.0, 43.0, 44.0), number(40.0, 0.6), "accuracy", "above"),
        ((42.0, 43.0, 44.0), number(46.0, 0.6), "accuracy", "below"),
        ((), number(46.0, 0.6), "accuracy", "not run"),
        ((42.0,), None, "accuracy", "not printed"),
        ((600.0,), number(11.97, None, "minutes"), "minutes", "another machine"),
        ((0.101,), number(0.1, None, "million parameters"), "million parameters", "agrees"),
        ((0.052,), number(0.51, None, "million parameters"), "million parameters", "below"),
    ],
)
def test_verdicts(values, published, quantity, verdict):
    assert line(values, published, quantity).verdict == verdict


def lines_after(folder, item, shares, **chosen):
    """The lines of an item whose cells were made with these accuracies: a function of a cell, None for not run."""
    status = status_of(folder, item_recipe(item, **chosen))
    for cell in status.cells:
        if (share := shares(cell)) is not None:
            make_up(folder, cell, share)
    return lines_of(status_of(folder, item_recipe(item, **chosen)), ITEMS[item].tables)


def test_lines_of_a_table_hold_three_accuracies_and_the_difference(tmp_path):
    found = lines_after(
        GridFolder(tmp_path),
        "table2",
        lambda cell: 0.40 + 0.01 * cell.seed if cell.settings["mapping"] == "blm" else None,
        datasets=["dtd"],
    )
    assert [each.labels["mapping"] for each in found] == ["ilm", "blm", "blm+", "deep"]
    assert [each.verdict for each in found] == ["not run", "agrees", "not run", "not run"]
    blm = found[1]
    assert blm.published.mean == 40.1
    assert blm.ours["best_on_test"].mean == pytest.approx(41.0)
    assert blm.ours["last"].mean == pytest.approx(39.0)
    assert "selected" not in blm.ours  # without validation images there is no such thing
    assert blm.difference == pytest.approx(0.9)
    assert (blm.done, blm.runs) == (3, 3)
    values = blm.to_json()
    assert (values["table"], values["row"], values["column"]) == (2, "DTD", "BLM")
    assert values["paper_std"] == 0.2


def test_averages_wait_for_all_twelve_data_sets(tmp_path):
    def shares(cell):
        return None if cell.data == "paper:svhn" and cell.settings["epochs"] == 60 else 0.445

    found = lines_after(GridFolder(tmp_path), "table7", shares, seeds=[0])
    printed = [each for each in found if each.published is not None]
    assert len(found) == 130
    assert len(printed) == 10
    verdicts = {each.published.column: each.verdict for each in printed}
    assert verdicts["BLM, 60 epochs"] == "not run"
    assert verdicts["BLM, 200 epochs"] == "below"
    assert {each.data for each in printed} == {"mean of 12"}
    assert {(each.done, each.runs) for each in printed} == {(11, 12), (12, 12)}


def test_cost_is_told_beside_the_papers(tmp_path):
    found = lines_after(GridFolder(tmp_path), "table8", lambda cell: 0.5 if cell.settings.get("mapping") == "flm" else None)
    assert len(found) == 36
    flm = [each for each in found if each.labels["method"] == "FLM" and each.labels["model"] == "ResNet-18"]
    assert {each.quantity: each.verdict for each in flm} == {"million parameters": "agrees", "minutes": "another machine"}
    assert next(each for each in flm if each.quantity == "minutes").difference == pytest.approx(1 - 11.97)


def test_values_that_two_cells_share_are_one_line(tmp_path):
    found = lines_after(GridFolder(tmp_path), "table6", lambda cell: None)
    assert len(found) == 8
    assert [each.published.mean for each in found if each.data == "paper:dtd"] == [42.31, 43.75]


def test_a_figure_tells_what_no_table_prints(tmp_path):
    found = lines_after(GridFolder(tmp_path), "figure6", lambda cell: 0.3)
    assert len(found) == 20
    assert {each.labels["fraction"]: each.verdict == "not printed" for each in found}["0.4"]
    assert sum(each.published is not None for each in found) == 4
