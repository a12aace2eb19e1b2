"""The one schema of a run: what it knows, what it refuses, and what counts as given."""

import json

import pytest

from reprogram.errors import ReprogramError
from reprogram.run.config import FitConfig
from reprogram.run.defaults import Facts, resolve


def test_settings_of_mapping_program_and_source_stand_beside_the_run_s_own():
    config = FitConfig.read({"mapping": "blm+", "top_ratio": "0.3", "frame": 4, "program": "watermark"})
    assert config.options("mapping") == {"top_ratio": 0.3}
    assert config.options("program") == {"frame": 4}
    assert config.options("source") == {}
    assert list(config.given) == ["program", "mapping", "top_ratio", "frame"], "in the order of the schema"


def test_only_what_was_said_counts_as_given():
    assert FitConfig().given == {}
    assert FitConfig(epochs=20, weights=None).given == {"epochs": 20}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mapping": "blmm"}, "mapping 'blmm' is not known; did you mean 'blm'"),
        ({"program": "pading"}, "program 'pading' is not known; did you mean 'padding'"),
        ({"model": "resnet18"}, "'resnet18' is not of the form source:name"),
        ({"smothing": 1}, "setting 'smothing' is not known; did you mean 'smoothing'"),
        ({"mapping": "blm", "smoothing": -1}, "smoothing = -1 was given, but it should be greater than or equal to 0"),
        ({"mapping": "rlm", "smoothing": 1}, "mapping 'rlm' does not use smoothing"),
        ({"mapping": "auto", "smoothing": 3}, "smoothing = 3 was given, but mapping auto chooses it"),
        ({"program": "none", "frame": 3}, "program 'none' does not use frame"),
        ({"image_size": 9, "frame": 3}, "does not use image_size"),  # no program takes both
        ({"smoothing": 3}, "smoothing = 3 was given, but mapping auto chooses it; leave it out, or name a mapping"),
        ({"image_size": 9}, "program 'watermark' does not use image_size; .* choose one that does: padding"),
        ({"templates": "x"}, "model source 'bundled' does not use templates"),
        ({"epochs": 0}, "epochs = 0"),
        ({"lr": float("inf")}, "lr = inf"),
        ([1], "should be a dictionary"),
    ],
)
def test_what_cannot_be_is_one_sentence(values, words):
    with pytest.raises(ReprogramError, match=words) as caught:
        FitConfig.read(values)
    assert "\n" not in str(caught.value)


def test_a_setting_may_belong_to_the_program_that_the_model_brings():
    """Without a named program it is one of the watermark that is tried, or of the paper's program for the model."""
    config = FitConfig(model="openclip:ViT-B-16/openai", frame=5)
    assert resolve(config, Facts(224, default_program="watermark", frame=30)).extras["frame"] == 5
    assert resolve(FitConfig(frame=5), Facts(224)).extras["frame"] == 5
    assert resolve(FitConfig(protocol="paper", image_size=9), Facts(224)).extras["image_size"] == 9
    with pytest.raises(ReprogramError, match="program 'padding' does not use frame"):
        FitConfig(protocol="paper", frame=5)


def test_a_flag_s_text_is_the_number_of_a_file():
    texts = FitConfig.read({"smoothing": "3", "mapping": "blm", "frame": "9", "epochs": "4"})
    assert texts == FitConfig.read({"smoothing": 3.0, "mapping": "blm", "frame": 9, "epochs": 4})
    assert texts.given == {"epochs": 4, "mapping": "blm", "smoothing": 3.0, "frame": 9}


def test_the_settings_of_the_source_are_stored_too():
    config = resolve(FitConfig(model="openclip:ViT-B-16/openai"), Facts(224, default_program="watermark"))
    assert config.extras["templates"] == "paper81"
    onnx = resolve(FitConfig.read({"model": "onnx:m.onnx", "mean": "0.1,0.2,0.3"}), Facts(8, default_program="none"))
    assert FitConfig.read(json.loads(json.dumps(onnx.model_dump()))) == onnx
    assert onnx.options("source") == {"mean": (0.1, 0.2, 0.3)}


def test_a_configuration_is_its_json():
    config = resolve(FitConfig(mapping="gaussian", epochs=3, skip_bad=True), Facts(input_size=64, native_size=20))
    assert FitConfig.read(json.loads(json.dumps(config.model_dump()))) == config
    assert config.training().epochs == 3


def test_the_seed_of_somebody_s_numpy_is_a_number():
    import numpy as np

    assert FitConfig.read({"seed": np.int64(3), "smoothing": np.float64(2), "mapping": "blm"}).options("mapping") == {
        "smoothing": 2.0
    }
