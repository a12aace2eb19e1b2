"""Choosing a mapping from logits: the table, the choice, how sure it is, and that blocks do not matter."""

import json

import numpy as np
import pytest
import torch
from pydantic import Field

from reprogram.errors import ReprogramError
from reprogram.mappings.assignment import one_to_one
from reprogram.mappings.bootstrap import Bootstrap
from reprogram.mappings.gaussians import gaussian
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import MAPPINGS, register_mapping
from reprogram.mappings.scorers import Scorer
from reprogram.mappings.selection import _conclude, _Judged, select
from reprogram.mappings.settings import MappingSettings, TopKBayesSettings, tried
from reprogram.registry import imported
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics


def drawn(seed=0, n=120, k_source=12, k_target=4, noise=2.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k_target, n)
    means = 2 * rng.normal(size=(k_target, k_source))
    logits = means[labels] + noise * rng.normal(size=(n, k_source)) + 5 * rng.normal(size=k_source)
    return torch.tensor(logits, dtype=torch.float32), torch.tensor(labels)


def test_every_candidate_is_judged_once_and_the_best_comes_first():
    selection = select(drawn(), 4)
    names = [str(row.candidate) for row in selection.table]
    assert len(set(names)) == len(names)
    assert {row.candidate.mapping for row in selection.table} == {"flm", "blm", "blm+", "gaussian", "gaussian+"}
    scores = [row.score.accuracy for row in selection.table]
    assert scores == sorted(scores, reverse=True)
    assert selection.choice == selection.table[0].candidate
    assert selection.runner_up.candidate.mapping != selection.choice.mapping
    assert selection.lead[1] <= selection.lead[0] <= selection.lead[2]
    assert json.loads(json.dumps(selection.to_json()))["choice"]["mapping"] == selection.choice.mapping


def test_ratios_of_equal_k_are_tried_once():
    tried = select(drawn(), 4, methods=["blm+"]).table  # K = 1, 1, 1, 2, 4 for four classes
    ratios, smoothings = TopKBayesSettings.grid()["top_ratio"], TopKBayesSettings.grid()["smoothing"]
    assert len(tried) == 3 * len(smoothings) * 3
    assert {row.candidate.settings["top_ratio"] for row in tried} == {ratios[0], ratios[3], ratios[4]}


def test_leave_one_out_accuracy_is_the_brute_force_one():
    logits, targets = drawn(n=40)
    row = next(
        row
        for row in select((logits, targets), 4, methods=["blm"], grid={"smoothing": [1.0]}).table
        if row.candidate.settings["normalize"] == "centre"
    )
    hits = 0
    for left_out in range(40):
        keep = torch.arange(40) != left_out
        mapping = make_mapping("blm", [str(i) for i in range(12)], list("abcd"), normalize="centre")
        mapping.estimate(mapping.new_statistics().update(logits[keep], targets[keep]))
        hits += int(mapping(logits[left_out : left_out + 1]).argmax()) == int(targets[left_out])
    assert row.score.correct == hits


def test_one_to_one_is_judged_on_folds_it_has_not_seen():
    logits, targets = drawn(n=50)
    row = select((logits, targets), 4, methods=["flm"], grid={"normalize": ["none"]}).table[0]
    seen, hits = {}, 0
    folds = []
    for target in targets.tolist():  # a sample's fold is its number within its class
        folds.append(seen.get(target, 0) % 5)
        seen[target] = seen.get(target, 0) + 1
    folds = torch.tensor(folds)
    for fold in range(5):
        omega = one_to_one(JointStatistics.counts(12, 4).update(logits[folds != fold], targets[folds != fold]))
        hits += int(((logits[folds == fold] @ omega).argmax(1) == targets[folds == fold]).sum())
    assert (row.score.correct, row.how) == (hits, "5 folds")


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_the_size_of_the_blocks_does_not_matter(size):
    logits, targets = drawn()
    whole = select((logits, targets), 4)
    passes = []

    def blocks():
        passes.append(1)
        return zip(logits.split(size), targets.split(size), strict=True)

    assert select(blocks, 4).to_json() == whole.to_json()
    assert len(passes) == 2


def test_what_is_obvious_is_certain_and_a_coin_is_not():
    logits, targets = drawn(noise=0.5)
    assert select((logits, targets), 4).table[0].score.accuracy == 1.0
    generator = torch.Generator().manual_seed(1)
    nothing = select((torch.randn(60, 12, generator=generator), torch.randint(0, 2, (60,), generator=generator)), 2)
    assert nothing.certainty < 0.95
    assert nothing.lead[1] <= 0 <= nothing.lead[2]


def test_a_tie_is_not_a_hit():
    """A model that answers every image alike knows nothing, however the rounding of the scores falls."""
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(0)).repeat(40, 1)
    table = select((logits, torch.arange(40) % 4), 4, methods=["blm", "blm+", "gaussian"]).table
    assert {row.score.correct for row in table} == {0}


def test_a_class_is_not_credited_for_being_empty():
    """With its only sample left out, nothing is known of a class: that says nothing about the mapping."""
    logits = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    logits[:, 0] += 5
    single = select((logits, torch.arange(40)), 40)
    assert (single.choice.mapping, single.table[0].score.n) == ("gaussian", 0)
    assert "no class has two samples" in str(single)
    some = select((logits, torch.arange(40).clamp_max(9)), 10)
    assert some.table[0].score.n == 31


def test_nothing_to_choose_from():
    with pytest.raises(ReprogramError, match="nothing to choose from"):
        select(drawn(), 4, methods=["blm"], grid={"smoothing": []})


def test_what_cannot_be_tried_is_said():
    logits, targets = drawn(k_source=3)
    selection = select((logits, targets), 4)
    assert "flm" not in {row.candidate.mapping for row in selection.table}
    assert "flm was not tried: 4 classes do not find a label each among 3" in selection.notes
    with pytest.raises(ReprogramError, match="mapping to select from 'ilm'"):
        select((logits, targets), 4, methods=["ilm"])
    with pytest.raises(ReprogramError, match="1 samples were given, but at least 2"):
        select((logits[:1], targets[:1]), 4)


def test_the_choice_can_be_made_into_a_mapping():
    selection = select(drawn(), 4)
    for row in selection.table:
        assert make_mapping(row.candidate.mapping, [str(i) for i in range(12)], list("abcd"), **row.candidate.settings)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_targets_of_any_integer_type(dtype):
    logits, targets = drawn()
    assert select((logits, targets.to(dtype)), 4).to_json() == select((logits, targets), 4).to_json()


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.zeros(120), "torch.float32 of shape"),
        (torch.zeros(3, dtype=torch.int64), "120 integer labels are expected"),
        (torch.full((120,), 4), "from 4 to 4 were given, but 0 to 3"),
    ],
)
def test_wrong_targets_are_refused(targets, message):
    logits, _ = drawn()
    with pytest.raises(ReprogramError, match=message):
        select(lambda: [(logits, targets)], 4)


def test_settings_that_are_not_tried_by_default_can_be_put_into_the_grid():
    logits, targets = drawn()
    found = select((logits, targets), 4, methods=["gaussian", "blm"], grid={"priors": [False, np.True_], "smoothing": [1]})
    tried = [row.candidate for row in found.table]
    assert {candidate.settings["priors"] for candidate in tried if candidate.mapping == "gaussian"} == {False, True}
    assert {candidate.settings["smoothing"] for candidate in tried if candidate.mapping == "blm"} == {1.0}
    rare = torch.cat([targets[targets == 0], targets[targets == 1][:3]])
    some = torch.cat([logits[targets == 0], logits[targets == 1][:3]]) * 0.1
    by_priors = {
        row.candidate.settings["priors"]: row.score.correct
        for row in select((some, rare), 2, methods=["gaussian"], grid={"priors": [False, True], "shrinkage": [1.0]}).table
    }
    hits = 0
    for i in range(len(rare)):
        others = torch.arange(len(rare)) != i
        counted = GaussianStatistics(12, 2).update(some[others], rare[others])
        omega, mean, bias = gaussian(counted, 1.0, priors=True)
        hits += int(((some[i].double() - mean) @ omega + bias).argmax()) == int(rare[i])
    assert by_priors[True] == hits


def test_a_setting_that_no_scorer_can_vary_is_refused():
    with pytest.raises(ReprogramError, match="setting to try 'smoothin' is not known; did you mean 'smoothing'"):
        select(drawn(), 4, grid={"smoothin": [1]})
    with pytest.raises(ReprogramError, match="setting to try 'refresh' is not known"):
        select(drawn(), 4, grid={"refresh": ["never"]})
    with pytest.raises(ReprogramError, match="smoothing = -1 was given"):
        select(drawn(), 4, grid={"smoothing": [-1]})
    found = select(drawn(), 4, methods=["blm"], grid={"smoothing": [1], "shrinkage": [0.5]})
    assert {row.candidate.settings["smoothing"] for row in found.table} == {1.0}, "what another mapping has does not matter"


def test_a_second_pass_over_other_samples_is_noticed():
    logits, targets = drawn()
    passes = iter([slice(0, 100), slice(0, 90), slice(0, 100), slice(0, 110)])

    def blocks():
        rows = next(passes)
        return [(logits[rows], targets[rows])]

    for _ in range(2):
        with pytest.raises(ReprogramError, match="other samples than the first"):
            select(blocks, 4, methods=["blm"])


def test_among_equals_the_exactly_judged_come_first():
    _, targets = drawn()
    found = select((9 * torch.eye(12)[targets], targets), 4)
    assert found.table[0].how == "leave-one-out"
    assert (
        {row.score.accuracy for row in found.table if row.candidate.mapping == "flm"}
        == {found.table[0].score.accuracy}
        == {1.0}
    )


class NearestMeanSettings(MappingSettings):
    power: float = Field(2.0, json_schema_extra=tried((1.0, 2.0)))


class NearestMeanScorer(Scorer):
    """A family from outside: the nearest class mean, without the sample itself."""

    judges = ("power",)

    def gather(self, logits, targets, folds):
        members = torch.nn.functional.one_hot(targets, self.k_target).double()
        before = getattr(self, "sums", 0), getattr(self, "samples", 0)
        self.sums, self.samples = before[0] + members.T @ logits.double(), before[1] + members.sum(0)

    def scores(self, logits, targets, folds):
        members = torch.nn.functional.one_hot(targets, self.k_target).double()
        left = self.sums - members[:, :, None] * logits.double()[:, None]
        means = left / (self.samples - members).clamp_min(1)[:, :, None]
        for candidate in self.candidates:
            yield -(means - logits[:, None]).abs().pow(candidate.settings["power"]).sum(2)


@pytest.fixture
def nearest_mean(monkeypatch):
    monkeypatch.setattr(MAPPINGS, "_records", dict(MAPPINGS._records))
    register_mapping("nearest", object, NearestMeanSettings, "the nearest mean", scorer=NearestMeanScorer)


def test_a_mapping_of_another_package_is_chosen_by_its_own_scorer(nearest_mean):
    logits, targets = drawn(noise=4.0)
    found = select((logits, targets), 4)
    rows = {row.candidate.settings["power"]: row for row in found.table if row.candidate.mapping == "nearest"}
    hits = 0
    for i in range(120):
        others = torch.arange(120) != i
        means = torch.stack([logits[others & (targets == t)].double().mean(0) for t in range(4)])
        hits += int((means - logits[i]).square().sum(1).argmin()) == int(targets[i])
    assert rows[2.0].score.correct == hits
    alone = select((logits, targets), 4, methods=["nearest"], grid={"power": [3]})
    assert [str(row.candidate) for row in alone.table] == ["nearest (power 3)"]
    assert (alone.certainty, alone.runner_up, alone.lead) == (1.0, None, None)


@pytest.mark.parametrize(
    ("better", "both", "neither", "k_target", "chosen"),
    [
        (1, 30, 9, 4, "gaussian"),  # ahead by chance
        (12, 20, 8, 4, "blm"),  # clearly ahead
        (12, 20, 8, 10, "gaussian"),  # on too few samples of each class
        (0, 20, 20, 4, "gaussian"),  # equal
    ],
)
def test_another_mapping_than_the_trusted_one_is_chosen_only_where_it_is_clearly_ahead(
    better, both, neither, k_target, chosen
):
    """Two candidates, and the samples that only the first, that both and that neither of them gets right."""
    rows = torch.tensor([[True, False]] * better + [[True, True]] * both + [[False, False]] * neither)
    scorers = [
        imported(MAPPINGS[name].scorer)(MAPPINGS[name], 20, k_target, {}, span=None, log_probabilities=False)
        for name in ("blm", "gaussian")
    ]
    judged = _Judged.__new__(_Judged)
    bootstrap = Bootstrap(len(rows), 2)
    bootstrap.add(rows)
    judged.n, judged.correct, judged.how, judged._groups = len(rows), bootstrap.totals.tolist(), "leave-one-out", None
    judged.shares = bootstrap.sums / len(rows)
    found = _conclude(scorers, judged, ())
    assert found.choice.mapping == chosen
    assert found.runner_up.candidate.mapping == {"blm": "gaussian", "gaussian": "blm"}[chosen]
    assert found.lead[0] == pytest.approx((1 if chosen == "blm" else -1) * better / 40)
    assert ("may be chance" in str(found)) == (chosen == "gaussian" and better > 0)
