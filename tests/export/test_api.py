"""An export says what the live model says, whatever the program, the mapping and the end of the network."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import nets
from reprogram.errors import ReprogramError
from reprogram.export import export_run, load_exported
from reprogram.export.comparison import drawn
from reprogram.export.networks import network
from reprogram.export.session import Backbone
from reprogram.mappings.certainty import measure_certainty
from reprogram.programs import Program
from reprogram.run.verify import verify
from reprogram.sources import BlackBox


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Each network is traced once for all tests but one, and no child tries what we wrote ourselves."""
    monkeypatch.setattr("reprogram.export.session.tried_in_child", lambda *_: None)
    monkeypatch.setattr("reprogram.export.api.network", traced_once)


def traced_once(frozen, trunk, side, known={}):  # noqa: B006
    key = (trunk.key, side)
    if key not in known:
        known[key] = network(frozen, trunk, side)
    return known[key]


def exported(model, folder, frozen=None, form="onnx", **options):
    model.save(folder / "artefact")
    return export_run(folder / "artefact", folder / form, format=form, frozen=frozen or model.frozen, images=24, **options)


def differences(model, task, count=40):
    """Of probabilities, at a batch of 1, of 7 and of all."""
    pixels = nets.images(count, model.program.image_size, seed=8)
    rows = np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())
    live = model.predict(pixels).probabilities.numpy()
    assert live.std(0).max() > 0.01, "probabilities that are all alike compare nothing"
    found = [
        np.concatenate([task.probabilities(rows[start : start + step]) for start in range(0, count, step)])
        for step in (1, 7, count)
    ]
    return max(float(np.abs(each - live).max()) for each in found)


@pytest.mark.parametrize(
    ("frozen", "program", "mapping"),
    [
        (nets.classifier, "padding", "blm"),
        (nets.classifier, "watermark", "gaussian"),
        (nets.classifier, "none", "linear"),
        (nets.squashed, "none", "linear"),
        (nets.classifier, "none", "sigmoid"),
        (nets.clip, "watermark", "gaussian"),
        (nets.clip, "none", "blm"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_one_file_and_an_adapter_agree_with_the_live_model(frozen, program, mapping, tmp_path):
    model = nets.reprogrammed(frozen(), program, mapping)
    done = exported(model, tmp_path)
    task = load_exported(tmp_path / "onnx")
    assert task.classes == nets.CLASSES
    assert done.comparison.probability < 1e-5
    assert differences(model, task) < 1e-5
    outputs = {name for node in onnx.load(tmp_path / "onnx" / "model.onnx").graph.node for name in node.output}
    assert len(outputs) < 40
    exported(model, tmp_path, form="onnx-adapter")
    adapter = load_exported(tmp_path / "onnx-adapter")
    assert differences(model, adapter) < 1e-5
    assert (adapter.pattern is None) == (program == "none")
    wide = 7 if frozen is nets.squashed else 6 if frozen is nets.clip else 5
    assert adapter.arrays["weight"].shape == (wide, 3)
    assert not [checked for checked in verify(tmp_path / "onnx-adapter") if checked.problem]


@pytest.mark.parametrize("weighting", ["log", "sqrt", "rank", "presence"])
@pytest.mark.parametrize("top_k", [None, 3])
def test_gaussian_plus_stands_between_the_source_logits_and_the_last_layer(weighting, top_k, tmp_path):
    if weighting == "presence" and top_k is None:
        pytest.skip("every label counts the same")
    model = nets.reprogrammed(nets.classifier(), "none", "gaussian+", weighting=weighting, top_k=top_k)
    exported(model, tmp_path)
    assert differences(model, load_exported(tmp_path / "onnx")) < 1e-4
    with pytest.raises(ReprogramError, match=r"mapping 'gaussian\+' is more than numbers .* use --format onnx"):
        exported(model, tmp_path, form="onnx-adapter")
    assert not (tmp_path / "onnx-adapter").exists()


def test_the_temperature_is_folded_and_held_out_sets_have_thresholds(tmp_path):
    model = nets.reprogrammed(nets.classifier(), "none", "gaussian")
    pixels, targets = nets.images(80, 16, seed=11), torch.arange(80) % 3
    with torch.no_grad():
        logits = model.source_logits(pixels)
    measure_certainty(model.mapping, (logits, targets, None, None), held_out=True)
    model.mapping.certainty = replace(model.mapping.certainty, temperature=2.5)
    exported(model, tmp_path)
    task = load_exported(tmp_path / "onnx")
    assert differences(model, task) < 1e-5
    facts = task.facts
    assert facts["calibration"]["temperature"] == 2.5
    rows = np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())
    scores = task.logits(rows)
    for coverage, threshold in facts["prediction_sets"]["thresholds"].items():
        wanted = model.predict(pixels, coverage=float(coverage)).sets
        order = np.sort(scores, 1)[:, ::-1]
        leads = scores == order[:, :1]
        misfit = np.where(leads, order[:, 1:2], order[:, :1]) - scores
        found = [{nets.CLASSES[place] for place in np.flatnonzero(row <= threshold + 1e-5)} for row in misfit]
        same = sum(set(names) == each for names, each in zip(wanted, found, strict=True))
        assert same >= 78, coverage  # a sample that is itself the threshold may fall to either side by rounding
    assert len(facts["prediction_sets"]["thresholds"]) >= 2


def test_tasks_share_a_backbone_and_another_one_is_refused(tmp_path):
    models = [
        nets.reprogrammed(nets.classifier(), "padding", "blm"),
        nets.reprogrammed(nets.classifier(), "watermark", "gaussian"),
        nets.reprogrammed(nets.classifier(), "none", "linear"),
    ]
    shared = tmp_path / "backbone.onnx"
    tasks = []
    for number, model in enumerate(models):
        model.save(tmp_path / f"{number}")
        out = tmp_path / f"task {number}"
        export_run(tmp_path / f"{number}", out, format="onnx-adapter", backbone=shared, frozen=model.frozen, images=8)
        tasks.append(out)
    content = shared.read_bytes()
    backbone = Backbone(shared, threads=1)
    loaded = [load_exported(task, backbone) for task in tasks]
    for model, task in zip(models, loaded, strict=True):
        assert differences(model, task) < 1e-5
        rows = np.ascontiguousarray(nets.images(5, task.image_size).permute(0, 2, 3, 1).numpy())
        features = backbone.features(rows, task.pattern)
        assert np.abs(task.from_features(features) - task.probabilities(rows)).max() < 1e-6
    assert shared.read_bytes() == content
    # onnxruntime's own way, as docs/export.md has it
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    adapter, options = onnxruntime.LoraAdapter(), onnxruntime.RunOptions()
    adapter.Load(str(tasks[0] / "task.onnx_adapter"))
    options.add_active_adapter(adapter)
    rows = np.ascontiguousarray(nets.images(5, 9).permute(0, 2, 3, 1).numpy())
    assert np.array_equal(session.run(["probabilities"], {"images": rows}, options)[0], loaded[0].probabilities(rows))
    # another model, or another canvas, is another backbone
    other = nets.reprogrammed(nets.classifier(seed=1), "none", "linear")
    other.save(tmp_path / "other")
    with pytest.raises(ReprogramError, match="another model, other weights"):
        export_run(tmp_path / "other", tmp_path / "x", format="onnx-adapter", backbone=shared, frozen=other.frozen)
    assert not (tmp_path / "x").exists()
    larger = nets.reprogrammed(nets.classifier(canvas=20), "none", "linear", canvas=20)
    larger.save(tmp_path / "larger")
    export_run(tmp_path / "larger", tmp_path / "y", format="onnx-adapter", frozen=larger.frozen, images=4)
    with pytest.raises(ReprogramError, match="give the backbone that was exported with it"):
        load_exported(tmp_path / "y", backbone)


def test_clips_of_other_texts_share_a_backbone(tmp_path):
    for seed in (0, 1):
        model = nets.reprogrammed(nets.clip(seed=seed), "none", "gaussian")
        model.save(tmp_path / f"{seed}")
        out = tmp_path / f"task {seed}"
        shared = tmp_path / "shared.onnx"
        export_run(tmp_path / f"{seed}", out, format="onnx-adapter", backbone=shared, frozen=model.frozen, images=8)
        assert differences(model, load_exported(out)) < 1e-5


def test_a_torch_program_agrees_and_carries_its_facts(tmp_path):
    model = nets.reprogrammed(nets.classifier(), "padding", "gaussian")
    exported(model, tmp_path, form="torch")
    files = {"reprogram.json": ""}
    program = torch.export.load(tmp_path / "torch" / "model.pt2", extra_files=files).module()
    pixels = nets.images(5, 9)
    found, _ = program(pixels.permute(0, 2, 3, 1).contiguous())
    assert torch.allclose(found, model.predict(pixels).probabilities, atol=1e-5)
    assert json.loads(files["reprogram.json"])["labels"] == list(nets.CLASSES)
    with pytest.raises(ReprogramError, match="format 'torch', but onnx or onnx-adapter is expected"):
        load_exported(tmp_path / "torch")


class Mirror(Program):
    """A program that is no pattern on the canvas."""

    name = "mirror"

    def __init__(self, canvas):
        super().__init__(canvas, canvas)

    def place(self, images):
        return self._normalise(images.flip(3) ** 2)


def test_a_program_of_another_kind_is_traced_but_has_no_adapter(tmp_path, monkeypatch):
    frozen = nets.classifier()
    model = nets.reprogrammed(frozen, "none", "linear")
    model.program = Mirror(16).bind(frozen.mean, frozen.std)
    model.save(tmp_path / "artefact")
    monkeypatch.setattr("reprogram.export.api.Reprogrammed.load", lambda *_, **__: model)
    export_run(tmp_path / "artefact", tmp_path / "onnx", images=8)
    assert differences(model, load_exported(tmp_path / "onnx")) < 1e-5
    with pytest.raises(ReprogramError, match="program 'mirror' is more than numbers"):
        export_run(tmp_path / "artefact", tmp_path / "x", format="onnx-adapter", images=8)


def test_what_disagrees_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    model = nets.reprogrammed(nets.classifier(), "none", "linear")
    live = torch.rand(24, 3).softmax(1).numpy()
    monkeypatch.setattr("reprogram.export.api.live_answers", lambda *_: (live, np.log(live)))
    for form in ("onnx", "onnx-adapter", "torch"):
        with pytest.raises(ReprogramError, match=r"differ by .* from the live model's .*0\.0001 is the most"):
            exported(model, tmp_path, form=form)
    assert [path.name for path in tmp_path.iterdir()] == ["artefact"]


def test_a_network_that_no_exporter_follows_is_refused_in_one_sentence(tmp_path):
    class Counting(nn.Module):
        def forward(self, x):
            means = x.mean((2, 3))
            return means if float(means.sum().item()) > 1e9 else torch.stack([torch.tensor(row.tolist()) for row in means])

    frozen = nets.Frozen(Counting(), input_size=16)
    model = nets.reprogrammed(frozen, "none", "linear")
    for form, words in (("onnx", "cannot be written as ONNX"), ("torch", "cannot be written by torch.export")):
        with pytest.raises(ReprogramError, match=words) as refused:
            exported(model, tmp_path, form=form)
        assert "\n" not in str(refused.value)
    box = BlackBox(lambda pixels: pixels.mean((2, 3)), labels=["r", "g", "b"], input_size=16, name="colours")
    asked = nets.reprogrammed(box, "none", "linear")
    with pytest.raises(ReprogramError, match="colours is a callable and no network"):
        exported(asked, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["artefact"]


def test_the_same_run_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("reprogram.export.api.network", network)
    model = nets.reprogrammed(nets.classifier(), "padding", "blm")
    for form in ("onnx", "onnx-adapter"):
        exported(model, tmp_path, form=form)
        before = {path.name: path.read_bytes() for path in (tmp_path / form).iterdir()}
        with pytest.raises(ReprogramError, match="holds an export already"):
            exported(model, tmp_path, form=form)
        exported(model, tmp_path, form=form, replace=True)
        assert {path.name: path.read_bytes() for path in (tmp_path / form).iterdir()} == before
    with pytest.raises(ReprogramError, match="goes with onnx-adapter"):
        exported(model, tmp_path, backbone="x")
    with pytest.raises(ReprogramError, match="format 'tflite' is not known"):
        exported(model, tmp_path, form="tflite")


def test_hostile_names_are_data_everywhere(tmp_path):
    frozen = nets.classifier()
    names = ("<script>alert(1)</script>\n# x", "| a ](javascript:b) \x1b[31m", "\u202eevil ` $x$")
    model = nets.reprogrammed(frozen, "none", "linear")
    model.mapping.classes = names
    exported(model, tmp_path)
    assert load_exported(tmp_path / "onnx").classes == names
    proto = onnx.load(tmp_path / "onnx" / "model.onnx")
    stored = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(stored["labels"]) == list(names)
    card = (tmp_path / "onnx" / "README.md").read_text()
    assert "<script" not in card.replace("\\<", "")
    for words in ("\x1b", "\u202e", "\n# x", "](javascript"):
        assert words not in card


def test_frozen_weights_stay_as_they_are(tmp_path):
    frozen = nets.classifier()
    before = frozen.fingerprint
    exported(nets.reprogrammed(frozen, "none", "linear"), tmp_path)
    assert frozen.fingerprint == before
    assert isinstance(frozen.module[-1], nn.Linear)


def test_drawn_images_differ_from_each_other_and_are_the_same_each_time():
    assert torch.equal(drawn(3, 8), drawn(3, 8))
    assert len(drawn(3, 8).flatten(1).unique(dim=0)) == 3


def test_a_model_of_bf16_is_exported_and_compared_in_fp32(processor, tmp_path):
    processor(True)
    model = nets.reprogrammed(nets.classifier())
    full = nets.reprogrammed(nets.classifier())
    model.precision = "bf16"
    exported(model, tmp_path)
    task = load_exported(tmp_path / "onnx")
    assert differences(full, task) < 1e-5
    assert differences(model, task) > 1e-5
