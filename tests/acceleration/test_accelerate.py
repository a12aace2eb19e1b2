"""`accelerate` in its place: what it chooses, what it falls back to, and how the rest of the library uses it."""

import copy

import pytest
import torch
from torch import nn

from reprogram import BlackBox, Frozen, Reprogrammed, evaluate, fit, make_mapping
from reprogram.acceleration.accelerate import accelerate
from reprogram.acceleration.folding import fold_batch_norm
from reprogram.data import ArraySplit, DataSet
from reprogram.programs import NoProgram, Padding, Watermark
from reprogram.programs.base import Program


def small_network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, 1, 1, groups=8),
        nn.BatchNorm2d(8),
        nn.ReLU6(inplace=True),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.Hardswish(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 7),
    )


@pytest.fixture
def frozen():
    return Frozen(small_network(), input_size=64)


def reprogrammed(frozen, program, classes=("a", "b", "c")):
    return Reprogrammed(program, frozen, make_mapping("blm", frozen.labels, classes))


def data(n=24, size=12):
    draw = torch.Generator().manual_seed(0)
    split = ArraySplit(torch.randint(256, (n, 3, size, size), dtype=torch.uint8, generator=draw), torch.arange(n) % 3)
    return DataSet("noise", ("a", "b", "c"), train=split, val=split.subset(torch.arange(9)), test=split)


def test_describe_says_what_was_chosen(frozen):
    assert accelerate(frozen, Padding(64, 12)).describe().startswith("3 batch norms folded, channels-last, shared frame in")
    assert accelerate(frozen, Padding(64, 63)).describe().endswith("no shared frame, as it would not pay")
    assert accelerate(frozen, Watermark(64)).describe() == "3 batch norms folded, channels-last"


def test_the_choice_is_the_same_every_time(frozen):
    first, again = (accelerate(Frozen(small_network(), input_size=64), Padding(64, 20)).describe() for _ in range(2))
    assert first == again


def test_a_black_box_is_left_alone():
    box = BlackBox(lambda pixels: pixels.mean((2, 3)), labels=["r", "g", "b"], input_size=8)
    accelerated = accelerate(box, NoProgram(8))
    assert accelerated.describe() == "the module as it is (it only answers)"
    assert accelerated(torch.ones(2, 3, 8, 8)).tolist() == [[1.0] * 3] * 2


def test_a_module_that_cannot_be_exported_runs_as_it_is():
    class Branching(nn.Module):
        def forward(self, x):
            return x.mean((2, 3)) if float(x.detach().sum()) > 0 else x.amax((2, 3))

    accelerated = accelerate(Frozen(Branching(), input_size=16), Padding(16, 4))
    assert "cannot be exported" in accelerated.describe()
    assert accelerated(torch.ones(2, 3, 4, 4)).shape == (2, 3)


def test_folding_that_changes_the_numbers_is_not_used(frozen, monkeypatch):
    honest = fold_batch_norm

    def wrong(network):
        folded = honest(network)
        for node, weight in network.weights.items():
            network.weights[node] = weight * 1.01
        return folded

    monkeypatch.setattr("reprogram.acceleration.accelerate.fold_batch_norm", wrong)
    accelerated = accelerate(frozen, Padding(64, 12))
    assert accelerated.folded == 0
    assert "gave other numbers" in accelerated.describe()
    images = torch.rand(2, 3, 12, 12)
    assert torch.allclose(accelerated(images), frozen(accelerated.program(images)), atol=1e-5)


def test_a_program_without_a_carrier_gets_its_gradient(frozen):
    class Tint(Program):
        name = "tint"

        def __init__(self):
            super().__init__(64, 64)
            self.theta = nn.Parameter(torch.zeros(3, 1, 1))

        def place(self, images):
            return images * (1 + self.theta)

    program, images = Tint(), torch.rand(2, 3, 64, 64)
    (expected,) = torch.autograd.grad(frozen(program(images)).sum(), program.theta)
    (found,) = torch.autograd.grad(accelerate(frozen, program)(images).sum(), program.theta)
    assert torch.allclose(found, expected, rtol=1e-3)


def test_moving_or_exchanging_parts_prepares_again(frozen):
    model = reprogrammed(frozen, Padding(64, 12))
    assert "shared frame" in model.accelerate()
    images = torch.rand(2, 3, 12, 12)
    before = model.source_logits(images)
    model.double()
    assert torch.allclose(model.source_logits(images.double()).float(), before, atol=1e-5)
    assert model.accelerated.schedule.weights[0].dtype == torch.float64
    model.program = Padding(64, 30).double()
    assert model.source_logits(images).shape == (2, 7)
    assert model.accelerated.program is model.program


def test_copies_and_artefacts_hold_nothing_prepared(frozen, tmp_path):
    model = reprogrammed(frozen, Padding(64, 12))
    names = set(model.state_dict())
    model.accelerate()
    assert set(model.state_dict()) == names
    assert copy.deepcopy(model).accelerated is None
    model.save(tmp_path / "artefact")
    assert Reprogrammed.load(tmp_path / "artefact", frozen).accelerated is None


def test_few_images_prepare_nothing(frozen):
    model = reprogrammed(frozen, Padding(64, 12))
    assert model.accelerate(3) == "the module as it is (too few images to repay preparing it)"
    assert model.accelerated is None
    evaluate(model, data(2000).test)
    assert model.accelerated is not None


def test_fit_is_accelerated_and_repeats_to_the_bit(frozen, tmp_path):
    results = []
    for _ in range(2):
        model = reprogrammed(frozen, Padding(64, 12))
        result = fit(model, data(), epochs=50, batch_size=12)
        assert model.accelerated.schedule.framed
        results.append((result, model.program.theta.detach().clone()))
    assert torch.equal(results[0][1], results[1][1])

    interrupted = reprogrammed(frozen, Padding(64, 12))

    def stop(records, epochs):
        if len(records) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(interrupted, data(), epochs=50, batch_size=12, checkpoint=tmp_path / "state", on_epoch=stop)
    resumed = reprogrammed(frozen, Padding(64, 12))
    fit(resumed, data(), epochs=50, batch_size=12, checkpoint=tmp_path / "state")
    assert torch.equal(resumed.program.theta, results[0][1])


def test_evaluate_every_thins_validation_and_test(frozen):
    model = reprogrammed(frozen, Padding(64, 12))
    result = fit(model, data(), epochs=5, batch_size=12, evaluate_every=2)
    tested = [record["accuracy"]["test"] is not None for record in result.records]
    assert tested == [False, True, False, True, True]
    assert [record["accuracy"]["val"] is not None for record in result.records] == tested
    assert result.selected_epoch in (2, 4, 5)
    assert result.accuracy["best_on_test"] is not None


def test_preparing_in_inference_mode_leaves_gradients_possible(frozen):
    program = Padding(64, 12)
    with torch.inference_mode():
        accelerated = accelerate(frozen, program)
    accelerated(torch.rand(2, 3, 12, 12)).sum().backward()
    assert program.theta.grad.abs().sum() > 0


class TwoBranches(nn.Module):
    """The narrow branch comes first: its window is the smaller one, and the sum is written over its map."""

    def __init__(self):
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 6, 3, padding=1)
        self.again, self.wider = nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 3, padding=1)
        self.last = nn.Linear(6, 5)

    def forward(self, x):
        x = (self.narrow(x) + self.wide(x)).relu()
        x = (self.again(x) + self.wider(x)).relu()
        return self.last(x.mean((2, 3)))


class Broadcast(nn.Module):
    """A value of one place is added to a map: the sum cannot be written over it."""

    def __init__(self):
        super().__init__()
        self.first, self.gate, self.last = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 1), nn.Linear(6, 5)

    def forward(self, x):
        x = self.first(x)
        return self.last((self.gate(x.mean((2, 3), keepdim=True)) + x).mean((2, 3)))


def both(module, program, images):
    """Logits and the gradient of θ by the module as it is and prepared, in float64."""
    torch.manual_seed(0)
    frozen = Frozen(module().double(), input_size=program.canvas)
    program = program.double()
    with torch.no_grad():
        program.theta.normal_()
    found = []
    for call in (lambda x: frozen(program(x)), accelerate(frozen, program)):
        program.zero_grad()
        logits = call(images.double())
        logits.square().sum().backward()
        found.append((logits.detach(), program.theta.grad.clone()))
    return found


@pytest.mark.parametrize("module", [TwoBranches, Broadcast])
@pytest.mark.parametrize("size", [8, 21])
def test_sums_in_place_touch_nothing_that_is_read_later(module, size):
    for ours, theirs in zip(*both(module, Padding(48, size), torch.rand(3, 3, size, size)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


class ClampedWatermark(Watermark):
    def place(self, images):
        return super().place(images).clamp(0, 1)


class FadedPadding(Padding):
    def place(self, images):
        return super().place(images * 0.5)


@pytest.mark.parametrize("program", [ClampedWatermark(32), FadedPadding(32, 8)], ids=["watermark", "padding"])
def test_programs_of_ones_own_are_taken_as_they_are(program):
    for ours, theirs in zip(*both(TwoBranches, program, torch.rand(3, 3, 20, 20)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_forward_of_ones_own_is_taken_as_it_is():
    class Doubled(Frozen):
        def forward(self, x):
            return 2 * super().forward(x)

    frozen, program = Doubled(TwoBranches(), input_size=32), Watermark(32)
    prepared, images = accelerate(frozen, program), torch.rand(2, 3, 32, 32)
    assert "a forward of its own" in prepared.describe()
    torch.testing.assert_close(prepared(images), frozen(program(images)))


@pytest.mark.parametrize("program", [Watermark(32), Padding(32, 8)], ids=["watermark", "padding"])
def test_gradients_still_reach_the_images(program):
    frozen, images = Frozen(TwoBranches(), input_size=32), torch.rand(2, 3, program.image_size, program.image_size)
    found = []
    for call in (lambda x: frozen(program(x)), accelerate(frozen, program)):
        pixels = images.clone().requires_grad_()
        call(pixels).sum().backward()
        found.append(pixels.grad)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
