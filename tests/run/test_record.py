"""A run folder as one record: everything that stands there, checked; and what is not there is said."""

import json
import shutil

import numpy as np
import pytest
import torch

from command import SMALL, here
from reprogram.errors import ReprogramError
from reprogram.mappings.making import make_mapping
from reprogram.reprogrammed import Reprogrammed
from reprogram.run import gather_examples, read_run
from reprogram.run.outcomes import Outcomes
from reprogram.statistics.joint import JointStatistics


@pytest.fixture(scope="module")
def record(run):
    return read_run(run[0])


@pytest.fixture
def copied(run, tmp_path):
    shutil.copytree(run[0], tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_read_as_a_whole(run, record):
    model = Reprogrammed.load(run[0])
    assert record.kind == "run"
    assert record.name == "shapes"
    assert record.classes == ("disc", "square", "stripes")
    assert np.array_equal(record.omega, model.mapping.omega.numpy())
    assert np.array_equal(record.joint, model.mapping.statistics.matrix.numpy())
    assert record.source["name"] == "timm:test_resnet"
    assert torch.equal(record.program.theta, model.program.theta)
    assert torch.equal(record.program.mean, model.program.mean)
    assert [epoch["epoch"] for epoch in record.epochs] == [1, 2, 3]
    assert record.result["images"]["test"] == len(record.test) == 30
    assert record.test.right.mean() == record.result["accuracy"]["selected"]
    assert record.config.mapping == "blm"
    assert record.history.epochs == (1, 2, 3)
    assert record.notes == ()


def test_what_is_in_neither_folder_is_one_sentence(tmp_path):
    with pytest.raises(ReprogramError, match="neither a run nor a mapping"):
        read_run(tmp_path)
    with pytest.raises(ReprogramError, match="is not a folder"):
        read_run(tmp_path / "nowhere")


def test_an_unfinished_run_tells_what_it_has(copied):
    (copied / "result.json").unlink()
    (copied / "metrics.jsonl").unlink()
    found = read_run(copied)
    assert (found.result, found.test, found.epochs) == (None, None, ())
    assert "not finished" in found.notes[0]
    assert gather_examples(found).right == ()


@pytest.mark.parametrize("name", ["result.json", "predictions.csv", "metrics.jsonl", "config.json", "program.safetensors"])
def test_damage_is_refused(name, copied):
    content = bytearray((copied / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copied / name).write_bytes(content)
    with pytest.raises(ReprogramError, match=name):
        read_run(copied)


def test_hostile_names_come_back_as_they_were(tmp_path):
    from reprogram.run.record import _outcomes
    from reprogram.text import csv_cell, csv_line

    names = ("=1+1", "a\u2028b", "c\nd", "'-e", 'f"g,h', "i" * 300)
    lines = [csv_line(["image", "label", "predicted", "confidence"])]
    lines += [csv_line([csv_cell(name), csv_cell(name), csv_cell(names[0]), "0.500000"]) for name in names]
    path = tmp_path / "predictions.csv"
    path.write_text("".join(lines), newline="")
    found = _outcomes(path, names)
    assert found.names == names
    assert found.labels.tolist() == list(range(6))
    path.write_text("image,label\n")
    with pytest.raises(ReprogramError, match="expected form"):
        _outcomes(path, names)


def test_a_mapping_alone_is_a_record_too(tmp_path):
    mapping = make_mapping("blm", ["tabby", "beagle"], ["cat", "dog"])
    mapping.estimate(JointStatistics.counts(2, 2).update(torch.eye(2), torch.tensor([0, 1])))
    mapping.save(tmp_path / "mapping")
    found = read_run(tmp_path / "mapping")
    assert (found.kind, found.program, found.config, found.test) == ("mapping", None, None, None)
    assert found.joint.tolist() == [[1, 0], [0, 1]]
    assert "mapping without a run" in gather_examples(found).notes[0]


def outcomes():
    labels, predicted = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 1, 0])
    return Outcomes(("a", "b", "c"), tuple("uvwxyz"), labels, predicted, np.array([0.9, 0.8, 0.4, 0.9, 0.6, 0.4]))


def test_the_numbers_are_those_of_a_slow_count():
    found = outcomes()
    slow = [[sum((found.labels == i) & (found.predicted == j)) for j in range(3)] for i in range(3)]
    assert found.confusion.tolist() == slow == [[1, 2, 0], [0, 2, 0], [1, 0, 0]]
    assert [(name, s.correct, s.n) for name, s in found.per_class().items()] == [("a", 1, 3), ("b", 2, 2), ("c", 0, 1)]
    assert found.confused(1) == [("a", "b", 2, pytest.approx(2 / 3))]
    assert len(found.confused()) == 2
    kept = found.abstention()
    assert kept.threshold.tolist() == [0.4, 0.6, 0.8, 0.9]
    assert kept.coverage.tolist() == pytest.approx([1, 4 / 6, 3 / 6, 2 / 6])
    assert kept.accuracy.tolist() == pytest.approx([3 / 6, 3 / 4, 2 / 3, 1])
    bins = found.reliability(10)
    assert bins.count.tolist() == [0, 0, 0, 0, 2, 0, 1, 0, 1, 2]
    assert bins.accuracy[[4, 6, 8, 9]].tolist() == [0, 1, 0, 1]
    assert bins.error == pytest.approx((0.8 + 0.4 + 0.8 + 0.2) / 6)


def test_the_calibration_error_is_that_of_the_run(record):
    assert record.test.reliability().error == pytest.approx(record.result["calibration_error"], abs=1e-5)


def test_examples_show_each_class_and_say_why(record):
    found = gather_examples(record)
    assert list(found.classes) == ["disc", "square", "stripes"]
    assert all(len(images) == 4 and images[0].split == "train" for images in found.classes.values())
    assert len(found.wrong) + len(found.right) >= 12
    assert all(example.right for example in found.right)
    assert not any(example.right for example in found.wrong)
    sure = [example.confidence for example in found.wrong]
    assert sure == sorted(sure, reverse=True)
    for example in (*found.right, *found.wrong):
        assert example.pixels.shape == (40, 40, 3)  # not blown up by a broken factor
        assert len(example.top) == 5
        assert example.evidence
    assert [canvas.after.shape for canvas in found.canvases] == [(64, 64, 3)] * 3
    before, after = found.canvases[0].before, found.canvases[0].after
    start = record.program.before
    inside = after[start : start + len(before), start : start + len(before)]
    assert np.abs(inside.astype(int) - before).max() <= 1
    assert found.notes == ()
    again = gather_examples(record)
    assert [example.name for example in again.wrong] == [example.name for example in found.wrong]


def test_evidence_is_what_the_model_itself_says(run, record):
    found, model = gather_examples(record), Reprogrammed.load(run[0])
    example = found.right[0]
    said = model.predict(example.name, evidence=5)
    assert said.labels == [example.predicted]
    assert float(said.confidence) == pytest.approx(example.confidence, abs=1e-4)
    assert [one.source for one in example.evidence] == [one.source for one in said.evidence[0]]


def test_without_data_or_model_a_note_says_so(copied, shapes, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(shapes, moved)
    arguments = ("--program", "none", "--mapping", "blm", *SMALL, "--out", tmp_path / "other")
    here("fit", "--data", moved, *arguments)
    shutil.rmtree(moved / "test" / "disc")
    found = gather_examples(read_run(tmp_path / "other"))
    assert found.canvases == ()
    assert "10 of 30 test images are not among the data any more" in found.notes
    shutil.rmtree(moved)
    found = gather_examples(read_run(tmp_path / "other"))
    assert found.classes == {}
    assert "cannot be loaded any more" in found.notes[0]
    description = copied / "artefact" / "artefact.json"
    from reprogram.files import sealed_json

    content = json.loads(description.read_text())
    del content["sha256"]
    content["frozen"]["fingerprint"] = "0" * 64
    description.write_text(sealed_json(content))
    found = gather_examples(read_run(copied))
    assert "the frozen model cannot be loaded" in found.notes[0]
    assert found.right
    assert not found.right[0].evidence


def test_a_spanned_mapping_is_read_without_its_model(tmp_path):
    span = torch.linalg.qr(torch.randn(6, 3, generator=torch.Generator().manual_seed(0))).Q
    mapping = make_mapping("gaussian", [f"s{i}" for i in range(6)], ["a", "b"], span=span)
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)) @ span.T
    mapping.estimate(mapping.count(logits, torch.arange(20) % 2))
    mapping.save(tmp_path / "spanned")
    found = read_run(tmp_path / "spanned")
    assert np.array_equal(found.omega, mapping.omega.numpy())
    assert found.mapping.statistics is None
