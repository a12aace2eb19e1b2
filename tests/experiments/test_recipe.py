"""A recipe is read, checked and changed by flags."""

import json

import pytest

from reprogram.errors import ReprogramError
from reprogram.experiments.recipe import Recipe, read_recipe

CONTENT = {"title": "t", "settings": {"epochs": 2}, "grid": {"mapping": ["blm", "ilm"], "seed": [0, 1]}}
YAML = """
title: t
settings: {epochs: 2}
grid:
  mapping: [blm, ilm]
  seed: [0, 1]
"""


def bomb(first, level):
    """A few lines of YAML that stand for 9 to the power of 39 values."""
    lines = (f"a{n}: &a{n} {level % (f'*a{n - 1},' * 9)}\n" for n in range(1, 40))
    return f"a0: &a0 {first}\n{''.join(lines)}"


def test_json_and_yaml_say_the_same(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(CONTENT))
    (tmp_path / "a.yaml").write_text(YAML)
    assert read_recipe(tmp_path / "a.json") == read_recipe(tmp_path / "a.yaml") == Recipe(**CONTENT)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", "{", "mend it"),
        ("a.json", "[]", "holds no table"),
        ("a.json", '{"grids": {}}', "grids"),
        ("a.json", '{"grid": {"mapping": "blm"}}', "list"),
        ("a.yaml", "grid: [", "is no YAML"),
        ("a.yaml", "!!python/object/apply:os.getcwd []", "is no YAML"),
        ("a.json", '{"grid": {"seed": [0], "seed": [1]}}', "'seed' stands twice"),
        ("a.yaml", "settings: {lr: 1}\nsettings: {epochs: 2}", "'settings' stands twice"),
        ("a.yaml", "a: &a [*a]", "aliases written out"),
        ("a.yaml", "[" * 5_000, "nested too deeply"),
        ("a.yaml", bomb("[x]", "[%s]"), "aliases written out"),
        ("a.yaml", bomb("{x: 1}", "{<<: [%s]}"), "aliases written out"),
        ("a.txt", "{}", "neither .json nor .yaml"),
    ],
)
def test_a_bad_recipe_is_one_sentence_with_its_name(tmp_path, name, text, told):
    (tmp_path / name).write_text(text)
    with pytest.raises(ReprogramError, match=told) as error:
        read_recipe(tmp_path / name)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_aliases_and_merged_tables_are_taken(tmp_path):
    text = "settings: &s {epochs: 2}\nalso:\n  - settings: {<<: *s, lr: 0.1}\n    grid: {seed: [0]}\n"
    (tmp_path / "a.yaml").write_text(text)
    assert read_recipe(tmp_path / "a.yaml").grids[0].settings == {"epochs": 2, "lr": 0.1}


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(ReprogramError, match="is not there"):
        read_recipe(tmp_path / "none.json")


def test_given_axes_replace_those_of_every_grid():
    recipe = Recipe(**CONTENT, also=[{"settings": {"mapping": "blm+"}, "grid": {"seed": [5]}}])
    changed = recipe.with_axes({"seed": [7], "epochs": ["1"]})
    assert [grid.grid["seed"] for grid in changed.grids] == [[7], [7]]
    assert all("epochs" not in grid.settings for grid in changed.grids)
    assert changed.grids[1].settings == {"mapping": "blm+"}


def test_a_flag_adds_no_grid_to_a_recipe_of_further_ones():
    recipe = Recipe(settings={"seed": 3, "lr": 0.1}, also=[{"settings": {"data": "a"}, "grid": {"mapping": ["blm"]}}])
    (grid,) = recipe.with_axes({"seed": [1]}).grids
    assert grid.settings == {"lr": 0.1, "data": "a"}
    assert grid.grid == {"mapping": ["blm"], "seed": [1]}


def test_a_flag_never_makes_a_label_lie():
    recipe = Recipe(grid={"method": [{"label": "BLM", "mapping": "blm"}, {"label": "slow", "mapping": "blm", "lr": 0.1}]})
    with pytest.raises(ReprogramError, match="mapping was given, but 'BLM' on axis 'method' of the recipe sets it"):
        recipe.with_axes({"mapping": ["ilm"]})
    assert recipe.with_axes({"seed": [1]}).grid["method"] == recipe.grid["method"]


def test_without_axes_nothing_changes():
    assert Recipe(**CONTENT).with_axes({}) == Recipe(**CONTENT)
