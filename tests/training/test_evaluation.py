from dataclasses import replace

import pytest
import torch

from reprogram import ReprogramError, evaluate
from reprogram.data.dataset import ArraySplit, FileSplit
from reprogram.data.decode import Decoding
from reprogram.errors import NonFiniteError
from reprogram.training.evaluation import Evaluation, source_features
from sides import CLASSES, build, small_data


def evaluation(labels, predicted, confidence):
    return Evaluation(torch.tensor(labels), torch.tensor(predicted), torch.tensor(confidence), ("a", "b", "c"))


def test_the_coverage_of_sets_counts_groups_as_the_accuracy_does():
    right = torch.tensor([True] * 10 + [False] * 5 + [True] * 5)
    outcome = replace(
        evaluation([0] * 20, (~right).long().tolist(), [0.5] * 20), groups=tuple("aaaaabbbbbcccccddddd"), covered=right
    )
    assert outcome.coverage == outcome.score
    assert outcome.coverage.groups == 4
    assert replace(outcome, groups=None).coverage.interval != outcome.coverage.interval
    assert replace(outcome, covered=None).coverage is None


def test_accuracy_per_class_counts_absent_classes_too():
    outcome = evaluation([0, 0, 2, 2], [0, 2, 2, 2], [0.9, 0.8, 0.7, 0.6])
    assert (outcome.score.n, outcome.score.correct, outcome.accuracy) == (4, 3, 0.75)
    assert {name: (s.n, s.correct) for name, s in outcome.per_class().items()} == {"a": (2, 1), "b": (0, 0), "c": (2, 2)}


def test_calibration_error_by_hand():
    outcome = evaluation([0, 0, 0, 0], [0, 0, 1, 1], [0.95, 0.95, 0.55, 0.55])
    assert outcome.calibration_error(bins=10) == pytest.approx(0.5 * 0.05 + 0.5 * 0.55, abs=1e-6)
    assert evaluation([0], [0], [1.0]).calibration_error() == 0


def test_a_split_is_classified_as_the_model_does():
    model, data = build("rlm"), small_data()
    outcome = evaluate(model, data.test, batch_size=7)
    with torch.no_grad():
        logits = model(data.test.pixels(12))
    assert torch.equal(outcome.predicted, logits.argmax(1))
    torch.testing.assert_close(outcome.confidence, logits.softmax(1).max(1).values)
    assert torch.equal(outcome.labels, data.test.labels)
    assert outcome.names == tuple(data.test.names)
    assert outcome.accuracy == float((logits.argmax(1) == data.test.labels).double().mean())


def test_a_split_with_other_classes_is_refused():
    """A label is a number: without this check, classes in another order give some accuracy without a word."""
    model, data = build("rlm"), small_data()
    strange = ArraySplit(data.test.images, data.test.labels)
    for classes, words in (
        (CLASSES[::-1], "the images have the classes none, right, left, but the model has left, right, none"),
        (("left", "right"), "the images have the classes left, right, but"),
        ([f"class {i}" for i in range(9)], r"class 0, class 1, class 2, class 3 \.\.\. \(9 in all\), but"),
    ):
        with pytest.raises(ReprogramError, match=words):
            evaluate(model, strange, classes=tuple(classes))
        strange.classes = tuple(classes)  # as for the splits of a data set
        with pytest.raises(ReprogramError, match=words):
            evaluate(model, strange)
        strange.classes = None
    assert evaluate(model, strange, classes=CLASSES).accuracy == evaluate(model, data.test).accuracy
    with pytest.raises(ReprogramError, match="labels up to 3, but the model has 3 classes"):
        evaluate(model, ArraySplit(data.test.images, data.test.labels + 1))


def test_bad_images_are_left_out_on_demand_and_said(shapes, tmp_path):
    paths = sorted((shapes / "test" / "disc").iterdir())[:4]
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"")
    split = FileSplit([*paths[:2], bad, *paths[2:]], [0, 1, 2, 0, 1])
    with pytest.raises(ReprogramError, match=r"bad\.png"):
        evaluate(build("rlm"), split, decoding=Decoding(cache=False))
    outcome = evaluate(build("rlm"), split, decoding=Decoding(cache=False, skip_bad=True))
    assert outcome.labels.tolist() == [0, 1, 0, 1]
    assert len(outcome.names) == 4
    assert len(outcome.skipped) == 1
    assert "bad.png" in outcome.skipped[0]


def test_features_come_in_batches_with_their_labels():
    model, data = build("rlm"), small_data()
    batches = list(source_features(model, data.train, batch_size=25))
    assert [len(values) for values, _ in batches] == [25, 25, 10]
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([v for v, _ in batches]), model.source_logits(data.train.pixels(12)))
    assert torch.equal(torch.cat([labels for _, labels in batches]), data.train.labels)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_not_evaluated(bad):
    model, data = build("blm"), small_data()
    with torch.no_grad():
        model.mapping.omega[0, 1] = bad
    with pytest.raises(NonFiniteError, match=r"the scores of 30 of 30 images are NaN or infinite"):
        evaluate(model, data.test)
    with pytest.raises(NonFiniteError, match=r"the scores of 30 of 30 samples are NaN or infinite"):
        model.predict(data.test.images)
