"""Sources as records: one that comes from outside is loaded, listed and refused like those that are built in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pydantic import Field

import reprogram
from reprogram.errors import ReprogramError
from reprogram.sources import registry
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import describe_model, explain_sources, list_models, load_frozen, load_text_encoder
from reprogram.sources.registry import (
    SOURCES,
    Source,
    absolute_name,
    check_model_name,
    find_source,
    register_source,
)
from reprogram.sources.settings import OnnxOptions, SourceOptions, TextOptions


class ColourOptions(SourceOptions):
    """Of the source of this test."""

    outputs: int = Field(4, ge=1, description="How many outputs.")
    shade: str | None = Field(None, description="Dark or light.")


def load_colours(request):
    """A random linear layer over the mean colour."""
    head = torch.nn.Linear(3, request.options.outputs)
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), head)
    return Frozen(module, input_size=8, label_source=f"{request.architecture} {request.options.shade}")


@pytest.fixture
def colours(monkeypatch):
    """A source that another package brings."""
    monkeypatch.setattr(SOURCES, "_records", dict(SOURCES._records))
    source = Source(
        "colours",
        load=load_colours,
        form="colours:NAME",
        meaning="random colours",
        names=lambda: ["warm", "cold"],
        settings=ColourOptions,
    )
    register_source(source)
    return source


def test_a_source_from_outside_is_loaded_and_made_again(colours):
    frozen = load_frozen("colours:warm", pretrained=False, seed=3, outputs=6, shade="dark")
    assert (frozen.k_source, frozen.label_source) == (6, "warm dark")
    expected = {"name": "colours:warm", "pretrained": False, "weights": None, "seed": 3, "outputs": 6, "shade": "dark"}
    assert frozen.spec == expected
    assert load_frozen(**frozen.spec).fingerprint == frozen.fingerprint
    assert load_frozen("colours:warm", seed=4, outputs=6).fingerprint != frozen.fingerprint
    assert load_frozen("colours:warm").spec.keys() == {"name", "pretrained", "weights", "seed"}
    assert describe_model("colours:cold", outputs=5)["classes"] == 5


def test_a_source_from_outside_is_listed(colours):
    assert list_models("colours:*") == ["colours:warm", "colours:cold"]
    assert list_models("col*:c*") == ["colours:cold"]
    assert "colours:warm" in list_models("warm")
    assert explain_sources("colours:*") == {}
    assert "shade" in SOURCES.setting_names()
    assert find_source("colours:warm") == (colours, "warm")


def test_a_source_without_a_list_is_explained(colours):
    register_source(Source("other", load=load_colours, form="other:WORD", meaning="any word"))
    assert explain_sources("other:*") == {"other:WORD": "any word"}
    assert list_models("other:*") == []
    with pytest.raises(ReprogramError, match="'other:' names no model; write other:WORD"):
        load_frozen("other:")


def test_a_loader_may_be_named(colours):
    register_source(Source("lazy", load="json:loads", form="lazy:X", meaning="nothing"))
    with pytest.raises(TypeError):  # json.loads was found and called
        load_frozen("lazy:X")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("colours:warm", {"outputs": 0}, "outputs = 0 was given, but it should be greater than or equal to 1"),
        ("colours:warm", {"outputs": "many"}, "outputs = 'many' was given, but it should be an integer"),
        (
            "colours:warm",
            {"templates": "default"},
            "model source 'colours' does not use templates; .* openclip",
        ),
        ("colours:warm", {"classes": ["cat"]}, "classes was given, but colours:warm has labels of its own"),
        (
            "timm:test_resnet",
            {"shade": "dark"},
            "model source 'timm' does not use shade; .* colours",
        ),
        ("timm:test_resnet", {"outputs": "logits"}, "does not use outputs; .*: onnx, colours"),
        ("timm:test_resnet", {"shades": "x"}, r"setting 'shades' is not known; did you mean 'shade'\?"),
        ("colour:warm", {}, "is not of the form source:name with a source of bundled, .*, colours;"),
        ("colours:", {}, r"names no architecture; list them with: reprogram models 'colours:\*'"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(colours, name, options, message):
    for ask in (load_frozen, describe_model):
        with pytest.raises(ReprogramError, match=message) as caught:
            ask(name, **options)
        assert "\n" not in str(caught.value)


def test_nothing_said_is_nothing_given(colours):
    assert load_frozen("timm:test_resnet", pretrained=False, shade=None, templates=None, mean=None).k_source == 1000


def test_a_source_without_texts_has_no_encoder(colours):
    with pytest.raises(ReprogramError, match="'colours:warm' has no text encoder"):
        load_text_encoder("colours:warm")


def test_what_cannot_be_registered(colours):
    with pytest.raises(ReprogramError, match="model source 'colours' is registered already"):
        register_source(colours)
    with pytest.raises(ReprogramError, match="'a:b' was given as a model source"):
        register_source(Source("a:b", load=load_colours, form="", meaning=""))

    class Seeded(SourceOptions):
        seed: int = 0

    with pytest.raises(ReprogramError, match="source 'mine' has an option 'seed', which every source has"):
        register_source(Source("mine", load=load_colours, form="", meaning="", settings=Seeded))


def test_all_options_are_explained_and_have_a_default():
    for source in SOURCES.values():
        assert source.settings().model_dump() is not None
        assert all(field.description for field in source.settings.model_fields.values())


# ---- before torch


def test_names_are_checked_without_torch():
    """Loaded by path, because the package itself imports torch."""
    code = """
import sys, types
package = types.ModuleType("reprogram"); package.__path__ = [sys.argv[1]]; sys.modules["reprogram"] = package
from reprogram.sources.registry import SOURCES, check_model_name, absolute_name
check_model_name("timm:resnet18")
print(len(SOURCES), absolute_name("timm:resnet18"), "torch" in sys.modules, "numpy" in sys.modules)
"""
    arguments = [sys.executable, "-c", code, str(Path(reprogram.__file__).parent)]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True, env=os.environ).stdout
    assert printed.split() == ["6", "timm:resnet18", "False", "False"]


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("onnx:nowhere.onnx", None, "onnx file 'nowhere.onnx' does not exist"),
        ("tim:resnet18", None, "is not of the form"),
        ("timm:", None, "names no architecture"),
        ("hf:no such/folder", None, "neither a folder nor a name on the Hub"),
        ("timm:resnet18", "nowhere.pt", "weights file 'nowhere.pt' does not exist"),
    ],
)
def test_wrong_names_are_found_early(name, weights, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReprogramError, match=message):
        check_model_name(name, weights)
    (tmp_path / "moved.onnx").touch()
    assert check_model_name("onnx:nowhere.onnx", "moved.onnx").prefix == "onnx"


def test_names_with_paths_hold_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "folder").mkdir()
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / registry.CLIP_CONFIG).touch()
    assert absolute_name("onnx:~/a.onnx") == absolute_name("onnx:a.onnx") == f"onnx:{tmp_path / 'a.onnx'}"
    assert absolute_name("hf:folder") == absolute_name("hf:~/folder") == f"hf:{tmp_path / 'folder'}"
    assert absolute_name("openclip:clip") == f"openclip:{tmp_path / 'clip'}"
    assert absolute_name("openclip:own.json") == f"openclip:{tmp_path / 'own.json'}"
    for name in ("hf:owner/model", "openclip:folder", "openclip:RN50/openai", "timm:folder", "bundled:efficientnet_lite0"):
        assert absolute_name(name) == name


def test_options_with_files_hold_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("names.txt", "paper81", "a,b"):
        (tmp_path / file).touch()
    absolute = str(tmp_path / "names.txt")
    assert TextOptions(templates="names.txt").absolute().templates == absolute
    assert TextOptions(templates=Path("names.txt")).absolute().templates == absolute
    assert OnnxOptions(labels="names.txt").absolute().labels == absolute
    for options in (
        TextOptions(),
        TextOptions(templates="a {}."),
        TextOptions(templates=["a {}"]),
        OnnxOptions(labels="x,y"),
    ):
        assert options.absolute() == options


def test_weights_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    torch.save(load_frozen("timm:test_resnet", pretrained=False, seed=8).module.state_dict(), tmp_path / "own.pt")
    frozen = load_frozen("timm:test_resnet", weights="~/own.pt")
    assert frozen.spec["weights"] == str(tmp_path / "own.pt")
    assert frozen.fingerprint == load_frozen("timm:test_resnet", pretrained=False, seed=8).fingerprint
