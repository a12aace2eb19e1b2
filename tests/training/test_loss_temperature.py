"""The temperature of the loss: none, a number, or what the epoch before says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.mappings.temperature import TemperatureSums
from reprogram.training.loss_temperature import LossTemperature


def drawn(n=90, scale=20.0, seed=0):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    return scale * (torch.eye(3)[labels] + torch.randn(n, 3, generator=draw)), labels


def temperature_of(*batches):
    sums = TemperatureSums()
    for scores, labels in batches:
        sums.add(scores, labels)
    return sums.temperature()


def seen(temperature, scores, labels):
    """As the loop does it."""
    temperature.look(scores, labels)
    return temperature(scores)


def test_none_and_1_give_the_scores_themselves():
    scores, _ = drawn()
    assert LossTemperature("none")(scores) is scores
    assert torch.equal(LossTemperature(1.0)(scores), scores)
    assert torch.equal(LossTemperature(8.0)(scores), scores / 8)


@settings(deadline=None, derandomize=True, max_examples=4)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.floats(0.01, 1e4), st.integers(0, 9))
def test_auto_takes_what_it_has_seen_and_then_the_epoch_before(sizes, scale, seed):
    scores, labels = drawn(sum(sizes), scale, seed)
    batches = list(zip(scores.split(sizes), labels.split(sizes), strict=True))
    temperature, sums = LossTemperature("auto"), TemperatureSums()
    for part, classes in batches:
        sums.add(part, classes)
        torch.testing.assert_close(seen(temperature, part, classes), part / sums.temperature())
    assert temperature.measured is None
    temperature.end_epoch()
    assert temperature.measured == pytest.approx(temperature_of(*batches))
    others = [(2 * part, classes) for part, classes in batches]
    for part, classes in others:
        torch.testing.assert_close(seen(temperature, part, classes), part / temperature.measured)
    temperature.end_epoch()
    assert temperature.measured == pytest.approx(temperature_of(*others))


def test_a_calibrated_loss_is_that_of_the_share_of_right_answers():
    """Scores of ±300 that are right in 2 of 3: the plain loss is 200, the calibrated one the entropy of 2/3."""
    labels = torch.arange(3000) % 2
    said = torch.where(torch.arange(3000) % 3 == 0, 1 - labels, labels)
    scores = 300 * torch.eye(2)[said]
    temperature = LossTemperature("auto")
    loss = torch.nn.functional.cross_entropy(seen(temperature, scores, labels), labels)
    assert float(loss) == pytest.approx(0.6365, abs=0.01)
    assert float(torch.nn.functional.cross_entropy(scores, labels)) == pytest.approx(100)


def test_gradients_flow_through_the_scores_and_not_through_the_temperature():
    scores, labels = drawn(6)
    scores.requires_grad_()
    temperature = LossTemperature("auto")
    seen(temperature, scores, labels).sum().backward()
    torch.testing.assert_close(scores.grad, torch.full_like(scores, 1 / temperature_of((scores, labels))))


def test_scores_that_are_not_finite_are_left_to_the_loss():
    scores, labels = drawn(6)
    broken = scores.clone()
    broken[2, 1] = torch.nan
    temperature = LossTemperature("auto")
    assert seen(temperature, broken, labels).isnan().any()
    seen(temperature, scores, labels)
    temperature.end_epoch()
    good = torch.arange(6) != 2
    assert temperature.measured == pytest.approx(temperature_of((scores[good], labels[good]), (scores, labels)))
