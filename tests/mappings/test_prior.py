import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram import LabelMapper, Mapping, make_mapping
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.mappings.gaussians import gaussian
from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.prior import prior_matrix, read_prior
from reprogram.mappings.settings import PriorMatrix
from reprogram.mappings.similar_names import KINDS, similar_names, stem
from reprogram.sources.texts import Texts
from reprogram.statistics import GaussianStatistics

SOURCE = ["tabby, tabby cat", "Persian cat", "beagle", "police dog, watchdog", "goldfish", "pelican"]
CLASSES = ["cat", "dog", "goldfish"]


def sample(seed, counts, k_source=6, offset=0.0):
    """Logits of classes whose means lie apart, with this many of each class."""
    draw = torch.Generator().manual_seed(seed)
    targets = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    means = torch.randn(len(counts), k_source, generator=draw, dtype=torch.float64) * 2
    return torch.randn(len(targets), k_source, generator=draw, dtype=torch.float64) + means[targets] + offset, targets


def made(prior="names", classes=CLASSES, **options):
    return make_mapping("gaussian", SOURCE, classes, prior=prior, **options)


def drawn_prior(seed, k_target=3):
    return torch.randn(6, k_target, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slowly(logits, targets, prior, weight, k_target):
    """Target logits of each row by the rule as the documentation has it, with inverses and loops."""
    z, n = logits.numpy(), len(logits)
    present = [t for t in range(k_target) if (targets == t).any()]
    mean = z.mean(0)
    means = {t: z[(targets == t).numpy()].mean(0) - mean for t in present}
    scatter = sum(np.outer(d, d) for x, t in zip(z, targets.tolist(), strict=True) for d in [x - mean - means[t]])
    freedom, size = max(n - len(present), 1), z.shape[1]
    rho, (one, two) = 1.0, (np.trace(scatter), np.trace(scatter @ scatter))
    above, below = (1 - 2 / size) * two + one**2, (freedom + 1 - 2 / size) * (two - one**2 / size)
    rho = above / below if below > above else 1.0
    covariance = ((1 - rho) * scatter + rho * one / size * np.eye(size)) / freedom
    inverse = np.linalg.inv(covariance)
    centred = (prior - prior.mean(1, keepdim=True)).numpy()
    spread = {t: centred[:, t] @ covariance @ centred[:, t] for t in range(k_target)}
    found = sum(means[t] @ centred[:, t] for t in present)
    noise = 4 * sum(spread[t] / int((targets == t).sum()) for t in present)
    scale = 0.0
    if found > 0 and found**2 > noise:
        scale = (found - noise / found) / sum(spread[t] for t in present)
    share = n / (n + weight * len(present) ** 0.5) if scale > 0 else 1.0
    own_bias = {t: -means[t] @ inverse @ means[t] / 2 for t in present}
    average = np.mean(list(own_bias.values()))

    def scores(x):
        result = []
        for t in range(k_target):
            own = (x - mean) @ inverse @ means[t] + own_bias[t] if t in present else average
            result.append(share * own + (1 - share) * (scale * (x - mean) @ centred[:, t] - scale**2 * spread[t] / 2))
        return result

    return scores


counts = st.lists(st.integers(2, 5), min_size=3, max_size=3)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.integers(0, 99), counts, st.floats(0, 300), st.booleans())
def test_the_rule_is_the_documented_one(seed, counts, weight, helpful):
    logits, targets = sample(seed, counts)
    prior = drawn_prior(seed)
    if helpful:
        prior = torch.stack([logits[targets == t].mean(0) for t in range(3)], dim=1) + prior / 2
    omega, mean, bias = gaussian(GaussianStatistics(6, 3).update(logits, targets), prior=prior, prior_weight=weight)
    expected = slowly(logits, targets, prior, weight, 3)
    for x in logits[:4]:
        assert ((x - mean) @ omega + bias).numpy() == pytest.approx(np.array(expected(x.numpy())), rel=1e-7, abs=1e-7)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.integers(0, 99), st.lists(st.integers(1, 5), min_size=3, max_size=3), st.sampled_from([0.0, 1.0, 64.0]))
def test_leave_one_out_equals_refits(seed, counts, weight):
    logits, targets = sample(seed, counts)
    if len(targets) < 5:
        return
    prior = torch.stack([logits[targets == t].mean(0) for t in range(3)], dim=1) + drawn_prior(seed)
    mapping = made(prior, prior_weight=weight)
    ((scores, _),) = LeftOut(mapping)((logits, targets))
    for row in range(len(targets)):
        others = torch.arange(len(targets)) != row
        left = GaussianStatistics(6, 3).update(logits[others], targets[others])
        omega, mean, bias = gaussian(left, prior=mapping.prior.double(), prior_weight=weight)
        assert torch.allclose(scores[row], (logits[row] - mean) @ omega + bias, rtol=1e-6, atol=1e-6)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.integers(0, 99), counts)
def test_a_weight_of_0_and_a_prior_without_content_are_the_gaussian_to_the_bit(seed, counts):
    logits, targets = sample(seed, counts)
    statistics = GaussianStatistics(6, 3).update(logits, targets)
    plain = gaussian(statistics)
    for options in ({"prior": drawn_prior(seed), "prior_weight": 0.0}, {"prior": torch.ones(6, 3)}):
        assert all(torch.equal(a, b) for a, b in zip(gaussian(statistics, **options), plain, strict=True))


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.integers(0, 99), st.integers(1, 9))
def test_without_samples_it_is_the_prior(seed, k_target):
    prior = drawn_prior(seed, k_target)
    mapping = make_mapping("gaussian", SOURCE, [f"c{i}" for i in range(k_target)], prior=prior)
    logits = torch.randn(7, 6, generator=torch.Generator().manual_seed(seed))
    for _ in range(2):  # as it was made, and estimated from nothing
        assert torch.allclose(mapping(logits), (logits.double() @ prior).float(), atol=1e-5)
        mapping.estimate(mapping.new_statistics())


def test_with_many_samples_the_prior_is_forgotten():
    few, many = (sample(1, [size] * 3) for size in (2, 3000))
    prior = torch.stack([many[0][many[1] == t].mean(0) for t in range(3)], dim=1) + 2 * drawn_prior(0)
    distances = []
    for logits, targets in (few, many):
        statistics = GaussianStatistics(6, 3).update(logits, targets)
        (with_prior, *_), (without, *_) = gaussian(statistics, prior=prior), gaussian(statistics)
        distances.append(float((with_prior - without).norm() / without.norm()))
    assert distances[1] < 0.05 < 0.3 < distances[0]


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.integers(0, 99), counts, counts)
def test_pieces_learned_and_forgotten_equal_one_fit(seed, first, second):
    (one, t1), (two, t2) = sample(seed, first), sample(seed + 1, second)
    whole, pieces, less = made(), made(), made()
    whole.estimate(whole.count(torch.cat([one, two]), torch.cat([t1, t2])))
    pieces.estimate(pieces.count(one, t1))
    pieces.learn(pieces.count(two, t2))
    assert torch.allclose(pieces.weights, whole.weights, atol=1e-5)
    assert torch.allclose(pieces.bias, whole.bias, atol=1e-4)
    less.estimate(less.count(one, t1))
    pieces.forget(pieces.count(two, t2))
    assert torch.allclose(pieces.weights, less.weights, atol=1e-5)
    merged = made()
    merged.estimate(merged.count(one, t1), merged.count(two, t2))
    assert torch.allclose(merged.weights, whole.weights, atol=1e-5)


@pytest.mark.parametrize("prior", ["names", "array", "file"])
def test_it_is_saved_with_its_prior_and_loaded_again(tmp_path, prior):
    values = drawn_prior(3)
    if prior != "names":
        np.savez(tmp_path / "p.npz", prior=values.numpy())
        prior = values if prior == "array" else str(tmp_path / "p.npz")
    mapping = made(prior, prior_weight=8)
    logits, targets = sample(2, [3, 3, 3])
    mapping.estimate(mapping.count(logits, targets))
    mapping.save(tmp_path / "kept")
    (tmp_path / "p.npz").unlink(missing_ok=True)
    again = Mapping.load(tmp_path / "kept")
    assert torch.equal(again.prior, mapping.prior)
    assert again.settings.prior_weight == 8
    for each in (mapping, again):
        each.learn(each.count(*sample(5, [1, 2, 1])))
    assert torch.equal(again.weights, mapping.weights)
    loaded = LabelMapper.load(tmp_path / "kept")
    assert torch.equal(loaded.mapping_.prior, mapping.prior)


def test_an_added_class_without_samples_has_what_the_prior_says():
    mapping = made("names", ["cat", "goldfish"])
    logits = torch.eye(6)[[0, 1, 4, 4, 0, 4]] * 5 + 0.1 * sample(0, [6])[0].float()
    mapping.estimate(mapping.count(logits, torch.tensor([0, 0, 1, 1, 0, 1])))
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvidenceWarning)
        grown = mapping.with_class("pelican")
    assert grown.predict(torch.eye(6)[[5]] * 5).labels == ["pelican"]
    assert grown.predict(logits).labels == ["cat", "cat", "goldfish", "goldfish", "cat", "goldfish"]
    shrunk = grown.without_class("pelican")
    assert torch.allclose(shrunk.weights, mapping.weights, atol=1e-6)


def test_a_matrix_with_names_knows_classes_that_come_later(tmp_path):
    (tmp_path / "p.csv").write_text(",cat,bird,Gold_Fish\nGoldfish,0,0,1\npelican,,2,0\nPersian cat,1,0,0\n", "utf-8")
    mapping = made(str(tmp_path / "p.csv"), ["cat", "gold fish"])
    assert mapping.prior.T.tolist() == [[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]]
    (tmp_path / "p.csv").unlink()
    grown = mapping.with_class("bird")
    assert grown.prior[:, 2].tolist() == [0, 0, 0, 0, 0, 2]
    assert grown.with_class("fox").prior[:, 3].tolist() == [0] * 6
    plain = made(drawn_prior(0)).with_classes(["dog", "fox", "cat"])
    assert torch.equal(plain.prior, torch.stack([drawn_prior(0)[:, 1], torch.zeros(6), drawn_prior(0)[:, 0]], 1).float())


def test_a_good_prior_helps_where_there_is_one_sample_of_each_class():
    logits, targets = sample(4, [1, 1, 1])
    many, labels = sample(4, [200, 200, 200])
    truth = torch.stack([many[labels == t].mean(0) for t in range(3)], dim=1)
    scores = [LabelMapper(prior=p).fit(many[[0, 200, 400]], [0, 1, 2]).score(many, labels) for p in (None, truth)]
    assert scores[1] > scores[0]
    assert len(logits) == len(targets)


def test_weights_of_samples_and_frequent_classes_go_with_it():
    logits, targets = sample(6, [3, 4, 2])
    doubled = LabelMapper(prior=drawn_prior(1), priors=True).fit(
        torch.cat([logits, logits]).numpy(), torch.cat([targets, targets]).numpy()
    )
    weighted = LabelMapper(prior=drawn_prior(1), priors=True).fit(
        logits.numpy(), targets.numpy(), sample_weight=np.full(len(targets), 2.0)
    )
    assert np.allclose(doubled.decision_function(logits.numpy()), weighted.decision_function(logits.numpy()), atol=1e-4)


def test_names_are_compared_by_the_closest_kind():
    labels = ["tree frog", "bullfrog", "river horse", "horse cart", "cat", "wild cat", "lakeside", "basset", "flamingo"]
    found = similar_names(labels, ["frog", "Cats", "SeaLake", "bass", "flamingo_head", "horse"]).T
    named = [[labels[place] for place in row.nonzero().flatten().tolist()] for row in found]
    assert named == [["tree frog"], ["cat"], ["lakeside"], [], ["flamingo"], ["river horse"]]
    assert found.sum(1).tolist() == [1, 1, 1, 0, 1, 1]
    assert len(KINDS) == 6
    assert stem("boxes") == stem("box")


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=6), st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_names_of_any_letters_give_shares(labels, classes):
    found = similar_names(labels, classes)
    assert found.shape == (len(labels), len(classes))
    assert all(total == 0 or total == pytest.approx(1) for total in found.sum(0).tolist())
    assert (found >= 0).all()


def test_texts_are_the_zero_shot_classifier():
    draw = torch.Generator().manual_seed(0)
    texts = Texts(["cat", "dog"], ["a {}.", "one {}."], torch.nn.functional.normalize(torch.randn(4, 3, generator=draw)))
    assert torch.equal(prior_matrix("texts", texts, ["dog", "cat"]), texts.ensemble(["dog", "cat"]))
    assert torch.equal(prior_matrix("names", texts, ["cat"]), texts.ensemble(["cat"]))
    assert prior_matrix("texts", texts, ["fox", "cat"])[:, 0].tolist() == [0.25] * 4
    bare = Texts(["cat", "dog"], ["a {}."])
    assert torch.equal(prior_matrix("texts", bare, ["cat", "dog"]), torch.eye(2))


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        ("texts", "labels of its own"),
        ("nmes", "none, names, texts"),
        (np.ones((2, 3)), r"shape \(2, 3\)"),
        (np.full((6, 3), np.nan), "beyond"),
        (7, "an array of source labels"),
        ([["a"]], "numbers"),
        (PriorMatrix(np.ones((6, 2)), None, ["fox", "owl"]), "none is among"),
        (PriorMatrix(np.ones((6, 2)), None, ["cat", "cat"]), "twice"),
    ],
)
def test_what_is_no_prior_is_refused_in_one_sentence(prior, said):
    with pytest.raises(ReprogramError, match=said):
        made(prior)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.csv", "", "no numbers"),
        ("p.csv", ",cat\ntabby,x\n", "row 2"),
        ("p.csv", ",cat,dog\ntabby,1\n", "row 2"),
        ("p.npz", "PK", "cannot be read"),
        ("missing.npz", None, "does not exist"),
        ("missing.csv", None, "does not exist"),
    ],
)
def test_files_that_hold_no_prior_are_refused(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(ReprogramError, match=said):
        read_prior(tmp_path / name)


def test_an_archive_without_the_array_is_refused(tmp_path):
    np.savez(tmp_path / "p.npz", weights=np.ones((6, 3)))
    with pytest.raises(ReprogramError, match="called 'prior'"):
        made(str(tmp_path / "p.npz"))


def test_an_archive_may_name_its_rows_and_columns(tmp_path):
    np.savez(tmp_path / "p.npz", prior=np.eye(2), source_labels=["goldfish", "beagle"], classes=["goldfish", "dog"])
    assert made(str(tmp_path / "p.npz")).prior.nonzero().tolist() == [[2, 1], [4, 2]]
