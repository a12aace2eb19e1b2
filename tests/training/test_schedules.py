"""Settings that change how a program is trained: each does what it says, and a fit continues with it to the bit."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from reprogram import ReprogramError, evaluate, fit
from reprogram.data.dataset import ArraySplit
from reprogram.programs.watermark import Watermark
from reprogram.training.kept import keep_logits
from reprogram.training.schedules import learning_rate_factor
from sides import StopError, build, small_data, small_frozen, stop_after_two, without_times


def test_milestones_and_cosine():
    factors = [learning_rate_factor("multistep", epoch, 0, 200, 1) for epoch in range(200)]
    assert [factors.count(value) for value in (1.0, 0.1, 0.01)] == [100, 44, 56]
    assert learning_rate_factor("multistep", 0, 0, 1, 1) == 1.0
    assert learning_rate_factor("cosine", 0, 0, 10, 5) == 1.0
    assert learning_rate_factor("cosine", 5, 0, 10, 5) == pytest.approx(0.5)
    assert learning_rate_factor("constant", 7, 3, 10, 5) == 1.0


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(1, 30), st.integers(1, 30))
def test_one_cycle_rises_over_a_fifth_of_the_steps_and_falls_to_nearly_0(epochs, steps):
    factors = [
        learning_rate_factor("onecycle", epoch, step, epochs, steps) for epoch in range(epochs) for step in range(steps)
    ]
    top = factors.index(max(factors))
    assert max(factors) == 1
    assert top == max(1, epochs * steps // 5) - 1
    assert factors == sorted(factors[: top + 1]) + sorted(factors[top + 1 :], reverse=True)
    assert min(factors) > 0
    assert len(factors) < 50 or (factors[-1] < 0.01 and factors[0] <= 0.1)


@pytest.mark.parametrize("val", [True, False])
@pytest.mark.parametrize(
    ("mapping", "settings"),
    [
        ({"mapping": "gaussian"}, {"loss_temperature": "auto"}),
        ({"mapping": "blm+"}, {"loss_temperature": 0.5, "schedule": "onecycle"}),
        ({"mapping": "blm"}, {"average": 1.5}),
        ({"mapping": "gaussian", "refresh": "after"}, {"average": 0.4, "loss_temperature": "auto", "augment": "trivial"}),
        ({"mapping": "linear"}, {"average": 1.0, "optimizer": "sgd", "augment": "trivial-flip"}),
        ({"mapping": "blm", "refresh": "fresh"}, {"average": 2.0, "precision": "fp16"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())),
)
def test_a_checkpoint_continues_to_the_bit(tmp_path, mapping, settings, val):
    data, path = small_data(val=val, signal=0.05), tmp_path / "state.safetensors"
    settings = {"epochs": 5, "batch_size": 16, "lr": 0.1, **settings}
    whole, resumed = build(**mapping), build(**mapping)
    expected = fit(whole, data, **settings)
    with pytest.raises(StopError):
        fit(build(**mapping), data, checkpoint=path, on_epoch=stop_after_two, **settings)
    result = fit(resumed, data, checkpoint=path, **settings)
    assert without_times(result.records) == without_times(expected.records)
    assert (result.accuracy, result.selected_epoch) == (expected.accuracy, expected.selected_epoch)
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[key]), key


def one_step(mapping, k_source=12, own=None, **settings):
    """The record of one step over all images, and the model after it."""
    model = build(mapping, small_frozen(k_source), Watermark(24), **(own or {}))
    settings = {"epochs": 1, "batch_size": 60, "lr": 1e-3, "optimizer": "sgd", **settings}
    record = fit(model, small_data(val=False, signal=0.05), **settings).records[0]
    return record, model


@pytest.mark.parametrize("mapping", ["gaussian", "blm+"])
def test_the_temperature_is_in_the_loss_and_its_gradient_alone(mapping):
    plain, plainly = one_step(mapping)
    same, _ = one_step(mapping, loss_temperature=1)
    hot, hotly = one_step(mapping, loss_temperature=1e6)
    assert same["loss"] == plain["loss"]
    assert hot["loss"] == pytest.approx(torch.tensor(3.0).log().item(), abs=1e-3)  # of a uniform softmax of 3 classes
    assert hot["accuracy"]["train"] == plain["accuracy"]["train"]
    assert torch.equal(hotly.mapping.weights, plainly.mapping.weights)
    assert 0 < hotly.program.theta.norm() < 1e-3 * plainly.program.theta.norm()


def test_an_automatic_temperature_makes_the_loss_of_the_gaussian_an_honest_one():
    """48 images tell little of the covariance of 40 labels: the plain softmax is far too sure."""
    little = {"shrinkage": 0.001}
    plain, auto, *held = (
        one_step("gaussian", 40, little, loss_temperature=value)[0] for value in ("none", "auto", 1.0, 4.0, 16.0, 64.0)
    )
    assert plain["loss"] == held[0]["loss"] > 2
    assert auto["loss"] < min(record["loss"] for record in held) + 0.02
    assert auto["accuracy"] == plain["accuracy"] | {"test": auto["accuracy"]["test"]}


def walk(**settings):
    """θ before each training step, and after each epoch."""
    model, moving, shown = build("blm", refresh="never", program=Watermark(24)), [], []

    def watch(module, inputs, output):
        if torch.is_grad_enabled():
            moving.append(module.theta.detach().clone())

    model.accelerate = lambda passes=None: "not at all"  # so that the program itself is called
    model.program.register_forward_hook(watch)
    data = small_data(val=False)
    fit(
        model,
        data,
        epochs=3,
        batch_size=20,
        lr=0.05,
        schedule="constant",
        on_epoch=lambda *_: shown.append(model.program.theta.detach().clone()),
        **settings,
    )
    return moving, shown


def test_the_average_is_shown_and_the_optimiser_does_not_notice():
    plain, ends = walk()
    moving, shown = walk(average=1e6)
    assert len(plain) == len(moving) == 9
    assert all(torch.equal(*pair) for pair in zip(plain, moving, strict=True))
    after = [*plain[1:], ends[-1]]  # θ after each step
    for epoch, theta in enumerate(shown, 1):
        torch.testing.assert_close(theta, torch.stack(after[: 3 * epoch]).mean(0), rtol=1e-4, atol=1e-6)
        assert not torch.equal(theta, ends[epoch - 1])


def test_the_averaged_program_is_what_is_evaluated_and_selected():
    data = small_data()
    data = replace(data, val=ArraySplit(data.val.images, (data.val.labels + 1) % 3))  # validation that prefers bad epochs
    model, seen = build("blm"), []
    result = fit(
        model,
        data,
        epochs=6,
        batch_size=20,
        lr=0.3,
        average=0.5,
        on_epoch=lambda *_: seen.append(model.program.theta.detach().clone()),
    )
    assert torch.equal(model.program.theta, seen[result.selected_epoch - 1])
    record = result.records[result.selected_epoch - 1]
    assert evaluate(model, data.test).accuracy == record["accuracy"]["test"] == result.accuracy["selected"]


@pytest.mark.parametrize("average", [0, 0.5])
def test_refreshed_after_an_epoch_the_mapping_is_that_of_the_program_as_it_is(average):
    model, data = build("blm+", refresh="after"), small_data(val=False)
    result = fit(model, data, epochs=3, batch_size=20, lr=0.2, augment="trivial", average=average)
    kept = model.mapping.weights.clone()
    logits, labels = next(keep_logits(model, data.train, pixels=12, batch_size=60).blocks())
    model.mapping.estimate(model.mapping.count(logits, labels))
    torch.testing.assert_close(model.mapping.weights, kept, rtol=1e-4, atol=1e-6)
    assert evaluate(model, data.test).accuracy == result.accuracy["last"]


def test_patience_ends_a_fit_and_a_continued_one_at_the_same_epoch(tmp_path):
    settings = {"epochs": 30, "batch_size": 30, "lr": 1e-6, "patience": 3}
    result = fit(build("blm"), small_data(), **settings)
    assert len(result.records) == 4  # the first is never exceeded
    assert result.selected_epoch == 1
    path = tmp_path / "state.safetensors"
    with pytest.raises(StopError):
        fit(build("blm"), small_data(), checkpoint=path, on_epoch=stop_after_two, **settings)
    again = fit(build("blm"), small_data(), checkpoint=path, **settings)
    assert without_times(again.records) == without_times(result.records)
    rarely = fit(build("blm"), small_data(), **{**settings, "evaluate_every": 2})
    assert len(rarely.records) == 8  # measured epochs count


def test_patience_needs_validation_images():
    model = build("blm")
    with pytest.raises(ReprogramError, match="patience = 3 was given, but there are no validation images"):
        fit(model, small_data(val=False), patience=3)
    assert not model.program.theta.any()


def test_random_operations_are_for_training_alone():
    """With a single step over all images: the loss is of changed images, ω and the test are of images as they are."""
    data = small_data(val=False)
    plain, trivial = (
        fit(build("blm", refresh="never"), data, epochs=1, batch_size=60, lr=1e-9, augment=augment)
        for augment in ("none", "trivial")
    )
    assert plain.records[0]["loss"] != trivial.records[0]["loss"]
    assert torch.equal(plain.model.mapping.weights, trivial.model.mapping.weights)
    assert torch.equal(plain.test.predicted, trivial.test.predicted)
    assert F.mse_loss(plain.model.program.theta, trivial.model.program.theta) > 0
