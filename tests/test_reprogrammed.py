import copy
import io
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import nn

import sealed
from card_reader import Card
from noise import set_theta
from reprogram import Frozen, Mapping, ReprogramError, Reprogrammed, load_frozen, make_mapping
from reprogram.files import write_sealed
from reprogram.programs.base import NoProgram
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark

CLASSES = ("cat", "dog", "both")


def own_frozen(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Frozen(
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 7)), input_size=16
        )


def build(frozen, mapping="blm+", program=None):
    model = Reprogrammed(program or Padding(16, 8), frozen, make_mapping(mapping, frozen.labels, CLASSES))
    set_theta(model.program, seed=1)
    if mapping == "blm+":
        logits = torch.randn(30, frozen.k_source, generator=torch.Generator().manual_seed(2))
        model.mapping.estimate(model.mapping.count(logits, torch.arange(30) % 3))
    return model


def test_forward_is_the_composition():
    model, images = build(own_frozen()), torch.rand(5, 3, 8, 8)
    expected = model.frozen.module(model.program(images)) @ model.mapping.weights
    torch.testing.assert_close(model(images), expected)


def test_a_notebook_shows_what_it_is():
    read = Card(build(own_frozen())._repr_html_())
    assert "Sequential, 7 labels" in read.words
    assert "padding, canvas 16, image_size 8" in read.words
    assert "576 trainable of 807 (71.38%)" in read.words
    assert "cat, dog, both" in read.words
    assert len(read.sources) == 1
    frozen = own_frozen()
    untrained = Reprogrammed(NoProgram(16), frozen, make_mapping("rlm", frozen.labels, CLASSES))
    assert Card(untrained._repr_html_()).sources == []


def test_the_state_holds_theta_omega_and_j_and_no_source_weight():
    model = build(own_frozen())
    assert set(model.state_dict()) == {
        "program.theta",
        "mapping.omega",
        "mapping.statistics.matrix",
        "mapping.statistics.samples",
        "mapping.statistics.counted",
        "mapping.statistics.rounding",
    }
    assert [name for name, _ in model.named_parameters()] == ["program.theta"]


def test_predictions_carry_probabilities_and_the_evidence_that_adds_up():
    model, images = build(own_frozen()), torch.rand(5, 3, 8, 8)
    predictions = model.predict(images, evidence=7, batch_size=2)
    logits = model(images)
    assert predictions.labels == [CLASSES[i] for i in logits.argmax(1)]
    assert torch.equal(predictions.indices, logits.argmax(1))
    torch.testing.assert_close(predictions.probabilities, logits.softmax(1))
    for row, reasons in enumerate(predictions.evidence):
        assert sum(reason.product for reason in reasons) == pytest.approx(logits[row].max().item(), abs=1e-4)
        sizes = [abs(reason.product) for reason in reasons]
        assert sizes == sorted(sizes, reverse=True)
        weights = model.mapping.weights[:, predictions.indices[row]]
        assert {reason.source for reason in reasons} == {model.frozen.labels[i] for i in weights.nonzero().flatten()}


def test_predict_takes_whatever_holds_an_image(tmp_path):
    """Arrays, tensors, bytes, open files, paths, PIL images, and generators of them mean the same picture."""
    model = build(own_frozen())
    array = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    picture = Image.fromarray(array)
    picture.save(tmp_path / "x.png")
    content = (tmp_path / "x.png").read_bytes()
    expected = model.predict(picture).probabilities
    opened = (tmp_path / "x.png").open("rb")
    forms = {
        "array": array,
        "channels first": array.transpose(2, 0, 1),
        "batch": array[None],
        "floats": array / np.float32(255),
        "doubles": array / 255.0,
        "tensor": torch.from_numpy(array).permute(2, 0, 1),
        "bytes": content,
        "bytearray": bytearray(content),
        "memory file": io.BytesIO(content),
        "open file": opened,
        "path": tmp_path / "x.png",
        "text": str(tmp_path / "x.png"),
        "generator": (image for image in [array]),
        "map": map(Image.fromarray, [array]),
    }
    with opened:
        for name, form in forms.items():
            torch.testing.assert_close(model.predict(form).probabilities, expected, msg=name)
    mixed = model.predict([array, content, picture, tmp_path / "x.png"], batch_size=3)
    assert len(mixed) == 4
    torch.testing.assert_close(mixed.probabilities, expected.repeat(4, 1))


def test_a_generator_is_never_held_as_a_whole():
    """The images before a batch have been classified when the next one is asked for."""
    model, alive, most = build(own_frozen()), 0, 0
    passed = []
    model.frozen.register_forward_hook(lambda module, inputs, output: passed.append(len(output)))

    def pictures():
        nonlocal alive, most
        for _ in range(10):
            most = max(most, alive - sum(passed))
            alive += 1
            yield torch.rand(3, 8, 8)

    assert len(model.predict(pictures(), batch_size=2)) == 10
    assert most <= 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "images are a int, but a path"),
        ({"a": 1}, "images are a dict"),
        (b"no image", "cannot be decoded"),
        (io.StringIO("text"), "opened as text"),
        (np.array(["x", "y"]), "numbers are expected"),
        ([[1, 2]], "image 1 is a list"),
        ("nowhere.png", "nowhere.png"),
        (torch.rand(3), r"shape \(3,\)"),
    ],
)
def test_what_is_no_image_is_one_sentence(given, words):
    with pytest.raises(ReprogramError, match=words) as caught:
        build(own_frozen()).predict(given)
    assert "\n" not in str(caught.value)


def test_predict_takes_paths_and_pictures(tmp_path):
    model = build(own_frozen())
    picture = Image.new("RGB", (30, 20), "red")
    picture.save(tmp_path / "red.png")
    by_path = model.predict([tmp_path / "red.png", str(tmp_path / "red.png")])
    by_picture = model.predict(picture)
    assert model.predict(str(tmp_path / "red.png")).labels == by_picture.labels
    torch.testing.assert_close(by_path.probabilities[1], by_picture.probabilities[0])
    assert model.predict(torch.empty(0, 3, 8, 8)).labels == []


@pytest.mark.parametrize("mapping", ["blm+", "ilm", "rlm", "linear", "sigmoid"])
def test_save_and_load_round_trip(tmp_path, mapping):
    model, images = build(own_frozen(), mapping), torch.rand(3, 3, 8, 8)
    model.save(tmp_path / "artefact")
    loaded = Reprogrammed.load(tmp_path / "artefact", frozen=own_frozen())
    assert torch.equal(loaded(images), model(images))
    assert loaded.classes == CLASSES
    assert {path.name for path in (tmp_path / "artefact").iterdir()} == {
        "artefact.json",
        "artefact.safetensors",
        "labels.csv",
    }
    with safe_open(tmp_path / "artefact" / "artefact.safetensors", framework="pt") as file:
        assert sum(file.get_tensor(key).numel() for key in file.keys()) == sum(  # noqa: SIM118
            tensor.numel() for tensor in model.state_dict().values()
        )


def test_saving_again_replaces_the_artefact(tmp_path):
    model = build(own_frozen())
    model.save(tmp_path / "artefact")
    with torch.no_grad():
        model.program.theta.zero_()
    model.save(tmp_path / "artefact")
    assert Reprogrammed.load(tmp_path / "artefact", frozen=own_frozen()).program.theta.abs().max() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["artefact"]


def test_saving_leaves_other_folders_and_files_alone(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name in ("thesis", "file"):
        with pytest.raises(ReprogramError, match=f"{name}' exists and is not an artefact"):
            build(own_frozen()).save(tmp_path / name)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    build(own_frozen()).save(tmp_path / "empty")


def test_the_program_works_in_the_units_of_the_model():
    """Nobody has to hand over mean and deviation, and a program cannot serve two models that differ in them."""
    frozen = Frozen(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 7)), mean=(0.5,) * 3, std=(0.2,) * 3)
    model = build(frozen, program=Padding(16, 8))
    images = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(model.program(images)[:, :, 4:12, 4:12], (images - 0.5) / 0.2)
    with pytest.raises(ReprogramError, match="make a new one for each model"):
        build(own_frozen(), program=model.program)


def test_a_class_is_called_what_the_mapping_calls_it():
    """The classes live in the mapping alone: no second list can put them in another order."""
    frozen = Frozen(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), labels=["red", "green", "blue"], input_size=8)
    for classes in (["red", "green"], ["green", "red"]):
        model = Reprogrammed(NoProgram(8), frozen, make_mapping("none", frozen.labels, classes))
        assert model.classes == tuple(classes)
        assert model.predict([Image.new("RGB", (8, 8), name) for name in ("red", "lime")]).labels == ["red", "green"]
        with pytest.raises(TypeError):
            Reprogrammed(NoProgram(8), frozen, model.mapping, classes)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (list("abcde"), r"a mapping from 5 source labels \(a, b, c \.\.\.\) was given for a model with 7 "),
        (list("abcdefg"), r"from 7 source labels \(a, b, c \.\.\.\) .* make_mapping\(name, frozen.labels, classes\)"),
    ],
)
def test_a_mapping_for_other_source_labels_is_refused(labels, words):
    with pytest.raises(ReprogramError, match=words):
        Reprogrammed(Padding(16, 8), own_frozen(), make_mapping("blm", labels, CLASSES))


def test_labels_and_indices_agree_also_where_probabilities_tie():
    model = build(own_frozen())
    with torch.no_grad():
        model.mapping.omega[:] = model.mapping.omega[:, :1]
        model.mapping.omega[:, 1] *= 1 + 1e-7
    predictions = model.predict(torch.rand(64, 3, 8, 8))
    assert predictions.labels == [CLASSES[i] for i in predictions.indices]


def test_an_artefact_loads_in_a_new_process_and_predicts_the_same(tmp_path):
    frozen = load_frozen("timm:test_resnet", pretrained=False, seed=4)
    model = build(frozen, program=Watermark(32, frame=4))
    model.save(tmp_path / "artefact")
    torch.save(torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)), tmp_path / "images.pt")
    code = (
        "import sys, torch, reprogram; model = reprogram.Reprogrammed.load(sys.argv[1] + '/artefact');"
        "print(model(torch.load(sys.argv[1] + '/images.pt', weights_only=True)).tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout
    with torch.no_grad():
        assert json.loads(printed) == model(torch.load(tmp_path / "images.pt", weights_only=True)).tolist()


def test_another_source_model_is_refused(tmp_path):
    build(own_frozen()).save(tmp_path / "artefact")
    with pytest.raises(ReprogramError, match="fingerprint"):
        Reprogrammed.load(tmp_path / "artefact", frozen=own_frozen(seed=1))
    with pytest.raises(ReprogramError, match="a model of your own"):
        Reprogrammed.load(tmp_path / "artefact")


@pytest.mark.parametrize("damage", ["missing", "not json", "another format", "cut tensors", "swapped tensors"])
def test_a_damaged_artefact_is_one_sentence(tmp_path, damage):
    folder = tmp_path / "artefact"
    build(own_frozen()).save(folder)
    if damage == "missing":
        (folder / "artefact.json").unlink()
    elif damage == "not json":
        (folder / "artefact.json").write_text("{")
    elif damage == "another format":
        sealed.forge(folder / "artefact.json", format=99)
    elif damage == "cut tensors":
        content = (folder / "artefact.safetensors").read_bytes()
        (folder / "artefact.safetensors").write_bytes(content[: len(content) // 2])
    else:
        build(own_frozen(), "rlm").save(tmp_path / "other")
        (folder / "artefact.safetensors").write_bytes((tmp_path / "other" / "artefact.safetensors").read_bytes())
    with pytest.raises(ReprogramError, match="artefact") as caught:
        Reprogrammed.load(folder, frozen=own_frozen())
    assert "\n" not in str(caught.value)


def test_an_artefact_is_also_a_mapping_for_logits_alone(tmp_path):
    model = build(own_frozen())
    model.save(tmp_path / "artefact")
    mapping = Mapping.load(tmp_path / "artefact")
    logits = torch.randn(4, 7)
    assert torch.equal(mapping(logits), model.mapping(logits))
    assert mapping.classes == CLASSES
    mapping.save(tmp_path / "mapping")
    with pytest.raises(
        ReprogramError,
        match=r"a mapping without a model; load it with reprogram\.Mapping\.load, or .* reprogram map predict",
    ):
        Reprogrammed.load(tmp_path / "mapping")


def test_a_copy_computes_with_its_own_program():
    """What was prepared for the tensors of the one must not serve the other."""
    model, images = build(own_frozen()), torch.rand(2, 3, 8, 8)
    model.accelerate()
    before, other = model(images), copy.deepcopy(model)
    with torch.no_grad():
        other.program.theta.zero_()
    assert not torch.allclose(other(images), before)
    torch.testing.assert_close(model(images), before)


def test_a_canvas_that_the_model_refuses_is_found_before_training():
    frozen = Frozen(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)), input_size=16)
    build(frozen).check_canvas()
    with pytest.raises(ReprogramError, match=r"does not take a canvas of 20 .*; use its own size, 16"):
        build(frozen, program=Padding(20, 8)).check_canvas()


def test_moving_the_model_moves_the_frozen_part_and_keeps_the_statistics_exact():
    model = build(own_frozen()).to("meta")
    assert next(model.frozen.module.parameters()).device.type == "meta"
    assert model.program.theta.device.type == "meta"
    assert model.mapping.statistics.matrix.dtype == torch.float64


def test_an_artefact_knows_the_precision_that_it_was_trained_in(processor, passes, tmp_path):
    model, images = build(own_frozen()), torch.rand(3, 3, 8, 8)
    model.precision = "bf16"
    model.save(tmp_path)
    processor(True)
    loaded = Reprogrammed.load(tmp_path, model.frozen)
    assert (loaded.precision, loaded.precision_here, loaded.precision_note) == ("bf16", "bf16", None)
    assert torch.equal(loaded.predict(images).probabilities, model.predict(images).probabilities)
    assert passes == [torch.bfloat16, torch.bfloat16]
    loaded.source_logits(images, "fp32")
    assert passes[2:] == [torch.float32]


def test_what_the_device_lacks_is_computed_in_full_precision(processor, passes, tmp_path):
    model, images = build(own_frozen()), torch.rand(3, 3, 8, 8)
    full = model.predict(images).probabilities
    model.precision = "bf16"
    model.save(tmp_path)
    processor(False)
    loaded = Reprogrammed.load(tmp_path, model.frozen)
    assert (loaded.precision, loaded.precision_here) == ("bf16", "fp32")
    assert "in bf16, which this cpu does not have in hardware; it computes in fp32" in loaded.precision_note
    assert torch.equal(loaded.predict(images).probabilities, full)
    loaded.save(tmp_path)
    assert Reprogrammed.load(tmp_path, model.frozen).precision == "bf16", "it stays what it was trained in"
    loaded.source_logits(images, "bf16")
    assert passes == [torch.float32, torch.float32, torch.bfloat16], "what is asked for by name is emulated"


def test_artefacts_that_do_not_tell_their_precision_are_of_fp32(tmp_path):
    model = build(own_frozen())
    model.save(tmp_path)
    content = json.loads((tmp_path / "artefact.json").read_text())
    assert content["precision"] == "fp32"
    sealed.forge(tmp_path / "artefact.json", precision="bf17")
    with pytest.raises(ReprogramError, match="precision"):
        Reprogrammed.load(tmp_path, model.frozen)
    del content["precision"], content["sha256"]
    write_sealed(tmp_path / "artefact.json", content)
    assert Reprogrammed.load(tmp_path, model.frozen).precision == "fp32"
