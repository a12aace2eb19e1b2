"""The learning curve against mappings that were really estimated from each part."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from reprogram.mappings import learning_curve
from reprogram.mappings.learning_curve import LogitLearner, measure, narrow_gaussian, weighted_accuracy
from reprogram.mappings.making import make_mapping
from reprogram.mappings.selection import leads


def samples(seed=0, n=60, k_source=7, k_target=3):
    rng = default_rng(seed)
    targets = torch.from_numpy(rng.integers(0, k_target, n))
    return torch.from_numpy(rng.normal(size=(n, k_source))).float() + 2 * torch.eye(k_source)[targets], targets


def mapping_of(name="gaussian", k_source=7, k_target=3, **options):
    return make_mapping(name, [f"source {i}" for i in range(k_source)], [f"class {i}" for i in range(k_target)], **options)


class Watched(LogitLearner):
    """A learner that writes down what it was asked."""

    def start(self):
        super().start()
        self.known = torch.zeros(0, dtype=torch.int64)
        self.asked = getattr(self, "asked", [])

    def learn(self, rows):
        super().learn(rows)
        self.known = torch.cat([self.known, rows])

    def right(self, rows):
        found = super().right(rows)
        self.asked.append((self.known.sort().values, rows, found))
        return found


@pytest.mark.filterwarnings("ignore::reprogram.errors.EvidenceWarning")  # of few samples, flm may find none for a class
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 999),
    name=st.sampled_from(["gaussian", "blm", "blm+", "flm"]),
    k_source=st.sampled_from([7, 40]),  # more logits than samples in a part, too
)
def test_a_part_that_grew_by_updates_scores_as_one_that_is_fitted_anew(seed, name, k_source):
    logits, targets = samples(seed, k_source=k_source)
    learner = Watched(mapping_of(name, k_source), logits, targets)
    measure(learner, seed=seed, draws=2)
    sizes = [len(known) for known, *_ in learner.asked]
    assert len(set(sizes)) > 2
    for known, rows, found in learner.asked:
        assert not set(known.tolist()) & set(rows.tolist())  # nobody is scored by what knows him
        anew = mapping_of(name, k_source)
        anew.estimate(anew.count(logits[known], targets[known]))
        expected = leads(anew(logits[rows]).double(), targets[rows])
        assert int((expected != found).sum()) <= len(rows) // 50  # a tie by rounding


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    n=st.integers(2, 30),
    shrinkage=st.sampled_from(["oas", 0.2, 1.0]),
    priors=st.booleans(),
    offset=st.sampled_from([0.0, 50.0]),
)
def test_the_gaussian_mapping_in_the_span_of_its_samples_is_the_same(seed, n, shrinkage, priors, offset):
    logits, targets = samples(seed, n=n, k_source=40)
    logits = logits + offset
    mapping = mapping_of(k_source=40, shrinkage=shrinkage, priors=priors)
    narrow = narrow_gaussian(mapping, logits, targets)
    with learning_curve.ignore_evidence_warnings():
        mapping.estimate(mapping.count(logits, targets))
    others, _ = samples(seed + 1, k_source=40)
    assert narrow is not None
    torch.testing.assert_close(narrow(others.double() + offset).float(), mapping(others + offset), rtol=2e-3, atol=2e-3)


def test_a_large_common_offset_is_left_to_the_whole_covariance():
    logits, targets = samples(n=10, k_source=40)
    logits[:, 0] = 3e38
    assert narrow_gaussian(mapping_of(k_source=40), logits, targets) is None
    curve = measure(LogitLearner(mapping_of(k_source=40), logits, targets), draws=2)
    assert curve[-1].tests.sum() > 0


def test_parts_are_nested_and_hold_the_same_share_of_every_class():
    logits, targets = samples(n=120)
    learner = Watched(mapping_of(), logits, targets)
    curve = measure(learner, draws=1)
    counts = torch.bincount(targets)
    parts = [known for known, *_ in learner.asked[: len(curve) - 1]]
    for small, large in itertools.pairwise(parts):
        assert set(small.tolist()) < set(large.tolist())
    for known, part in zip(parts, curve, strict=False):
        found = torch.bincount(targets[known], minlength=3)
        assert (found - counts * part.share).abs().max() <= 0.5
        assert part.size == len(known)


def test_the_whole_is_measured_by_leave_one_out_with_many_samples_and_on_balanced_folds_with_few():
    logits, targets = samples(n=150)
    assert measure(LogitLearner(mapping_of(), logits, targets), draws=1)[-1].how == "leave-one-out"
    few = torch.arange(24) % 3
    learner = Watched(mapping_of(), torch.eye(7)[few] + samples(n=24)[0] / 9, few)
    last = measure(learner, draws=1)[-1]
    assert last.how == "8 folds"
    assert last.size == 21
    assert last.tests.tolist() == [1.0] * 24


@pytest.mark.parametrize("name", ["flm", "ilm"])
def test_a_mapping_without_a_formula_is_measured_on_folds(name):
    assert measure(LogitLearner(mapping_of(name), *samples(n=150)), draws=1)[-1].how == "10 folds"


def test_the_mapping_that_was_given_is_not_changed():
    mapping = mapping_of()
    before = mapping.weights.clone()
    measure(LogitLearner(mapping, *samples()), draws=1)
    assert torch.equal(mapping.weights, before)
    assert mapping.statistics.n == 0


def test_classes_weigh_as_many_samples_as_they_have_however_many_were_tested():
    targets = torch.tensor([0, 0, 0, 1])
    tests = torch.tensor([1.0, 0, 0, 1])
    assert weighted_accuracy(torch.tensor([1.0, 0, 0, 0]), tests, targets, 2) == pytest.approx(0.75)


def test_of_many_samples_enough_are_measured_on_in_every_class(monkeypatch):
    monkeypatch.setattr(learning_curve, "_MOST_TESTED", 60)
    logits, targets = samples(n=400)
    curve = measure(LogitLearner(mapping_of(), logits, targets), draws=1)
    assert all(50 <= part.tests.sum() <= 70 for part in curve[:-1])
