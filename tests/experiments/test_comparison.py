"""A grid is carried out: every run once, failures beside the others, and what has changed is noticed."""

import json
import os
import shutil
import signal
import threading
import time

import numpy as np
import pytest
from PIL import Image

import plugin
from reprogram.errors import ReprogramError
from reprogram.experiments.comparison import compare, status_of
from reprogram.experiments.folder import GridFolder, Note
from reprogram.experiments.recipe import Recipe
from reprogram.experiments.settings import Plan
from reprogram.files import read_sealed
from reprogram.run.folder import run_fit

SMALL = {"model": "timm:test_resnet", "pretrained": False, "canvas": 32, "batch_size": 16, "calibration": "none"}


def recipe_of(data, **axes):
    grid = {"program": ["none"], "mapping": ["blm", "ilm"], "seed": [0, 1], **axes}
    return Recipe(settings={**SMALL, "data": str(data)}, grid=grid)


def results(folder):
    return {path.parent.name: read_sealed(path, "result") for path in sorted(folder.glob("runs/*/result.json"))}


def numbers(folder):
    return {name: (result["accuracy"], result["per_class"]) for name, result in results(folder).items()}


@pytest.fixture(scope="module")
def data(tmp_path_factory, shapes):
    copy = tmp_path_factory.mktemp("data") / "shapes"
    shutil.copytree(shapes, copy)
    return copy


@pytest.fixture(scope="module")
def made(tmp_path_factory, data):
    """A grid that is done, and what was told on the way."""
    folder, told = tmp_path_factory.mktemp("grid") / "grid", []
    recipe = recipe_of(data, program=["none", "padding"], mapping=["blm", "gaussian"], epochs=[1])

    def tell(status, cell):
        told.append((None if cell is None else status.states[cell.name], dict(status.counts)))

    status = compare(recipe, folder, Plan(jobs=2), on_change=tell)
    return folder, recipe, status, told


def test_every_run_is_made_and_told(made):
    folder, _, status, told = made
    assert status.counts == {"done": 8, "failed": 0, "running": 0, "waiting": 0}
    assert len(results(folder)) == 8
    assert [state for state, _ in told].count("running") == [state for state, _ in told].count("done") == 8
    assert told[0][1]["waiting"] == told[-1][1]["done"] == 8
    assert max(counts["running"] for _, counts in told) == 2
    assert not (folder / ".passes").exists()


def test_a_run_of_a_grid_is_the_run_alone(made, tmp_path):
    folder, _, status, _ = made
    cell = next(cell for cell in status.cells if cell.settings["program"] == "padding")
    alone = run_fit(cell.config, tmp_path / "alone")
    assert results(folder)[cell.name]["accuracy"] == alone.accuracy
    for name in ("artefact/artefact.safetensors", "predictions.csv"):
        assert (folder / "runs" / cell.name / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_runs_share_their_first_passes(data, tmp_path):
    folder = GridFolder(tmp_path / "grid")
    compare(recipe_of(data, mapping=["blm"], seed=[0]), folder.path, Plan(jobs=1))
    assert not folder.passes.exists()  # of a grid that is done
    seen = []

    def look(status, cell):
        if cell is not None and status.states[cell.name] == "done":
            seen.append(len(list(folder.passes.glob("*.safetensors"))))

    wider = recipe_of(data, mapping=["blm", "ilm", "flm", "gaussian"], seed=[0])
    compare(wider, folder.path, Plan(jobs=1), on_change=look)
    assert seen[0] > 0
    assert seen == [seen[0]] * 3  # the second and third run have sent nothing through the model that was not there


def test_a_second_call_makes_nothing_and_a_wider_one_only_what_is_new(made):
    folder, recipe, _, _ = made
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/result.json")}
    changes = []
    wider = recipe.with_axes({"seed": [2, 1, 0]})
    wider = wider.model_copy(update={"grid": {**wider.grid, "program": ["none"], "mapping": ["gaussian", "blm"]}})
    status = compare(wider, folder, on_change=lambda status, cell: changes.append(cell))
    assert len({cell.name for cell in changes if cell is not None}) == 2
    assert all(cell.seed == 2 for cell in changes if cell is not None)
    assert status.counts["done"] == 6
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_grid_that_was_moved_goes_on(made, tmp_path, monkeypatch):
    folder, recipe, _, _ = made
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    changes = []
    status = compare(recipe, "copy", on_change=lambda status, cell: changes.append(cell))
    assert status.counts["done"] == 8
    assert changes == [None, None]
    assert status_of(GridFolder(tmp_path / "copy")).counts["done"] == 8


def test_a_run_that_was_interrupted_goes_on_where_its_data_have_been_moved(shapes, tmp_path):
    folder, (old, new) = GridFolder(tmp_path / "grid"), (tmp_path / "old" / "shapes", tmp_path / "new" / "shapes")
    shutil.copytree(shapes, old)
    recipe = recipe_of(old, mapping=["blm"], seed=[0])
    (cell,) = compare(recipe, folder.path, Plan(jobs=1)).cells
    before = numbers(folder.path)
    folder.write_note(cell, folder.note(cell).model_copy(update={"state": "running"}))
    (folder.run(cell) / "result.json").unlink()
    new.parent.mkdir()
    old.rename(new)
    status = compare(recipe_of(new, mapping=["blm"], seed=[0]), folder.path, Plan(jobs=1))
    assert status.counts["done"] == 1, status.notes
    assert numbers(folder.path) == before


def test_one_failure_stops_nothing_and_is_kept_until_it_is_retried(data, tmp_path):
    folder = tmp_path / "grid"
    recipe = recipe_of(
        data, mapping=["blm", {"label": "broken", "mapping": "gaussian", "prior": str(tmp_path / "prior.npz")}]
    )
    np.savez(tmp_path / "prior.npz", other=np.zeros(3))
    status = compare(recipe, folder, Plan(jobs=2))
    assert status.counts == {"done": 2, "failed": 2, "running": 0, "waiting": 0}
    failed = status.those("failed")[0]
    assert "prior" in (status.notes[failed.name].error or "")
    assert compare(recipe, folder).counts["failed"] == 2  # not by itself
    np.savez(tmp_path / "prior.npz", prior=np.ones((1000, 3)))
    assert compare(recipe, folder, Plan(retry=True)).counts["done"] == 4


def change_an_image(data):
    path = next((data / "train" / "disc").iterdir())
    Image.fromarray(np.full((40, 40, 3), 7, np.uint8)).save(path)


def test_other_images_are_noticed(shapes, tmp_path):
    data, folder = tmp_path / "shapes", tmp_path / "grid"
    shutil.copytree(shapes, data)
    recipe = recipe_of(data, mapping=["blm"], seed=[0])
    compare(recipe, folder)
    before = results(folder)
    change_an_image(data)
    with pytest.raises(ReprogramError, match=r"1 run with other data.*--stale keep.*--stale again"):
        compare(recipe, folder)
    assert compare(recipe, folder, Plan(stale="keep")).counts["done"] == 1
    assert results(folder) == before
    assert compare(recipe, folder, Plan(stale="again")).counts["done"] == 1
    assert len(list((folder / "replaced").iterdir())) == 2
    assert compare(recipe, folder).counts["done"] == 1  # and now it is of these images


def test_other_code_is_noticed(made, tmp_path, monkeypatch):
    folder, recipe, _, _ = made
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setattr("reprogram.experiments.origin.code_version", lambda: "reprogram 9.9")
    with pytest.raises(ReprogramError, match="8 runs with other code"):
        compare(recipe, tmp_path / "copy")


def test_a_worker_that_is_killed_fails_its_run_alone(data, tmp_path):
    folder = tmp_path / "grid"
    long, short = recipe_of(data, program=["padding"], epochs=[400], mapping=["blm"], seed=[0]), recipe_of(data, seed=[0])
    both = Recipe.read({**long.model_dump(), "also": [short.model_dump(include={"settings", "grid"})]})

    def kill():
        until = time.monotonic() + 60
        while not list(folder.glob("runs/*padding*/metrics.jsonl")) and time.monotonic() < until:
            time.sleep(0.02)
        lock = next(folder.glob("runs/*padding*/.lock"))  # it tells who holds it
        os.kill(int(lock.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    status = compare(both, folder, Plan(jobs=1))
    killer.join()
    assert status.counts["done"] == 2
    (failed,) = status.those("failed")
    assert "killed, perhaps for lack of memory" in (status.notes[failed.name].error or "")
    assert status.notes[failed.name].origin  # what it was begun with is not forgotten


def test_what_a_worker_prints_before_it_begins_is_no_answer(data, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('hello', flush=True)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    status = compare(recipe_of(data, mapping=["blm"], seed=[0]), tmp_path / "grid", Plan(jobs=1))
    assert status.counts["done"] == 1


def test_a_folder_that_cannot_be_written_to_fails_runs_and_hangs_nothing(data, tmp_path):
    folder = tmp_path / "grid"

    def spoil(status, cell):
        if cell is None:
            (folder / "cells").write_text("in the place of the folder")

    status = compare(recipe_of(data, mapping=["blm"], seed=[0]), folder, Plan(jobs=1), on_change=spoil)
    (failed,) = status.those("failed")
    assert "nobody could carry it out (FileExistsError" in (status.notes[failed.name].error or "")


def test_a_failed_run_is_not_continued_from_what_other_code_has_left(data, tmp_path):
    folder = GridFolder(tmp_path / "grid")
    recipe = recipe_of(data, mapping=["blm"], seed=[0])
    (cell,) = compare(recipe, folder.path, Plan(jobs=1)).cells
    note = folder.note(cell)
    old = Note(state="failed", origin={**note.origin, "code": "reprogram 0.0"}, error="killed")
    folder.write_note(cell, old)
    (folder.run(cell) / "result.json").unlink()
    assert compare(recipe, folder.path).counts["failed"] == 1
    assert compare(recipe, folder.path, Plan(retry=True)).counts["done"] == 1
    assert folder.note(cell).origin == note.origin
    assert {path.name for path in (folder.path / "replaced").iterdir()} == {f"{cell.name}-1", f"{cell.name}-1.json"}


def test_a_kept_run_that_goes_on_does_not_forget_what_it_was_begun_with(data, tmp_path):
    folder = GridFolder(tmp_path / "grid")
    recipe = recipe_of(data, mapping=["blm"], seed=[0])
    (cell,) = compare(recipe, folder.path, Plan(jobs=1)).cells
    old = {**folder.note(cell).origin, "code": "reprogram 0.0"}
    folder.write_note(cell, Note(state="running", origin=old))
    (folder.run(cell) / "result.json").unlink()
    assert compare(recipe, folder.path, Plan(jobs=1, stale="keep")).counts["done"] == 1
    assert folder.note(cell).origin == old
    with pytest.raises(ReprogramError, match="with other code"):
        compare(recipe, folder.path)


def test_another_prior_is_noticed(data, tmp_path):
    folder, prior = tmp_path / "grid", tmp_path / "prior.npz"
    np.savez(prior, prior=np.ones((1000, 3)))
    recipe = recipe_of(data, mapping=["gaussian"], prior=[str(prior)], seed=[0])
    assert compare(recipe, folder).counts["done"] == 1
    np.savez(prior, prior=np.eye(1000, 3))
    with pytest.raises(ReprogramError, match="1 run with other prior"):
        compare(recipe, folder)


def test_a_plugin_is_a_part_of_the_code(tmp_path):
    code = "from reprogram.experiments.origin import code_version; print(code_version())"
    env = plugin.install(tmp_path, "somebodys", "SIZE = 1\n")
    before = plugin.python(code, env)
    assert "somebodys (" in before
    (tmp_path / "somebodys.py").write_text("SIZE = 2\n")
    assert plugin.python(code, env) != before


def test_two_compares_on_one_folder(made):
    folder, recipe, _, _ = made
    with GridFolder(folder).locked(), pytest.raises(ReprogramError, match="is in use by process"):
        compare(recipe, folder)


def test_a_folder_of_something_else_stays_as_it_is(tmp_path, data):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(ReprogramError, match="is no grid"):
        compare(recipe_of(data), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious"]


def test_a_damaged_note_is_told(made, tmp_path):
    folder, recipe, status, _ = made
    shutil.copytree(folder, tmp_path / "copy")
    note = tmp_path / "copy" / "cells" / f"{status.cells[0].name}.json"
    note.write_text(note.read_text().replace("done", "fail"))
    with pytest.raises(ReprogramError, match="has changed since it was written"):
        compare(recipe, tmp_path / "copy")


def test_what_is_stored_names_no_folder_of_the_grid(made):
    folder, *_ = made
    for path in [folder / "grid.json", *folder.glob("cells/*.json")]:
        assert str(folder) not in path.read_text()
    assert json.loads((folder / "grid.json").read_text())["recipe"]["grid"]["epochs"] == [1]
