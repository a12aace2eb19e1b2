import json
import subprocess
import sys

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import nn

from reprogram import Frozen, Padding, ReprogramError, Reprogrammed, Watermark, load_frozen, make_mapping

CLASSES = ("cat", "dog", "both")


def own_frozen(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Frozen(
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 7)), input_size=16
        )


def build(frozen, mapping="blm+", program=None):
    program = program or Padding(16, 8, frozen.mean.flatten().tolist(), frozen.std.flatten().tolist())
    model = Reprogrammed(program, frozen, make_mapping(mapping, frozen.labels, CLASSES), CLASSES)
    with torch.no_grad():
        model.program.theta.normal_(generator=torch.Generator().manual_seed(1))
    if mapping == "blm+":
        labels = torch.arange(30) % 3
        statistics = model.mapping.new_statistics().update(
            torch.randn(30, frozen.k_source, generator=torch.Generator()), labels
        )
        model.mapping.estimate(statistics)
    return model


def test_forward_is_the_composition():
    model, images = build(own_frozen()), torch.rand(5, 3, 8, 8)
    expected = model.frozen.module(model.program(images)) @ model.mapping.weights
    torch.testing.assert_close(model(images), expected)


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
        assert sum(reason.contribution for reason in reasons) == pytest.approx(logits[row].max().item(), abs=1e-4)
        sizes = [abs(reason.contribution) for reason in reasons]
        assert sizes == sorted(sizes, reverse=True)
        assert {reason.source for reason in reasons} == set(model.frozen.labels)


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
    assert {path.name for path in (tmp_path / "artefact").iterdir()} == {"artefact.json", "artefact.safetensors"}
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


def test_a_program_that_normalises_otherwise_is_refused():
    frozen = Frozen(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 7)), mean=(0.5,) * 3, std=(0.2,) * 3)
    with pytest.raises(ReprogramError, match=r"mean=frozen\.mean"):
        build(frozen, program=Padding(16, 8))
    build(frozen, program=Padding(16, 8, frozen.mean, frozen.std))


def test_labels_and_indices_agree_also_where_probabilities_tie():
    model = build(own_frozen())
    with torch.no_grad():
        model.mapping.omega[:] = model.mapping.omega[:, :1]
        model.mapping.omega[:, 1] *= 1 + 1e-7
    predictions = model.predict(torch.rand(64, 3, 8, 8))
    assert predictions.labels == [CLASSES[i] for i in predictions.indices]


def test_an_artefact_loads_in_a_new_process_and_predicts_the_same(tmp_path):
    frozen = load_frozen("timm:test_resnet", pretrained=False, seed=4)
    model = build(frozen, program=Watermark(32, frame=4, mean=frozen.mean, std=frozen.std))
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
        (folder / "artefact.json").write_text('{"format": 99}')
    elif damage == "cut tensors":
        content = (folder / "artefact.safetensors").read_bytes()
        (folder / "artefact.safetensors").write_bytes(content[: len(content) // 2])
    else:
        build(own_frozen(), "rlm").save(tmp_path / "other")
        (folder / "artefact.safetensors").write_bytes((tmp_path / "other" / "artefact.safetensors").read_bytes())
    with pytest.raises(ReprogramError, match="artefact") as caught:
        Reprogrammed.load(folder, frozen=own_frozen())
    assert "\n" not in str(caught.value)


def test_a_mapping_of_another_shape_is_refused():
    frozen = own_frozen()
    with pytest.raises(ReprogramError, match=r"shape \(5, 3\)"):
        Reprogrammed(Padding(16, 8), frozen, make_mapping("blm", list("abcde"), CLASSES), CLASSES)


def test_moving_the_model_moves_the_frozen_part_and_keeps_the_statistics_exact():
    model = build(own_frozen()).to("meta")
    assert next(model.frozen.module.parameters()).device.type == "meta"
    assert model.program.theta.device.type == "meta"
    assert model.mapping.statistics.matrix.dtype == torch.float64
