"""No image goes through the frozen model more often than a verb needs: counted where all images pass, in real commands."""

import re
from pathlib import Path

import pytest
from PIL import Image

from command import SMALL, here
from reprogram import fit_data
from reprogram.acceleration import accelerate
from reprogram.acceleration.accelerate import Accelerated
from reprogram.mappings import selection
from reprogram.run import steps
from reprogram.run.config import FitConfig
from reprogram.run.folder import run_fit
from reprogram.sources.frozen import Frozen
from reprogram.training import choice

CLASSES = ("dark", "bright")
TRAIN, TEST = 24, 12
VAL = 6  # of the training images, by --val-fraction 0.25


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for split, count in (("train", TRAIN), ("test", TEST)):
        for number in range(count):
            shade = 40 + 3 * number + 100 * (number % 2)
            path = root / split / CLASSES[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (64, 64), (shade, 255 - shade, shade)).save(path)
    return root


@pytest.fixture
def passed(monkeypatch):
    """How many images go through the model, and how many of them prepared; blank ones that try a canvas are not counted."""
    counts = {"images": 0, "prepared": 0, "inside": 0}

    def counting(call):
        def counted(self, images):
            own = not counts["inside"] and bool(images.any())
            counts["images"] += len(images) if own else 0
            counts["prepared"] += len(images) if own and getattr(self, "schedule", None) is not None else 0
            counts["inside"] += 1
            try:
                return call(self, images)
            finally:
                counts["inside"] -= 1

        return counted

    monkeypatch.setattr(Accelerated, "__call__", counting(Accelerated.__call__))
    monkeypatch.setattr(Frozen, "forward", counting(Frozen.forward))
    return counts


def fitted(folder, **said):
    small = {"model": "timm:test_resnet", "pretrained": False, "canvas": 64, "batch_size": 16, "lr": 0.05}
    return fit_data(str(folder), **small, val_fraction=0.25, cache=False, **said)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    here("fit", folder, "--out", out, *SMALL, "--val-fraction", "0.25", "--program", "none", "--mapping", "gaussian")
    return out


@pytest.mark.parametrize(
    ("said", "train", "others"),
    [
        ({"program": "none", "mapping": "auto"}, 1, 1),
        ({"program": "none", "mapping": "gaussian"}, 1, 1),
        ({"program": "none", "mapping": "blm+", "protocol": "paper"}, 1, 1),
        ({"program": "none", "mapping": "linear", "epochs": 3}, 1, 1),
        ({"program": "padding", "mapping": "blm+", "protocol": "paper", "epochs": 2}, 2 + 2, 2),
        ({"program": "padding", "mapping": "linear", "epochs": 2}, 2, 2),
        ({"program": "none", "mapping": "auto", "protocol": "paper"}, 1, 1),
        ({"program": "none", "mapping": "blm+", "views": 3}, 3, 1),
        ({"program": "none", "mapping": "auto", "views": 3}, 3, 1),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_a_fit_sends_images_through_as_often_as_it_must(folder, passed, said, train, others):
    fitted(folder, **said)
    assert passed["images"] == train * (TRAIN - VAL) + others * (VAL + TEST)


@pytest.mark.parametrize(
    ("said", "train"),
    [
        ({"program": "padding", "mapping": "blm+"}, 1 + 1 + 2),
        ({"program": "watermark", "mapping": "blm+", "augment": "none"}, 1 + 2),
        ({"program": "watermark", "mapping": "gaussian", "augment": "none"}, 1 + 2),
        ({"program": "watermark", "mapping": "blm+", "augment": "crop"}, 1 + 1 + 2),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_a_named_program_begins_with_the_images_as_they_are(folder, passed, said, train):
    """Without the test images: these are looked at after each epoch."""
    fitted(folder, epochs=2, **said)
    assert passed["images"] == train * (TRAIN - VAL) + 3 * VAL + 2 * TEST


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        ({"program": "padding", "augment": "none"}, 1),
        ({"program": "padding", "augment": "crop"}, 1),
        ({"program": "watermark", "augment": "none"}, 0),
        ({"program": "watermark", "augment": "crop"}, 1),
    ],
    ids=["padding", "padding crop", "watermark", "watermark crop"],
)
def test_the_pass_that_chooses_a_mapping_also_estimates_it(folder, passed, monkeypatch, said, chosen):
    among_all = selection.select
    monkeypatch.setattr(choice, "select", lambda *a, **k: among_all(*a, **{**k, "methods": ["blm", "gaussian"]}))
    fitted(folder, mapping="auto", epochs=2, **said)
    assert passed["images"] == (1 + chosen + 2) * (TRAIN - VAL) + 3 * VAL + 2 * TEST


def test_a_program_that_is_tried_begins_with_what_the_images_as_they_are_have_said(folder, passed, monkeypatch):
    monkeypatch.setattr(steps, "_no_trial", lambda *_: None)
    fitted(folder, mapping="blm+", epochs=2)
    assert passed["images"] == 3 * (TRAIN + TEST)


@pytest.mark.parametrize(
    ("words", "images"),
    [
        (("evaluate", "{run}"), TEST),
        (("predict", "{run}", "{folder}/test"), TEST),
        (("predict", "{run}", "{folder}/test", "--out", "{here}/rows.csv", "--top", "2"), TEST),
        (("logits", "--run", "{run}", "--out", "{here}/logits"), TRAIN + TEST),
        (("logits", "--data", "{folder}", *SMALL[:5], "--out", "{here}/logits"), TRAIN + TEST),
        (("audit", "{folder}", *SMALL[:5], "--out", "{here}/audit.csv"), TRAIN + TEST),
        (("forecast", "{folder}", *SMALL[:5]), TRAIN),
        (("forecast", "{folder}", *SMALL[:5], "--mapping", "auto"), TRAIN),
        (("audit", "{folder}", *SMALL[:5], "--mapping", "auto", "--out", "{here}/audit.csv"), TRAIN + TEST),
        (("update", "{run}", "--add", "{folder}/test", "--out", "{here}/more"), TEST),
        (("export", "{run}", "--out", "{here}/export"), TEST),  # at most 100, on which it is compared with the live model
        (("export", "{run}", "--out", "{here}/export", "--images", "5"), 5),
        (("report", "{run}", "--out", "{here}/report.html"), TEST),  # at most a few dozen, which it shows
        (("figure", "{run}", "confusion", "--out", "{here}/figure.png"), 0),
        (("verify", "{run}"), 0),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, tuple) else str(value),
)
def test_a_verb_sends_each_image_through_once(folder, run, tmp_path, passed, words, images):
    here(*(word.format(run=run, folder=folder, here=tmp_path) for word in words))
    assert passed["images"] == images


def test_samples_come_and_go_by_one_pass_of_theirs_and_classes_by_none(folder, tmp_path, passed):
    fit = (*SMALL, "--val-fraction", "0.25", "--program", "none", "--mapping", "blm+")
    here("fit", folder, "--out", tmp_path / "run", *fit)
    for words, images in (
        (("run", "--add", folder / "test", "--out", tmp_path / "more"), TEST),
        (("more", "--forget", folder / "test", "--out", tmp_path / "less"), TEST),
        (("run", "--remove", "dark", "--out", tmp_path / "one"), 0),
    ):
        passed["images"] = 0
        here("update", tmp_path / words[0], *words[1:])
        assert passed["images"] == images


def test_runs_that_are_compared_share_the_passes_of_what_is_not_trained(folder, tmp_path, passed):
    """As the processes of `reprogram compare` carry them out; a watermark begins with the images as they are."""
    small = {"model": "timm:test_resnet", "pretrained": False, "canvas": 64, "batch_size": 16, "val_fraction": 0.25}
    spared = {"data": str(folder), "cache": False, "epochs": 1, "augment": "none", **small}
    for number, (program, mapping) in enumerate([("none", "blm"), ("none", "ilm"), ("watermark", "blm")]):
        config = FitConfig.read({**spared, "program": program, "mapping": mapping})
        run_fit(config, tmp_path / str(number), memory=tmp_path / "memory")
    assert passed["images"] == 2 * (TRAIN + TEST)


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "{folder}", "--out", "{here}/run", *SMALL, "--val-fraction", "0.25", "--epochs", "1"),
        ("evaluate", "{run}"),
        ("predict", "{run}", "{folder}/test"),
        ("logits", "--run", "{run}", "--out", "{here}/logits"),
        ("logits", "--data", "{folder}", *SMALL[:5], "--out", "{here}/logits"),
        ("audit", "{folder}", *SMALL[:5], "--out", "{here}/audit.csv"),
        ("forecast", "{folder}", *SMALL[:5]),
        ("update", "{run}", "--add", "{folder}/test", "--out", "{here}/more"),
        ("reference", "probe", "{folder}", "--out", "{here}/probe", *SMALL[:5], "--val-fraction", "0.25"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_many_images_go_through_the_prepared_network(folder, run, tmp_path, passed, monkeypatch, words):
    monkeypatch.setattr(accelerate, "_WORTH", 1)
    here(*(word.format(run=run, folder=folder, here=tmp_path) for word in words))
    assert passed["images"] == passed["prepared"] > 0


@pytest.mark.parametrize("kind", ["probe", "finetune-linear"])
def test_a_reference_on_features_reads_them_once(folder, tmp_path, passed, kind):
    small = (*SMALL[:5], "--batch-size", "16", "--val-fraction", "0.25", "--epochs", "3")
    here("reference", kind, folder, "--out", tmp_path / "run", *small)
    assert passed["images"] == TRAIN + TEST


def test_a_copy_of_the_model_is_trained_on_each_image_once_an_epoch(folder, tmp_path, passed):
    small = (*SMALL[:5], "--batch-size", "16", "--val-fraction", "0.25", "--epochs", "2")
    here("reference", "finetune-full", folder, "--out", tmp_path / "run", *small)
    assert passed["images"] == 2 * (TRAIN + TEST)


def test_files_of_answers_need_no_pass(run, tmp_path, passed):
    here("logits", "--run", run, "--out", tmp_path / "logits")
    passed["images"] = 0
    here("map", tmp_path / "logits", "--out", tmp_path / "mapping")
    assert passed["images"] == 0


def test_the_page_on_speed_states_what_is_counted_here():
    page = (Path(__file__).parent.parent / "docs" / "speed.md").read_text()
    assert re.search(r"\| `fit --program none` \| 1 \| 1 \| 1 \|", page)
