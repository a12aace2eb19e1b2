import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noise import MEAN, STD, normalised, pictures, set_theta
from reprogram.errors import ReprogramError
from reprogram.programs.watermark import Watermark

fast = settings(deadline=None, derandomize=True, max_examples=50)


def test_theta_starts_at_zero_which_changes_nothing():
    program, images = Watermark(12), pictures(12)
    assert program.theta.abs().sum() == 0
    assert torch.equal(program(images), images)


def test_watermark_normalises_and_then_adds_without_sigmoid_or_clamp():
    program = set_theta(Watermark(6).bind(MEAN, STD))
    with torch.no_grad():
        program.theta[0, 0] = 50.0
    images = pictures(6)
    torch.testing.assert_close(program(images), normalised(images) + program.theta.view(3, 6, 6))
    assert program(images).max() > 49


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


@pytest.mark.parametrize(
    ("canvas", "frame", "message"),
    [
        (224, 113, r"frame of 113 px .*canvas of 224; give a width from 1 to 112"),
        (9, 5, r"frame of 5 px .*from 1 to 4"),
        (224, 0, r"frame of 0 px"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(canvas, frame, message):
    with pytest.raises(ReprogramError, match=message):
        Watermark(canvas, frame=frame)
