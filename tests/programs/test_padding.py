import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from noise import MEAN, STD, normalised, pictures, set_theta
from reprogram.errors import ReprogramError
from reprogram.programs.padding import Padding

fast = settings(deadline=None, derandomize=True, max_examples=50)


@st.composite
def sizes(draw):
    canvas = draw(st.integers(1, 24))
    return canvas, draw(st.integers(1, canvas))


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


def test_the_border_is_the_sigmoid_of_theta():
    program = set_theta(Padding(9, 4))
    free = torch.ones(9, 9, dtype=torch.bool)
    free[3:7, 3:7] = False
    torch.testing.assert_close(program.border()[:, free], program.theta.sigmoid())
    assert program.border()[:, ~free].abs().sum() == 0
    torch.testing.assert_close(program(pictures(4))[:, :, free], program.theta.sigmoid().expand(2, -1, -1))


def test_padding_pads_and_then_normalises():
    program = set_theta(Padding(9, 4).bind(MEAN, STD))
    images = pictures(4)
    canvas = F.pad(images, (3, 2, 3, 2)) + program.border()
    torch.testing.assert_close(program(images), normalised(canvas))


def test_the_shared_part_and_the_window_are_the_canvas():
    program = set_theta(Padding(9, 4).bind(MEAN, STD))
    images = pictures(20)
    (top, bottom), (left, right) = program.window()
    assert (top, bottom, left, right) == (3, 7, 3, 7)
    put_together = program.shared_canvas().repeat(2, 1, 1, 1)
    put_together[:, :, top:bottom, left:right] = program.inside(images)
    torch.testing.assert_close(put_together, program(images))
    assert Padding(9, 9).window() is None, "nothing is shared"


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


def test_an_image_as_large_as_the_canvas_leaves_nothing_to_train():
    program = Padding(8, 8).bind(MEAN, STD)
    assert program.free_parameters == 0
    images = pictures(8)
    torch.testing.assert_close(program(images), normalised(images))


def test_images_of_another_size_are_resized_bilinearly_with_both_sides():
    images = torch.rand(1, 3, 20, 10, generator=torch.Generator().manual_seed(0))
    expected = F.interpolate(images, (6, 6), mode="bilinear", antialias=True)
    torch.testing.assert_close(Padding(12, 6)(images)[:, :, 3:9, 3:9], expected)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (225, r"image size 225 .*canvas of 224; give an image size from 1 to 224"),
        (0, r"image size 0 .*canvas of 224"),
        (-3, r"image size -3"),
    ],
)
def test_an_image_that_does_not_fit_is_refused(size, message):
    with pytest.raises(ReprogramError, match=message):
        Padding(224, size)
