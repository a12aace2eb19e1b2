"""The Gaussian mapping on answers: leave-one-out against estimating again, and everything that a mapping can do."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from reprogram import LabelMapper
from reprogram.errors import ReprogramError, ignore_evidence_warnings
from reprogram.mappings.base import Mapping
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.making import make_mapping
from reprogram.mappings.selection import select
from reprogram.statistics.answers import TopK
from reprogram.statistics.gaussian import LARGEST_COVARIANCE
from reprogram.statistics.top_k import WEIGHTINGS, answer_values, logit_vectors

fast = settings(deadline=None, derandomize=True, max_examples=40)
CLASSES = ["ant", "bee", "cow", "dog"]


def drawn(seed, n, width, k_source, twice=False):
    """Answers of which some name nothing, some a label that nobody else names, and some a label twice."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 3, (n,), generator=generator)
    liked = torch.rand(n, k_source, generator=generator) + torch.eye(3, k_source)[targets]
    indices = liked.argsort(1, descending=True)[:, :width]
    if twice:
        indices = torch.randint(0, k_source, (n, width), generator=generator)
    indices[torch.rand(n, width, generator=generator) < 0.2] = -1
    indices[torch.rand(n, generator=generator) < 0.1] = -1
    return TopK.of(indices, torch.rand(n, width, generator=generator, dtype=torch.float64), k_source), targets


def estimated(name, answers, targets, **options):
    mapping = make_mapping(name, [f"s{i}" for i in range(answers.k_source)], CLASSES, **options)
    with ignore_evidence_warnings():
        mapping.estimate(mapping.new_statistics().update_top_k(answers.indices, answers.probabilities, targets))
    return mapping


@fast
@given(
    seed=st.integers(0, 9999),
    n=st.integers(3, 16),
    width=st.integers(1, 4),
    k_source=st.sampled_from([4, 7, 30]),
    twice=st.booleans(),
    case=st.sampled_from(
        [
            ("blm", {}),
            ("blm", {"smoothing": 0.01}),
            ("blm+", {"top_k": 2}),
            ("blm+", {"top_ratio": "all", "smoothing": 10.0}),
            ("gaussian+", {}),
            ("gaussian+", {"weighting": "log", "shrinkage": 0.3, "top_k": 2}),
            ("gaussian+", {"weighting": "rank", "shrinkage": 0.6, "priors": True}),
            ("gaussian+", {"weighting": "presence", "shrinkage": 1.0}),
        ]
    ),
)
def test_leaving_one_answer_out_is_estimating_without_it(seed, n, width, k_source, twice, case):
    answers, targets = drawn(seed, n, width, k_source, twice)
    name, options = case
    left_out = LeftOut(make_mapping(name, [f"s{i}" for i in range(k_source)], CLASSES, **options))
    ((found, _),) = left_out((answers, targets))
    assert left_out.how == "leave-one-out"
    for row in range(n):
        others = torch.arange(n) != row
        said = estimated(name, answers[others], targets[others], **options).predict_answers(
            answers[~others].indices, answers[~others].probabilities
        )
        expected = said.probabilities[0].clamp_min(1e-9)
        torch.testing.assert_close(found[row].softmax(0).clamp_min(1e-9), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["flm", "ilm"])
def test_one_to_one_mappings_are_judged_on_folds_of_answers(name):
    answers, targets = drawn(3, 40, 3, 9)
    left_out = LeftOut(make_mapping(name, [f"s{i}" for i in range(9)], CLASSES))
    ((found, _),) = left_out((answers, targets))
    fold = torch.zeros(40, dtype=torch.int64)
    for label in range(3):
        fold[targets == label] = torch.arange(int((targets == label).sum())) % 5
    for number in range(5):
        inside = fold == number
        said = estimated(name, answers[~inside], targets[~inside]).predict_answers(
            answers[inside].indices, answers[inside].probabilities
        )
        torch.testing.assert_close(found[inside].softmax(1), said.probabilities, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_it_is_the_discriminant_of_the_vectors_and_labels_that_nobody_names_say_nothing(weighting):
    answers, targets = drawn(1, 30, 3, 8)
    wider = TopK(answers.indices, answers.probabilities, 11)
    mapping = estimated("gaussian+", wider, targets, weighting=weighting, shrinkage=0.4)
    assert (mapping.weights[8:] == 0).all()
    vectors = wider.dense(answer_values(wider, weighting)).numpy()
    expected = oracle.gaussian_scores(vectors, targets.numpy(), 3, vectors, 0.4)
    said = mapping.predict_answers(wider.indices, wider.probabilities)
    known = ~said.guessed
    shown = torch.from_numpy(expected).softmax(1)
    found = said.probabilities[:, :3] / said.probabilities[:, :3].sum(1, keepdim=True)
    torch.testing.assert_close(found[known], shown[known], rtol=1e-4, atol=1e-5)
    nothing = (answers.indices < 0).all(1)
    assert nothing.any()
    assert torch.equal(said.guessed, nothing)
    frequencies = torch.bincount(targets, minlength=4) / 30
    torch.testing.assert_close(said.probabilities[nothing][0], frequencies.double(), rtol=1e-6, atol=1e-6)


def test_an_unknown_label_is_guessed_by_frequency_and_a_bare_label_is_enough():
    mapping = make_mapping("gaussian+", ["tabby", "beagle", "sofa", "lamp"], ["cat", "dog"])
    indices = torch.tensor([[0, 2], [0, -1], [1, 2], [1, -1], [1, -1]])
    mapping.estimate(mapping.new_statistics().update_top_k(indices, None, torch.tensor([0, 0, 1, 1, 1])))
    said = mapping.predict_answers(torch.tensor([[0], [1], [3], [-1]]), torch.ones(4, 1))
    assert said.labels == ["cat", "dog", "dog", "dog"]
    assert said.guessed.tolist() == [False, False, True, True]
    assert said.probabilities[2].tolist() == pytest.approx([0.4, 0.6])


@pytest.mark.parametrize(("top_k", "weighting"), [(None, "sqrt"), (3, "log"), (2, "rank")])
def test_full_logits_are_mapped_as_their_answers(top_k, weighting):
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(60) % 4
    logits = torch.randn(60, 9, generator=generator) + 3 * torch.eye(4, 9)[targets]
    mapping = make_mapping("gaussian+", [f"s{i}" for i in range(9)], CLASSES, top_k=top_k, weighting=weighting)
    mapping.estimate(mapping.count(logits, targets))
    scores, indices = logits.double().softmax(1).topk(top_k or 9, dim=1)
    said = mapping.predict(logits, precise=True, evidence=2)
    torch.testing.assert_close(
        said.probabilities, mapping.predict_answers(indices, scores).probabilities, rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(mapping(logits.bfloat16().float()), mapping(logits.bfloat16()))
    reason = said.evidence[0][0]
    place = mapping.source_labels.index(reason.source)
    inputs = mapping.affine.normalised(logit_vectors(logits[:1], top_k, weighting))
    assert reason.logit == pytest.approx(float(inputs[0, place]), abs=1e-5)
    mapper = LabelMapper("gaussian+", top_k=top_k, weighting=weighting).fit(logits.numpy(), targets.numpy())
    np.testing.assert_allclose(mapper.decision_function(logits.numpy()), mapping(logits).numpy(), rtol=1e-3, atol=1e-3)


def test_in_training_it_is_cross_fitted_and_has_a_gradient():
    generator = torch.Generator().manual_seed(1)
    logits, targets = torch.randn(40, 6, generator=generator, requires_grad=True), torch.arange(40) % 4
    mapping = make_mapping("gaussian+", [f"s{i}" for i in range(6)], CLASSES)
    folds = torch.arange(40) % 5
    parts = [mapping.count(logits.detach()[folds == fold], targets[folds == fold]) for fold in range(5)]
    mapping.estimate(*parts)
    found = mapping(logits, folds)
    without = make_mapping("gaussian+", [f"s{i}" for i in range(6)], CLASSES)
    without.estimate(without.count(logits.detach()[folds != 2], targets[folds != 2]))
    torch.testing.assert_close(found[folds == 2], without(logits[folds == 2]), rtol=1e-4, atol=1e-4)
    found.logsumexp(1).sum().backward()
    assert (logits.grad.abs().sum(1) > 0).all()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_weighting_hides_that_a_logit_is_none(weighting, bad):
    mapping = make_mapping("gaussian+", ["a", "b", "c"], CLASSES, weighting=weighting)
    with pytest.raises(ReprogramError, match="NaN or infinite"):
        mapping.predict(torch.tensor([[0.0, bad, 1.0]]))


def test_a_span_of_the_logits_is_no_span_of_the_vectors():
    mapping = make_mapping("gaussian+", ["a", "b", "c"], CLASSES, span=torch.eye(3)[:, :2])
    assert mapping.span is None
    assert mapping.statistics.k_source == 3


def test_saving_classes_and_forgetting(tmp_path):
    answers, targets = drawn(5, 60, 3, 8)
    mapping = estimated("gaussian+", answers, targets, weighting="log", shrinkage=0.6, top_k=2)
    mapping.save(tmp_path / "saved")
    again = Mapping.load(tmp_path / "saved")
    assert again.settings == mapping.settings
    first = mapping.predict_answers(answers.indices, answers.probabilities).probabilities
    assert torch.equal(again.predict_answers(answers.indices, answers.probabilities).probabilities, first)
    some = targets == 1
    gone = mapping.new_statistics().update_top_k(answers.indices[some], answers.probabilities[some], targets[some])
    with ignore_evidence_warnings():
        smaller = again.without_class("bee", gone)
    rest = estimated("gaussian+", answers[~some], targets[~some], weighting="log", shrinkage=0.6, top_k=2)
    torch.testing.assert_close(smaller.weights, rest.weights[:, [0, 2, 3]], rtol=1e-4, atol=1e-4)
    with pytest.raises(ReprogramError, match="needs the samples of class"):
        again.without_class("bee")
    assert len(again.explain(1).classes["ant"]) == 1


def test_auto_judges_answers_and_names_what_it_cannot_judge():
    answers, targets = drawn(7, 120, 3, 12)
    found = select((answers, targets), 4)
    assert {row.candidate.mapping for row in found.table} == {"flm", "blm", "blm+", "gaussian+"}
    assert all(row.candidate.settings.get("normalize", "none") == "none" for row in found.table)
    best = found.table[0]
    mapping = make_mapping(best.candidate.mapping, [f"s{i}" for i in range(12)], CLASSES, **best.candidate.settings)
    ((scores, _),) = LeftOut(mapping)((answers, targets))
    assert int((scores.argmax(1) == targets).sum()) == best.score.correct
    with pytest.raises(ReprogramError, match=r"'gaussian' cannot be judged by top-K answers; .* take gaussian\+"):
        select((answers, targets), 4, methods=["gaussian", "blm"])


def test_auto_leaves_it_out_where_its_covariance_is_too_large():
    answers, targets = drawn(7, 20, 3, 12)
    many = TopK(answers.indices, answers.probabilities, LARGEST_COVARIANCE + 1)
    found = select((many, targets), 4, methods=["blm", "gaussian+"])
    assert found.choice.mapping == "blm"
    assert "gaussian+ was not tried" in found.notes[0]
