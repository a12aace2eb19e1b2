"""Forecasts: laws that hold whatever the data, and data whose truth is known."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.mappings.class_gains import class_gains
from reprogram.mappings.forecasting import forecast
from reprogram.mappings.learning_curve import Measured
from reprogram.mappings.making import make_mapping
from reprogram.mappings.tail import Tail


def animals(n, k_target=4, k_source=30, seed=0, apart=2.2):
    rng = np.random.default_rng(seed)
    targets = np.arange(n) % k_target
    return (rng.normal(size=(n, k_source)) + apart * np.eye(k_source)[targets]).astype(np.float32), targets


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 999),
    n=st.integers(8, 80),
    name=st.sampled_from(["gaussian", "blm"]),
    level=st.sampled_from([0.5, 0.9, 0.95]),
)
def test_intervals_hold_their_points_and_the_curve_only_rises(seed, n, name, level):
    found = forecast(animals(n, seed=seed), name, factors=(1.5, 2, 4, 16), level=level, draws=2, seed=seed)
    for point in (*found.measured, *found.points):
        assert 0 <= point.low <= point.accuracy <= point.high <= 1
    for point in found.points:
        assert point.gain_low <= point.gain <= point.gain_high
    for lesser, more in zip(found.points, found.points[1:], strict=False):
        assert lesser.accuracy <= more.accuracy
        assert lesser.low <= more.low
        assert lesser.high <= more.high
        assert lesser.gain <= more.gain
    for gain in found.gains:
        assert gain.low <= gain.gain <= gain.high
    assert sum(gain.first for gain in found.gains) == pytest.approx(1)


def test_a_higher_level_is_a_wider_interval():
    narrow, wide = (forecast(animals(60), level=level, draws=2).points[1] for level in (0.5, 0.95))
    assert narrow.accuracy == wide.accuracy
    assert wide.low < narrow.low
    assert narrow.high < wide.high


def test_the_same_seed_gives_the_same_answer_and_blocks_of_any_size_do():
    logits, targets = map(torch.from_numpy, animals(90))
    mapping = make_mapping("gaussian", [f"source {i}" for i in range(30)], ["a", "b", "c", "d"])
    whole = forecast((logits, targets), mapping, draws=2, seed=3)
    for size in (7, 90):
        blocks = forecast(
            lambda size=size: zip(logits.split(size), targets.split(size), strict=True), mapping, draws=2, seed=3
        )
        assert blocks == whole
    assert forecast((logits, targets), mapping, draws=2, seed=4) != whole


def test_two_samples_of_each_class_are_told_to_be_too_few():
    found = forecast(animals(8, apart=1.5))
    assert found.vague
    assert "too few" in str(found)
    assert found.points[1].high - found.points[1].low > 0.2
    assert found.most is None


def test_many_samples_give_a_narrow_interval_that_holds_the_truth():
    logits, targets = animals(3000, seed=1)
    found = forecast((logits[:400], targets[:400]))
    mapping = make_mapping("gaussian", [f"source {i}" for i in range(30)], ["a", "b", "c", "d"])
    mapping.estimate(mapping.count(torch.from_numpy(logits[:1600]), torch.from_numpy(targets[:1600])))
    truth = float((mapping(torch.from_numpy(logits[1600:])).argmax(1).numpy() == targets[1600:]).mean())
    after = found.points[2]
    assert after.factor == 4
    assert after.high - after.low < 0.1
    assert after.low - 0.02 <= truth <= after.high + 0.02


def test_the_sentence_and_the_json_say_the_same():
    logits, targets = animals(120)
    found = forecast((logits, np.array(["ant", "bee", "cat", "dog"])[targets]), "blm", smoothing=2)
    assert str(found).startswith("120 labelled samples give ")
    assert "with twice as many expect" in str(found)
    assert "with four times as many expect" in str(found)
    content = json.loads(json.dumps(found.to_json()))
    assert content["mapping"]["mapping"] == "blm"
    assert content["mapping"]["smoothing"] == 2
    assert [point["factor"] for point in content["forecast"]] == [1, 2, 4]
    assert {row["name"] for row in content["classes"]} == {"ant", "bee", "cat", "dog"}
    assert content["sentence"] == str(found)


def test_auto_chooses_the_mapping_first():
    assert forecast(animals(60), "auto", draws=1).candidate.mapping in ("gaussian", "gaussian+", "blm", "blm+", "flm")


def test_a_class_with_one_sample_is_not_in_the_numbers():
    logits, targets = animals(60)
    logits, targets = logits[:57], np.where(np.arange(57) == 56, 4, targets[:57])
    found = forecast((logits, targets), classes=["a", "b", "c", "d", "rare"])
    assert found.samples == 57
    assert "rare" not in {gain.name for gain in found.gains}
    assert "rare" in found.notes[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"samples": animals(4)}, "one of each class"),
        ({"samples": (animals(4)[0], [0, 0, 0, 0])}, "at least 2"),
        ({"samples": (animals(4)[0], [0, 1])}, "one label for each"),
        ({"samples": (animals(9)[0][0], [0, 1])}, "is expected"),
        ({"samples": animals(9), "factors": (0.5,)}, "factors"),
        ({"samples": animals(9), "factors": ()}, "factors"),
        ({"samples": animals(9), "level": 1.0}, "level"),
        ({"samples": animals(9), "draws": 0}, "draws"),
        ({"samples": animals(9), "mapping": "auto", "smoothing": 1}, "auto"),
        ({"samples": lambda: iter(())}, "name the classes"),
        ({"samples": lambda: iter(()), "classes": ["a", "b"]}, "no sample"),
        ({"samples": animals(9), "mapping": "linear"}, "no sample can be left out"),
        ({"samples": animals(9), "mapping": make_mapping("blm", ["a"], ["b"]), "smoothing": 1}, "leave it out"),
    ],
)
def test_what_cannot_be_forecast_is_said(given, words):
    with pytest.raises(ReprogramError, match=words):
        forecast(**given)


def test_a_law_that_was_followed_exactly_is_found():
    scales = torch.tensor([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0], dtype=torch.float64)
    errors = 0.2 * (0.4 + 0.6 * scales.pow(-0.5))
    tail = Tail.of(scales, errors, 1e-6 * torch.eye(5, dtype=torch.float64))
    assert tail.quantiles(tail.at(4.0), 0.5)[0] == pytest.approx(0.2 * (0.4 + 0.6 / 2), abs=0.005)
    assert float(tail.weights.sum()) == pytest.approx(1)


@given(noise=st.floats(1e-4, 0.05), more=st.floats(1.1, 4))
@settings(max_examples=20, deadline=None)
def test_noisier_curves_leave_wider_intervals(noise, more):
    scales = torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64)
    errors = 0.2 * scales.pow(-0.3)
    widths = []
    for deviation in (noise, more * noise):
        tail = Tail.of(scales, errors, deviation**2 * torch.eye(3, dtype=torch.float64))
        low, high = tail.quantiles(tail.at(2.0), 0.05, 0.95)
        widths.append(high - low)
    assert widths[0] <= widths[1] + 1e-3


def curve_of(rates, members):
    """A curve in which each class has these errors at each size."""
    targets = torch.arange(len(rates[0])).repeat_interleave(members)
    curve = []
    for place, errors in enumerate(rates):
        hits = 1 - torch.tensor(errors, dtype=torch.float64).repeat_interleave(members)
        share = 2.0 ** (place + 1 - len(rates))
        curve.append(Measured(share, share * len(targets), hits, torch.ones(len(targets)).double(), (0.0,), ""))
    return curve, targets


def gains_of(rates, members):
    curve, targets = curve_of(rates, members)
    scales = torch.tensor([part.share for part in curve], dtype=torch.float64)
    errors = torch.tensor([sum(row) / len(row) for row in rates], dtype=torch.float64)
    covariance = 1e-4 * (0.8 + 0.2 * torch.eye(len(rates), dtype=torch.float64))
    tail = Tail.of(scales, errors, covariance)
    return class_gains(curve, targets, ["a", "b", "c"], tail, scales, covariance, 2.0, 0.9, 0)


def test_the_class_whose_error_falls_is_the_one_that_gains_most():
    gains = gains_of([(0.1, 0.6, 0.1), (0.1, 0.45, 0.1), (0.1, 0.34, 0.1)], members=400)
    assert gains[0].name == "b"
    assert gains[0].first > 0.95
    assert gains[0].gain > 3 * gains[1].gain


def test_classes_with_the_same_curve_cannot_be_told_apart():
    gains = gains_of([(0.4, 0.4, 0.4), (0.3, 0.3, 0.3), (0.23, 0.23, 0.23)], members=20)
    assert max(gain.first for gain in gains) < 0.5
