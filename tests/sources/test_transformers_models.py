"""`hf:` models, all of them made on the spot and saved to a folder; nothing is fetched."""

import json
import os
import socket
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from reprogram import ReprogramError, Reprogrammed, make_mapping
from reprogram.programs.base import make_program
from reprogram.sources import network
from reprogram.sources.load import describe_model, import_torchvision, load_frozen

import_torchvision()
transformers = pytest.importorskip("transformers")

NAMES = ["cat", "dog", "fox", "owl", "bee"]
SQUARE = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 32, "width": 32},
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.25, 0.5],
}


def refuse(*args, **kwargs):
    raise OSError("network is unreachable")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", refuse)


def configuration(kind="vit", names=NAMES):
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    if kind == "resnet":
        return transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", **labels)
    return transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        **labels,
    )


def save(folder, config=None, processor=SQUARE, kind=transformers.AutoModelForImageClassification, seed=5):
    torch.manual_seed(seed)
    model = kind.from_config(config or configuration()).eval()
    model.save_pretrained(folder)
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return model


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_a_saved_classifier_answers_as_it_does_in_transformers(tmp_path, kind):
    model = save(tmp_path / "model", configuration(kind))
    frozen = load_frozen(f"hf:{tmp_path / 'model'}")
    images = torch.rand(2, 3, 32, 32)
    mean, std = (torch.tensor(SQUARE[key]).view(3, 1, 1) for key in ("image_mean", "image_std"))
    torch.testing.assert_close(frozen.logits(images), model((images - mean) / std).logits)
    assert (frozen.labels, frozen.label_source) == (NAMES, "config.id2label")
    assert (frozen.input_size, frozen.interpolation, frozen.k_source) == (32, "bicubic", 5)
    assert frozen.parameter_count == sum(parameter.numel() for parameter in model.parameters())
    assert frozen.differentiable
    images.requires_grad_()
    frozen(images)[0, 0].backward()
    assert images.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("changed", "size", "mean", "std", "interpolation"),
    [
        ({"resample": 2}, 32, [0.5, 0.4, 0.3], [0.2, 0.25, 0.5], "bilinear"),
        ({"do_normalize": False}, 32, [0.0] * 3, [1.0] * 3, "bicubic"),
        ({"do_rescale": False}, 32, [0.5 / 255, 0.4 / 255, 0.3 / 255], [0.2 / 255, 0.25 / 255, 0.5 / 255], "bicubic"),
        (
            {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 48}, "crop_size": 40},
            40,
            [0.5, 0.4, 0.3],
            [0.2, 0.25, 0.5],
            "bicubic",
        ),
        (
            {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 64}, "crop_pct": 0.875},
            64,
            [0.5, 0.4, 0.3],
            [0.2, 0.25, 0.5],
            "bicubic",
        ),
    ],
    ids=["bilinear", "not normalised", "not rescaled", "crop", "shortest edge"],
)
def test_images_are_prepared_as_the_processor_does(tmp_path, changed, size, mean, std, interpolation):
    save(tmp_path / "model", configuration("resnet"), SQUARE | changed)
    frozen = load_frozen(f"hf:{tmp_path / 'model'}")
    assert (frozen.input_size, frozen.interpolation) == (size, interpolation)
    torch.testing.assert_close(frozen.mean.flatten(), torch.tensor(mean))
    torch.testing.assert_close(frozen.std.flatten(), torch.tensor(std))


def test_a_model_of_bgr_images_gets_them(tmp_path):
    processor = {
        "image_processor_type": "MobileViTImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_size": {"height": 32, "width": 32},
        "do_flip_channel_order": True,
    }
    model = save(tmp_path / "model", configuration("resnet"), processor)
    images = torch.rand(2, 3, 32, 32)
    frozen = load_frozen(f"hf:{tmp_path / 'model'}")
    torch.testing.assert_close(frozen.logits(images), model(images.flip(1)).logits)


def test_random_weights_follow_the_configuration_and_the_seed(tmp_path):
    save(tmp_path / "model")
    name = f"hf:{tmp_path / 'model'}"
    one, same, other = (load_frozen(name, pretrained=False, seed=seed).fingerprint for seed in (1, 1, 2))
    assert one == same != other
    assert load_frozen(name).fingerprint not in (one, other)


def test_names_that_transformers_made_up_are_numbers(tmp_path):
    save(tmp_path / "model", configuration(names=["LABEL_0", "LABEL_1", "LABEL_2"]))
    frozen = load_frozen(f"hf:{tmp_path / 'model'}")
    assert frozen.labels == ["label 0", "label 1", "label 2"]
    assert frozen.label_source == "numbered: the file carries no names"


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_own_weights_are_read_and_the_outputs_follow_the_file(tmp_path, kind):
    save(tmp_path / "model", configuration(kind))
    own = save(tmp_path / "own", configuration(kind, ["x", "y"]), seed=8)
    frozen = load_frozen(f"hf:{tmp_path / 'model'}", weights=tmp_path / "own" / "model.safetensors")
    assert (frozen.k_source, frozen.labels) == (2, ["label 0", "label 1"])
    images = torch.rand(1, 3, 32, 32)
    torch.testing.assert_close(frozen(images), own(images).logits)
    save_file({"conv.weight": torch.zeros(4, 3, 3, 3)}, tmp_path / "other.safetensors")
    narrow = load_file(tmp_path / "own" / "model.safetensors")
    wide = {key: value.repeat_interleave(2, 0) if value.ndim else value for key, value in narrow.items()}
    save_file(wide, tmp_path / "wide.safetensors")
    for file in ("other.safetensors", "wide.safetensors"):
        with pytest.raises(ReprogramError, match="the weights do not fit hf:"):
            load_frozen(f"hf:{tmp_path / 'model'}", weights=tmp_path / file)


def test_own_weights_may_come_from_the_running_model(tmp_path):
    model = save(tmp_path / "model")
    torch.save(model.state_dict(), tmp_path / "own.pt")
    frozen = load_frozen(f"hf:{tmp_path / 'model'}", pretrained=False, weights=tmp_path / "own.pt")
    assert frozen.fingerprint == load_frozen(f"hf:{tmp_path / 'model'}").fingerprint


def test_an_artefact_finds_its_folder_from_anywhere(tmp_path, monkeypatch):
    save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    frozen = load_frozen("hf:model")
    program = make_program("padding", canvas=32, image_size=16)
    model = Reprogrammed(program, frozen, make_mapping("rlm", frozen.labels, ["a", "b"]))
    model.save(tmp_path / "artefact")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(Reprogrammed.load(tmp_path / "artefact")(images), model(images))


def test_described_without_weights(tmp_path):
    model = save(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    found = describe_model(f"hf:{tmp_path / 'model'}")
    assert found["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert (found["classes"], found["label_source"], found["labels"]) == (5, "config.id2label", NAMES)
    assert found["normalisation"] == {"mean": SQUARE["image_mean"], "std": SQUARE["image_std"]}


def test_pickled_weights_are_not_read(tmp_path):
    save(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    torch.save(load_file(path), tmp_path / "model" / "pytorch_model.bin")
    path.unlink()
    with pytest.raises(ReprogramError, match=r"hf:.*model cannot be loaded .*as safetensors"):
        load_frozen(f"hf:{tmp_path / 'model'}")


def test_a_backbone_without_a_trained_head_is_refused(tmp_path):
    """transformers would give it a random head."""
    save(tmp_path / "model", kind=transformers.AutoModel)
    with pytest.raises(ReprogramError, match=r"is not a trained classifier.*classifier\.bias"):
        load_frozen(f"hf:{tmp_path / 'model'}")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "does not say how its images are prepared"),
        (lambda folder: (folder / "config.json").unlink(), "cannot be loaded"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "cannot be loaded"),
    ],
    ids=["no processor", "no configuration", "broken configuration", "broken weights"],
)
def test_broken_folders_are_named(tmp_path, spoil, message):
    save(tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(ReprogramError, match=message):
        load_frozen(f"hf:{tmp_path / 'model'}")


def test_names_that_cannot_be_had(tmp_path, monkeypatch):
    with pytest.raises(ReprogramError, match=r"'hf:' names no model; write hf:FOLDER or hf:NAME"):
        load_frozen("hf:")
    with pytest.raises(ReprogramError, match="is neither a folder nor a name on the Hub"):
        load_frozen(f"hf:{tmp_path / 'no' / 'such folder'}")
    with pytest.raises(ReprogramError, match=r"hf:nobody/no-model-of-tests is not on this machine yet"):
        describe_model("hf:nobody/no-model-of-tests")
    monkeypatch.setattr(network, "reachable", lambda _: False)
    with pytest.raises(ReprogramError, match=r"hf:nobody/no-model-of-tests could not be fetched .*does not answer\)"):
        load_frozen("hf:nobody/no-model-of-tests")


def test_transformers_is_left_as_it_was(tmp_path):
    logging = transformers.utils.logging
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled(), dict(os.environ))
    save(tmp_path / "model")
    load_frozen(f"hf:{tmp_path / 'model'}")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled(), dict(os.environ)) == before


def test_loading_is_silent(tmp_path, capfd):
    save(tmp_path / "model")
    capfd.readouterr()
    load_frozen(f"hf:{tmp_path / 'model'}")
    assert capfd.readouterr() == ("", "")


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ReprogramError, match=r"transformers is not installed.*pip install 'reprogram\[hf\]'"):
        load_frozen("hf:anything")
