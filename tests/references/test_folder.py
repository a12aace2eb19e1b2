"""`run_reference`: the same folder as that of a run, to the bit after an interrupt, with weights that others can load."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

import sealed
from reprogram.data import load_data
from reprogram.errors import ReprogramError
from reprogram.progress import Progress
from reprogram.references import REFERENCES, run_reference
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import configured_frozen, divided_data
from reprogram.run.config import FitConfig
from reprogram.run.folder import run_fit, stored_config, stored_reference
from reprogram.run.record import read_run
from reprogram.run.verify import verify
from reprogram.sources.load import import_torchvision
from reprogram.training import budget

BASE = {"model": "timm:test_resnet", "pretrained": False, "canvas": 32, "batch_size": 16, "epochs": 3}
SAME = ("predictions.csv", "images.txt", "weights.safetensors", "config.json")


def network_of_timm(**options):
    import_torchvision()
    import timm

    return timm.create_model("test_resnet", **options)


def predictions(folder):
    return list(csv.DictReader((folder / "predictions.csv").read_text().splitlines()))


def configured(data, **more):
    return FitConfig.read({**BASE, "schedule": "constant", "data": str(data), **more})


@pytest.fixture(scope="module")
def finished(shapes, tmp_path_factory):
    """A folder of each method."""
    root = tmp_path_factory.mktemp("references")
    results = {name: run_reference(name, configured(shapes), root / name) for name in REFERENCES}
    return root, results


@pytest.mark.parametrize("name", REFERENCES)
def test_a_folder_has_what_a_run_has(finished, name, shapes):
    folder, result = finished[0] / name, finished[1][name]
    told = sealed.content(folder / "result.json")
    config = sealed.content(folder / "config.json")
    assert config["reference"] == told["reference"] == name == stored_reference(folder)[0]
    assert not {"program", "mapping"} & set(config)
    assert config["given"]["data"] == str(shapes) == stored_config(folder).data
    records = sealed.without_times(folder / "metrics.jsonl")
    assert len(records) == told["epochs"] == (1 if name == "probe" else 3)
    chosen = records[told["selected_epoch"] - 1]
    assert told["accuracy"] == {
        "last": records[-1]["accuracy"]["test"],
        "selected": chosen["accuracy"]["test"],
        "best_on_test": max(record["accuracy"]["test"] for record in records),
    }
    assert told["interval_95"] == list(result.test.score.interval)
    assert set(told["files"]) == {"predictions.csv", "weights.safetensors"}
    rows = predictions(folder)
    assert sum(row["label"] == row["predicted"] for row in rows) / len(rows) == result.test.accuracy
    assert (folder / "checkpoint").exists() == (name != "probe")
    assert not (folder / "artefact").exists()
    assert {checked.problem for checked in verify(folder)} == {None}


def test_what_was_trained_is_counted(finished):
    source = network_of_timm()
    whole = sum(parameter.numel() for parameter in source.parameters())
    head = source.get_classifier()
    fresh = 3 * head.in_features + 3
    counts = {name: sealed.content(finished[0] / name / "result.json")["parameters"] for name in REFERENCES}
    kept = whole - head.weight.numel() - head.bias.numel()
    assert counts["probe"] == counts["finetune-linear"] == {"free": fresh, "frozen": kept}
    assert counts["finetune-full"] == {"free": kept + fresh, "frozen": 0}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_source_of_a_run_is_the_model_that_was_named(finished, name, shapes):
    config = stored_config(finished[0] / name)
    fresh = configured_frozen(config, load_data(str(shapes)))
    told = sealed.content(finished[0] / name / "result.json")
    assert told["source_fingerprint"] == fresh.fingerprint == finished[1][name].model.source.fingerprint
    assert told["labels"] == {"source": fresh.k_source, "target": 3}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_weights_give_the_predictions_in_a_model_of_timm(finished, name, shapes):
    config = stored_config(finished[0] / name)
    data = load_data(str(shapes))
    frozen = configured_frozen(config, data)
    network = network_of_timm(num_classes=3)
    network.load_state_dict({**frozen.module.state_dict(), **load_file(finished[0] / name / "weights.safetensors")})
    pixels = (data.test.pixels(32).float() / 255 - frozen.mean) / frozen.std
    with torch.no_grad():
        said = network.eval()(pixels).argmax(1)
    rows = predictions(finished[0] / name)
    same = [data.classes[number] == row["predicted"] for number, row in zip(said.tolist(), rows, strict=True)]
    assert sum(same) >= len(same) - 1  # one may lie on the border, where a folded network rounds otherwise


def test_the_probe_is_that_of_scikit_learn(shapes, tmp_path):
    run_reference("probe", configured(shapes), tmp_path / "run", strength=0.01)
    config = stored_config(tmp_path / "run")
    data = divided_data(config, load_data(str(shapes)))
    frozen = configured_frozen(config, data)

    def features(split):
        pixels = (split.pixels(32).float() / 255 - frozen.mean) / frozen.std
        with torch.no_grad():
            network = frozen.module
            return network.forward_head(network.forward_features(pixels), pre_logits=True).double().numpy()

    train, test = features(data.train), features(data.test)
    mean, deviation = train.mean(0), train.std(0)
    deviation[deviation == 0] = 1  # of a feature that no image has
    other = LogisticRegression(C=1 / (0.01 * len(train)), tol=1e-8, max_iter=10_000)
    other.fit((train - mean) / deviation, data.train.labels.numpy())
    learned = load_file(tmp_path / "run" / "weights.safetensors")
    layer = frozen.module.get_classifier()
    name = next(key for key, module in frozen.module.named_modules() if module is layer)
    said = F.softmax(torch.from_numpy(test) @ learned[f"{name}.weight"].double().T + learned[f"{name}.bias"].double(), 1)
    np.testing.assert_allclose(said.numpy(), other.predict_proba((test - mean) / deviation), atol=2e-3)
    assert sealed.content(tmp_path / "run" / "result.json")["steps"][0]["strength"] == 0.01


def test_the_strength_is_chosen_on_validation_images_or_by_folds(finished, shapes, tmp_path):
    steps = sealed.content(finished[0] / "probe" / "result.json")["steps"]
    kept = [step for step in steps if step["kept"]]
    assert len(kept) == 1
    assert kept[0]["log_loss"] == min(step["log_loss"] for step in steps)
    assert "validation images" in kept[0]["told"]
    result = run_reference("probe", configured(shapes, val_fraction=0), tmp_path / "run")
    assert result.accuracy["selected"] is None
    assert all("5 folds of the training images" in step["told"] for step in result.steps)
    few = run_reference("probe", configured(shapes, val_fraction=0, shots=1), tmp_path / "few")
    assert "no image is there to choose it by" in few.steps[0]["told"]


class Interrupted(Progress):
    """Whoever listens presses Ctrl-C after an epoch."""

    def __init__(self, word):
        super().__init__()
        self.word = word

    def say(self, line):
        if line.startswith(self.word):
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("name", "word"), [("finetune-linear", "epoch 2/3"), ("finetune-full", "epoch 1/3"), ("probe", "epoch 1/1")]
)
def test_an_interrupted_one_ends_as_if_nothing_had_been(finished, name, word, shapes, tmp_path):
    folder = tmp_path / name
    with pytest.raises(KeyboardInterrupt):
        run_reference(name, configured(shapes), folder, progress=Interrupted(word))
    assert not (folder / "result.json").exists()
    with pytest.raises(ReprogramError, match=f"not finished; continue it with: reprogram reference {name} --resume"):
        read_run(folder)
    with pytest.raises(ReprogramError, match="already holds a run; add --resume"):
        run_reference(name, configured(shapes), folder)
    run_reference(name, configured(shapes), folder, resume=True)
    whole = finished[0] / name
    assert sealed.without_times(folder / "metrics.jsonl") == sealed.without_times(whole / "metrics.jsonl")
    for file in SAME:
        assert (folder / file).read_bytes() == (whole / file).read_bytes(), file


def test_a_finished_one_can_be_trained_longer(finished, shapes, tmp_path):
    folder = shutil.copytree(finished[0] / "finetune-full", tmp_path / "run")
    run_reference("finetune-full", configured(shapes, epochs=4), folder, resume=True)
    run_reference("finetune-full", configured(shapes, epochs=4), tmp_path / "whole")
    assert sealed.without_times(folder / "metrics.jsonl") == sealed.without_times(tmp_path / "whole" / "metrics.jsonl")
    assert (folder / "weights.safetensors").read_bytes() == (tmp_path / "whole" / "weights.safetensors").read_bytes()


def test_one_by_the_clock_tells_how_many_epochs_fitted(shapes, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "_epoch_seconds", lambda state, data: (1000.0, 0.0))
    run_reference("finetune-linear", configured(shapes, minutes=60, epochs=200), tmp_path / "run")
    stored = stored_config(tmp_path / "run")
    assert (stored.epochs, stored.minutes, len(read_run(tmp_path / "run").epochs)) == (3, 60, 3)


def test_runs_and_references_do_not_go_on_in_each_others_folders(finished, run, shapes):
    with pytest.raises(ReprogramError, match="holds the reference probe, so nothing else can go on there"):
        run_fit(configured(shapes), finished[0] / "probe", resume=True)
    with pytest.raises(ReprogramError, match="holds the reference probe"):
        run_reference("finetune-linear", configured(shapes), finished[0] / "probe", resume=True)
    with pytest.raises(ReprogramError, match="holds a run of reprogram fit"):
        run_reference("probe", FitConfig.read({"data": str(shapes)}), run[0], resume=True)
    with pytest.raises(ReprogramError, match=r"strength = 3.0 was given, but the run in .* has None"):
        run_reference("probe", configured(shapes), finished[0] / "probe", resume=True, strength=3.0)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [("probe", {"data": "nowhere"}, "nowhere"), ("finetune-full", {"mapping": "blm"}, "neither a program nor a mapping")],
)
def test_what_is_wrong_leaves_no_folder(name, given, words, shapes, tmp_path):
    with pytest.raises(ReprogramError, match=words):
        run_reference(name, FitConfig.read({**BASE, "data": str(shapes), **given}), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_damage_is_told_by_verify(finished, tmp_path):
    folder = shutil.copytree(finished[0] / "finetune-full", tmp_path / "run")
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[-3] ^= 1
    (folder / "weights.safetensors").write_bytes(content)
    problems = [checked.problem for checked in verify(folder) if checked.problem]
    assert "weights.safetensors" in problems[0]
    assert any("reprogram reference finetune-full --resume" in problem for problem in problems)
    (folder / "weights.safetensors").unlink()
    assert any("is missing" in (checked.problem or "") for checked in verify(folder))
    shutil.copy(finished[0] / "probe" / "weights.safetensors", folder)
    assert any("is of another run than the checkpoint" in (checked.problem or "") for checked in verify(folder))


def test_what_needs_a_mapping_refuses_a_reference(finished):
    with pytest.raises(ReprogramError, match="holds the reference probe, which is there to compare with and has no mapping"):
        Reprogrammed.load(finished[0] / "probe")


def test_a_record_tells_what_there_is(finished):
    record = read_run(finished[0] / "finetune-linear")
    assert (record.kind, record.reference, record.classes) == ("reference", "finetune-linear", ("disc", "square", "stripes"))
    assert record.source["name"] == "timm:test_resnet"
    assert len(record.test) == 30
    assert record.joint is record.program is None
    with pytest.raises(ReprogramError, match="has no mapping"):
        _ = record.omega


@pytest.mark.parametrize("name", REFERENCES)
def test_views_of_training_images(name, shapes, tmp_path):
    if not REFERENCES[name].views:
        with pytest.raises(ReprogramError, match="augment"):
            run_reference(name, configured(shapes, augment="flip"), tmp_path / "run")
        return
    result = run_reference(name, configured(shapes, augment="flip", epochs=1, shots=6), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["augment"] == "flip"
    assert len(result.test.labels) == 30
