"""What all programs have in common: what goes in, the units they work in, and what is left of them on disk."""

import json

import pytest
import torch
from torch import Tensor

from noise import MEAN, STD, normalised, pictures, set_theta
from reprogram.errors import ReprogramError
from reprogram.images.pictures import resize
from reprogram.programs.base import NoProgram, Program, make_program
from reprogram.programs.padding import Padding
from reprogram.programs.registry import PROGRAMS
from reprogram.programs.watermark import Watermark


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (Padding(224, 128), 101_376),
        (Padding(224, 32), 147_456),
        (Watermark(224), 150_528),
        (Watermark(224, frame=30), 69_840),
        (NoProgram(224), 0),
    ],
)
def test_free_parameters_are_the_protocol_s(program, count):
    assert program.free_parameters == count
    assert sum(parameter.numel() for parameter in program.parameters() if parameter.requires_grad) == count
    assert len(list(program.parameters())) == (count > 0)


def test_no_program_only_normalises():
    images = pictures(6)
    torch.testing.assert_close(NoProgram(6).bind(MEAN, STD)(images), normalised(images))


@pytest.mark.parametrize("program", [Padding(9, 4).bind(MEAN, STD), Watermark(9).bind(MEAN, STD), Watermark(9, frame=2)])
def test_gradient_reaches_exactly_the_free_pixels(program):
    """Each free pixel has one number of θ of its own, and no other pixel depends on θ."""
    program = set_theta(program)
    program.zero_grad()
    images = pictures(program.image_size)
    program(images).sum().backward()
    assert (program.theta.grad != 0).all()
    free = torch.zeros(81, dtype=torch.bool)
    free[program.free] = True
    jacobian = torch.autograd.functional.jacobian(
        lambda theta: torch.func.functional_call(program, {"theta": theta}, (images[:1],)).flatten(2)[0],
        program.theta.detach(),
    )
    touched = jacobian != 0  # (3, 81, 3, free)
    assert torch.equal(touched.any(3).any(2), free.expand(3, -1))
    assert (touched.sum((0, 1)) == 1).all()


@pytest.mark.parametrize("program", [Padding(9, 4), Watermark(9), NoProgram(9)])
def test_no_gradient_is_asked_of_the_image(program):
    images = pictures(9)
    program(images)
    assert images.grad_fn is None
    assert program(images).requires_grad == (program.free_parameters > 0)


@pytest.mark.parametrize("program", [Padding(9, 4), Watermark(9), Watermark(9, frame=2)])
def test_the_carrier_is_what_theta_puts_on_every_canvas(program):
    """Canvases of other images and other θ differ exactly by the difference of the carriers."""
    program = set_theta(program.bind(MEAN, STD), seed=1)
    images = pictures(program.image_size)
    before, carried = program(images).detach(), program.carrier().detach()
    set_theta(program, seed=2)
    torch.testing.assert_close(program(images) - before, (program.carrier() - carried).expand_as(before))
    assert NoProgram(9).carrier() is None


# ---- the units of a frozen model


@pytest.mark.parametrize("make", [lambda: Padding(9, 4), lambda: Watermark(9), lambda: NoProgram(9)])
def test_a_program_belongs_to_one_normalisation(make):
    program = make()
    assert torch.equal(program(pictures(9)), program.bind((0.0,) * 3, (1.0,) * 3)(pictures(9)))
    with pytest.raises(ReprogramError, match="another normalisation already; make a new one"):
        program.bind(MEAN, STD)
    assert program.std.flatten().tolist() == [1.0] * 3, "nothing was changed"
    again = make().bind(MEAN, STD)
    assert again.bind(torch.tensor(MEAN).view(3, 1, 1), STD) is again, "the same once more is no mistake"


# ---- what goes in


@pytest.mark.parametrize("program", [Padding(12, 6), Watermark(12), NoProgram(12)])
@pytest.mark.parametrize("shape", [(12, 12), (6, 6), (5, 9), (30, 17), (1, 1)])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_any_size_and_channel_count_ends_on_the_canvas(program, shape, channels):
    assert program(torch.rand(2, channels, *shape)).shape == (2, 3, 12, 12)


def test_images_of_another_size_are_resized_as_the_program_says():
    images = torch.rand(1, 3, 20, 10, generator=torch.Generator().manual_seed(0))
    assert torch.equal(NoProgram(6, interpolation="bicubic")(images), resize(images, 6, "bicubic"))
    assert not torch.equal(NoProgram(6)(images), resize(images, 6, "bicubic"))


@pytest.mark.parametrize("program", [Padding(12, 6), Watermark(12), NoProgram(12)])
def test_uint8_and_floats_are_the_same_picture(program):
    images = torch.randint(0, 256, (2, 3, program.image_size, program.image_size), dtype=torch.uint8)
    torch.testing.assert_close(program(images), program(images.float() / 255))


@pytest.mark.parametrize("program", [Padding(12, 6), Watermark(12), NoProgram(12)])
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.full((1, 3, 6, 6), float("nan")), r"NaN.*\[0, 1\]"),
        (255 * torch.ones(1, 3, 6, 6), r"255.*\[0, 1\]"),
        (torch.zeros(3, 6, 6), r"\(3, 6, 6\).*\(N, C, H, W\)"),
        (torch.zeros(1, 6, 6, 3), r"\(1, 6, 6, 3\)"),
    ],
)
def test_what_is_no_picture_is_refused(program, images, message):
    with pytest.raises(ReprogramError, match=message):
        program(images)


def test_a_program_without_a_place_for_images_is_none():
    class Nothing(Program):
        name = "nothing"

    with pytest.raises(TypeError, match="place"):
        Nothing(8, 8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "paddin"}, r"program 'paddin' is not known; did you mean 'padding'\?"),
        ({"name": "padding"}, "program 'padding' was given no image_size, but needs it"),
        ({"name": "padding", "image_size": 0}, "image_size = 0 was given, but it should be greater than or equal to 1"),
        ({"name": "padding", "image_size": 300}, "image size 300 does not fit on a canvas of 224"),
        ({"name": "padding", "image_size": 9, "frame": 3}, "program 'padding' does not use frame; .*watermark"),
        ({"name": "none", "image_size": 9}, "program 'none' does not use image_size; .*padding"),
        ({"name": "watermark", "fram": 3}, "setting 'fram' is not known; did you mean 'frame'"),
    ],
)
def test_impossible_programs_are_refused(settings, message):
    with pytest.raises(ReprogramError, match=message):
        make_program(canvas=224, **settings)


# ---- storage

EVERY_PROGRAM = [Padding(12, 5, "bicubic"), Watermark(12), Watermark(12, 3, "bicubic"), NoProgram(12)]


def test_every_program_is_in_the_round_trip():
    assert {program.name for program in EVERY_PROGRAM} == {"padding", "watermark", "none"}
    assert {program.name for program in EVERY_PROGRAM} <= set(PROGRAMS)


@pytest.mark.parametrize("program", EVERY_PROGRAM)
def test_config_and_theta_are_all_a_program_is(program):
    if program.free_parameters:
        set_theta(program)
    again = make_program(**json.loads(json.dumps(program.config())))
    again.load_state_dict(program.state_dict())
    assert type(again) is type(program)
    assert again.config() == program.config()
    images: Tensor = torch.rand(2, 3, 20, 15)
    assert torch.equal(again.bind(MEAN, STD)(images), program.bind(MEAN, STD)(images))
    assert list(program.state_dict()) == (["theta"] if program.free_parameters else [])


@pytest.mark.parametrize("interpolation", ["nearest", "", None, 3, ["bilinear"]])
def test_interpolations_that_there_are_not_are_refused_at_once(interpolation):
    with pytest.raises(ReprogramError, match=r"interpolation .* is not known"):
        make_program("none", 32, interpolation=interpolation)
