"""Cells are combinations; their names depend on what makes another run, and on nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.experiments.grid import Cell, data_name, expand
from reprogram.experiments.recipe import Recipe

BASE = {"settings": {"data": "digits"}, "grid": {"mapping": ["blm", "ilm"], "epochs": [1, 2], "seed": [0, 1]}}


def names(recipe):
    return [cell.name for cell in expand(Recipe(**recipe))]


def test_every_combination_is_one_cell():
    cells = expand(Recipe(**BASE))
    assert len({cell.name for cell in cells}) == len(cells) == 8
    assert {(cell.labels["mapping"], cell.labels["epochs"], cell.seed) for cell in cells} == {
        (mapping, epochs, seed) for mapping in ("blm", "ilm") for epochs in ("1", "2") for seed in (0, 1)
    }


@settings(max_examples=30, deadline=None)
@given(st.permutations(["mapping", "epochs", "seed"]), st.permutations([0, 1, 2, 3]), st.permutations(["blm", "ilm", "flm"]))
def test_order_and_extension_leave_names_as_they_are(axes, seeds, mappings):
    values = {"mapping": mappings, "epochs": [2, 1], "seed": seeds}
    wider = {"settings": BASE["settings"], "grid": {axis: values[axis] for axis in axes}}
    assert set(names(BASE)) <= set(names(wider))
    assert len(names(wider)) == 24


def test_texts_of_flags_are_the_numbers_of_files():
    texts = {"settings": {"data": "digits"}, "grid": {"mapping": ["blm"], "epochs": ["1"], "lr": ["0.010"], "seed": ["0"]}}
    numbers = {"settings": {"data": "digits"}, "grid": {"mapping": ["blm"], "epochs": [1], "lr": [0.01], "seed": [0]}}
    assert names(texts) == names(numbers)


@pytest.mark.parametrize(
    "place", [{"device": "cuda"}, {"data_root": "/elsewhere"}, {"cache": False}, {"download": True}, {"data": "/b/photos"}]
)
def test_where_something_lies_makes_no_other_run(place):
    settings = {"data": "/a/photos", "mapping": "blm"}
    assert names({"settings": settings}) == names({"settings": settings | place})


@pytest.mark.parametrize(
    "other",
    [{"mapping": "ilm"}, {"seed": 1}, {"lr": 0.3}, {"smoothing": 2}, {"reference": "probe"}, {"model": "timm:resnet18"}],
)
def test_what_changes_a_number_makes_another_run(other):
    settings = {"data": "digits", "mapping": "blm"}
    assert names({"settings": settings}) != names({"settings": settings | other})


def test_weights_make_another_run_by_the_name_of_their_file():
    def named(*files):
        return names({"settings": {"data": "digits"}, "grid": {"weights": list(files)}})

    assert len(set(named("/a/first.safetensors", "/a/second.safetensors"))) == 2
    assert named("/a/first.safetensors") == named("/moved/first.safetensors")
    assert named("/a/first.safetensors") != names({"settings": {"data": "digits"}})


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_two_numbers_never_have_one_label(first, second):
    cells = expand(Recipe(settings={"data": "digits"}, grid={"lr": [first, second]}))
    assert len({cell.labels["lr"] for cell in cells}) == len({first, second})


def test_cells_of_two_grids_with_equal_settings_are_one_run():
    recipe = {**BASE, "also": [{"grid": {"mapping": ["blm"], "epochs": [2, 3], "seed": [0]}}]}
    assert len(names(recipe)) == 9


def test_labels_stand_for_several_settings_and_for_every_axis():
    labelled = {"label": "-Top-K", "mapping": "blm+", "top_ratio": "all"}
    recipe = Recipe(settings={"data": "digits"}, grid={"mapping": ["blm+", labelled]}, also=[{"grid": {"epochs": [3]}}])
    cells = expand(recipe)
    assert [cell.labels for cell in cells] == [
        {"mapping": "blm+", "epochs": "20"},
        {"mapping": "-Top-K", "epochs": "20"},
        {"mapping": "auto", "epochs": "3"},
    ]
    assert cells[1].settings["top_ratio"] == "all"


def test_what_only_settings_tell_apart_becomes_an_axis():
    recipe = Recipe(
        settings={"data": "digits"},
        grid={"mapping": ["blm"]},
        also=[{"settings": {"lr": 0.5}, "grid": {"mapping": ["blm"]}}],
    )
    assert [cell.labels for cell in expand(recipe)] == [{"mapping": "blm", "lr": "0.05"}, {"mapping": "blm", "lr": "0.5"}]


def test_two_data_sets_of_one_name_are_refused_unless_one_has_a_label():
    grid = {"data": ["/a/photos", "/b/photos"]}
    with pytest.raises(ReprogramError, match="both called 'photos'"):
        expand(Recipe(grid=grid))
    grid = {"data": ["/a/photos", {"label": "others", "data": "/b/photos"}]}
    assert [cell.data for cell in expand(Recipe(grid=grid))] == ["photos", "others"]


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ({"mapping": []}, "no values"),
        ({"mapping": [["blm"]]}, "one value or a table"),
        ({"mapping": [{}]}, "sets nothing"),
        ({"mapping": [{"label": 3, "mapping": "blm"}]}, "no text"),
        ({"mapping": ["blmm"]}, "blm"),
        ({"mappping": ["blm"]}, "mapping"),
        ({"reference": ["prob"]}, "did you mean 'probe'"),
        ({"reference": [{"reference": {"a": 1}}]}, "is not known"),
        ({"seed": [0], "lr": [0.1] * 10_000, "epochs": [1] * 10_000, "canvas": [32] * 10_000}, "more than"),
        ({"device": ["cpu", "cuda"]}, "differ in device alone"),
        ({"weights": ["/a/w.safetensors", "/b/w.safetensors"]}, "differ in weights alone.*different names"),
        ({"mapping": [{"label": "x", "mapping": "blm"}, {"label": "x", "mapping": "ilm"}]}, "have the same labels"),
        ({"seed": list(range(1000)), "lr": [i / 1000 for i in range(1, 200)]}, "more than"),
    ],
)
def test_what_is_wrong_with_a_grid_is_told(grid, told):
    with pytest.raises(ReprogramError, match=told):
        expand(Recipe(settings={"data": "digits"}, grid=grid))


@settings(deadline=None)
@given(st.text(max_size=300))
def test_names_are_names_of_folders(text):
    name = Cell({"data": "digits", "mapping": "blm"}, {}, text).name
    assert len(name) <= 120
    assert not set(name) & set("/\\\0\n:")
    assert not name.startswith(".")


@pytest.mark.parametrize(
    ("spec", "name"),
    [("digits", "digits"), ("paper:dtd", "paper:dtd"), ("/a/b.c", "b.c"), ("t.csv", "t"), ("a/b/", "b"), ("hf:a/b", "b")],
)
def test_what_data_are_called(spec, name):
    assert data_name(spec) == name
