"""Blocks of whole groups, whatever the stream; the choice of a mapping and left-out scores by groups."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.mappings import grouping
from reprogram.mappings.grouping import Passes, group_hash, group_numbers
from reprogram.mappings.label_mapper import LabelMapperCV
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.making import make_mapping
from reprogram.mappings.scorers import GaussianScorer
from reprogram.mappings.selection import select

SOURCES, CLASSES = [f"source {i}" for i in range(7)], ["a", "b", "c"]


def drawn(seed=0, n=60, count=12):
    """Views of `count` shots of three classes, in a random order."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, count, n)
    centres = rng.normal(size=(count, 7)) + 2 * np.eye(7)[np.arange(count) % 3]
    logits = centres[groups] + 0.1 * rng.normal(size=(n, 7))
    return torch.from_numpy(logits).float(), torch.from_numpy(groups % 3), torch.from_numpy(groups)


def cut(whole, lengths):
    return lambda: zip(*(part.split(lengths) for part in whole), strict=True)


@given(
    seed=st.integers(0, 999),
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=6),
    held=st.sampled_from([1, 30, 10**6]),
    ready=st.sampled_from([1, 20, 10**6]),
)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_the_second_pass_gives_whole_groups_once_in_any_memory(seed, lengths, held, ready):
    whole = drawn(seed, sum(lengths), 6)
    passes = Passes(cut(whole, lengths), 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_HELD", held)
        patch.setattr(grouping, "_READY", ready)
        folds = torch.cat([folds for _, _, folds in passes.first()])
        parts = list(passes.second())
    places = torch.cat([part.places for part in parts])
    assert sorted(places.tolist()) == list(range(sum(lengths)))
    assert torch.equal(torch.cat([part.logits for part in parts]), whole[0][places])
    assert torch.equal(torch.cat([part.folds for part in parts]), folds[places])
    met = [group for part in parts if part.groups is not None for group in part.groups.unique().tolist()]
    assert len(met) == len(set(met))
    assert passes.groups is None or len(met) == passes.groups == len(whole[2].unique())
    order = [(part.places, part.logits, part.targets) for part in parts]
    again = list(passes.in_order(order))
    assert [len(targets) for _, targets in again] == lengths
    assert torch.equal(torch.cat([logits for logits, _ in again]), whole[0])


def test_folds_hold_whole_groups():
    logits, targets, groups = drawn()
    folds = torch.cat([folds for _, _, folds in Passes(cut((logits, targets, groups), 9), 3).first()])
    assert all(len(folds[groups == group].unique()) == 1 for group in groups.unique())
    assert len(folds.unique()) > 2


def test_another_second_pass_is_refused():
    whole = drawn()
    turns = iter([whole, tuple(part.flip(0)[:-1] for part in whole)])
    passes = Passes(lambda: iter([next(turns)]), 3)
    list(passes.first())
    with pytest.raises(ReprogramError, match="other samples"):
        list(passes.second())


@pytest.mark.parametrize("groups", [torch.rand(60), torch.arange(59)])
def test_groups_that_are_none_are_refused(groups):
    logits, targets, _ = drawn()
    with pytest.raises(ReprogramError, match="60 whole numbers"):
        select(lambda: [(logits, targets, groups)], 3)
    with pytest.raises(ReprogramError, match="some blocks have groups"):
        select(lambda: [(logits, targets, targets), (logits, targets)], 3)


def test_group_numbers_and_hashes():
    assert group_numbers(np.array(["x", "y", "x"]), 3).tolist() == [0, 1, 0]
    with pytest.raises(ReprogramError, match="2 groups were given for 3 samples"):
        group_numbers([1, 2], 3)
    assert group_hash(b"a", b"b") != group_hash(b"ab") != group_hash(b"", b"ab")
    assert 0 <= group_hash(b"a") < 2**63


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gaussian", {}),
        ("gaussian", {"shrinkage": 0.3, "priors": True}),
        ("blm", {"smoothing": 0.5, "normalize": "standardise"}),
        ("blm+", {"top_k": 5, "normalize": "centre"}),
    ],
)
def test_each_sample_is_scored_by_the_mapping_without_its_group(name, options):
    logits, targets, groups = drawn(n=40, count=9)
    left_out = LeftOut(make_mapping(name, SOURCES, CLASSES, **options))
    found = torch.cat([scores for scores, _ in left_out((logits, targets, groups), 8)])
    assert left_out.how == "leave-one-group-out"
    for group in groups.unique():
        own = groups == group
        mapping = make_mapping(name, SOURCES, CLASSES, **options)
        mapping.estimate(mapping.count(logits[~own], targets[~own]))
        torch.testing.assert_close(found[own].float(), mapping(logits[own]), rtol=1e-4, atol=1e-4)


def test_groups_of_one_sample_change_nothing():
    logits, targets, _ = drawn(3)
    plain, single = select((logits, targets), 3), select((logits, targets, torch.randperm(60)), 3)
    assert single.to_json() == plain.to_json()
    left_out = LeftOut(make_mapping("gaussian", SOURCES, CLASSES))
    one, two = (
        torch.cat([scores for scores, _ in left_out(block)])
        for block in ((logits, targets), (logits, targets, torch.arange(60)))
    )
    assert torch.equal(one, two)
    assert left_out.how == "leave-one-out"


def test_the_choice_is_not_taken_in_by_views_of_one_shot():
    """Classes at random: who knows other views of a shot is right, who does not is at chance."""
    rng = np.random.default_rng(0)
    shots = rng.normal(size=(30, 7))
    logits = torch.from_numpy(shots.repeat(6, 0) + 0.01 * rng.normal(size=(180, 7)))
    groups = torch.arange(30).repeat_interleave(6)
    targets = torch.from_numpy(rng.integers(0, 3, 30)).repeat_interleave(6)
    order = torch.randperm(180, generator=torch.Generator().manual_seed(0))
    block = logits[order], targets[order], groups[order]
    blind, aware = select(block[:2], 3, methods=["gaussian"]), select(block, 3, methods=["gaussian"])
    assert blind.table[0].score.accuracy > 0.6
    assert aware.table[0].score.accuracy < 0.45
    assert aware.table[0].how == "leave-one-group-out"
    assert aware.table[0].score.groups == 30
    assert aware.table[0].score.effective < 60
    low, high = aware.table[0].score.interval
    assert high - low > 2 * (blind.table[0].score.interval[1] - blind.table[0].score.interval[0])
    everything = select(lambda: zip(*(part.split(50) for part in block), strict=True), 3)
    assert {row.how for row in everything.table} == {"leave-one-group-out", "5 folds"}
    assert "in 30 groups" in str(everything)


def test_a_class_of_one_group_is_not_judged():
    logits, targets, groups = drawn()
    groups = groups.masked_fill(targets == 2, 99)
    found = select((logits, targets, groups), 3, methods=["gaussian"])
    assert found.table[0].score.n == int((targets != 2).sum())
    nothing = select((logits, targets, targets), 3, methods=["gaussian"])
    assert "no class has two groups of samples" in nothing.notes[-1]


def test_a_scorer_that_knows_no_groups_is_judged_on_folds(monkeypatch):
    class Changed(GaussianScorer):
        def scores(self, logits, targets, folds):
            return super().scores(logits, targets, folds)

    monkeypatch.setattr("reprogram.mappings.scorers.GaussianScorer", Changed)
    logits, targets, groups = drawn()
    found = select((logits, targets, groups), 3, methods=["gaussian"])
    assert {row.how for row in found.table} == {"5 folds"}
    assert len(found.table) == 4
    left_out = LeftOut(make_mapping("gaussian", SOURCES, CLASSES))
    list(left_out((logits, targets, groups)))
    assert left_out.how == "5 folds"


def test_label_mapper_cv_takes_groups():
    logits, targets, groups = (part.numpy() for part in drawn(n=120, count=24))
    names = np.array([f"video {group}" for group in groups])
    mapper = LabelMapperCV(methods=("blm", "gaussian")).fit(logits, targets, groups=names)
    assert mapper.selection_.table[0].score.groups == len(set(groups.tolist()))
    with pytest.raises(ReprogramError, match="give one for each"):
        LabelMapperCV().fit(logits, targets, groups=names[:-1])
