"""The statistics of sparse vectors, against those of the same vectors written out."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.statistics.answers import TopK
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.top_k import WEIGHTINGS, TopKGaussianStatistics, logit_vectors

fast = settings(deadline=None, derandomize=True, max_examples=30)


def drawn(seed, n, width, k_source, k_target):
    generator = torch.Generator().manual_seed(seed)
    indices = torch.rand(n, k_source, generator=generator).argsort(1)[:, :width]
    indices[torch.rand(n, width, generator=generator) < 0.2] = -1
    scores = torch.rand(n, width, generator=generator, dtype=torch.float64)
    return indices, scores, torch.randint(0, k_target, (n,), generator=generator)


def written_out(indices, scores, k_source, top_k, weighting):
    """Each vector by a loop."""
    found = torch.zeros(len(indices), k_source, dtype=torch.float64)
    for row in range(len(indices)):
        named = [(score, label) for score, label in zip(scores[row].tolist(), indices[row].tolist(), strict=True)]
        named = sorted([pair for pair in named if pair[1] >= 0], key=lambda pair: -pair[0])[:top_k]
        for place, (score, label) in enumerate(named):
            value = {
                "sqrt": math.sqrt(score),
                "log": max(0.0, 1 - math.log(score) / math.log(1e-3)) if score else 0.0,
                "rank": 1 / math.sqrt(place + 1),
                "presence": 1.0,
            }[weighting]
            found[row, label] = value if score else 0.0
    return found


def same(one, other):
    for name, part in one.named_buffers():
        if name not in ("rounding", "removed"):
            torch.testing.assert_close(part, other.get_buffer(name), rtol=1e-10, atol=1e-10)


@fast
@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 30),
    width=st.integers(1, 4),
    k_source=st.sampled_from([5, 40]),  # the pairs of labels are counted one by one only where they are few
    top_k=st.sampled_from([None, 1, 2]),
    weighting=st.sampled_from(list(WEIGHTINGS)),
    weighted=st.booleans(),
)
def test_counting_answers_is_counting_their_vectors_in_any_pieces(seed, n, width, k_source, top_k, weighting, weighted):
    indices, scores, targets = drawn(seed, n, width, k_source, 3)
    weights = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.1 if weighted else None
    vectors = written_out(indices, scores, k_source, top_k, weighting)
    expected = GaussianStatistics(k_source, 3).update(vectors, targets, weights)
    empty = TopKGaussianStatistics(k_source, 3, top_k=top_k, weighting=weighting)
    whole = empty.copy().update_top_k(indices, scores, targets, weights)
    same(whole, expected)
    cut = n // 2
    parts = [
        empty.copy().update_top_k(indices[part], scores[part], targets[part], None if weights is None else weights[part])
        for part in (slice(cut), slice(cut, None))
    ]
    same(parts[0].copy().merge(parts[1]), expected)
    same(whole.copy().subtract(parts[1]), parts[0])


@fast
@given(seed=st.integers(0, 9999), top_k=st.sampled_from([None, 1, 3, 99]), weighting=st.sampled_from(list(WEIGHTINGS)))
def test_full_logits_count_as_the_answers_that_their_softmax_gives(seed, top_k, weighting):
    generator = torch.Generator().manual_seed(seed)
    logits, targets = 3 * torch.randn(12, 6, generator=generator), torch.arange(12) % 3
    scores, indices = logits.double().softmax(1).topk(min(top_k or 6, 6), dim=1)
    found = TopKGaussianStatistics(6, 3, top_k=top_k, weighting=weighting).update(logits, targets)
    same(found, TopKGaussianStatistics(6, 3, weighting=weighting).update_top_k(indices, scores, targets))
    vectors = logit_vectors(logits.double(), top_k, weighting)
    torch.testing.assert_close(vectors, written_out(indices, scores, 6, None, weighting))


@pytest.mark.parametrize("weighting", ["sqrt", "log"])
def test_vectors_of_logits_have_gradients_also_where_a_probability_is_nothing(weighting):
    logits = torch.tensor([[4.0, 3.0, -3e38, 1.0]], requires_grad=True)
    logit_vectors(logits, 3, weighting).sum().backward()
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 0] != 0
    assert logits.grad[0, 2] == 0


def test_source_labels_may_come_in_between():
    indices, scores, targets = drawn(0, 20, 3, 6, 2)
    places = [None, 3, 1, None, 0, 5, 2, 4]
    old = TopKGaussianStatistics(6, 2).update_top_k(indices, scores, targets)
    moved = torch.tensor([places.index(label) for label in range(6)] + [-1])[indices]
    same(old.with_sources(places), TopKGaussianStatistics(8, 2).update_top_k(moved, scores, targets))
    with pytest.raises(ReprogramError, match="source labels cannot change"):
        GaussianStatistics(6, 2).with_sources(places)


def test_statistics_of_another_form_are_not_added():
    with pytest.raises(ReprogramError, match="must be alike"):
        TopKGaussianStatistics(3, 2).merge(TopKGaussianStatistics(3, 2, weighting="rank"))
    with pytest.raises(ReprogramError, match="weighting 'root' is not known"):
        TopKGaussianStatistics(3, 2, weighting="root")
    with pytest.raises(ReprogramError, match=r"choose gaussian\+"):
        GaussianStatistics(3, 2).update_top_k(torch.tensor([[0]]), None, torch.tensor([0]))
    assert TopK.of(torch.tensor([[0]]), None, 3).shape == (1, 3)
