"""A run's files are found from any folder, and its own folder has a name that any system takes."""

import os
from pathlib import Path

import pytest

from reprogram.run.config import FitConfig
from reprogram.run.paths import default_folder, located


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, with some files in it, and a home folder inside."""
    for name in ("t.csv", "a.npz", "w.safetensors", "m.onnx", "t.txt", "labels.txt"):
        (tmp_path / name).write_text("")
    for name in ("photos", "saved", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"data": "photos"}, {"data": "{place}/photos"}),
        ({"data": "./photos/"}, {"data": "{place}/photos"}),
        ({"data": "~/photos"}, {"data": "{place}/home/photos"}),
        ({"data": "t.csv"}, {"data": "{place}/t.csv"}),
        ({"data": "a.npz"}, {"data": "{place}/a.npz"}),
        ({"data": "hf:saved"}, {"data": "hf:{place}/saved"}),
        ({"data": "hf:owner/name"}, {"data": "hf:owner/name"}),
        ({"data": "digits"}, {"data": "digits"}),
        ({"data": "paper:dtd", "data_root": "sets"}, {"data": "paper:dtd", "data_root": "{place}/sets"}),
        ({"data": "paper:dtd"}, {"data_root": "{place}/data"}),
        ({"data": "paper:dtd", "data_root": "~/sets"}, {"data_root": "{place}/home/sets"}),
        ({"weights": "w.safetensors"}, {"weights": "{place}/w.safetensors"}),
        ({"weights": "~/w.pt"}, {"weights": "{place}/home/w.pt"}),
        ({"model": "onnx:m.onnx"}, {"model": "onnx:{place}/m.onnx"}),
        ({"model": "onnx:m.onnx", "labels": "labels.txt"}, {"labels": "{place}/labels.txt"}),
        ({"model": "onnx:m.onnx", "labels": "red,green"}, {"labels": "red,green"}),
        ({"model": "openclip:ViT-B-16/openai", "templates": "t.txt"}, {"templates": "{place}/t.txt"}),
        ({"model": "openclip:ViT-B-16/openai", "templates": "paper81"}, {"templates": "paper81"}),
        ({"model": "openclip:t.json"}, {"model": "openclip:{place}/t.json"}),
        ({"model": "timm:resnet18"}, {"model": "timm:resnet18"}),
    ],
)
def test_paths_become_absolute_and_names_stay(place, given, expected):
    config = located(FitConfig.read(given))
    values = config.model_dump()
    assert {name: values[name] for name in expected} == {name: text.format(place=place) for name, text in expected.items()}
    os.chdir("photos")
    assert located(config) == config, "from another folder it means the same"


def test_what_was_not_given_is_still_left_to_the_defaults(place):
    assert set(located(FitConfig.read({"data": "photos", "mapping": "blm"})).given) == {
        "data",
        "model",
        "data_root",
        "mapping",
    }


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("/abs/t.csv", "t"),
        ("t.parquet", "t"),
        ("photos", "photos"),
        ("/abs/photos/", "photos"),
        ("digits", "digits"),
        ("hf:x", "hf-x"),
        ("hf:owner/name", "name"),
        ("paper:dtd", "paper-dtd"),
        ("my birds.npz", "my-birds"),
        ("a*b?.csv", "a-b-"),
    ],
)
def test_the_run_folder_is_named_by_the_data_and_lies_under_runs(data, expected):
    folder = default_folder(FitConfig(data=data, program="none", mapping="blm+"))
    assert folder == Path("runs") / f"{expected}-none-blm+"


def test_a_folder_of_data_may_have_a_dot_in_its_name(place):
    (place / "photos.v2").mkdir()
    assert default_folder(FitConfig(data="photos.v2")).name == "photos.v2"


def test_the_program_in_the_name_is_the_one_that_the_model_brings():
    assert default_folder(FitConfig(model="openclip:ViT-B-16/openai", protocol="paper")).name == "digits-watermark-blm+"
    assert default_folder(FitConfig(model="onnx:m.onnx", protocol="paper")).name == "digits-none-blm+"
    assert default_folder(FitConfig(model="openclip:ViT-B-16/openai")).name == "digits"
