"""Honest probabilities, prediction sets and "none of these" against mappings that were really estimated without samples."""

import json
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.mappings import certainty as certainty_module
from reprogram.mappings.base import Mapping
from reprogram.mappings.certainty import JUDGED, Certainty, measure_certainty, mixed
from reprogram.mappings.certainty_folds import FOLDS, FoldMappings, FoldNumbers, passes
from reprogram.mappings.densities import GaussianFit
from reprogram.mappings.label_mapper import LabelMapper
from reprogram.mappings.making import make_mapping
from reprogram.mappings.prediction_sets import misfits, sets_of
from reprogram.mappings.temperature import TemperatureSums
from reprogram.statistics.answers import TopK

SOURCES, CLASSES = [f"source {i}" for i in range(7)], ["a", "b", "c"]


def samples(seed=0, n=60, sharp=2.0):
    rng = np.random.default_rng(seed)
    targets = torch.from_numpy(rng.integers(0, 3, n))
    return torch.from_numpy(rng.normal(size=(n, 7))).float() + sharp * torch.eye(7)[targets], targets


def fitted(name="gaussian", seed=0, n=60, **options):
    logits, targets = samples(seed, n)
    mapping = make_mapping(name, SOURCES, CLASSES, **options)
    mapping.estimate(mapping.count(logits, targets))
    return mapping, logits, targets


@cache
def measured():
    mapping, logits, targets = fitted()
    measure_certainty(mapping, (logits, targets))
    return mapping, logits, targets


@pytest.mark.parametrize(
    ("name", "options"), [("gaussian", {}), ("gaussian", {"priors": True}), ("blm", {}), ("blm+", {"normalize": "centre"})]
)
def test_the_temperature_is_that_of_mappings_estimated_without_each_sample(name, options):
    mapping, logits, targets = fitted(name, **options)
    found = measure_certainty(mapping, (logits, targets), sets=False, block_size=13)
    sums = TemperatureSums()
    for index in range(len(targets)):
        others = torch.arange(len(targets)) != index
        without = make_mapping(name, SOURCES, CLASSES, **options)
        without.estimate(without.count(logits[others], targets[others]))
        sums.add(without(logits[index : index + 1]), targets[index : index + 1])
    assert found.n == len(targets)
    assert found.how == "leave-one-out"
    assert found.temperature == pytest.approx(sums.temperature(), rel=1e-3)
    assert found.before.log_loss == pytest.approx(sums.before().log_loss, rel=1e-3)


def answers(seed=0, n=40):
    rng = np.random.default_rng(seed)
    targets = torch.from_numpy(rng.integers(0, 3, n))
    indices = torch.from_numpy(np.stack([rng.permutation(7)[:3] for _ in range(n)]))
    indices[:, 0] = torch.where(torch.from_numpy(rng.random(n) < 0.8), targets, indices[:, 0])  # mostly speaks for the class
    indices[5, 1:] = -1
    return TopK.of(indices, torch.from_numpy(rng.uniform(0.05, 0.5, (n, 3))), 7), targets


def fitted_to(given, targets, name, **options):
    mapping = make_mapping(name, SOURCES, CLASSES, **options)
    mapping.estimate(mapping.new_statistics().update_top_k(given.indices, given.probabilities, targets))
    return mapping


@pytest.mark.parametrize(("name", "options"), [("blm+", {"top_k": 2}), ("blm", {}), ("gaussian+", {}), ("flm", {})])
@pytest.mark.parametrize("grouped", [False, True])
def test_top_k_answers_are_left_out_one_by_one_too(name, options, grouped):
    given, targets = answers()
    groups = torch.arange(40) // 2 if grouped else torch.arange(40)
    mapping = fitted_to(given, targets, name, **options)
    found = measure_certainty(mapping, (given, targets, groups) if grouped else (given, targets), block_size=7)
    assert found.answers in ((0.0,) if name == "gaussian+" else certainty_module.MIXED)
    by_folds = name == "flm" or (grouped and name != "gaussian+")
    assert found.how == ("10 folds" if by_folds else "leave-one-group-out" if grouped else "leave-one-out")
    units = FoldNumbers(3)(targets, groups) if by_folds else groups
    sums = TemperatureSums()
    for unit in units.unique().tolist():
        others, own = units != unit, units == unit
        without = fitted_to(given[others], targets[others], name, **options)
        shares, silent = without.answer_shares(without.affine, given[own])
        sums.add(mixed(shares, found.answers), targets[own], ~silent)
    assert found.temperature == pytest.approx(sums.temperature(), rel=1e-3)
    assert found.n == sums.n


def test_answers_are_told_as_honest_shares_and_sets():
    given, targets = answers()
    indices, scores = given.indices, given.probabilities
    mapping = fitted_to(given, targets, "blm+", top_k=2)
    measure_certainty(mapping, (given, targets))
    raw = mapping.predict_answers(indices, scores, calibration="none")
    honest = mapping.predict_answers(indices, scores, coverage=0.8)
    assert honest.labels == raw.labels
    assert torch.equal(honest.probabilities.argmax(1), raw.indices)
    torch.testing.assert_close(honest.probabilities.sum(1), torch.ones(40).double())
    assert len(honest.sets) == 40
    nothing = mapping.predict_answers(torch.full((1, 3), -1), torch.zeros(1, 3), coverage=0.5)
    assert sorted(nothing.sets[0]) == CLASSES
    torch.testing.assert_close(nothing.probabilities[0], mapping.statistics.samples.double() / 40)
    with pytest.raises(ReprogramError, match="only mapping 'gaussian' has the densities"):
        mapping.predict_answers(indices, scores, unlike=0.01)
    with pytest.raises(ReprogramError, match="with logits, but the prediction sets of this mapping were measured on top-K"):
        mapping.predict(torch.zeros(1, 7), coverage=0.9)


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from(["gaussian", "blm", "flm"]), st.integers(5, 40))
def test_blocks_of_any_size_give_the_same(seed, name, size):
    mapping, logits, targets = fitted(name, seed, 40)
    one = measure_certainty(mapping, (logits, targets))
    other = measure_certainty(mapping, (logits, targets), block_size=size)
    assert other.temperature == pytest.approx(one.temperature, rel=1e-6)
    for mine, theirs in zip(one.sets.misfits, other.sets.misfits, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def folded(mapping, given, size=16):
    """The mappings without each fold."""
    found, number = FoldMappings(mapping), FoldNumbers(mapping.k_target)
    for part in passes(given, size)():
        found.count(part, number(part.targets, part.groups))
    return found.affines, number.units


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from(["gaussian", "blm+", "flm"]), st.booleans())
def test_the_mappings_without_a_fold_are_those_estimated_without_it(seed, name, grouped):
    mapping, logits, targets = fitted(name, seed)
    groups = torch.arange(60) // 2 if grouped else None
    affines, units = folded(mapping, (logits, targets, groups))
    folds = FoldNumbers(3)(targets, groups)
    assert 0 < int((folds == 0).sum()) < 30
    for fold in range(FOLDS):
        others = folds != fold
        without = make_mapping(name, SOURCES, CLASSES)
        without.estimate(without.count(logits[others], targets[others]))
        torch.testing.assert_close(affines[fold](logits), without(logits), rtol=1e-3, atol=1e-3)
        own = torch.stack([targets, torch.arange(60) if groups is None else groups])[:, ~others].unique(dim=1)[0]
        assert units[fold].tolist() == torch.bincount(own, minlength=3).tolist()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=60), st.integers(1, 20))
def test_a_group_is_in_one_fold_and_groups_of_one_are_samples(pairs, size):
    table = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    number, found = FoldNumbers(3), []
    for part in table.split(size) if len(table) else ():
        found += number(part[:, 1], part[:, 0]).tolist()
    assert len(set(zip(table[:, 0].tolist(), found, strict=True))) == len(set(table[:, 0].tolist()))
    assert int(number.units.sum()) == len(set(pairs))
    alone = FoldNumbers(3)(table[:, 1], torch.arange(len(table)))
    assert torch.equal(alone, FoldNumbers(3)(table[:, 1]))


@pytest.mark.parametrize(("name", "options"), [("gaussian", {}), ("blm", {}), ("gaussian", {"prior": torch.rand(7, 3)})])
def test_groups_are_left_out_together(name, options):
    logits, targets = samples(4, 60)
    groups = torch.randperm(60, generator=torch.Generator().manual_seed(0)) // 3  # scattered, of several classes
    mapping = make_mapping(name, SOURCES, CLASSES, **options)
    mapping.estimate(mapping.count(logits, targets))
    found = measure_certainty(mapping, (logits, targets, groups), block_size=11)
    by_folds = bool(options)  # there is no formula for groups with a prior
    assert found.how == ("10 folds" if by_folds else "leave-one-group-out")
    units = FoldNumbers(3)(targets, groups) if by_folds else groups
    sums = TemperatureSums()
    for unit in units.unique().tolist():
        without = make_mapping(name, SOURCES, CLASSES, **options)
        without.estimate(without.count(logits[units != unit], targets[units != unit]))
        sums.add(without(logits[units == unit]), targets[units == unit])
    assert found.temperature == pytest.approx(sums.temperature(), rel=1e-3)
    folds = FoldNumbers(3)(targets, groups)
    assert [len(part) for part in found.sets.targets] == torch.bincount(folds, minlength=FOLDS).tolist()


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_p_values_are_counted_sample_by_sample(per_class, strict):
    mapping, logits, targets = fitted(n=50)
    measure_certainty(mapping, (logits, targets))
    fresh, _ = samples(9, 7)
    found = mapping.certainty.sets.p_values(mapping, fresh, per_class=per_class, strict=strict)
    folds = FoldNumbers(3)(targets)
    for row in range(7):
        for y in range(3):
            above = size = 0
            for fold in range(1 if strict else FOLDS):
                affine = mapping.certainty.sets.affines[fold].to(torch.float64)
                mine = float(misfits(affine(fresh.double()))[row, y])
                for i in torch.nonzero(folds == fold).flatten().tolist():
                    if per_class and int(targets[i]) != y:
                        continue
                    size += 1
                    above += float(misfits(affine(logits.double()[i : i + 1]))[0, targets[i]]) >= mine - 1e-12
            assert float(found[row, y]) == pytest.approx((1 + above) / (1 + size))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.booleans())
def test_a_larger_coverage_never_gives_a_smaller_set(seed, one, other, per_class):
    mapping, _, _ = measured()
    fresh, _ = samples(seed, 20, 1.0)
    low, high = (mapping.predict(fresh, coverage=each, per_class=per_class).sets for each in sorted((one, other)))
    assert all(set(small) <= set(large) for small, large in zip(low, high, strict=True))


def test_the_truth_is_in_the_set_as_often_as_was_asked():
    inside = sizes = 0
    for seed in range(20):
        mapping, logits, targets = fitted(seed=seed, n=100)
        measure_certainty(mapping, (logits, targets))
        fresh, truth = samples(1000 + seed, 200)
        sets = mapping.predict(fresh, coverage=0.8).sets
        inside += sum(CLASSES[y] in each for y, each in zip(truth.tolist(), sets, strict=True))
        sizes += sum(map(len, sets))
    assert 0.77 < inside / 4000 < 0.84  # 4000 draws, of 20 mappings
    assert sizes / 4000 < 2  # and not by naming everything


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_no_temperature_changes_the_class(seed, temperature):
    mapping, _, _ = fitted()
    mapping.certainty = Certainty(temperature, "a test", 0)
    fresh, _ = samples(seed, 30, 0.5)
    said, raw = mapping.predict(fresh), mapping.predict(fresh, calibration="none")
    assert said.labels == raw.labels
    torch.testing.assert_close(raw.probabilities, mapping(fresh).softmax(1))
    torch.testing.assert_close(said.probabilities, (mapping(fresh) / temperature).softmax(1), rtol=1e-4, atol=1e-6)


def test_strangeness_is_ranked_among_samples_that_were_really_left_out():
    mapping, logits, targets = fitted(n=40)
    measure_certainty(mapping, (logits, targets))

    def nearest(rows, kept):
        without = make_mapping("gaussian", SOURCES, CLASSES)
        statistics = without.count(logits[kept], targets[kept])
        fit = GaussianFit.of(statistics)
        covariance = fit.basis @ torch.diag(fit.variances(fit.oas())) @ fit.basis.T
        away = rows.double()[:, None] - (statistics.sums / statistics.samples).T
        return torch.einsum("ntj,jk,ntk->nt", away, covariance.inverse(), away).amin(1)

    everything = torch.arange(40)
    expected = torch.cat([nearest(logits[i : i + 1], everything != i) for i in range(40)]).sort().values
    torch.testing.assert_close(mapping.certainty.typicality.distances, expected, rtol=1e-6, atol=1e-8)
    fresh = torch.cat((logits[:3], torch.full((1, 7), 40.0)))
    said = mapping.predict(fresh, unlike=0.05)
    above = (expected[None] >= nearest(fresh, everything >= 0)[:, None] - 1e-9).sum(1)
    torch.testing.assert_close(said.typicality, (1 + above).double() / 41)
    assert said.unlike.tolist() == (said.typicality < 0.05).tolist()
    assert bool(said.unlike[3])


def test_weighted_samples_are_judged_on_folds_and_whole_weights_repeat_a_sample():
    logits, targets = samples(3, 80)
    weights = np.where(np.arange(80) % 3 == 0, 2.0, 1.0)
    mapper = LabelMapper("gaussian").fit(logits.numpy(), targets.numpy(), sample_weight=weights)
    assert mapper.mapping_.certainty.how == f"{FOLDS} folds"
    affines, _ = folded(mapper.mapping_, (logits, targets, None, torch.from_numpy(weights)), 100)
    folds, sums = FoldNumbers(3)(targets), TemperatureSums()
    scores = torch.stack([affines[fold](row[None])[0] for fold, row in zip(folds.tolist(), logits, strict=True)])
    sums.add(scores, targets, weights=torch.from_numpy(weights))
    assert mapper.mapping_.certainty.temperature == pytest.approx(sums.temperature(), rel=1e-3)


def test_classes_of_one_or_two_samples_are_not_judged():
    logits, targets = samples(0, 30)
    few = torch.cat([torch.nonzero(targets == y).flatten()[: 2 if y else JUDGED] for y in range(3)])
    mapping = make_mapping("gaussian", SOURCES, CLASSES)
    mapping.estimate(mapping.count(logits[few], targets[few]))
    assert measure_certainty(mapping, (logits[few], targets[few]), sets=False).n == JUDGED
    two = few[few.new_tensor([0, 1, 3, 4, 5, 6])]
    mapping.estimate(mapping.count(logits[two], targets[two]))
    found = measure_certainty(mapping, (logits[two], targets[two]), sets=False)
    assert found.n == 0
    assert found.before is None
    assert "a default" in str(found)


def test_a_mapping_that_changes_keeps_its_temperature_and_loses_its_sets():
    mapping, logits, targets = fitted()
    before = measure_certainty(mapping, (logits, targets))
    more = mapping.count(*samples(5, 20))
    for changed in (mapping.with_class("d"), mapping.learn(more), mapping.forget(more)):
        assert changed.certainty.outdated
        assert changed.certainty.temperature == before.temperature
        for asked in ({"coverage": 0.9}, {"unlike": 0.01}):
            with pytest.raises(ReprogramError, match="changed since that was measured; fit it again"):
                changed.predict(logits, **asked)


def test_what_was_never_measured_cannot_be_asked_for():
    mapping, logits, _ = fitted()
    with pytest.raises(ReprogramError, match="nothing was measured for it; fit it again"):
        mapping.predict(logits, coverage=0.9)
    with pytest.raises(ReprogramError, match="coverage = 2 was given"):
        mapping.predict(logits, coverage=2)
    with pytest.raises(ReprogramError, match="calibration"):
        mapping.predict(logits, calibration="platt")


def test_folds_that_would_take_too_much_are_not_kept(monkeypatch):
    monkeypatch.setattr(certainty_module, "LARGEST_FOLDS", 100)
    mapping, logits, targets = fitted()
    found = measure_certainty(mapping, (logits, targets))
    assert found.sets is None
    assert found.temperature != 1
    with pytest.raises(ReprogramError, match="10 mappings for them would take"):
        mapping.predict(logits, coverage=0.9)


@pytest.mark.parametrize("held_out", [False, True])
def test_an_artefact_keeps_it_all(tmp_path, held_out):
    mapping, logits, targets = fitted()
    measure_certainty(mapping, (logits, targets), held_out=held_out)
    mapping.save(tmp_path / "kept")
    again = Mapping.load(tmp_path / "kept")
    asked = {"coverage": 0.7} if held_out else {"coverage": 0.7, "unlike": 0.1}
    one, other = mapping.predict(logits, **asked), again.predict(logits, **asked)
    assert torch.equal(one.probabilities, other.probabilities)
    assert one.sets == other.sets
    assert held_out or torch.equal(one.typicality, other.typicality)
    assert again.certainty.after == mapping.certainty.after
    again.certainty = None
    again.save(tmp_path / "plain")
    assert Mapping.load(tmp_path / "plain").certainty is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda section, tensors: section.update(temperature=-1.0),
        lambda section, tensors: section.update(temperature="1"),
        lambda section, tensors: section.pop("how"),
        lambda section, tensors: section.update(strange=1),
        lambda section, tensors: tensors.update({"certainty.sizes": tensors["certainty.sizes"] + 1}),
        lambda section, tensors: tensors.update({"certainty.targets": tensors["certainty.targets"] + 2}),
        lambda section, tensors: tensors.update({"certainty.omega": tensors["certainty.omega"][:, :3]}),
        lambda section, tensors: tensors.pop("certainty.bias"),
        lambda section, tensors: tensors.update({"certainty.more": torch.zeros(1)}),
    ],
)
def test_an_artefact_that_contradicts_itself_is_refused(tmp_path, damage):
    from reprogram.files import read_sealed, read_tensors, write_sealed, write_tensors

    mapping, logits, targets = fitted()
    measure_certainty(mapping, (logits, targets))
    mapping.save(tmp_path / "kept")
    content = read_sealed(tmp_path / "kept" / "artefact.json", "artefact")
    tensors, _ = read_tensors(tmp_path / "kept" / "artefact.safetensors", "artefact")
    damage(content["certainty"], tensors)
    content["files"]["artefact.safetensors"] = write_tensors(tmp_path / "kept" / "artefact.safetensors", tensors)
    write_sealed(tmp_path / "kept" / "artefact.json", content)
    with pytest.raises(ReprogramError):
        Mapping.load(tmp_path / "kept")


def test_the_scikit_learn_face_gives_sets_in_its_own_labels():
    logits, targets = samples(1, 90)
    labels = np.array([10, 20, 30])[targets.numpy()]
    mapper = LabelMapper("gaussian", prediction_sets=True).fit(logits.numpy(), labels)
    sets = mapper.predict_set(logits.numpy()[:5], coverage=0.95)
    assert [each.dtype for each in sets] == [labels.dtype] * 5
    assert sum(label in each for label, each in zip(labels[:5], sets, strict=True)) >= 4
    plain = LabelMapper("gaussian", calibration="none").fit(logits.numpy(), labels)
    assert plain.mapping_.certainty is None
    assert (plain.predict(logits.numpy()) == mapper.predict(logits.numpy())).all()
    assert not np.allclose(plain.predict_proba(logits.numpy()), mapper.predict_proba(logits.numpy()))
    with pytest.raises(ReprogramError, match="prediction_sets=True"):
        plain.predict_set(logits.numpy())
    with pytest.raises(ReprogramError, match="calibration"):
        LabelMapper("gaussian", calibration="sometimes").fit(logits.numpy(), labels)


def test_sets_of_nothing_are_empty():
    assert sets_of(torch.zeros(0, 3), 0.9, CLASSES) == []
    assert json.dumps(sets_of(torch.tensor([[0.01, 0.02, 0.03]]), 0.9, CLASSES)) == "[[]]"
