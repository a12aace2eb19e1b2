"""Random views of the training images, on the batch tensor: they cost no decoding and depend on a seed alone."""

import torch
from torch import Tensor

from reprogram.images.operations import trivial_views
from reprogram.images.settings import Augment, crops, mirrors
from reprogram.randomness import generator

_SMALLEST_WINDOW = 0.7  # of an image's side


def margin(augment: Augment, size: int) -> int:
    """How much larger than `size` images are decoded to leave room for crops: 4 pixels at 224 (the paper: 228 to 224).

    >>> margin("flip", 224), margin("crop", 32), margin("none", 224), margin("trivial", 224)
    (4, 1, 0, 0)
    """
    return max(1, round(size * 4 / 224)) if crops(augment) else 0


def random_views(images: Tensor, size: int, augment: Augment, draw: torch.Generator) -> Tensor:
    """A random view of each image: a window of it, mirrored or not, or what one random operation makes of it.

    Args:
        images: (N, C, S, S) with S ≥ size, any dtype.
        size: side of the result.
        augment: "crop" cuts a random window; "flip" also mirrors half of the images; "trivial" takes the middle and applies
            one operation (see `trivial_views`), "trivial-flip" after mirroring half of them; "none" takes the middle.
        draw: the generator that decides.

    >>> random_views(torch.rand(2, 3, 228, 228), 224, "flip", torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 224, 224])
    """
    if augment == "none":
        return centre_view(images, size)
    if not crops(augment):
        images = centre_view(images, size)
        if mirrors(augment):
            turned = torch.rand(len(images), generator=draw) < 0.5
            images = images.where(~turned[:, None, None, None], images.flip(-1))
        return trivial_views(images, draw)
    count, slack = len(images), images.shape[-1] - size
    top = torch.randint(slack + 1, (count, 1), generator=draw)
    left = torch.randint(slack + 1, (count, 1), generator=draw)
    mirrored = torch.rand(count, 1, generator=draw) < (0.5 if mirrors(augment) else 0)
    along = torch.arange(size)
    rows = top + along
    columns = left + torch.where(mirrored, along.flip(0), along)
    sample = torch.arange(count)[:, None, None]
    return images[sample, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def centre_view(images: Tensor, size: int) -> Tensor:
    """The middle `size` × `size` window of each image (N, C, S, S)."""
    start = (images.shape[-1] - size) // 2
    return images[:, :, start : start + size, start : start + size]


def numbered_view(images: Tensor, number: int, seed: int, *, mirror: bool) -> Tensor:
    """View `number` of each image (N, C, S, S): a square window of 70 to 100 % of its side, perhaps mirrored.

    Seed and number alone decide: all images have the same windows, so that an image has the views that it had when it comes
    again, alone or among others, and can be taken out of what was counted. View 0 is the image as it is.

    >>> numbered_view(torch.rand(2, 3, 100, 100), 0, 0, mirror=True).shape
    torch.Size([2, 3, 100, 100])
    """
    if number == 0:
        return images
    draw, side = generator(seed, "view", number), images.shape[-1]
    share, top, left, turned = torch.rand(4, generator=draw, dtype=torch.float64).tolist()
    window = max(1, round(side * (_SMALLEST_WINDOW + share * (1 - _SMALLEST_WINDOW))))
    top, left = int(top * (side - window + 1)), int(left * (side - window + 1))
    images = images[:, :, top : top + window, left : left + window]
    return images.flip(-1) if mirror and turned < 0.5 else images
