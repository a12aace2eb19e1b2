"""`reprogram evaluate` and `reprogram predict`: what a run is good for, from anywhere."""

import json

from PIL import Image

from command import SMALL, here
from conftest import draw_folder


def test_evaluate_repeats_the_number_of_the_run(run, shapes):
    folder, _ = run
    printed = here("evaluate", folder).stdout
    accuracy = json.loads((folder / "result.json").read_text())["accuracy"]["selected"]
    assert f"accuracy on {shapes.name} (test): {100 * accuracy:.1f} %" in printed
    assert here("evaluate", folder / "artefact", "--data", shapes).stdout.splitlines()[-2:] == printed.splitlines()[-2:]


def test_evaluate_on_another_folder_takes_all_its_images(run, tmp_path):
    """A folder without splits is measured whole, and it may lack classes that the model has."""
    draw_folder(tmp_path / "new", classes=("stripes", "disc"), per_class=7, seed=9)
    printed = here("evaluate", run[0], "--data", tmp_path / "new").stdout
    assert "of 14)" in printed
    assert "square" in printed


def test_the_split_of_a_flat_folder_is_that_of_the_run(tmp_path):
    """Evaluating on the folder that a run was trained on must not take images it has trained on."""
    draw_folder(tmp_path / "flat", per_class=10)
    here("fit", "--data", "flat", "--program", "none", "--seed", 3, "--out", "run", *SMALL, cwd=tmp_path)
    accuracy = json.loads((tmp_path / "run" / "result.json").read_text())["accuracy"]["last"]
    for data in ([], ["--data", "flat"]):
        assert f"(test): {100 * accuracy:.1f} %" in here("evaluate", "run", *data, cwd=tmp_path).stdout


def test_predict_names_the_evidence(run, shapes):
    folder, _ = run
    images = sorted((shapes / "test" / "disc").iterdir())[:2]
    text = here("predict", folder, *images, "--evidence", 2).stdout.splitlines()
    assert len(text) == 6
    assert text[0].startswith(f"{images[0]}: ")
    objects = [json.loads(line) for line in here("predict", folder, *images, "--format", "json").stdout.splitlines()]
    assert [entry["image"] for entry in objects] == [str(image) for image in images]
    assert text[0].endswith(f"{objects[0]['label']} ({100 * objects[0]['probability']:.1f} %)")


def test_an_image_of_another_size_and_mode_is_classified(run, tmp_path):
    Image.new("LA", (300, 20), (120, 30)).save(tmp_path / "grey alpha.png")
    assert here("predict", run[0], tmp_path / "grey alpha.png").stdout.startswith(f"{tmp_path}/grey alpha.png: ")


