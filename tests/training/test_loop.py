"""The loop: its four steps, its refresh schedules, its seeds, and continuing to the bit."""

import copy
import math
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from reprogram import Frozen, ReprogramError, evaluate, fit
from reprogram.data.dataset import ArraySplit, DataSet
from reprogram.data.splits import stratified_folds
from reprogram.mappings.bayesian import bayes
from reprogram.mappings.certainty import measure_certainty
from reprogram.programs.base import NoProgram
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark
from reprogram.statistics.joint import JointStatistics
from reprogram.training.result import Diverged
from sides import CLASSES, StopError, build, small_data, small_frozen, stop_after_two, without_times


class CountingFrozen(Frozen):
    """Counts the samples that pass through it, apart for passes with and without gradient."""

    seen: dict[str, int]

    def forward(self, x):
        if not hasattr(self, "seen"):
            self.seen = {"training": 0, "other": 0}
        self.seen["training" if torch.is_grad_enabled() else "other"] += len(x)
        return super().forward(x)


@pytest.mark.parametrize("mapping", ["rlm", "flm", "ilm", "blm", "blm+", "gaussian", "linear", "sigmoid"])
def test_every_mapping_trains_the_program_and_the_loss_falls(mapping):
    model = build(mapping)
    data = small_data(signal=0.02 if mapping == "gaussian" else 0.6)  # which has nothing left to learn from easy images
    result = fit(model, data, epochs=6, batch_size=20, lr=0.1)
    assert result.records[-1]["loss"] < result.records[0]["loss"]
    assert model.program.theta.abs().max() > 0
    assert set(result.records[0]) == {"epoch", "loss", "accuracy", "mapping_change", "seconds", "images_per_second"}
    assert set(result.records[0]["accuracy"]) == {"train", "val", "test"}


def test_frozen_weights_and_buffers_are_bit_identical_after_a_fit():
    frozen = small_frozen()
    before = {key: value.clone() for key, value in frozen.module.state_dict().items()}
    model = build(frozen=frozen)
    model.train()
    fit(model, small_data(), epochs=3, batch_size=16)
    after = frozen.module.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("mapping", "refresh", "gradient_free_passes"),
    [
        ("ilm", "reuse", 1),
        ("blm+", "reuse", 1),
        ("ilm", "fresh", 4),
        ("blm", "after", 5),
        ("blm", "never", 1),
        ("flm", None, 1),
        ("rlm", None, 0),
    ],
)
def test_samples_through_the_frozen_model(mapping, refresh, gradient_free_passes):
    """Reuse runs the model n·E + n times for training, not 2·n·E."""
    data, epochs = small_data(n=60), 4
    frozen = small_frozen(kind=CountingFrozen)
    fit(build(mapping, frozen, refresh=refresh), data, epochs=epochs, batch_size=16)
    evaluations = (len(data.val) + len(data.test)) * epochs  # the end needs none: it has seen the logits of its epoch
    assert frozen.seen["training"] == 60 * epochs
    assert frozen.seen["other"] - evaluations == 60 * gradient_free_passes


def test_a_fit_says_how_sure_its_model_may_be():
    """By validation images where something was trained, else by the training images, each left out, without a pass more."""
    data = small_data(n=60)
    model = build("blm")
    result = fit(model, data, epochs=2, batch_size=16)
    assert model.mapping.certainty.how == "validation images"
    assert model.mapping.certainty.n == len(data.val)
    assert result.test.honest != result.test.raw
    frozen = small_frozen(kind=CountingFrozen)
    plain = build("gaussian", frozen, NoProgram(24))
    fit(plain, data, batch_size=16)
    assert plain.mapping.certainty.how == "leave-one-out"
    assert plain.mapping.certainty.n == 60
    assert frozen.seen["other"] == 60 + len(data.val) + len(data.test)
    logits = plain.source_logits(data.train.pixels(plain.program.image_size))
    assert measure_certainty(plain.mapping, (logits.detach(), data.train.labels)).temperature == pytest.approx(
        plain.mapping.certainty.temperature
    )
    found = evaluate(plain, data.test, coverage=0.8)
    said = plain.predict(data.test.pixels(plain.program.image_size), coverage=0.8)
    names = [data.classes[label] for label in data.test.labels.tolist()]
    assert found.covered.tolist() == [name in each for name, each in zip(names, said.sets, strict=True)]
    assert found.set_sizes.tolist() == [len(each) for each in said.sets]
    torch.testing.assert_close(found.confidence, said.confidence)
    fit(plain, data, batch_size=16, calibration="none")
    assert plain.mapping.certainty is None


def test_reuse_takes_the_outputs_of_the_epoch_just_trained():
    """Replay the epochs by hand with plain tensors: ω of epoch 3 comes from the outputs that epoch 2 trained on.

    With sgd, for Adam's first steps take the sign of a gradient, and of one that is nearly 0 rounding decides it; and the
    network in float64, so that rounding does not decide either which source label is the best of an image.
    """
    data = small_data(val=False)
    model = build("blm").double()
    fit(model, data, epochs=3, batch_size=60, lr=30.0, optimizer="sgd", schedule="constant")
    replay = build("blm").double()
    pixels, labels = data.train.pixels(12), data.train.labels

    def omega():
        with torch.no_grad():
            return bayes(JointStatistics.counts(12, 3).update(replay.source_logits(pixels), labels))

    optimizer = torch.optim.SGD([replay.program.theta], lr=30.0, momentum=0.9)
    first = weights = omega()
    for _ in range(3):
        used = weights
        weights = omega()  # with a single batch the training outputs are those of θ before the step
        loss = nn.functional.cross_entropy(replay.source_logits(pixels).float() @ used, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert not torch.equal(used, first)
    assert not torch.equal(used, weights)
    torch.testing.assert_close(model.mapping.weights.float(), used)
    assert replay.program.theta.abs().max() > 0.1
    torch.testing.assert_close(model.program.theta, replay.program.theta, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("refresh", ["reuse", "fresh"])
def test_the_epoch_is_tested_with_the_mapping_it_trained_with(refresh):
    model, data = build("blm", refresh=refresh), small_data(val=False)
    used = []
    model.mapping.register_forward_hook(
        lambda module, *_: used.append(module.weights.clone()) if torch.is_grad_enabled() else None
    )
    result = fit(model, data, epochs=3, batch_size=20, lr=0.2)
    assert not torch.equal(used[0], used[-1])
    assert torch.equal(model.mapping.weights, used[-1])
    assert evaluate(model, data.test).accuracy == result.records[-1]["accuracy"]["test"] == result.accuracy["last"]


def test_the_three_accuracies_and_the_selected_epoch():
    """Trap 8: the checkpoint is chosen on validation, and best-on-test is reported beside it under its own name."""
    data = small_data()
    data = replace(data, val=ArraySplit(data.val.images, (data.val.labels + 1) % 3))  # validation that prefers bad epochs
    model = build("blm")
    result = fit(model, data, epochs=8, batch_size=20, lr=0.3)
    tests = [record["accuracy"]["test"] for record in result.records]
    vals = [record["accuracy"]["val"] for record in result.records]
    assert result.selected_epoch == vals.index(max(vals)) + 1
    assert result.selected_epoch != tests.index(max(tests)) + 1
    assert result.accuracy["last"] == tests[-1]
    assert result.accuracy["best_on_test"] == max(tests)
    assert result.accuracy["selected"] == tests[result.selected_epoch - 1] == evaluate(model, data.test).accuracy
    assert result.accuracy["selected"] < result.accuracy["best_on_test"]
    assert result.test.accuracy == result.accuracy["selected"]


def test_without_validation_nothing_is_selected_and_the_last_epoch_is_kept():
    result = fit(build(), small_data(val=False), epochs=3, batch_size=20)
    assert result.accuracy["selected"] is None
    assert result.selected_epoch == 3


def test_a_run_is_a_function_of_its_seed():
    first, again, other = (fit(build(), small_data(), epochs=2, batch_size=16, seed=seed) for seed in (1, 1, 2))
    assert without_times(first.records) == without_times(again.records)
    assert without_times(first.records) != without_times(other.records)


def test_an_extra_pass_does_not_change_the_batches():
    """Trap 10: with `fresh` the model sees more passes, yet the order of the training images stays the same."""
    orders = []
    for refresh in ("never", "fresh"):
        seen = []

        class Recording(Frozen):
            def forward(self, x, seen=seen):
                if torch.is_grad_enabled():
                    seen.append(x.detach()[:, :, 12, 12])
                return super().forward(x)

        torch.rand(17)  # somebody else draws from the global generator
        fit(build("blm", small_frozen(kind=Recording), refresh=refresh), small_data(), epochs=3, batch_size=16)
        orders.append(torch.cat(seen))
    assert torch.equal(*orders)


def test_without_a_program_one_pass_gives_the_mapping():
    frozen = small_frozen(kind=CountingFrozen)
    data = small_data()
    result = fit(build("blm", frozen, program=NoProgram(24)), data, epochs=50, batch_size=16)
    assert len(result.records) == 1
    assert result.records[0]["loss"] is None
    assert frozen.seen["training"] == 0
    assert frozen.seen["other"] == 60 + len(data.val) + len(data.test)


def test_a_learned_mapping_trains_also_without_a_program():
    """As images never change then, each goes through the model once, however many epochs there are."""
    frozen, data = small_frozen(kind=CountingFrozen), small_data()
    result = fit(build("linear", frozen, program=NoProgram(24)), data, epochs=4, batch_size=16)
    assert result.records[-1]["loss"] < result.records[0]["loss"]
    assert frozen.seen == {"training": 0, "other": len(data.train) + len(data.val) + len(data.test)}


def test_a_learned_mapping_sees_new_views_in_every_epoch():
    frozen, data = small_frozen(kind=CountingFrozen), small_data()
    fit(build("linear", frozen, program=NoProgram(24)), data, epochs=3, batch_size=16, augment="flip")
    assert frozen.seen["training"] == 3 * len(data.train)


@pytest.mark.parametrize("program", [None, NoProgram(24)])
@pytest.mark.parametrize("mapping", ["blm+", "linear"])
def test_logits_that_were_seen_give_what_another_pass_gives(program, mapping, monkeypatch):
    """To the bit: the end of a fit computes the same from the logits of its epoch as from the images."""
    found = []
    for room in (2**27, 0):
        monkeypatch.setattr("reprogram.training.seen._MOST", room)
        result = fit(build(mapping, program=copy.deepcopy(program)), small_data(), epochs=3, batch_size=16)
        found.append(result)
    first, second = found
    for name in ("predicted", "confidence", "labels"):
        assert torch.equal(getattr(first.test, name), getattr(second.test, name))
    assert torch.equal(first.right, second.right)
    assert float(first.right.double().mean()) == first.records[first.selected_epoch - 1]["accuracy"]["val"]
    assert first.test.accuracy == first.accuracy["selected"]
    certain = [result.model.mapping.certainty for result in found]
    assert [one and one.temperature for one in certain] == [certain[0] and certain[0].temperature] * 2


@pytest.mark.parametrize(
    ("mapping", "optimizer", "precision"),
    [
        ({"mapping": "blm+"}, "adam", "fp32"),
        ({"mapping": "ilm"}, "sgd", "fp32"),
        ({"mapping": "linear", "normalize": "standardise"}, "adam", "fp32"),
        ({"mapping": "blm"}, "sgd", "fp16"),
        ({"mapping": "gaussian"}, "adam", "fp32"),
        ({"mapping": "gaussian", "refresh": "never"}, "adam", "fp32"),
        ({"mapping": "gaussian", "refresh": "after"}, "adam", "fp32"),
        ({"mapping": "blm+", "normalize": "centre", "folds": 3}, "adam", "fp32"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_a_checkpoint_continues_to_the_bit(tmp_path, mapping, optimizer, precision):
    data = small_data(val=False)  # so that the last epoch is kept, not one before the interruption
    settings = {
        "epochs": 5,
        "batch_size": 16,
        "lr": 0.1,
        "optimizer": optimizer,
        "schedule": "cosine",
        "precision": precision,
    }
    whole = build(**mapping)
    expected = fit(whole, data, **settings)

    checkpoint = tmp_path / "state.safetensors"
    with pytest.raises(StopError):
        fit(build(**mapping), data, checkpoint=checkpoint, on_epoch=stop_after_two, **settings)
    resumed = build(**mapping)
    result = fit(resumed, data, checkpoint=checkpoint, **settings)
    assert without_times(result.records) == without_times(expected.records)
    assert result.accuracy == expected.accuracy
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[key]), key


def test_in_training_each_sample_is_scored_by_a_mapping_that_has_not_seen_it():
    """Replay the first step: the loss comes from the mappings without each fold, the evaluation from the one of all."""
    model, data = build("gaussian"), small_data(val=False, signal=0.02)
    losses = []
    fit(model, data, epochs=1, batch_size=60, lr=1e-6, on_epoch=lambda records, _: losses.append(records[-1]["loss"]))
    folds = stratified_folds(data.train.labels, 5, seed=0)
    replay = build("gaussian")
    with torch.no_grad():
        logits = replay.source_logits(data.train.pixels(12))
    scores = torch.empty(60, 3)
    for fold in range(5):
        without = build("gaussian").mapping
        without.estimate(without.new_statistics().update(logits[folds != fold], data.train.labels[folds != fold]))
        scores[folds == fold] = without(logits[folds == fold])
    expected = nn.functional.cross_entropy(scores, data.train.labels)
    assert losses[0] == pytest.approx(float(expected), rel=1e-4)
    in_sample = replay.mapping
    in_sample.estimate(in_sample.new_statistics().update(logits, data.train.labels))
    assert nn.functional.cross_entropy(in_sample(logits), data.train.labels) < 0.9 * expected
    torch.testing.assert_close(model.mapping.weights, in_sample.weights)


def test_a_learned_mapping_learns_on_standardised_logits():
    model, data = build("linear", normalize="standardise"), small_data(val=False)
    with torch.no_grad():
        logits = model.source_logits(data.train.pixels(12))
    fit(model, data, epochs=1, batch_size=20)
    torch.testing.assert_close(model.mapping.shift, logits.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.mapping.scale, logits.std(0, correction=0), rtol=1e-4, atol=1e-5)


def test_data_with_other_classes_are_refused():
    with pytest.raises(ReprogramError, match=r"none.*make the model with data\.classes"):
        fit(build(), replace(small_data(), classes=("none", "right", "left")))


def test_a_border_of_no_pixels_is_nothing_to_train():
    result = fit(build("blm", program=Padding(24, 24)), small_data(), epochs=5, batch_size=16)
    assert len(result.records) == 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_leaves_the_statistics_exact(precision):
    model = build("blm+", refresh="never")
    seen = []
    model.frozen.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    data = small_data(val=False)
    result = fit(model, data, epochs=1, batch_size=60, precision=precision)
    assert math.isfinite(result.records[-1]["loss"])
    assert seen[0].dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    expected = torch.zeros(12, 3, dtype=torch.float64)
    for row, label in zip(seen[0].double(), data.train.labels, strict=True):
        expected[row.argmax(), label] += row.softmax(0).max()
    torch.testing.assert_close(model.mapping.statistics.matrix, expected, rtol=1e-12, atol=1e-12)
    assert model.mapping.weights.dtype == torch.float32
    assert model.mapping.statistics.n == 60


class Explosive(nn.Module):
    """The small network, whose logits overflow float32 once a pixel of its input is beyond a limit."""

    def __init__(self, network, limit):
        super().__init__()
        self.network, self.limit = network, limit

    def forward(self, x):
        far = x.flatten(1).abs().amax(1, keepdim=True)
        return self.network(x) * (500 * (far - self.limit).clamp(0)).exp()


def explosive(mapping="blm", limit=8.0, **settings):
    """A watermark moves by about lr each step, so that the number of good steps is limit / lr."""
    frozen = Frozen(Explosive(small_frozen().module, limit), input_size=24)
    return build(mapping, frozen, program=Watermark(24), **settings)


EXPLODING = {"epochs": 9, "batch_size": 20, "lr": 1.0, "schedule": "constant"}


@pytest.mark.parametrize("val", [True, False])
@pytest.mark.parametrize("mapping", ["rlm", "blm", "gaussian", "linear"])
def test_a_fit_that_diverges_keeps_what_was_good_and_says_what_to_change(mapping, val, tmp_path):
    model, seen = explosive(mapping), []
    data = small_data(val=val, signal=0.02 if mapping == "gaussian" else 0.6)
    checkpoint = tmp_path / "state.safetensors"

    def keep(records, _):
        seen.append({key: value.clone() for key, value in model.state_dict().items()})

    with pytest.raises(Diverged) as caught:
        fit(model, data, checkpoint=checkpoint, on_epoch=keep, **EXPLODING)
    result, done = caught.value.result, len(seen)
    assert 2 <= done < 9
    assert [record["epoch"] for record in result.records] == list(range(1, done + 1))
    last, rates = result.records[-1]["loss"], "lr = 1 and mapping_lr = 0.1" if mapping == "linear" else "lr = 1"
    assert re.fullmatch(
        rf"the (loss|logits|scores).* in epoch {done + 1} of 9 \(its loss was {last:.4g} before\); lower {rates}: "
        rf"the model of epoch {result.selected_epoch} is kept \({100 * result.test.accuracy:.1f} % on test\)",
        str(caught.value),
    )
    assert result.model is model
    assert result.selected_epoch == done or val
    for key, value in seen[result.selected_epoch - 1].items():
        assert torch.equal(model.state_dict()[key], value)
        assert value.isfinite().all()
    assert evaluate(model, data.test).accuracy == result.test.accuracy == result.records[result.selected_epoch - 1][
        "accuracy"
    ]["test"]  # fmt: skip
    # the checkpoint is that of the last good epoch: the same fit goes on from there and comes to the same end
    before = checkpoint.read_bytes()
    with pytest.raises(Diverged, match=re.escape(str(caught.value))) as again:
        fit(explosive(mapping), data, checkpoint=checkpoint, **EXPLODING)
    assert again.value.result.records == result.records
    assert checkpoint.read_bytes() == before


def test_a_fit_that_diverges_in_its_first_epoch_leaves_the_model_as_it_was(tmp_path):
    model = explosive(limit=1.5)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(
        Diverged, match=r"in epoch 1 of 9; lower lr = 1: no epoch was completed and the model is left"
    ) as caught:
        fit(model, small_data(), checkpoint=tmp_path / "state.safetensors", **EXPLODING)
    assert caught.value.result is None
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert list(tmp_path.iterdir()) == []


def test_epochs_without_evaluation_are_kept_as_well():
    with pytest.raises(Diverged) as caught:
        fit(explosive(), small_data(), evaluate_every=8, **EXPLODING)
    result = caught.value.result
    assert result.selected_epoch == len(result.records) < 8
    assert result.accuracy == {"last": None, "selected": None, "best_on_test": None}
    assert result.test.accuracy > 0.3


def test_divergence_is_noticed_within_the_epoch():
    """Not after hundreds of steps: the loss is looked at every few steps. ω of rlm is not estimated, so nothing else is."""
    model, steps = explosive("rlm", limit=3.0), []
    model.frozen.register_forward_hook(lambda *_: steps.append(torch.is_grad_enabled()))
    with pytest.raises(Diverged, match="the loss became"):
        fit(model, small_data(n=300), epochs=1, batch_size=1, lr=1.0)
    assert sum(steps) <= 32


def test_a_model_that_overflows_before_anything_is_trained_is_told_apart():
    model = build("blm", program=Watermark(24))
    model.frozen.register_forward_hook(lambda module, inputs, output: (output * 1e6).half())
    with pytest.raises(Diverged) as caught:
        fit(model, small_data(), epochs=2, batch_size=20, lr=0.1)
    assert str(caught.value) == (
        "the logits hold NaN or infinity in epoch 1 of 2; check the images and the source model: "
        "no epoch was completed and the model is left as it was given"
    )
    with pytest.raises(Diverged, match=r"use precision = fp32 instead of fp16 or check the images"):
        fit(model, small_data(), epochs=2, batch_size=20, lr=0.1, precision="fp16")
    with pytest.raises(Diverged, match=r"in epoch 1 of 1; check the images and the source model"):
        fit(build("blm", model.frozen, program=NoProgram(24)), small_data(), batch_size=20)


@pytest.mark.parametrize("epochs", [2, 30])
def test_a_fit_in_fp16_all_of_whose_steps_overflow_is_noticed(epochs):
    """The logits are fine, but no gradient fits: without this the model would stay as it was, and nobody would know."""

    class NoGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.inf

    class Steep(nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(NoGradient.apply(x))

    model = build("rlm", Frozen(Steep(small_frozen().module), input_size=24), program=Watermark(24))
    with pytest.raises(
        Diverged, match=r"the gradients overflow fp16 at every step in .* before\); use precision = fp32 instead of fp16:"
    ) as caught:
        fit(model, small_data(), epochs=epochs, batch_size=20, precision="fp16")
    assert len(caught.value.result.records) == min(epochs, 9) - 1  # 3 steps each; the scale is below 2^-10 after 27 of them
    assert not model.program.theta.any()


def test_a_loss_that_is_not_a_number_is_an_error_that_says_what_to_do():
    with pytest.raises(Diverged, match=r"lower lr = 0\.05 and mapping_lr = 1e\+37"):
        fit(build("linear"), small_data(), epochs=5, batch_size=16, mapping_lr=1e37)


class Constant(nn.Module):
    def forward(self, x):
        return 0 * x.mean((1, 2, 3))[:, None].expand(-1, 12)


@pytest.mark.filterwarnings("ignore::reprogram.errors.EvidenceWarning")
@pytest.mark.parametrize("mapping", ["rlm", "flm", "ilm", "blm", "blm+", "gaussian", "linear", "sigmoid"])
@pytest.mark.parametrize("case", ["one image", "one class", "identical images", "constant logits"])
def test_data_that_say_nothing_give_finite_numbers(mapping, case):
    labels = {"one image": torch.tensor([1]), "one class": torch.ones(12, dtype=torch.int64)}.get(case, torch.arange(12) % 3)
    images = torch.rand(len(labels), 3, 12, 12, generator=torch.Generator().manual_seed(0))
    split = ArraySplit(images[:1].expand_as(images).clone() if case == "identical images" else images, labels)
    frozen = Frozen(Constant(), input_size=24) if case == "constant logits" else small_frozen()
    model = build(mapping, frozen, program=Watermark(24))
    result = fit(model, DataSet("little", CLASSES, train=split, test=split, val=split), epochs=2, batch_size=8, lr=0.1)
    assert all(math.isfinite(record["loss"]) for record in result.records)
    assert all(value.isfinite().all() for value in model.state_dict().values())
    assert result.test.confidence.isfinite().all()
    if case in ("identical images", "constant logits"):
        assert result.test.accuracy == pytest.approx(1 / 3)


def test_data_that_are_none_are_refused():
    with pytest.raises(ReprogramError, match=r"data of type str were given, but a DataSet is expected; use load_data"):
        fit(build("blm"), "photos")


def test_data_that_are_no_split_are_refused():
    for given, name in ((small_data(), "DataSet"), ("photos", "str")):
        with pytest.raises(ReprogramError, match=f"{name} was given, but a split is expected; give data.test, for example"):
            evaluate(build("blm"), given)
