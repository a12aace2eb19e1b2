"""`reprogram forecast` as a person types it."""

import csv
import json

import numpy as np
import pytest

from command import here

SMALL = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "32", "--batch-size", "16")


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    rng = np.random.default_rng(0)
    targets = np.arange(120) % 3
    path = tmp_path_factory.mktemp("forecast") / "shard.npz"
    logits = rng.normal(size=(120, 9)) + 2 * np.eye(3, 9)[targets]
    np.savez(path, logits=logits.astype(np.float32), label=np.array(["ant", "=bee", "cow"])[targets])
    return path


def test_of_shards_a_table_and_a_sentence(shard, tmp_path):
    out = tmp_path / "f.json"
    printed = here("forecast", shard, "--factors", "4,2", "--out", out).stdout
    assert "120 labelled samples give" in printed
    assert "with twice as many expect" in printed
    assert "gain at 2 x" in printed
    content = json.loads(out.read_text())
    assert [point["factor"] for point in content["forecast"]] == [1, 2, 4]
    assert content["sentence"] in printed.replace("\n", " ")
    assert here("forecast", shard, "--factors", "2,4", "--out", out).stdout == printed


def test_a_csv_file_holds_the_curve_and_the_classes(shard, tmp_path):
    here("forecast", shard, "--mapping", "blm", "--smoothing", "2", "--out", tmp_path / "f.csv")
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    assert {row["kind"] for row in rows} == {"accuracy", "gain"}
    assert {row["class"] for row in rows if row["kind"] == "gain"} == {"ant", "'=bee", "cow"}
    assert [row["labels"] for row in rows if row["how"] == "forecast" and row["kind"] == "accuracy"] == ["240", "480"]
    assert all(float(row["low"]) <= float(row["value"]) <= float(row["high"]) for row in rows)


def test_of_images_all_of_a_folder_without_splits_count(shapes, tmp_path):
    out = tmp_path / "f.json"
    here("forecast", shapes, "--mapping", "blm", "--no-cache", "--out", out, *SMALL)
    content = json.loads(out.read_text())
    assert content["samples"] == len(list((shapes / "train").rglob("*.png")))
    here("forecast", shapes / "test", "--mapping", "auto", "--no-cache", "--out", out, *SMALL)
    content = json.loads(out.read_text())
    assert content["samples"] == len(list((shapes / "test").rglob("*.png")))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "neither images nor shards"),
        (("SHARD", "--factors", "0.5"), "above 1"),
        (("SHARD", "--factors", "two"), "above 1"),
        (("SHARD", "--out", "f.txt"), ".json nor .csv"),
        (("SHARD", "--canvas", "64"), "--canvas 64 was given, but the samples are shards"),
        (("digits", "--classes", "a,b"), "--classes a,b was given, but the samples are images"),
        (("SHARD", "--mapping", "blm", "--shrinkage", "0.5"), "does not use"),
        (("SHARD", "--smoothing", "2"), "no mapping was named"),
        (("SHARD", "--mapping", "auto", "--smoothing", "2"), "chooses it"),
        (("SHARD", "--mapping", "gausian"), "gaussian"),
        (("SHARD", "--mapping", "linear"), "no sample can be left out"),
        (("nothing-there",), "neither a folder or file"),
        (("SHARD", "digits"), "give shards alone"),
    ],
)
def test_a_mistake_is_one_sentence(shard, tmp_path, arguments, words):
    given = [str(shard) if word == "SHARD" else word for word in arguments]
    done = here("forecast", *given, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_of_a_run_its_model_and_its_training_images(shapes, tmp_path):
    here("fit", shapes, "--program", "none", "--mapping", "blm", "--no-cache", "--out", "run", *SMALL, cwd=tmp_path)
    here("forecast", "--run", "run", "--mapping", "blm", "--no-cache", "--out", "f.json", cwd=tmp_path)
    found = json.loads((tmp_path / "f.json").read_text())
    assert {row["name"] for row in found["classes"]} == {folder.name for folder in (shapes / "train").iterdir()}
    assert found["samples"] < len(list((shapes / "train").rglob("*.png")))  # the others are the run's validation images
