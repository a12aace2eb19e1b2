"""The paper's numbers: all there, as printed, and each stands for a run that a recipe has."""

import statistics

import pytest

from reprogram.data.paper_sets import PAPER
from reprogram.errors import ReprogramError
from reprogram.experiments.published import TABLES, identity, published_table
from reprogram.run.config import FitConfig

TITLES = [entry.title for entry in PAPER.values()]
WIDE = {1: 11, 2: 4, 3: 6, 9: 4}
#: Printed averages that are not the rounded mean of the printed cells; that of the cells before rounding may well be.
ODD_AVERAGES = {(5, "λ = 1", "mean"): (48.1, 48.16), (5, "λ = 10", "std"): (0.5, 0.56)}


@pytest.mark.parametrize(("table", "columns"), WIDE.items())
def test_a_table_of_methods_is_complete(table, columns):
    found = published_table(table)
    assert list(found.rows) == list(found.cells) == TITLES
    assert len(found.columns) == columns
    for cells in found.cells.values():
        assert list(cells) == list(found.columns)
        assert all(0 < mean < 100 for mean, _ in cells.values())
        assert all((std is None) == (table == 3) for _, std in cells.values())


def test_the_other_tables_are_complete():
    sizes = {number: [len(cells) for cells in published_table(number).cells.values()] for number in TABLES}
    assert sizes[4] == [4] * 12
    assert sizes[5] == [6] * 5
    assert sizes[6] == [2] * 5
    assert sizes[7] == [10]
    assert sizes[8] == [9] * 4
    assert all(published_table(number).source.endswith(f"Table {number}") for number in TABLES)


def test_printed_averages_are_those_of_the_cells():
    found = {}
    for table in (1, 2, 5, 9):
        content = published_table(table)
        for column, (mean, std) in content.averages["Average"].items():
            cells = [row[column] for row in content.cells.values()]
            computed = statistics.fmean(cell[0] for cell in cells)
            if abs(computed - mean) > 0.05 + 1e-9:
                found[table, column, "mean"] = (mean, round(computed, 2))
            if std is not None and abs(statistics.fmean(cell[1] for cell in cells) - std) > 0.05 + 1e-9:
                found[table, column, "std"] = (std, round(statistics.fmean(cell[1] for cell in cells), 2))
    assert found == ODD_AVERAGES


def test_numbers_that_are_printed_twice_are_the_same():
    first = published_table(1)
    for row, cells in published_table(3).cells.items():
        for ablation, method in (("BLM, -Bayes", "ILM"), ("BLM, ours", "BLM"), ("BLM+, ours", "BLM+")):
            assert cells[ablation][0] == first.cells[row][f"ResNet-18, {method}"][0]
    epochs = published_table(7).cells["Mean of 12 data sets"]
    for method in ("FLM", "ILM", "BLM", "BLM+"):
        assert epochs[f"{method}, 200 epochs"][0] == first.averages["Average"][f"ResNet-18, {method}"][0]
    assert published_table(5).cells["α = 0.15"]["λ = 1"] == first.cells["Flowers102"]["ResNet-18, BLM+"]


@pytest.mark.parametrize(
    ("table", "base", "column", "told"),
    [
        (1, "ResNet-18, ILM", "ResNet-18, BLM", 4.7),
        (1, "ResNet-18, ILM", "ResNet-18, BLM+", 6.1),
        (1, "ResNeXt-101, ILM", "ResNeXt-101, BLM", 3.2),
        (1, "ResNeXt-101, ILM", "ResNeXt-101, BLM+", 3.8),
        (2, "ILM", "BLM", 6.1),
        (2, "ILM", "BLM+", 7.5),
    ],
)
def test_the_gains_that_the_text_tells_follow_from_the_cells(table, base, column, told):
    cells = published_table(table).cells.values()
    assert round(statistics.fmean(row[column][0] - row[base][0] for row in cells), 1) == told


def test_the_table_of_data_sets_is_the_one_that_data_are_checked_against():
    for entry in PAPER.values():
        cells = published_table(4).cells[entry.title]
        assert [cells[name][0] for name in cells] == [entry.image_size, entry.train, entry.test, entry.classes]


def test_every_number_stands_for_settings_that_exist():
    numbers = [number for table in TABLES if table != 4 for number in published_table(table).numbers()]
    assert len(numbers) == 405
    for number in numbers:
        config = FitConfig.read({name: value for name, value in number.facts.items() if name != "reference"})
        assert config.protocol == "paper", number
        assert config.epochs in (60, 100, 150, 200), number


def test_identity_fills_in_defaults_and_minds_what_matters():
    plain = {"protocol": "paper", "mapping": "blm+", "data": "paper:dtd", "model": "timm:resnet18", "epochs": 200}
    same = identity(plain)
    for change in (
        {"seed": 2},
        {"smoothing": 1.0},
        {"top_ratio": 0.15},
        {"refresh": "fresh"},
        {"program": "padding"},
        {"data_root": "/x", "device": "cpu", "fraction": None},
    ):
        assert identity({**plain, **change}) == same
    for change in (
        {"smoothing": 10},
        {"top_ratio": "all"},
        {"refresh": "never"},
        {"program": "watermark"},
        {"fraction": 0.7},
        {"epochs": 100},
        {"mapping": "blm"},
        {"data": "paper:svhn"},
        {"model": "timm:resnet34"},
        {"protocol": "default"},
        {"reference": "finetune-full"},
    ):
        assert identity({**plain, **change}) != same, change


def test_a_table_that_the_paper_has_not():
    with pytest.raises(ReprogramError, match="table 12 was asked for, but the paper has the tables 1 to 9"):
        published_table(12)
