"""`reprogram evaluate` and `reprogram predict`: what a run is good for, from anywhere."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

import tiny_clip
from command import SMALL, here
from conftest import draw_folder
from reprogram.text import read_csv
from small_eurosat import paper_eurosat
from tiny_onnx import onnx_of_means


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


def test_evaluate_lists_its_mistakes_with_their_paths(run, shapes, tmp_path):
    folder, _ = run
    printed = here("evaluate", folder, "--out", tmp_path / "new" / "wrong.json").stdout
    told = json.loads((tmp_path / "new" / "wrong.json").read_text())
    stored = [row for row in read_csv(folder / "predictions.csv") if row["label"] != row["predicted"]]
    assert 0 < len(stored) == len(told["mistakes"]) == told["n"] - told["correct"]
    assert f"{len(stored)} mistakes, the surest first: " in printed
    assert {Path(mistake["image"]) for mistake in told["mistakes"]} == {Path(row["image"]) for row in stored}
    assert all(Path(mistake["image"]).parent.name == mistake["label"] for mistake in told["mistakes"])
    surest = [mistake["confidence"] for mistake in told["mistakes"]]
    assert surest == sorted(surest, reverse=True)
    worst = told["confused"][0]
    assert f"{worst['n'] - worst['correct']} of {worst['n']}" in printed
    assert f"{worst['taken_for'][0]['predicted']} ({worst['taken_for'][0]['images']})" in printed
    (tmp_path / "list").write_text("an older list")
    here("evaluate", folder, "--out", tmp_path / "list", "--format", "csv")
    rows = read_csv(tmp_path / "list")
    assert [(row["image"], row["predicted"]) for row in rows] == [(m["image"], m["predicted"]) for m in told["mistakes"]]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--out", "wrong.txt"), "'wrong.txt' is neither .json nor .csv; name it so, or say it with --format"),
        (("--format", "json"), "--format json goes with --out"),
        (("--out", "folder.csv"), "'folder.csv' is there and no plain file"),
        (("--out", "pipe", "--format", "csv"), "'pipe' is there and no plain file"),
    ],
)
def test_a_place_that_no_list_can_go_to_is_refused_at_once(run, tmp_path, flags, words):
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe")
    done = here("evaluate", run[0], *flags, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.csv", "pipe"]


def test_predict_names_the_evidence(run, shapes):
    folder, _ = run
    images = sorted((shapes / "test" / "disc").iterdir())[:2]
    text = here("predict", folder, *images, "--evidence", 2).stdout.splitlines()
    assert text[0].startswith(f"{images[0]}: ")
    lines = here("predict", folder, *images, "--evidence", 2, "--format", "json").stdout.splitlines()
    objects = [json.loads(line) for line in lines]
    assert len(text) == sum(1 + len(entry["evidence"]) for entry in objects)
    assert all(1 <= len(entry["evidence"]) <= 2 for entry in objects)
    assert text[1].endswith(f"  {objects[0]['evidence'][0]['source']}")
    assert [entry["image"] for entry in objects] == [str(image) for image in images]
    assert text[0].endswith(f"{objects[0]['label']} ({100 * objects[0]['probability']:.1f} %)")


def test_an_image_of_another_size_and_mode_is_classified(run, tmp_path):
    Image.new("LA", (300, 20), (120, 30)).save(tmp_path / "grey alpha.png")
    assert here("predict", run[0], tmp_path / "grey alpha.png").stdout.startswith(f"{tmp_path}/grey alpha.png: ")


def test_an_image_that_a_run_has_skipped_is_skipped_again(tmp_path):
    folder = draw_folder(tmp_path / "set" / "train", per_class=8).parent
    draw_folder(folder / "test", per_class=4, seed=5)
    (folder / "test" / "disc" / "002.png").write_bytes(b"")
    (folder / "train" / "disc" / "000.png").write_bytes(b"")
    here("fit", folder, "--program", "none", "--mapping", "blm", "--skip-bad", "--out", tmp_path / "run", *SMALL)
    accuracy = json.loads((tmp_path / "run" / "result.json").read_text())["accuracy"]["last"]
    printed = here("evaluate", tmp_path / "run").stdout
    assert f"(test): {100 * accuracy:.1f} % " in printed
    assert "of 11)" in printed
    assert re.search(r"note: skipped: .*002\.png", printed)
    assert "000.png" not in printed
    elsewhere = here("evaluate", tmp_path / "run" / "artefact", "--data", folder, check=False)
    assert (elsewhere.returncode, "002.png" in elsewhere.stderr, "--skip-bad" in elsewhere.stderr) == (2, True, True)
    assert "of 11)" in here("evaluate", tmp_path / "run" / "artefact", "--data", folder, "--skip-bad").stdout


def test_images_that_were_trained_on_are_recognised_and_said(run, shapes, tmp_path):
    """By content: a copy under other names is the same images."""
    copy = tmp_path / "copy"
    for split, count in (("train", 5), ("test", 3)):
        for kind in ("disc", "square", "stripes"):
            (copy / kind).mkdir(parents=True, exist_ok=True)
            for number, path in enumerate(sorted((shapes / split / kind).iterdir())[:count]):
                shutil.copy(path, copy / kind / f"{split}-{number}.png")
    printed = here("evaluate", run[0], "--data", copy).stdout
    assert "note: 15 of 24 images were used in training or to select the epoch" in printed
    assert "were used in training" not in here("evaluate", run[0]).stdout
    assert f"note: {87} of {87} images were used" in here("evaluate", run[0], "--split", "train").stdout
    assert f"note: {9} of {9} images were used" in here("evaluate", run[0], "--split", "val").stdout


def test_a_table_is_measured_as_a_whole_and_in_the_model_s_classes(run, shapes, tmp_path):
    """It brings no split, lacks a class and names the others in another order: numbers alone would mix them up."""
    paths = [*sorted((shapes / "test" / "stripes").iterdir()), *sorted((shapes / "test" / "disc").iterdir())]
    (tmp_path / "t.csv").write_text("\n".join(["path,label", *(f"{path},{path.parent.name}" for path in paths)]))
    by_table = here("evaluate", run[0], "--data", tmp_path / "t.csv").stdout
    for kind in ("stripes", "disc"):
        shutil.copytree(shapes / "test" / kind, tmp_path / "set" / kind)
    by_folder = here("evaluate", run[0], "--data", tmp_path / "set").stdout
    assert "of 20)" in by_table
    assert by_table.replace("on t (test)", "") == by_folder.replace("on set (test)", "")


# ---- from anywhere


@pytest.fixture
def elsewhere(tmp_path):
    """Two folders: one with data, in which runs are made, and another one to look at them from."""
    for name in ("made", "looked"):
        (tmp_path / name).mkdir()
    draw_folder(tmp_path / "made" / "set", per_class=8)
    return tmp_path / "made", tmp_path / "looked"


def looks_the_same(elsewhere, *arguments):
    """Fit in the one folder with relative paths, evaluate and predict from the other."""
    made, looked = elsewhere
    here("fit", *arguments, "--mapping", "blm", "--out", "run", cwd=made)
    accuracy = json.loads((made / "run" / "result.json").read_text())["accuracy"]["last"]
    assert f"(test): {100 * accuracy:.1f} % " in here("evaluate", made / "run", cwd=looked).stdout
    image = next((made / "set" / "disc").iterdir())
    assert here("predict", made / "run", image, cwd=looked).stdout.startswith(f"{image}: ")
    here("fit", "--resume", "--out", made / "run", cwd=looked)
    assert list(looked.iterdir()) == []


NONE = ("--program", "none", *SMALL)


def test_a_run_on_a_table_is_looked_at_from_elsewhere(elsewhere):
    made, _ = elsewhere
    paths = sorted((made / "set").rglob("*.png"))
    rows = [f"{path.relative_to(made)},{path.parent.name},{('train', 'test')[i % 2]}" for i, path in enumerate(paths)]
    (made / "t.csv").write_text("\n".join(["path,label,split", *rows]))
    looks_the_same(elsewhere, "--data", "t.csv", *NONE)


def test_a_run_on_arrays_is_looked_at_from_elsewhere(elsewhere):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (40, 9, 9, 3), dtype=np.uint8), np.arange(40) % 2
    np.savez(elsewhere[0] / "a.npz", images=images, labels=labels)
    looks_the_same(elsewhere, "a.npz", *NONE)


def test_a_run_on_a_saved_data_set_is_looked_at_from_elsewhere(elsewhere):
    import datasets

    rng = np.random.default_rng(0)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    images = [Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)) for _ in range(20)]
    table = datasets.Dataset.from_dict({"image": images, "label": [i % 2 for i in range(20)]}, features=features)
    table.save_to_disk(str(elsewhere[0] / "pets"))
    looks_the_same(elsewhere, "--data", "hf:pets", *NONE)


def test_a_run_on_a_named_set_is_looked_at_from_elsewhere(elsewhere):
    """Under the default --data-root, which is relative as well."""
    paper_eurosat(elsewhere[0] / "data")
    looks_the_same(elsewhere, "--data", "paper:eurosat", *NONE)


def test_a_run_of_an_onnx_file_is_looked_at_from_elsewhere(elsewhere):
    onnx_of_means(elsewhere[0] / "m.onnx")
    (elsewhere[0] / "labels.txt").write_text("a\nb\nc\nd\ne\n")
    looks_the_same(elsewhere, "--data", "set", "--model", "onnx:m.onnx", "--labels", "labels.txt")


def test_a_run_of_a_clip_with_templates_is_looked_at_from_elsewhere(elsewhere):
    tiny_clip.train(elsewhere[0] / "clip", steps=0)
    (elsewhere[0] / "t.txt").write_text("a photo of a {}.\nthe {} itself\n")
    flags = ("--model", "openclip:clip", "--templates", "t.txt", "--program", "none")
    looks_the_same(elsewhere, "--data", "set", *flags)


def test_a_run_with_a_weights_file_can_be_used_from_elsewhere(elsewhere):
    from reprogram.sources.load import import_torchvision

    import_torchvision()
    import timm

    made, looked = elsewhere
    save_file(timm.create_model("test_resnet", num_classes=9).state_dict(), made / "w.safetensors")
    flags = ("--model", "timm:test_resnet", "--weights", "w.safetensors", "--canvas", 64, "--program", "none")
    looks_the_same(elsewhere, "--data", "set", *flags)
    image = next((made / "set" / "disc").iterdir())
    expected = here("predict", made / "run", image).stdout
    (made / "w.safetensors").rename(looked / "moved.safetensors")
    assert here("predict", made / "run", image, check=False).returncode == 2
    assert here("predict", made / "run", image, "--weights", "moved.safetensors", cwd=looked).stdout == expected


def test_named_sets_that_have_moved_are_found_under_another_root(elsewhere):
    made, looked = elsewhere
    paper_eurosat(made / "data")
    here("fit", "--data", "paper:eurosat", *NONE, "--mapping", "blm", "--out", "run", cwd=made)
    expected = here("evaluate", made / "run").stdout
    (made / "data").rename(looked / "sets")
    assert here("evaluate", made / "run", check=False).returncode == 2
    assert here("evaluate", made / "run", "--data-root", "sets", cwd=looked).stdout == expected


def test_the_verbs_follow_the_precision_of_the_run(processor, passes, shapes, tmp_path):
    """And compute in fp32 where it is not in hardware, which they tell beside their output."""
    run, image = tmp_path / "run", next((shapes / "test").rglob("*.png"))
    few = ("--program", "none", "--mapping", "blm", "--shots", 4)
    processor(True)
    fitted = here("fit", "--data", shapes, "--out", run, *few, *SMALL, "--precision", "auto").stdout
    assert "precision auto: bf16 (" in fitted
    assert re.search(r"network: .*, in bf16\n", fitted)
    accuracy = json.loads((run / "result.json").read_text())["accuracy"]["last"]
    verbs = {
        "evaluate": ("evaluate", run),
        "predict": ("predict", run, image, "--format", "json"),
        "logits": ("logits", "--run", run, "--out", tmp_path / "shards"),
        "update": ("update", run, "--add", shapes / "test", "--out", tmp_path / "updated"),
    }
    for has, dtype in ((True, "torch.bfloat16"), (False, "torch.float32")):
        processor(has)
        for verb, words in verbs.items():
            passes.clear()
            shutil.rmtree(tmp_path / "shards", ignore_errors=True)
            shutil.rmtree(tmp_path / "updated", ignore_errors=True)
            done = here(*words)
            assert {str(seen) for seen in passes} == {dtype}, verb
            told = "trained and measured in bf16, which this cpu does not have in hardware"
            assert (done.stdout + done.stderr).count(told) == (not has), verb
            if verb == "predict":
                assert all(json.loads(line) for line in done.stdout.splitlines())
            if verb == "evaluate" and has:
                assert f"(test): {100 * accuracy:.1f} %" in done.stdout
