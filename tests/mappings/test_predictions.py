"""What a mapping says about samples, and which source labels made it say so."""

import numpy as np
import pytest
import torch

from one_to_one import SOURCE
from reprogram.errors import ReprogramError
from reprogram.mappings.making import make_mapping
from reprogram.mappings.predictions import Contribution, Predictions, strongest_contributions

CLASSES = ["cat", "dog", "owl"]


def drawn(n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(n) % 3
    return torch.randn(n, 12, generator=generator) + 4 * torch.eye(12)[targets], targets


@pytest.fixture(params=["blm", "gaussian"])
def mapping(request):
    settings = {"normalize": "standardise"} if request.param == "blm" else {}
    made = make_mapping(request.param, SOURCE, CLASSES, **settings)
    made.estimate(made.count(*drawn()))
    return made


def test_the_most_probable_class_wins_and_of_equals_the_first():
    said = Predictions.of(torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]), CLASSES)
    assert (said.labels, said.indices.tolist()) == (["dog", "cat"], [1, 0])
    assert said.confidence.tolist() == pytest.approx([0.5, 0.4])
    assert (said.evidence, said.guessed.tolist(), len(said)) == ([[], []], [False, False], 2)


def test_batches_together_are_the_whole(mapping):
    logits, _ = drawn()
    whole = mapping.predict(logits, evidence=2)
    parts = Predictions.together((mapping.predict(part, evidence=2) for part in logits.split(7)), 3)
    assert (parts.labels, len(parts)) == (whole.labels, 60)
    assert [[c.source for c in row] for row in parts.evidence] == [[c.source for c in row] for row in whole.evidence]
    torch.testing.assert_close(parts.probabilities, whole.probabilities)
    nothing = Predictions.together([], 3)
    assert (len(nothing), nothing.labels, nothing.probabilities.shape) == (0, [], (0, 3))


def test_predictions_are_the_softmax_of_forward(mapping):
    logits, targets = drawn()
    said = mapping.predict(logits)
    torch.testing.assert_close(said.probabilities, mapping(logits).softmax(1))
    assert said.labels == [CLASSES[index] for index in mapping(logits).argmax(1).tolist()]
    assert float((said.indices == targets).float().mean()) > 0.9
    assert mapping.predict(logits, precise=True).probabilities.dtype == torch.float64
    assert all(row == [] for row in said.evidence)


def test_all_contributions_add_up_to_the_logit_of_the_class(mapping):
    logits, _ = drawn()
    affine = mapping.affine.to(torch.float64)
    scores = affine(logits)
    said = mapping.predict(logits, evidence=np.int64(99), precise=True)
    for row, (index, contributions) in enumerate(zip(said.indices.tolist(), said.evidence, strict=True)):
        assert len(contributions) == int((affine.omega[:, index] != 0).sum())
        sizes = [abs(contribution.product) for contribution in contributions]
        assert sizes == sorted(sizes, reverse=True)
        bias = 0 if affine.bias is None else float(affine.bias[index])
        assert sum(contribution.product for contribution in contributions) == pytest.approx(float(scores[row, index]) - bias)


def test_the_strongest_come_first_whatever_their_sign():
    weights = torch.tensor([[1.0, 0.0], [-3.0, 0.5], [0.1, 2.0]])
    inputs = torch.tensor([[1.0, 1.0, 1.0], [4.0, -1.0, 0.0]])
    found = strongest_contributions(["a", "b", "c"], weights, inputs, torch.tensor([0, 1]), 2)
    assert found == [
        [Contribution("b", -3.0, 1.0), Contribution("a", 1.0, 1.0)],
        [Contribution("b", 0.5, -1.0)],  # what has no weight has decided nothing
    ]
    assert found[0][0].product == -3.0


@pytest.mark.parametrize("evidence", [-1, 1.5, "two", None])
def test_how_much_evidence_must_be_a_whole_number(mapping, evidence):
    with pytest.raises(ReprogramError, match=f"{evidence!r} was given, but a whole number of source labels from 0 on"):
        mapping.predict(drawn()[0], evidence=evidence)


@pytest.mark.parametrize("shape", [(12,), (3, 11), (2, 3, 12)])
def test_logits_of_another_shape_are_refused(mapping, shape):
    with pytest.raises(ReprogramError, match=r"logits have shape .*, but \(N, 12\) is expected"):
        mapping.predict(torch.zeros(shape))


# ---- top-K answers


def test_the_score_of_an_answer_is_its_probabilities_times_omega():
    mapping = make_mapping("blm+", SOURCE, CLASSES, top_k=3)
    mapping.estimate(mapping.count(*drawn()))
    indices = torch.tensor([[0, 5, 1], [2, -1, -1], [7, 0, -1]])
    probabilities = torch.tensor([[0.5, 0.3, 0.1], [0.9, 0.8, 0.7], [0.2, 0.1, 0.6]], dtype=torch.float64)
    said = mapping.predict_answers(indices, probabilities)
    omega = mapping.weights.double()
    for row in range(3):
        shares = sum(p * omega[s] for s, p in zip(indices[row], probabilities[row], strict=True) if s >= 0)
        torch.testing.assert_close(said.probabilities[row], shares / shares.sum())
    assert said.labels == [CLASSES[i] for i in said.probabilities.argmax(1).tolist()]
    assert not said.guessed.any()


def test_where_an_answer_says_nothing_the_most_frequent_class_is_taken_and_said():
    mapping = make_mapping("blm", SOURCE, CLASSES)
    mapping.estimate(mapping.count(9 * torch.eye(12)[[0, 1, 1, 2]], torch.tensor([0, 1, 1, 2])))
    indices, probabilities = torch.tensor([[7, -1], [-1, -1], [2, 7]]), torch.full((3, 2), 0.5)
    said = mapping.predict_answers(indices, probabilities)
    assert (said.labels, said.guessed.tolist()) == (["dog", "dog", "owl"], [True, True, False])
    assert said.probabilities[0].tolist() == pytest.approx([0.25, 0.5, 0.25])
    other = mapping.predict_answers(indices, probabilities, torch.tensor([5, 1, 4]))
    assert other.labels == ["cat", "cat", "owl"]


@pytest.mark.parametrize(("name", "settings"), [("gaussian", {}), ("blm", {"normalize": "centre"}), ("linear", {})])
def test_mappings_that_need_all_logits_refuse_answers(name, settings):
    mapping = make_mapping(name, SOURCE, CLASSES, **settings)
    assert not mapping.takes_answers
    with pytest.raises(ReprogramError, match=f"mapping '{name}' needs all logits, but top-K answers were given"):
        mapping.predict_answers(torch.tensor([[0]]), torch.tensor([[1.0]]))
