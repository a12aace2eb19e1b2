"""A trained program as a picture."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from noise import set_theta
from reprogram.programs.base import NoProgram
from reprogram.programs.padding import Padding
from reprogram.programs.pictures import seen_of
from reprogram.programs.watermark import Watermark


def pixels(program):
    return np.asarray(Image.open(io.BytesIO(seen_of(program)[0])))


def test_what_was_not_trained_has_no_picture():
    for program in (NoProgram(16), Padding(16, 8), Watermark(16)):
        assert seen_of(program) is None
    broken = Watermark(16)
    torch.nn.init.constant_(broken.theta, float("nan"))
    assert seen_of(broken) is None


def test_a_border_is_seen_as_the_model_sees_it():
    program = Padding(16, 8).bind((0.4, 0.5, 0.6), (0.2, 0.3, 0.1))
    set_theta(program, seed=1)
    seen = pixels(program)
    assert seen.shape == (16, 16, 3)
    assert (abs(seen[4:12, 4:12].astype(int) - 128) <= 1).all()  # the grey image, untouched
    border = (program.border() * 255).round().permute(1, 2, 0).detach().numpy()
    border[4:12, 4:12] = seen[4:12, 4:12]
    assert abs(seen - border).max() <= 1


@pytest.mark.parametrize("program", [Watermark(224), Padding(224, 128)])
def test_a_large_canvas_is_shown_small(program):
    set_theta(program, seed=1)
    assert pixels(program).shape == (64, 64, 3)
    assert len(seen_of(program)[0]) < 16_000
