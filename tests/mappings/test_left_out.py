"""Left-out scores against mappings that were really estimated without the sample, or without its fold."""

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from reprogram.errors import ReprogramError
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.making import make_mapping
from reprogram.statistics.answers import TopK

SOURCES, CLASSES = [f"source {i}" for i in range(7)], ["a", "b", "c"]


def samples(seed=0, n=30):
    rng = default_rng(seed)
    targets = torch.from_numpy(rng.integers(0, 3, n))
    return torch.from_numpy(rng.normal(size=(n, 7))).float() + 2 * torch.eye(7)[targets], targets


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gaussian", {}),
        ("gaussian+", {"top_k": 3}),
        ("gaussian", {"shrinkage": 0.3, "priors": True}),
        ("blm", {"smoothing": 0.5}),
        ("blm+", {"top_ratio": 1.0}),
        ("blm+", {"top_k": 5, "normalize": "centre"}),
    ],
)
def test_each_sample_is_scored_by_the_mapping_without_it(name, settings):
    logits, targets = samples()
    found = torch.cat(
        [scores for scores, _ in LeftOut(make_mapping(name, SOURCES, CLASSES, **settings))((logits, targets), 8)]
    )
    for index in range(len(targets)):
        others = torch.arange(len(targets)) != index
        mapping = make_mapping(name, SOURCES, CLASSES, **settings)
        mapping.estimate(mapping.count(logits[others], targets[others]))
        torch.testing.assert_close(
            found[index : index + 1].float(), mapping(logits[index : index + 1]), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    ("name", "settings"),
    [("gaussian", {}), ("blm", {}), ("blm+", {"top_k": 5}), ("blm", {"normalize": "centre"}), ("ilm", {})],
)
def test_what_was_counted_before_spares_a_pass_where_a_formula_needs_no_more(name, settings):
    logits, targets = samples(2)
    mapping = make_mapping(name, SOURCES, CLASSES, **settings)
    passes = []

    def blocks():
        passes.append(1)
        yield logits[:20], targets[:20]
        yield logits[20:], targets[20:]

    plain = torch.cat([scores for scores, _ in LeftOut(mapping)((logits, targets))])
    counted = mapping.count(logits, targets)
    spared = torch.cat([scores for scores, _ in LeftOut(mapping)(blocks, statistics=counted)])
    torch.testing.assert_close(spared, plain)
    assert len(passes) == (2 if name == "ilm" or settings.get("normalize") else 1)


@pytest.mark.parametrize("name", ["flm", "ilm"])
def test_a_family_without_a_formula_is_scored_on_folds(name):
    logits, targets = samples(1)
    left_out = LeftOut(make_mapping(name, SOURCES, CLASSES))
    found = torch.cat([scores for scores, _ in left_out((logits, targets), 8)])
    assert left_out.how == "5 folds"
    places = torch.tensor([int((targets[:i] == targets[i]).sum()) % 5 for i in range(len(targets))])
    for fold in range(5):
        mapping = make_mapping(name, SOURCES, CLASSES)
        mapping.estimate(mapping.count(logits[places != fold], targets[places != fold]))
        torch.testing.assert_close(found[places == fold].float(), mapping(logits[places == fold]))


@pytest.mark.parametrize("name", ["linear", "rlm"])
def test_what_is_not_estimated_cannot_leave_a_sample_out(name):
    with pytest.raises(ReprogramError, match="no sample can be left out"):
        LeftOut(make_mapping(name, SOURCES, CLASSES))


def test_groups_of_answers_are_left_out_together_also_where_an_answer_says_nothing():
    rng = default_rng(3)
    indices = torch.from_numpy(rng.permuted(np.tile(np.arange(7), (24, 1)), axis=1)[:, :3].copy())
    indices[1] = -1
    scores = torch.tensor([0.5, 0.3, 0.1], dtype=torch.float64).expand(24, 3)
    targets, groups = torch.arange(24) % 3, torch.arange(24) // 4
    answers = TopK.of(indices, scores, 7)
    (found,) = (scores for scores, _ in LeftOut(make_mapping("gaussian+", SOURCES, CLASSES))((answers, targets, groups)))
    for row in range(24):
        others = groups != groups[row]
        mapping = make_mapping("gaussian+", SOURCES, CLASSES)
        counted = mapping.new_statistics()
        counted.update_top_k(indices[others], scores[others], targets[others])
        mapping.estimate(counted)
        said = mapping.predict_answers(indices[row : row + 1], scores[row : row + 1]).probabilities
        torch.testing.assert_close(found[row].softmax(0), said[0].double(), rtol=1e-3, atol=1e-4)
