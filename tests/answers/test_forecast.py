"""Forecasts from files of answers: the sharding does not matter, and no answer is measured by a mapping that saw it."""

import json

import numpy as np
import pytest
import torch

from reprogram.answers.forecast import AnswerLearner, forecast_files
from reprogram.answers.kinds import holds_answers
from reprogram.answers.labels import LabelSets
from reprogram.errors import ReprogramError
from reprogram.mappings.forecasting import forecast
from reprogram.mappings.making import make_mapping

CLASSES = ["ant", "bee", "cow"]


def rows(n=90, k_source=8, seed=0):
    rng = np.random.default_rng(seed)
    targets = np.arange(n) % 3
    return (rng.normal(size=(n, k_source)) + 2 * np.eye(3, k_source)[targets]).astype(np.float32), targets


def write_logits(folder, sizes, splits=None):
    folder.mkdir()
    logits, targets = rows()
    names, start = np.array(CLASSES)[targets], 0
    for number, size in enumerate(sizes):
        part = slice(start, start + size)
        more = {} if splits is None else {"split": np.array(splits)[part]}
        np.savez(folder / f"{number:02}.npz", logits=logits[part], label=names[part], **more)
        start += size
    assert start == len(targets)
    return folder


def answers(n=60, seed=0):
    """Top-3 answers with scores over five labels."""
    rng = np.random.default_rng(seed)
    lines = []
    for row in range(n):
        kind = row % 3
        names = [CLASSES[kind].title()] if rng.random() < 0.8 else []
        names += rng.choice(["Ant", "Bee", "Cow", "Leaf", "Sky"], 2, replace=False).tolist()
        names = list(dict.fromkeys(names))
        scores = np.sort(rng.uniform(0, 1, len(names)))[::-1].tolist()
        pairs = [{"name": name, "score": score} for name, score in zip(names, scores, strict=True)]
        lines.append(json.dumps({"label": CLASSES[kind], "labels": pairs}))
    return lines


def write_answers(folder, sizes):
    folder.mkdir()
    lines, start = answers(), 0
    for number, size in enumerate(sizes):
        (folder / f"{number:02}.jsonl").write_text("\n".join(lines[start : start + size]))
        start += size
    return folder


@pytest.mark.parametrize("name", [None, "blm"])
def test_shards_of_logits_are_the_same_as_arrays_however_they_are_cut(tmp_path, name):
    logits, targets = rows()
    settings = {"gaussian": {}, "blm": {"smoothing": 2.0}}[name or "gaussian"]
    expected = forecast((logits, np.array(CLASSES)[targets]), name or "gaussian", draws=2, **settings)
    for number, sizes in enumerate(([90], [1, 50, 9, 30])):
        shards = write_logits(tmp_path / str(number), sizes)
        assert forecast_files(shards, name, draws=2, **settings) == expected


def test_top_k_answers_are_the_same_however_they_are_cut(tmp_path):
    found = [
        forecast_files(write_answers(tmp_path / str(number), sizes), draws=2)
        for number, sizes in enumerate(([60], [7, 30, 23]))
    ]
    assert found[0] == found[1]
    assert found[0].candidate.mapping == "gaussian+"
    assert found[0].candidate.settings["top_k"] == 3
    assert found[0].points[1].accuracy > 0.5


def test_answers_are_scored_by_the_mapping_of_the_part_alone():
    rng = np.random.default_rng(0)
    indices = torch.from_numpy(rng.integers(-1, 6, (40, 3)))
    scores = torch.from_numpy(rng.uniform(size=(40, 3)))
    targets = torch.arange(40) % 2
    labels = LabelSets(tuple("abcdef"), ("x", "y"))
    learner = AnswerLearner(make_mapping("blm+", list("abcdef"), ["x", "y"], top_k=3), labels, indices, scores, targets)
    learner.learn(torch.arange(10))
    learner.right(torch.arange(30, 40))
    learner.learn(torch.arange(10, 20))
    anew = make_mapping("blm+", list("abcdef"), ["x", "y"], top_k=3)
    anew.estimate(anew.new_statistics().update_top_k(indices[:20], scores[:20], targets[:20]))
    expected = anew.predict_answers(indices[20:], scores[20:]).indices == targets[20:]
    assert torch.equal(learner.right(torch.arange(20, 40)), expected)


def test_rows_of_the_split_test_are_left_out(tmp_path):
    splits = ["test" if row >= 60 else "train" for row in range(90)]
    assert forecast_files(write_logits(tmp_path / "a", [90], splits), draws=1).samples == 60


@pytest.mark.parametrize(
    ("mapping", "words"), [("gaussian", "needs all logits"), ("auto", "needs all logits"), ("linear", "needs all logits")]
)
def test_answers_are_not_enough_for_every_mapping(tmp_path, mapping, words):
    with pytest.raises(ReprogramError, match=words):
        forecast_files(write_answers(tmp_path / "a", [60]), mapping)


def test_rows_of_the_split_test_alone_are_nothing_to_forecast_from(tmp_path):
    with pytest.raises(ReprogramError, match="none is left"):
        forecast_files(write_logits(tmp_path / "a", [90], ["test"] * 90))


def test_answers_and_images_are_told_apart(tmp_path):
    shards = write_logits(tmp_path / "shards", [90])
    np.savez(tmp_path / "images.npz", images=np.zeros((2, 4, 4, 3), np.uint8), labels=np.arange(2))
    (tmp_path / "photos" / "train").mkdir(parents=True)
    (tmp_path / "answers.csv").write_text("label,topk_labels\nant,Ant|Bee\n")
    (tmp_path / "logits.csv").write_text("path,label,logit_0,logit_1\n1.jpg,ant,1,2\n")
    (tmp_path / "photos.csv").write_text("path,label\n1.jpg,ant\n")
    (tmp_path / "answers.jsonl").write_text("")
    for name in ("shards", "shards/00.npz", "shards/*.npz", "answers.csv", "logits.csv", "answers.jsonl"):
        assert holds_answers([str(tmp_path / name)]), name
    for name in ("images.npz", "photos", "photos.csv", "nothing-there"):
        assert not holds_answers([str(tmp_path / name)]), name
    assert not holds_answers(["digits"])
    assert not holds_answers([])
    assert holds_answers([str(shards), str(tmp_path / "answers.csv")])
    with pytest.raises(ReprogramError, match="give shards alone"):
        holds_answers([str(shards), str(tmp_path / "photos")])
