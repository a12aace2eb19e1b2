"""What a program takes where nothing is said: by the canvas, the images and the protocol."""

import pytest

from reprogram.programs.registry import PROGRAMS
from reprogram.programs.settings import PaddingSettings, Surroundings, WatermarkSettings


@pytest.mark.parametrize(
    ("native", "canvas", "published", "expected"),
    [
        (32, 224, None, 32),
        (33, 224, None, 128),
        (500, 224, None, 128),
        (8, 64, None, 32),
        (8, 48, None, 24),
        (500, 56, None, 32),
        (500, 224, 32, 32),  # what is published for the data wins over the size of its images
        (28, 224, 128, 128),
        (500, 56, 128, 32),
        (500, 8, 3, 1),  # the smallest there is
    ],
)
def test_the_image_s_side_on_the_canvas(native, canvas, published, expected):
    around = Surroundings(canvas=canvas, native_size=native, published_size=published)
    resolved = PaddingSettings().resolved(around)
    assert resolved.image_size == expected
    assert PaddingSettings(image_size=7).resolved(around).image_size == 7, "what was given stays"
    assert resolved.resolved(Surroundings(canvas=999, native_size=1)) == resolved


def test_a_watermark_takes_the_frame_of_the_model_and_else_every_pixel():
    assert WatermarkSettings().resolved(Surroundings(224, 500)).frame is None
    assert WatermarkSettings().resolved(Surroundings(224, 500, frame=30)).frame == 30
    assert WatermarkSettings(frame=4).resolved(Surroundings(224, 500, frame=30)).frame == 4


@pytest.mark.parametrize(
    ("program", "settings", "around", "expected"),
    [
        ("watermark", {}, {}, "crop"),
        ("watermark", {}, {"flip_safe": False}, "crop"),
        ("watermark", {}, {"flip_safe": True}, "flip"),
        ("watermark", {}, {"flip_safe": False, "as_published": True}, "flip"),
        ("watermark", {"frame": 3}, {"flip_safe": True}, "none"),
        ("watermark", {}, {"flip_safe": True, "frame": 30}, "none"),
        ("padding", {}, {"flip_safe": True, "as_published": True}, "none"),
        ("none", {}, {"flip_safe": True, "as_published": True}, "none"),
    ],
)
def test_flips_are_the_paper_s_and_else_only_where_they_are_safe(program, settings, around, expected):
    given = PROGRAMS.read(program, settings)
    assert given.augment(Surroundings(canvas=224, native_size=500, **around)) == expected
