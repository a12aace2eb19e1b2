"""`fit_data`: what `reprogram fit` does, for Python."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import sealed
from command import PADDING, SMALL, here
from reprogram import ReprogramError, Reprogrammed, fit_data, load_data
from reprogram.mappings.stored_certainty import tensors_of, without_certainty
from reprogram.progress import Progress

SETTINGS = {
    "model": "timm:test_resnet",
    "pretrained": False,
    "canvas": 64,
    "batch_size": 16,
    "lr": 0.05,
    "epochs": 2,
    "mapping": "blm",
}
FLAGS = (*SMALL, *PADDING, "--epochs", 2, "--mapping", "blm")


@pytest.fixture(scope="module")
def by_command(shapes, tmp_path_factory):
    """The run of the command line."""
    folder = tmp_path_factory.mktemp("by-command") / "run"
    here("fit", shapes, *FLAGS, "--out", folder)
    return folder


def test_it_equals_the_command_line_to_the_bit(by_command, shapes, tmp_path):
    """The same folder with `out`, and the same model without."""
    result = fit_data(shapes, out=tmp_path / "run", program="padding", **SETTINGS)
    for name in ("config.json", "predictions.csv", "images.txt", "artefact/artefact.json", "artefact/labels.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (by_command / name).read_bytes(), name
    metrics = [sealed.without_times(folder / "metrics.jsonl") for folder in (tmp_path / "run", by_command)]
    assert metrics[0] == metrics[1]
    held = load_file(by_command / "artefact" / "artefact.safetensors")
    expected = without_certainty(held)
    quiet = fit_data(str(shapes), program="padding", **SETTINGS)
    for model in (result.model, quiet.model, Reprogrammed.load(tmp_path / "run")):
        found = model.state_dict()
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[key], found[key]) for key in expected)
        sure = tensors_of(model.mapping.certainty)
        assert {**expected, **sure}.keys() == held.keys()
        assert all(torch.equal(held[key], sure[key]) for key in sure)
    assert quiet.accuracy == result.accuracy == json.loads((by_command / "result.json").read_text())["accuracy"]


def test_without_out_nothing_is_written(shapes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    result = fit_data(shapes, **SETTINGS, program="none")
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")
    assert result.model.classes == ("disc", "square", "stripes")


def test_it_takes_a_data_set_and_arrays(shapes, tmp_path):
    data = load_data(shapes)
    by_path, by_object = (fit_data(given, **SETTINGS, program="none") for given in (shapes, data))
    assert torch.equal(by_path.model.mapping.weights, by_object.model.mapping.weights)
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (30, 12, 12, 3), dtype=np.uint8), np.arange(30) % 3
    images[labels == 1] //= 4
    result = fit_data((images, labels), out=tmp_path / "run", **SETTINGS, program="none")
    assert len(result.model.classes) == 3
    assert json.loads((tmp_path / "run" / "result.json").read_text())["accuracy"] == result.accuracy
    assert result.model.predict(images[:4]).labels == Reprogrammed.load(tmp_path / "run").predict(images[:4]).labels


def test_a_run_of_arrays_continues_with_the_same_arrays_only(tmp_path):
    images, labels = torch.rand(30, 3, 12, 12, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
    settings = {**SETTINGS, "program": "padding", "image_size": 12}
    fit_data((images, labels), out=tmp_path / "run", **settings)
    longer = fit_data((images, labels), out=tmp_path / "run", resume=True, **{**settings, "epochs": 3})
    assert [record["epoch"] for record in longer.records] == [1, 2, 3]
    with pytest.raises(ReprogramError, match="was made with other data"):
        fit_data((images.flip(3), labels), out=tmp_path / "run", resume=True, **{**settings, "epochs": 3})


def test_mistakes_are_those_of_the_command_line(shapes, tmp_path):
    for settings, words in (
        ({"mapping": "blmm"}, "did you mean 'blm'"),
        ({"smothing": 1}, "did you mean 'smoothing'"),
        ({"smoothing": -1}, "smoothing = -1 was given"),
        ({"model": "resnet18"}, "source:name"),
    ):
        with pytest.raises(ReprogramError, match=words):
            fit_data(shapes, out=tmp_path / "run", **settings)
    with pytest.raises(ReprogramError, match="neither a folder or file"):
        fit_data("nowhere", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_progress_is_shown_where_it_is_wanted(shapes):
    class Heard(Progress):
        def __init__(self):
            self.lines = []

        def say(self, line):
            self.lines.append(line)

    heard = Heard()
    fit_data(shapes, **SETTINGS, program="none", progress=heard)
    assert any(line.startswith("network: ") for line in heard.lines)


def test_auto_chooses_as_the_command_line_does(shapes, tmp_path):
    settings = {**SETTINGS, "mapping": "auto", "program": "none"}
    result = fit_data(shapes, **settings)
    here("fit", shapes, *SMALL, "--mapping", "auto", "--program", "none", "--out", tmp_path / "run")
    chosen = json.loads((tmp_path / "run" / "selection.json").read_text())["choice"]["mapping"]
    assert result.model.mapping.name == chosen
    assert torch.equal(result.model.mapping.weights, Reprogrammed.load(tmp_path / "run").mapping.weights)


def test_nothing_can_be_continued_nowhere():
    with pytest.raises(ReprogramError, match="resume was given without out"):
        fit_data("digits", resume=True)
