"""No image goes through the frozen model more often than a verb needs: counted where all images pass, in real commands."""

import re
from pathlib import Path

import pytest
from PIL import Image

from command import SMALL, here
from reprogram import fit_data
from reprogram.acceleration.accelerate import Accelerated
from reprogram.sources.frozen import Frozen

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
    """How many images go through the model, prepared or as it is; blank ones that try a canvas are not counted."""
    counts = {"images": 0, "inside": 0}

    def counting(call):
        def counted(self, images):
            own = not counts["inside"] and bool(images.any())
            counts["images"] += len(images) if own else 0
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
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_a_fit_sends_images_through_as_often_as_it_must(folder, passed, said, train, others):
    fitted(folder, **said)
    assert passed["images"] == train * (TRAIN - VAL) + others * (VAL + TEST)


def test_a_named_program_begins_with_the_images_as_they_are(folder, passed):
    """Without the test images: these are looked at after each epoch."""
    fitted(folder, program="padding", mapping="blm+", epochs=2)
    own = TRAIN - VAL
    assert passed["images"] == (own + VAL) + own + 2 * (own + VAL + TEST)


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
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, tuple) else str(value),
)
def test_a_verb_sends_each_image_through_once(folder, run, tmp_path, passed, words, images):
    here(*(word.format(run=run, folder=folder, here=tmp_path) for word in words))
    assert passed["images"] == images


@pytest.mark.parametrize("kind", ["probe", "finetune-linear"])
def test_a_reference_on_features_reads_them_once(folder, tmp_path, passed, kind):
    small = (*SMALL[:5], "--batch-size", "16", "--val-fraction", "0.25", "--epochs", "3")
    here("reference", kind, folder, "--out", tmp_path / "run", *small)
    assert passed["images"] == TRAIN + TEST


def test_files_of_answers_need_no_pass(run, tmp_path, passed):
    here("logits", "--run", run, "--out", tmp_path / "logits")
    passed["images"] = 0
    here("map", tmp_path / "logits", "--out", tmp_path / "mapping")
    assert passed["images"] == 0


def test_the_page_on_speed_states_what_is_counted_here():
    page = (Path(__file__).parent.parent / "docs" / "speed.md").read_text()
    assert re.search(r"\| `fit --program none` \| 1 \| 1 \| 1 \|", page)
