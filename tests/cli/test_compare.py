"""`reprogram compare`: flags with several values, recipes, what is printed, and what is wrong in one sentence."""

import json

import pytest

from command import SMALL, here

QUICK = (*SMALL, "--calibration", "none")


@pytest.fixture(scope="module")
def grid(shapes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    done = here(
        "compare",
        shapes,
        "--mapping",
        "blm",
        "ilm",
        "--program",
        "none",
        "--seed",
        0,
        1,
        *QUICK,
        "--out",
        "grid",
        cwd=folder,
    )
    return folder / "grid", done.stdout


def test_flags_with_several_values_are_axes(grid):
    folder, printed = grid
    assert len(list((folder / "runs").iterdir())) == 4
    assert "4 runs in" in printed
    assert "4 of 4 runs are done" in printed
    recipe = json.loads((folder / "grid.json").read_text())["recipe"]
    assert recipe["grid"]["mapping"] == ["blm", "ilm"]
    assert recipe["grid"]["pretrained"] == [False]


def test_tables_and_report_are_written(grid):
    folder, printed = grid
    for name in ("results.csv", "results.json", "table.md", "table.tex", "report.html"):
        assert (folder / name).stat().st_size > 200
        assert name in printed
    assert "| blm | ilm |" in (folder / "table.md").read_text()


def test_a_grid_is_continued_by_its_folder_alone(grid):
    folder, _ = grid
    done = here("compare", "--out", folder, "--no-report")
    assert "4 runs in" in done.stdout
    assert "4 done" in done.stdout


def test_dry_run_lists_and_makes_nothing(shapes, tmp_path):
    done = here("compare", shapes, "--mapping", "blm", "ilm", *QUICK, "--out", tmp_path / "grid", "--dry-run")
    assert done.stdout.count("waiting") == 7
    assert "6 runs: 6 waiting" in done.stdout  # three seeds where none was said
    assert not (tmp_path / "grid").exists()


def test_flags_go_before_a_recipe(shapes, tmp_path):
    recipe = tmp_path / "r.json"
    recipe.write_text(json.dumps({"grid": {"data": [str(shapes)], "mapping": ["blm", "ilm"], "seed": [0, 1, 2]}}))
    done = here("compare", recipe, "--seed", 5, "--dry-run", "--out", tmp_path / "grid")
    assert "2 runs: 2 waiting" in done.stdout


def test_failed_runs_are_named_and_the_exit_code_says_so(shapes, tmp_path):
    (tmp_path / "prior.npz").write_bytes(b"nothing")
    done = here(
        *("compare", shapes, "--mapping", "gaussian", "--prior", tmp_path / "prior.npz", "--program", "none", "--seed", 0),
        *(*QUICK, "--out", tmp_path / "grid"),
        check=False,
    )
    assert done.returncode == 3
    assert "failed: shapes" in done.stdout.replace(shapes.name, "shapes")
    assert "0 of 1 runs are done" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "holds no grid"),
        (("SHAPES", "--mapping", "blmm"), "blmm"),
        (("SHAPES", "--epochs", "many"), "epochs"),
        (("nowhere", "--mapping", "blm"), "nowhere"),
        (("SHAPES", "--data", "digits"), "both given"),
        (("a.json",), "is not there"),
        (("a.json", "b.yaml"), "two recipes"),
        (("SHAPES", "--mapping", "blm", "--rows", "colour"), "axis"),
        (("SHAPES", "--address", "auto"), "--engine ray"),
        (("SHAPES", "--engine", "sun"), "--engine sun"),
        (("SHAPES", "--model", "timmm:x"), "timmm"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_leaves_nothing(arguments, told, shapes, tmp_path):
    words = [str(shapes) if word == "SHAPES" else word for word in arguments]
    done = here("compare", *words, "--out", tmp_path / "grid", check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "grid").exists()
