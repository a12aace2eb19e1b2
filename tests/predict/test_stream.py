"""Paths in, rows out: what the model says of each image, in order, whatever the images are like."""

import pytest
import torch
from PIL import Image

from reprogram import ReprogramError, Reprogrammed
from reprogram.mappings.predictions import Predictions
from reprogram.predict import predict_paths
from reprogram.predict.paths import meant_images
from reprogram.predict.rows import Wanted, rows_of
from reprogram.predict.stream import Prepared


@pytest.fixture(scope="module")
def model(run):
    return Reprogrammed.load(run[0])


def test_rows_say_what_the_model_says(model, shapes):
    folder = shapes / "test"
    paths = sorted(folder.rglob("*.png"))
    rows = list(predict_paths(model, folder, evidence=2, top=2, batch_size=7))
    assert [row["image"] for row in rows] == list(map(str, paths))
    said = model.predict(paths, evidence=2, batch_size=7)
    assert [row["label"] for row in rows] == said.labels
    assert [row["probability"] for row in rows] == [round(share, 6) for share in said.confidence.tolist()]
    assert {row["error"] for row in rows} == {None}
    for row, reasons, shares in zip(rows, said.evidence, said.probabilities, strict=True):
        assert [one["source"] for one in row["evidence"]] == [one.source for one in reasons]
        assert row["evidence"][0]["contribution"] == pytest.approx(reasons[0].product, rel=1e-5)
        best = shares.topk(2)
        assert [one["label"] for one in row["top"]] == [model.classes[place] for place in best.indices]
        assert [one["probability"] for one in row["top"]] == pytest.approx(best.values.tolist(), abs=1e-6)
    assert next(iter(predict_paths(model, [folder], evidence=0))).keys() == {"image", "label", "probability", "error"}


def test_among_equals_the_class_that_was_said_is_the_first_of_the_likeliest():
    """Classes without evidence have the same probability; `topk` names any of them first."""
    classes = tuple("abcdef")
    shares = torch.tensor([[1 / 6] * 6, [0.1, 0.2, 0.2, 0.2, 0.2, 0.1]])
    said = Predictions.of(shares, classes, indices=torch.tensor([0, 2]))  # logits that differ, and shares that do not
    rows = list(rows_of(["one", "two"], [None, None], said, classes, Wanted(evidence=0, top=3)))
    assert [row["label"] for row in rows] == ["a", "c"]
    assert [[one["label"] for one in row["top"]] for row in rows] == [["a", "b", "c"], ["c", "b", "d"]]
    assert rows[1]["top"][0]["probability"] == rows[1]["probability"] == 0.2


def test_a_bad_image_is_a_row_with_an_error_and_changes_no_other_row(model, shapes, tmp_path):
    good = sorted((shapes / "test" / "disc").iterdir())[:4]
    (tmp_path / "bad.png").write_bytes(b"no image")
    bad = [tmp_path / "bad.png", tmp_path / "nowhere.png"]
    mixed = [good[0], bad[0], good[1], bad[1], bad[1], bad[1], good[2], good[3]]
    rows = list(predict_paths(model, mixed, batch_size=2, workers=1, coverage=None, top=99))
    assert [row["error"] is None for row in rows] == [path in good for path in mixed]
    assert "cannot be decoded" in rows[1]["error"]
    assert rows[1] == {**dict.fromkeys(rows[1]), "image": str(bad[0]), "error": rows[1]["error"]}
    assert [row["label"] for row in rows if row["label"]] == model.predict(good).labels
    assert len(rows[0]["top"]) == len(model.classes)


def test_what_cannot_be_asked_is_said(model, shapes):
    for asked, message in (
        ({"coverage": 2}, "coverage"),
        ({"unlike": 0.01}, "only mapping 'gaussian'"),
        ({"top": -1}, "top"),
    ):
        with pytest.raises(ReprogramError, match=message):
            next(predict_paths(model, shapes, **asked))


def test_many_images_decide_by_the_first_of_them(tmp_path):
    """So that a run that is continued prepares the model as it did before."""
    for count, workers in ((3, False), (255, False), (256, True), (5000, True)):
        found = Prepared(meant_images(map(str, range(count))), 224)
        assert bool(found.workers) == workers
        assert found.passes == min(count, 256)
        assert [image.path for image in found.images] == list(map(str, range(count)))


def test_nothing_holds_more_images_than_a_few_batches(model, tmp_path):
    """The paths come from a generator, which notices how far it was asked ahead."""
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    taken = 0

    def words():
        nonlocal taken
        while True:
            taken += 1
            yield str(tmp_path / "x.png")

    rows = predict_paths(model, words(), batch_size=8, workers=0)
    for _ in range(8):
        next(rows)
    rows.close()
    first = 2**22 // model.program.canvas**2 + 1
    assert first <= taken <= first + 8 * 4
