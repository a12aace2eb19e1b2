"""Every judgement against a mapping that was really estimated without the row, and without those that were set aside."""

import math

import pytest
import torch
from numpy.random import default_rng

from reprogram.answers.labels import Rows
from reprogram.audit.certainty import fitted_certainty
from reprogram.audit.judging import BY_TRAIN, LEFT_OUT, SET_ASIDE, UNJUDGED, judge
from reprogram.audit.material import Material, from_arrays
from reprogram.audit.report import ordered
from reprogram.audit.views import OfAnswers, OfLogits
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.making import make_mapping

SOURCES, CLASSES = [f"source {i}" for i in range(7)], ("a", "b", "c")


def rows(n=60, seed=0, errors=4):
    """Logits with three clear classes, some labels wrong, the last ten rows of test."""
    draw = default_rng(seed)
    truth = draw.permutation(n) % 3
    logits = torch.from_numpy(draw.normal(size=(n, 7))).float() + 4 * torch.eye(7)[truth]
    labels = truth.copy()
    labels[:errors] = (labels[:errors] + 1) % 3
    return from_arrays(logits, labels, classes=CLASSES, splits=["train"] * (n - 10) + ["test"] * 10), logits


def folds_of(kept, labels):
    """The number of each kept row among those of its class, modulo 5."""
    return torch.tensor([int((kept[:row] & (labels[:row] == labels[row])).sum()) % 5 for row in range(len(labels))])


@pytest.mark.parametrize(
    ("name", "options"),
    [("gaussian", {}), ("gaussian+", {"top_k": 3}), ("blm+", {"top_k": 3}), ("flm", {}), ("blm", {"normalize": "centre"})],
)
def test_each_label_is_judged_by_a_mapping_that_does_not_know_it(name, options):
    material, logits = rows()
    view = OfLogits(make_mapping(name, SOURCES, CLASSES, **options))
    found = judge(material, view)
    kept = found.how == LEFT_OUT
    train = material.splits == 0
    assert bool((found.how[~train] == BY_TRAIN).all())
    first = judge(material, OfLogits(make_mapping(name, SOURCES, CLASSES, **options)), rounds=1)
    leads = first.lead.masked_fill(~train, -torch.inf)
    worst = leads.argsort(descending=True)[: int((leads > 0).sum()) // 2].tolist()
    assert len(worst) >= 2
    assert set((found.how == SET_ASIDE).nonzero().flatten().tolist()) == set(worst)
    folds = folds_of(kept, material.labels)
    for row in range(len(material)):
        others = kept.clone()
        if kept[row]:
            others[row] = False
            if name == "flm":  # on folds
                others &= folds != folds[row]
        mapping = make_mapping(name, SOURCES, CLASSES, **options)
        mapping.estimate(mapping.count(logits[others], material.labels[others]))
        scores = mapping(logits[row : row + 1]).double()
        said = found.certainty.probabilities(scores)[0]
        assert float(said[material.labels[row]].log()) == pytest.approx(float(found.log_given[row]), rel=1e-3, abs=2e-3)
        assert float(said.max()) == pytest.approx(float(found.sure[row]), rel=1e-3, abs=1e-3)
        others_best = max(float(said[label]) for label in range(3) if label != material.labels[row])
        assert math.exp(float(found.lead[row])) == pytest.approx(others_best / float(said[material.labels[row]]), rel=2e-2)


@pytest.mark.parametrize(
    ("name", "options"), [("blm", {}), ("blm+", {"top_k": 2}), ("blm+", {"smoothing": 0.1, "top_k": 3}), ("ilm", {})]
)
def test_answers_are_judged_by_a_mapping_that_does_not_know_them(name, options):
    draw = default_rng(3)
    labels = torch.from_numpy(draw.permutation(40) % 3)
    scores, indices = (torch.from_numpy(draw.normal(size=(40, 7))) + 3 * torch.eye(7)[labels]).softmax(1).topk(3, dim=1)
    indices[::5, 2] = -1
    labels[:2] = (labels[:2] + 1) % 3
    nothing = torch.zeros(40, dtype=torch.int64)
    whole = Rows(labels, None, indices, scores, nothing.bool(), nothing, nothing)
    halves = [whole.where(torch.arange(40) < 20), whole.where(torch.arange(40) >= 20)]
    material = Material(lambda: iter(halves), labels, list(map(str, range(40))), nothing, CLASSES, SOURCES, answers=3)
    view = OfAnswers(make_mapping(name, SOURCES, CLASSES, **options))
    found = judge(material, view)
    kept = found.how == LEFT_OUT
    folds = folds_of(kept, labels)
    for row in range(40):
        others = kept.clone()
        if kept[row]:
            others[row] = False
            if view.how == "5 folds":
                others &= folds != folds[row]
        mapping = make_mapping(name, SOURCES, CLASSES, **options)
        mapping.estimate(mapping.new_statistics().update_top_k(indices[others], scores[others], labels[others]))
        shares = mapping.predict_answers(indices[row : row + 1], scores[row : row + 1]).probabilities
        said = found.certainty.probabilities(shares.clamp_min(1e-6).log())[0]
        assert float(said[labels[row]]) == pytest.approx(float(found.log_given[row].exp()), abs=2e-3)
    assert view.how == ("5 folds" if name == "ilm" else "leave-one-out")


def test_planted_errors_come_first_and_a_second_round_finds_no_fewer():
    material, _ = rows(n=160, seed=5, errors=20)
    places = []
    for rounds in (1, 2):
        found = judge(material, OfLogits(make_mapping("gaussian", SOURCES, CLASSES)), rounds=rounds)
        order = ordered(found, torch.ones(160, dtype=torch.bool))
        places.append(len(set(order[:20].tolist()) & set(range(20))))
    assert places[1] >= places[0] >= 15


def test_reasons_add_up_to_what_speaks_for_the_suggested_class():
    material, logits = rows()
    view = OfLogits(make_mapping("gaussian", SOURCES, CLASSES))
    found = judge(material, view)
    weights, centre = view.mapping.weights, view.mapping.shift
    for row in range(4):
        amounts = (weights[:, found.suggested[row]] - weights[:, material.labels[row]]) * (logits[row] - centre)
        expected = amounts.sort(descending=True).indices[:3]
        assert found.reasons[row, :3].tolist() == expected.where(amounts[expected] > 0, -1).tolist()
        torch.testing.assert_close(found.amounts[row, :3], amounts[expected].clamp_min(0), rtol=1e-4, atol=1e-5)
        assert bool((found.amounts[row, 3:] <= 0).all())


def test_the_only_example_of_a_class_is_not_judged_and_comes_last():
    material, logits = rows(errors=0)
    labels = material.labels.clone()
    labels[5] = 3
    alone = from_arrays(logits, labels.numpy(), classes=[*CLASSES, "d"])
    found = judge(alone, OfLogits(make_mapping("gaussian", SOURCES, alone.classes)))
    assert found.how.tolist().count(UNJUDGED) == 1
    assert int(found.how[5]) == UNJUDGED
    assert float(found.wrong[5]) == 0
    assert int(ordered(found, torch.ones(60, dtype=torch.bool))[-1]) == 5


def test_the_shrinkage_is_that_under_which_the_labels_are_most_likely():
    material, logits = rows(n=120, seed=7, errors=20)
    view = OfLogits(make_mapping("gaussian", SOURCES, CLASSES), tuned=True)
    judge(material, view)
    train = material.splits == 0
    found = {}
    for shrinkage in ("oas", 0.1, 0.3, 0.6):
        left_out = LeftOut(make_mapping("gaussian", SOURCES, CLASSES, shrinkage=shrinkage))
        scores = torch.cat([part for part, _ in left_out((logits[train], material.labels[train]))])
        certainty = fitted_certainty(scores, material.labels[train])
        p = certainty.log_probability(scores, material.labels[train]).exp()
        found[shrinkage] = float(((1 - certainty.noise) * p + certainty.noise * (1 - p) / 2).log().mean())
        assert certainty.likelihood == pytest.approx(found[shrinkage], abs=1e-3)
    assert view.mapping.settings.shrinkage == max(found, key=found.get)


def test_never_more_than_half_of_a_class_is_set_aside():
    material, logits = rows(n=90, errors=0)
    labels = material.labels.clone()
    labels[labels == 0] = torch.tensor([0, 1])[torch.arange(int((labels == 0).sum())) % 2]  # half of a class renamed
    mixed = from_arrays(logits, labels.numpy(), classes=CLASSES)
    found = judge(mixed, OfLogits(make_mapping("gaussian", SOURCES, CLASSES)))
    for label in range(3):
        own = labels == label
        assert int((found.how[own] == SET_ASIDE).sum()) <= int(own.sum()) // 2
