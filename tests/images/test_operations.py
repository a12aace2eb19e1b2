"""Random operations on images: a slow oracle for each, and the laws of all."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.images.operations import (
    CHANGES,
    FARTHEST,
    FEWEST_BITS,
    MOVES,
    OPERATIONS,
    STEEPEST,
    STRONGEST,
    WIDEST,
    operate,
    trivial_views,
)
from reprogram.images.views import random_views


def pictures(count=4, side=9, seed=0, channels=3):
    return torch.randint(0, 256, (count, channels, side, side), generator=draw(seed), dtype=torch.uint8)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def done(images, name, strength):
    count = len(images)
    amounts = torch.full((count,), float(strength), dtype=torch.float64)
    return operate(images, torch.full((count,), OPERATIONS.index(name)), amounts)


def reflected(place, side):
    """Where a coordinate comes to lie that is reflected at the outer edges of the first and of the last pixel."""
    place = (place + 0.5) % (2 * side)
    return min(place, 2 * side - place) - 0.5


def moved(image, name, strength):
    """One output pixel after the other: where it comes from, and the four pixels around that place."""
    side = image.shape[-1]
    result, middle = np.zeros(image.shape), (side - 1) / 2
    angle = math.radians(WIDEST * strength)
    for row in range(side):
        for column in range(side):
            y, x = row - middle, column - middle
            y, x = {
                "translate x": (y, x + FARTHEST * strength * side),
                "translate y": (y + FARTHEST * strength * side, x),
                "rotate": (y * math.cos(angle) + x * math.sin(angle), x * math.cos(angle) - y * math.sin(angle)),
                "shear x": (y, x + STEEPEST * strength * y),
                "shear y": (y + STEEPEST * strength * x, x),
            }[name]
            y, x = (min(max(reflected(place + middle, side), 0), side - 1) for place in (y, x))
            top, left = min(int(y), side - 2), min(int(x), side - 2)
            for near_y, share_y in ((top, 1 - (y - top)), (top + 1, y - top)):
                for near_x, share_x in ((left, 1 - (x - left)), (left + 1, x - left)):
                    result[:, row, column] += share_y * share_x * image[:, near_y, near_x]
    return result


def equalised(image):
    result = image.copy()
    for channel, values in enumerate(image.reshape(len(image), -1).astype(int)):
        least = (values <= values.min()).sum()
        if least < len(values):
            ranks = np.array([(values <= value).sum() for value in values])
            result[channel] = (255 * (ranks - least) / (len(values) - least)).reshape(image.shape[1:])
    return result


def changed(image, name, strength):
    """With values 0 to 255."""
    if name == "posterise":
        left = 2 ** round(abs(strength) * (8 - FEWEST_BITS))
        return image // left * left
    if name == "solarise":
        return np.where((image / 255 >= 1 - abs(strength)) & (strength != 0), 255 - image, image)
    if name == "equalise":
        return equalised(image)
    grey = np.tensordot([0.299, 0.587, 0.114], image, 1)[None]
    around = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    side = image.shape[-1]
    windows = [around[:, y : y + side, x : x + side] for y in range(3) for x in range(3)]
    plain = {
        "brightness": np.zeros(image.shape),
        "contrast": np.full(image.shape, grey.mean()),
        "colour": np.broadcast_to(grey, image.shape),
        "sharpness": (sum(windows) + 4 * image) / 13,
    }[name]
    return np.clip(plain + (1 + STRONGEST * strength) * (image - plain), 0, 255)


@pytest.mark.parametrize("strength", [-1.0, -0.37, 0.21, 0.83])
@pytest.mark.parametrize("name", [*MOVES, *CHANGES])
def test_each_operation_is_what_its_oracle_says(name, strength):
    images = pictures()
    found = done(images, name, strength)
    oracle = moved if name in MOVES else changed
    for image, result in zip(images.double().numpy(), found.double().numpy(), strict=True):
        expected = oracle(image, name, strength)
        assert np.abs(result - expected).max() <= 0.5 + 1e-3, (name, strength)
    assert not torch.equal(found, images)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "equalise"])
def test_strength_0_changes_nothing(name):
    images = pictures(side=16)
    assert torch.equal(done(images, name, 0.0), images)
    fractions = images.double().numpy() / 256 + 0.001
    found = done(torch.from_numpy(fractions).float(), name, 0.0)
    torch.testing.assert_close(found.double(), torch.from_numpy(fractions), rtol=0, atol=1e-6)


def test_at_their_ends():
    images = pictures()
    assert torch.equal(done(images, "solarise", 1.0), 255 - images)
    assert len(done(images, "posterise", -1.0).unique()) <= 2**FEWEST_BITS
    assert done(images, "brightness", -1.0).max() <= 26
    flat = torch.full((2, 3, 5, 5), 77, dtype=torch.uint8)
    assert torch.equal(done(flat, "equalise", 0.5), flat)
    spread = done(pictures(side=32) // 8 + 100, "equalise", 0.0)
    assert (spread.amin((2, 3)) == 0).all()
    assert (spread.amax((2, 3)) == 255).all()


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(1, 12), st.integers(1, 20), st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_views_are_images_of_the_same_kind_and_do_not_touch_theirs(count, side, channels, whole, seed):
    images = pictures(count, side, seed, channels)
    images = images if whole else images.float() / 255
    before = images.clone()
    found = trivial_views(images, draw(seed))
    assert (found.dtype, found.shape) == (images.dtype, images.shape)
    assert torch.equal(images, before)
    assert found.float().isfinite().all()
    assert found.min() >= 0
    assert whole or found.max() <= 1


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.integers(0, 99))
def test_what_becomes_of_an_image_does_not_depend_on_the_others(seed):
    images = pictures(12, 8, seed)
    which = torch.randint(len(OPERATIONS), (12,), generator=draw(seed))
    strength = 2 * torch.rand(12, generator=draw(seed + 1), dtype=torch.float64) - 1
    together = operate(images, which, strength)
    for place in range(12):
        alone = operate(images[place : place + 1], which[place : place + 1], strength[place : place + 1])
        assert (together[place].int() - alone[0].int()).abs().max() <= 1  # the order of sums


def test_fractions_and_bytes_agree():
    images = pictures(60, 10)
    found = trivial_views(images, draw(3))
    fractions = trivial_views(images.float() / 255, draw(3))
    assert (found.float() / 255 - fractions).abs().max() <= 0.51 / 255


def test_every_operation_comes_about_equally_often_and_the_seed_decides():
    images = pictures(1, 12).expand(1300, 3, 12, 12)
    found = trivial_views(images, draw(1))
    assert torch.equal(found, trivial_views(images, draw(1)))
    assert not torch.equal(found, trivial_views(images, draw(2)))
    same = (found == images).flatten(1).all(1).float().mean()
    assert 0.05 < same < 0.15  # identity: 1 of 13, and what is too weak to be seen
    which = torch.randint(len(OPERATIONS), (1300,), generator=draw(1))
    assert which.bincount().min() > 60


def test_what_comes_next_does_not_depend_on_the_images():
    after = []
    for images in (pictures(8), torch.zeros(8, 3, 30, 30)):
        generator = draw(5)
        trivial_views(images, generator)
        after.append(torch.rand(3, generator=generator))
    assert torch.equal(*after)


def test_only_trivial_flip_mirrors():
    """The left half is bright: no operation that moves pixels makes it the right one."""
    images = torch.zeros(400, 3, 20, 20, dtype=torch.uint8)
    images[:, :, :, :10] = 200
    halves = {}
    for augment in ("trivial", "trivial-flip"):
        found = random_views(images, 20, augment, draw(4)).float().mean((1, 2))
        halves[augment] = (found[:, 10:].mean(1) > found[:, :10].mean(1)).float().mean()
    assert halves["trivial"] < 0.1  # solarised
    assert 0.4 < halves["trivial-flip"] < 0.6
    for strength in (-1.0, 1.0):
        for name in MOVES:
            found = done(images[:1], name, strength).float().mean((0, 1, 2))
            assert found[:10].mean() > found[10:].mean(), name


def test_the_view_is_of_the_middle():
    images = pictures(30, 14)
    assert random_views(images, 10, "trivial", draw(0)).shape == (30, 3, 10, 10)
    assert torch.equal(random_views(images, 10, "trivial", draw(0)), trivial_views(images[:, :, 2:12, 2:12], draw(0)))
