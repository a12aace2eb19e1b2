import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.images.views import centre_view, margin, random_views


def views(images, size, augment, seed=0):
    return random_views(images, size, augment, torch.Generator().manual_seed(seed))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 9), st.integers(0, 5), st.sampled_from(["none", "crop", "flip"]), st.integers(0, 99))
def test_a_view_is_a_window_of_its_image_perhaps_mirrored(size, slack, augment, seed):
    images = torch.rand(6, 3, size + slack, size + slack, generator=torch.Generator().manual_seed(seed))
    for image, view in zip(images, views(images, size, augment, seed), strict=True):
        windows = [image[:, y : y + size, x : x + size] for y in range(slack + 1) for x in range(slack + 1)]
        if augment == "flip":
            windows += [window.flip(-1) for window in windows]
        assert any(torch.equal(view, window) for window in windows)


def test_flips_and_offsets_really_vary_and_only_when_asked():
    images = torch.arange(28 * 28.0).view(1, 1, 28, 28).expand(400, 3, 28, 28)
    cropped, flipped = views(images, 24, "crop"), views(images, 24, "flip")
    assert len(cropped[:, 0, 0, 0].unique()) == 25
    falling = (flipped[:, 0, 0, 0] > flipped[:, 0, 0, 1]).float().mean()
    assert 0.4 < falling < 0.6
    assert not (cropped[:, 0, 0, 0] > cropped[:, 0, 0, 1]).any()


def test_the_seed_decides():
    images = torch.rand(20, 3, 12, 12)
    assert torch.equal(views(images, 10, "flip", 1), views(images, 10, "flip", 1))
    assert not torch.equal(views(images, 10, "flip", 1), views(images, 10, "flip", 2))


def test_the_paper_crops_224_out_of_228():
    assert 224 + margin("flip", 224) == 228
    assert centre_view(torch.zeros(1, 3, 228, 228), 224).shape == (1, 3, 224, 224)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_the_type_stays(dtype):
    assert views(torch.zeros(2, 3, 9, 9, dtype=dtype), 8, "flip").dtype == dtype
