import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from reprogram.errors import ReprogramError
from reprogram.images.pictures import resize
from reprogram.programs.base import PROGRAMS, Padding, Resize, Watermark, make_program

fast = settings(deadline=None, derandomize=True, max_examples=50)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MEAN_COLUMN, STD_COLUMN = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)


def pictures(size, count=2, seed=0):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def set_theta(program, seed=0):
    with torch.no_grad():
        program.theta.normal_(generator=torch.Generator().manual_seed(seed))
    return program


@st.composite
def sizes(draw):
    canvas = draw(st.integers(1, 24))
    return canvas, draw(st.integers(1, canvas))


# ---- the protocol's table


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (Padding(224, 128), 101_376),
        (Padding(224, 32), 147_456),
        (Watermark(224), 150_528),
        (Watermark(224, frame=30), 69_840),
        (Resize(224), 0),
    ],
)
def test_free_parameters_are_the_protocol_s(program, count):
    assert program.free_parameters == count
    assert sum(parameter.numel() for parameter in program.parameters() if parameter.requires_grad) == count
    assert len(list(program.parameters())) == (count > 0)


@pytest.mark.parametrize(
    ("canvas", "size", "before", "after"),
    [(224, 128, 48, 48), (224, 32, 96, 96), (224, 127, 49, 48), (7, 4, 2, 1), (7, 3, 2, 2), (8, 8, 0, 0), (8, 7, 1, 0)],
)
def test_border_widths_also_for_odd_differences(canvas, size, before, after):
    program = Padding(canvas, size)
    assert (before, after) == ((canvas - size + 1) // 2, (canvas - size) // 2)
    out = program(torch.ones(1, 3, size, size))[0, 0]
    inside = (out == 1).nonzero()
    assert inside.min(0).values.tolist() == [before, before]
    assert inside.max(0).values.tolist() == [canvas - after - 1, canvas - after - 1]


def test_theta_starts_at_zero_which_is_grey():
    program = Padding(12, 4)
    assert program.theta.abs().sum() == 0
    out = program(torch.ones(1, 3, 4, 4))
    assert (out == 0.5).sum() == 3 * (144 - 16)
    assert Watermark(12).theta.abs().sum() == 0


def test_the_border_is_the_sigmoid_of_theta():
    program = set_theta(Padding(9, 4))
    free = torch.ones(9, 9, dtype=torch.bool)
    free[3:7, 3:7] = False
    torch.testing.assert_close(program.border()[:, free], program.theta.sigmoid())
    assert program.border()[:, ~free].abs().sum() == 0
    torch.testing.assert_close(program(pictures(4))[:, :, free], program.theta.sigmoid().expand(2, -1, -1))


def test_padding_pads_and_then_normalises():
    program = set_theta(Padding(9, 4, MEAN, STD))
    images = pictures(4)
    canvas = F.pad(images, (3, 2, 3, 2)) + program.border()
    torch.testing.assert_close(program(images), (canvas - MEAN_COLUMN) / STD_COLUMN)


def test_watermark_normalises_and_then_adds_without_sigmoid_or_clamp():
    program = set_theta(Watermark(6, mean=MEAN, std=STD))
    with torch.no_grad():
        program.theta[0, 0] = 50.0
    images = pictures(6)
    expected = (images - MEAN_COLUMN) / STD_COLUMN + program.theta.view(3, 6, 6)
    torch.testing.assert_close(program(images), expected)
    assert program(images).max() > 49


def test_resize_only_normalises():
    images = pictures(6)
    torch.testing.assert_close(Resize(6, MEAN, STD)(images), (images - MEAN_COLUMN) / STD_COLUMN)


@fast
@given(sizes(), st.integers(0, 1000))
def test_the_padded_image_s_pixels_are_untouched(size, seed):
    canvas, side = size
    program = set_theta(Padding(canvas, side), seed)
    images = pictures(side, seed=seed)
    out = program(images)
    assert out.shape == (2, 3, canvas, canvas)
    inside = slice(program.before, program.before + side)
    assert torch.equal(out[:, :, inside, inside], images)
    assert program.free_parameters == 3 * (canvas**2 - side**2)


@fast
@given(st.integers(2, 24), st.data())
def test_the_frame_is_free_and_the_middle_untouched(canvas, data):
    frame = data.draw(st.integers(1, canvas // 2))
    program = set_theta(Watermark(canvas, frame=frame))
    images = pictures(canvas)
    inner = canvas - 2 * frame
    assert program.free_parameters == 3 * (canvas**2 - inner**2)
    changed = (program(images) != images).all(1).all(0)
    expected = torch.ones(canvas, canvas, dtype=torch.bool)
    expected[frame : canvas - frame, frame : canvas - frame] = False
    assert torch.equal(changed, expected)


def test_a_frame_of_half_the_canvas_leaves_at_most_one_pixel():
    assert Watermark(8, frame=4).free_parameters == 3 * 64
    assert Watermark(9, frame=4).free_parameters == 3 * 80


def test_an_image_as_large_as_the_canvas_leaves_nothing_to_train():
    program = Padding(8, 8, MEAN, STD)
    assert program.free_parameters == 0
    images = pictures(8)
    torch.testing.assert_close(program(images), (images - MEAN_COLUMN) / STD_COLUMN)


@pytest.mark.parametrize("program", [Padding(9, 4, MEAN, STD), Watermark(9, mean=MEAN, std=STD), Watermark(9, frame=2)])
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


@pytest.mark.parametrize("program", [Padding(9, 4), Watermark(9), Resize(9)])
def test_no_gradient_is_asked_of_the_image(program):
    images = pictures(9)
    program(images)
    assert images.grad_fn is None
    assert program(images).requires_grad == (program.free_parameters > 0)


# ---- what goes in


@pytest.mark.parametrize("program", [Padding(12, 6), Watermark(12), Resize(12)])
@pytest.mark.parametrize("shape", [(12, 12), (6, 6), (5, 9), (30, 17), (1, 1)])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_any_size_and_channel_count_ends_on_the_canvas(program, shape, channels):
    assert program(torch.rand(2, channels, *shape)).shape == (2, 3, 12, 12)


def test_images_of_another_size_are_resized_bilinearly_with_both_sides():
    images = torch.rand(1, 3, 20, 10, generator=torch.Generator().manual_seed(0))
    program = Padding(12, 6)
    expected = F.interpolate(images, (6, 6), mode="bilinear", antialias=True)
    assert torch.equal(program(images)[:, :, 3:9, 3:9], expected)
    assert torch.equal(Resize(6, interpolation="bicubic")(images), resize(images, 6, "bicubic"))


@pytest.mark.parametrize("program", [Padding(12, 6), Watermark(12), Resize(12)])
def test_uint8_and_floats_are_the_same_picture(program):
    images = torch.randint(0, 256, (2, 3, program.image_size, program.image_size), dtype=torch.uint8)
    torch.testing.assert_close(program(images), program(images.float() / 255))


@pytest.mark.parametrize("program", [Padding(12, 6), Watermark(12), Resize(12)])
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Padding(224, 225), r"image size 225 .*canvas of 224; give an image size from 1 to 224"),
        (lambda: Padding(224, 0), r"image size 0 .*canvas of 224"),
        (lambda: Padding(224, -3), r"image size -3"),
        (lambda: Watermark(224, frame=113), r"frame of 113 px .*canvas of 224; give a width from 1 to 112"),
        (lambda: Watermark(9, frame=5), r"frame of 5 px .*from 1 to 4"),
        (lambda: Watermark(224, frame=0), r"frame of 0 px"),
        (lambda: make_program("paddin", canvas=224), r"program 'paddin' is not known; did you mean 'padding'\?"),
    ],
)
def test_impossible_programs_are_refused(make, message):
    with pytest.raises(ReprogramError, match=message):
        make()


# ---- storage

EVERY_PROGRAM = [
    Padding(12, 5, MEAN, STD, "bicubic"),
    Watermark(12, None, MEAN, STD),
    Watermark(12, 3, MEAN, STD, "bicubic"),
    Resize(12, MEAN, STD),
]


def test_every_program_is_in_the_round_trip():
    assert {program.name for program in EVERY_PROGRAM} == set(PROGRAMS)


@pytest.mark.parametrize("program", EVERY_PROGRAM)
def test_config_and_theta_are_all_a_program_is(program):
    if program.free_parameters:
        set_theta(program)
    again = make_program(**json.loads(json.dumps(program.config())))
    again.load_state_dict(program.state_dict())
    assert type(again) is type(program)
    assert again.config() == program.config()
    images = torch.rand(2, 3, 20, 15)
    assert torch.equal(again(images), program(images))
    assert list(program.state_dict()) == (["theta"] if program.free_parameters else [])
