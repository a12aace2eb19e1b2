"""Modules with a backward pass of their own, programs that say wrong things of themselves, and what is noticed of both."""

import copy

import pytest
import torch
from torch import nn

from reprogram import Frozen, Reprogrammed, fit, make_mapping
from reprogram.acceleration.accelerate import accelerate
from reprogram.acceleration.schedule import Schedule
from reprogram.data import ArraySplit, DataSet
from reprogram.programs import NoProgram, Padding, Watermark
from reprogram.programs.base import Program


class RoundThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 4).round() / 4

    @staticmethod
    def backward(ctx, grad):
        return grad


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return -grad


def without_gradient(x):
    """Divided by a scale that was computed without a gradient."""
    with torch.no_grad():
        scale = x.square().mean((1, 2, 3), keepdim=True).sqrt() + 1e-5
    return x / scale


def gate_without_gradient(x):
    with torch.no_grad():
        gate = x.sigmoid()
    return x * gate


def hooked(act):
    def forward(x):
        y = x * 1.0
        if y.requires_grad:
            y.register_hook(act)
        return y

    return forward


class Around(nn.Module):
    """A small network around a function."""

    def __init__(self, function, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.function = function
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = self.function(x)
        return self.last(torch.relu(self.second(x)).mean((2, 3)))


OWN = {
    "straight-through rounding": RoundThrough.apply,
    "straight-through sign": lambda x: Sign.apply(x - x.mean()),
    "gradient reversal": Reverse.apply,
    "scale without a gradient": without_gradient,
    "gate without a gradient": gate_without_gradient,
    "a small part without a gradient": lambda x: x + 0.05 * gate_without_gradient(x),
    "detached in a copy": lambda x: x + 0.1 * x.detach(),
    "tensor hook": hooked(lambda grad: 3 * grad),
    "tensor hook, a little": hooked(lambda grad: 1.07 * grad),
    "clipped gradient": hooked(lambda grad: grad.clamp(-1e-3, 1e-3)),
    "small gradients dropped": hooked(lambda grad: grad * (grad.abs() > 1e-5)),
}
PROGRAMS = {"padding": lambda: Padding(32, 12), "watermark": lambda: Watermark(32)}


def outcome(call, program, images, scale=1.0):
    logits = call(images)
    weights = torch.linspace(-1, 1, logits.shape[1], dtype=logits.dtype)
    (gradient,) = torch.autograd.grad(scale * (logits * weights).sum(), program.theta)
    return logits.detach(), gradient


def noisy(program):
    with torch.no_grad():
        program.theta.normal_(generator=torch.Generator().manual_seed(7))
    return program


def assert_same(frozen, program, scale=1.0, batch=3):
    """In float64, the plain module's logits and gradient, up to rounding."""
    images = torch.rand(batch, 3, 12, 12, generator=torch.Generator().manual_seed(5))
    prepared = accelerate(frozen, program)
    noisy(program)
    expected = outcome(lambda x: frozen(program(x)), program, images, scale)
    for ours, theirs in zip(outcome(prepared, program, images, scale), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12 * scale)
    return prepared


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", OWN)
def test_a_backward_pass_of_its_own_is_kept(name, program):
    frozen, program = Frozen(Around(OWN[name]).double(), input_size=32), PROGRAMS[program]().double()
    for scale in (1e3, 1.0, 1e-3):
        prepared = assert_same(frozen, program, scale)
    if "detached" not in name:  # of a graph, a detached part is an operator like others
        assert prepared.schedule is None


@pytest.mark.parametrize("name", OWN)
def test_a_backward_pass_of_its_own_is_seen_in_float32(name):
    if "detached" not in name:
        prepared = accelerate(Frozen(Around(OWN[name]), input_size=32), Padding(32, 12))
        assert prepared.describe() == "the module as it is (what is faster gave another gradient)"


@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook"])
@pytest.mark.parametrize("factor", [None, 3.0, 1.07])
def test_module_hooks_are_called(kind, factor):
    module, seen = Around(lambda x: x).double(), []

    def hook(part, *gradients):
        seen.append(part)
        return None if factor is None else tuple(gradient * factor for gradient in gradients[0])

    getattr(module.second, kind)(hook)
    frozen, program = Frozen(module, input_size=32), Padding(32, 12).double()
    accelerated = accelerate(frozen, program)
    assert not seen
    assert accelerated.describe() == "the module as it is (hooks wait for its backward pass)"
    assert_same(frozen, program)
    assert seen == [module.second] * 2


def test_a_module_that_never_gives_a_gradient_gets_none():
    class Closed(nn.Module):
        def __init__(self):
            super().__init__()
            self.open = Around(lambda x: x)

        @torch.no_grad()
        def forward(self, x):
            return self.open(x)

    program = Padding(32, 12)
    assert not accelerate(Frozen(Closed(), input_size=32), program)(torch.rand(2, 3, 12, 12)).requires_grad


def test_a_quantised_network_learns_as_it_does_without_acceleration():
    frozen = Frozen(Around(RoundThrough.apply), input_size=32)
    draw = torch.Generator().manual_seed(0)
    split = ArraySplit(torch.randint(256, (24, 3, 12, 12), dtype=torch.uint8, generator=draw), torch.arange(24) % 3)
    data = DataSet("noise", ("a", "b", "c"), train=split, test=split)
    program = Padding(32, 12)
    model = Reprogrammed(program, frozen, make_mapping("blm", frozen.labels, data.classes))
    fit(model, data, epochs=200, batch_size=12)
    assert model.accelerated is not None
    assert program.theta.any()


@pytest.mark.parametrize("program", [Padding(32, 12), Watermark(32), NoProgram(32), Padding(32, 32)], ids=lambda p: p.name)
def test_nothing_is_left_behind(program):
    frozen = Frozen(Around(RoundThrough.apply), input_size=32)
    state = {key: value.clone() for key, value in frozen.module.state_dict().items()}
    theta = {key: value.clone() for key, value in program.state_dict().items()}
    random = torch.get_rng_state()
    accelerate(frozen, program)
    assert all(torch.equal(value, state[key]) for key, value in frozen.module.state_dict().items())
    assert all(torch.equal(value, theta[key]) for key, value in program.state_dict().items())
    assert all(part.grad is None for part in (*frozen.module.parameters(), *program.parameters()))
    assert not any(part.requires_grad for part in frozen.module.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_gradients_of_images_are_compared_where_there_is_no_theta():
    assert accelerate(Frozen(Around(lambda x: x), input_size=32), NoProgram(32)).schedule is not None
    assert accelerate(Frozen(Around(Reverse.apply), input_size=32), NoProgram(32)).schedule is None


def insisting(x):
    """The same as without it, but not in float64."""
    return x * 2 if x.dtype == torch.float32 else x.new_zeros(0).view(3)


@pytest.mark.parametrize(
    ("function", "exact", "alike"),
    [
        (lambda x: x, False, True),
        (lambda x: x, True, True),
        (Reverse.apply, False, False),
        (insisting, False, False),
        (insisting, True, True),
    ],
    ids=["in float64", "as it is", "reversed", "not in float64", "not needed in float64"],
)
def test_networks_that_meet_kinks_in_every_batch_are_held_to_their_own_operators(function, exact, alike, monkeypatch):
    monkeypatch.setattr("reprogram.acceleration.verification._ROUNDING", -1.0)
    monkeypatch.setattr("reprogram.acceleration.verification._KINKS", 10.0)
    if not exact:  # as if the graph rounded otherwise than the module
        own = Schedule.run
        off = 1 + 2**-14
        monkeypatch.setattr(
            Schedule, "run", lambda self, *given: own(self, *given) * (off if given[0].dtype == torch.float32 else 1)
        )
    frozen = Frozen(Around(function), input_size=32)
    assert (accelerate(frozen, Padding(32, 12)).schedule is not None) == alike


def test_preparing_under_autocast_compares_in_full_precision():
    frozen, program = Frozen(Around(lambda x: x), input_size=32), Padding(32, 12)
    with torch.autocast("cpu", torch.bfloat16):
        assert accelerate(frozen, program).describe().startswith("1 batch norms folded, channels-last, shared frame in")


class Bordered(Program):
    """A program from outside: a trainable border of rows above and columns to the left, everything said anew."""

    name = "bordered"

    def __init__(self, canvas=32, rows=8, cols=4):
        super().__init__(canvas, canvas)
        self.rows, self.cols = rows, cols
        self.theta = nn.Parameter(torch.zeros(3, canvas, canvas))

    def _mask(self):
        mask = torch.ones(self.canvas, self.canvas, dtype=torch.bool)
        mask[self.rows :, self.cols :] = False
        return mask

    def place(self, images):
        return torch.where(self._mask(), self.theta.tanh(), images.to(self.theta.dtype))

    def window(self):
        return (self.rows, self.canvas), (self.cols, self.canvas)

    def shared_canvas(self):
        return self.theta.tanh()[None]

    def inside(self, images):
        return self._sized(images)[..., self.rows :, self.cols :]

    def carrier(self):
        return torch.where(self._mask(), self.theta.tanh(), 0)[None]


class LyingCarrier(Bordered):
    def place(self, images):
        return super().place(images)

    def carrier(self):
        return 2 * super().carrier()


class LyingCanvas(Bordered):
    def place(self, images):
        return super().place(images)

    def window(self):
        return super().window()

    def shared_canvas(self):
        return super().shared_canvas() * 1.1


class Clamped(Watermark):
    def place(self, images):
        return super().place(images).clamp(-40, 40)


def test_a_program_from_outside_shares_what_it_says():
    frozen = Frozen(Around(lambda x: x).double(), input_size=32)
    assert_same(frozen, Bordered(rows=22, cols=22).double())
    assert assert_same(frozen, Bordered(rows=22, cols=22).double()).schedule.framed
    dense = assert_same(frozen, Bordered(rows=1, cols=1).double())
    assert not dense.schedule.framed
    assert dense.carried
    assert dense.describe() == "1 batch norms folded, channels-last, no shared frame, as it would not pay"


def test_a_program_that_says_wrong_things_of_itself_is_not_believed():
    frozen = Frozen(Around(lambda x: x).double(), input_size=32)
    carrier = assert_same(frozen, LyingCarrier(rows=1, cols=1).double())
    assert carrier.schedule is not None
    assert not carrier.carried
    assert "another gradient" in carrier.describe()
    canvas = assert_same(frozen, LyingCanvas(rows=22, cols=22).double())
    assert canvas.schedule is not None
    assert not canvas.schedule.framed
    assert "other numbers" in canvas.describe()


def test_what_a_program_inherits_is_not_believed_of_a_place_of_its_own():
    frozen, program = Frozen(Around(lambda x: x).double(), input_size=32), Clamped(32).double()
    prepared = accelerate(frozen, program)  # on noise nothing is clamped
    assert prepared.describe() == "1 batch norms folded, channels-last"
    with torch.no_grad():
        program.theta.fill_(41.0)
    assert not outcome(prepared, program, torch.rand(2, 3, 32, 32))[1].any()


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(8, affine=True), nn.BatchNorm2d(8)], ids=["instance", "batch"])
@pytest.mark.parametrize("act", [nn.SiLU, nn.ELU, nn.GELU, nn.Identity, nn.ReLU])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_image_gets_the_gradient_of_the_module(norm, act, program):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), copy.deepcopy(norm), act(), nn.Conv2d(8, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    assert_same(Frozen(module.double(), input_size=32), PROGRAMS[program]().double(), batch=1)


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_image_behind_a_first_batch_norm_gets_the_gradient_of_the_module(program):
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular")
    module = nn.Sequential(nn.BatchNorm2d(3), convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    frozen = Frozen(module.double(), input_size=32)
    prepared = assert_same(frozen, PROGRAMS[program]().double(), batch=1)
    assert prepared.schedule is not None
    assert_same(frozen, PROGRAMS[program]().double(), batch=2)


@pytest.mark.parametrize("images_too", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("first", [nn.Conv2d(3, 8, 3, 2, 1), nn.Sequential(nn.SiLU(), nn.Conv2d(3, 8, 1))])
def test_gradients_of_second_order(first, program, images_too):
    torch.manual_seed(0)
    layers = [copy.deepcopy(first), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU6(), nn.SiLU()]
    frozen = Frozen(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).double(), input_size=32)
    program = noisy(PROGRAMS[program]().double())
    prepared, found = accelerate(frozen, program), []
    assert prepared.schedule is not None
    for call in (prepared, lambda x: frozen(program(x))):
        images = torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(5)).requires_grad_(images_too)
        wanted = [program.theta, images] if images_too else [program.theta]
        first_order = torch.autograd.grad(call(images).square().sum(), wanted, create_graph=True)
        found += torch.autograd.grad(sum(part.square().sum() for part in first_order), program.theta)
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-12)  # images are float32


def test_weights_written_past_the_version_counter_are_noticed():
    frozen = Frozen(Around(lambda x: x), input_size=32)
    classes = ("a", "b", "c")
    model = Reprogrammed(Padding(32, 12), frozen, make_mapping("blm", frozen.labels, classes))
    model.accelerate()
    images, prepared = torch.rand(2, 3, 12, 12), model.accelerated
    model.accelerate()
    assert model.accelerated is prepared
    frozen.module.second.weight.data.mul_(2)
    assert not prepared.fits(frozen, model.program, thoroughly=True)
    assert model.accelerate().startswith("1 batch norms folded")
    assert model.accelerated is not prepared
    torch.testing.assert_close(model.source_logits(images), frozen(model.program(images)), rtol=1e-4, atol=1e-5)
    prepared = model.accelerated
    frozen.module.second.weight.data.neg_()
    frozen.module.second.weight.data.copy_(frozen.module.second.weight.data.flip(0))
    assert not prepared.fits(frozen, model.program, thoroughly=True)


def test_the_module_is_run_once_for_all_that_is_tried():
    frozen, calls = Frozen(Around(Reverse.apply), input_size=32), []
    frozen.module.last.register_forward_hook(lambda part, given, output: calls.append(type(output)))
    assert accelerate(frozen, Padding(32, 12)).schedule is None
    assert calls.count(torch.Tensor) == 3
