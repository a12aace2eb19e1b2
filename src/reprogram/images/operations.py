"""One random operation of random strength on each image of a batch: augmentation with nothing to tune.

The idea is TrivialAugment (Müller and Hutter, 2021). Geometry is kept within what leaves a class its meaning: a digit that
is turned by 30° is still that digit. What an image does not cover is filled by its reflection, so that no edge appears
which the frozen model has never seen.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

#: What moves the pixels of an image, and what changes their values.
MOVES = ("translate x", "translate y", "rotate", "shear x", "shear y")
CHANGES = ("brightness", "contrast", "colour", "sharpness", "posterise", "solarise", "equalise")
OPERATIONS = ("identity", *MOVES, *CHANGES)
FARTHEST = 0.3  # of an image's side, that it is moved by
STEEPEST = 0.3  # columns per row, that it is sheared by
WIDEST = 30.0  # degrees, that it is turned by
STRONGEST = 0.9  # of brightness, contrast, colour and sharpness: factors of 0.1 to 1.9
FEWEST_BITS = 2  # that posterising leaves of 8
_LUMINANCE = (0.299, 0.587, 0.114)
_SMOOTHED = ((1.0, 1.0, 1.0), (1.0, 5.0, 1.0), (1.0, 1.0, 1.0))


def trivial_views(images: Tensor, draw: torch.Generator) -> Tensor:
    """What one random operation of random strength makes of each image.

    Args:
        images: (N, C, S, S) in [0, 1], or uint8; they stay as they are.
        draw: the generator that decides: as many numbers are drawn whatever they turn out to be.

    Returns:
        (N, C, S, S) of the same type.

    >>> trivial_views(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.Generator().manual_seed(0)).dtype
    torch.uint8
    """
    which = torch.randint(len(OPERATIONS), (len(images),), generator=draw)
    strength = 2 * torch.rand(len(images), generator=draw, dtype=torch.float64) - 1
    return operate(images, which, strength)


def operate(images: Tensor, which: Tensor, strength: Tensor) -> Tensor:
    """Apply to each image (N, C, S, S) the operation of this number, with this strength.

    Args:
        images: in [0, 1], or uint8.
        which: (N,) places in `OPERATIONS`.
        strength: (N,) from −1 to 1. 0 changes nothing, except with "equalise", which has no strength; the sign is the
            direction, where there are two.
    """
    result = images.clone(memory_format=torch.contiguous_format)
    whole = images.dtype == torch.uint8
    for names in (MOVES, *((name,) for name in CHANGES)):  # all that move are moved at once
        rows = torch.isin(which, torch.tensor([OPERATIONS.index(name) for name in names])).nonzero().flatten()
        if not len(rows):
            continue
        pixels = images[rows].float() / 255 if whole else images[rows].float()
        amount = strength[rows]
        pixels = _moved(pixels, which[rows], amount) if names is MOVES else _changed(pixels, names[0], amount)
        pixels = pixels.clamp(0, 1)
        result[rows] = (pixels * 255).round().to(torch.uint8) if whole else pixels.to(images.dtype)
    return result


def _moved(pixels: Tensor, which: Tensor, strength: Tensor) -> Tensor:
    """Translated, turned or sheared; between pixels it is bilinear."""
    own = {name: which == OPERATIONS.index(name) for name in MOVES}
    angle = strength * own["rotate"] * math.radians(WIDEST)
    matrix = torch.zeros(len(pixels), 2, 3, dtype=torch.float64)  # from places of the result to places of the image
    matrix[:, 0, 0] = matrix[:, 1, 1] = angle.cos()
    matrix[:, 0, 1] = -angle.sin() + STEEPEST * strength * own["shear x"]
    matrix[:, 1, 0] = angle.sin() + STEEPEST * strength * own["shear y"]
    matrix[:, 0, 2] = 2 * FARTHEST * strength * own["translate x"]  # a side is 2 long
    matrix[:, 1, 2] = 2 * FARTHEST * strength * own["translate y"]
    grid = F.affine_grid(matrix.float(), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _changed(pixels: Tensor, name: str, strength: Tensor) -> Tensor:
    """With other values."""
    if name == "posterise":
        return _posterised(pixels, strength.abs())
    if name == "solarise":
        return _solarised(pixels, strength.abs())
    if name == "equalise":
        return _equalised(pixels)
    plain, factor = _plain(pixels, name), (1 + STRONGEST * strength).float()[:, None, None, None]
    return plain + factor * (pixels - plain)


def _grey(pixels: Tensor) -> Tensor:
    """Luminance, (N, 1, S, S)."""
    if pixels.shape[1] != len(_LUMINANCE):
        return pixels.mean(1, keepdim=True)
    return (pixels * torch.tensor(_LUMINANCE)[:, None, None]).sum(1, keepdim=True)


def _plain(pixels: Tensor, name: str) -> Tensor:
    """The image without any of its brightness, contrast, colour or sharpness: from there to the image and beyond."""
    if name == "brightness":
        return torch.zeros_like(pixels)
    if name == "contrast":
        return _grey(pixels).mean((1, 2, 3), keepdim=True).expand_as(pixels)
    if name == "colour":
        return _grey(pixels).expand_as(pixels)
    channels = pixels.shape[1]
    kernel = torch.tensor(_SMOOTHED).div(13).expand(channels, 1, 3, 3)
    return F.conv2d(F.pad(pixels, (1, 1, 1, 1), mode="replicate"), kernel, groups=channels)


def _levels(pixels: Tensor) -> Tensor:
    """Whole numbers from 0 to 255."""
    return (pixels * 255).round().long()


def _posterised(pixels: Tensor, strength: Tensor) -> Tensor:
    """With fewer bits: 8 at strength 0."""
    dropped = (strength * (8 - FEWEST_BITS)).round().long()[:, None, None, None]
    return pixels.where(dropped == 0, (_levels(pixels) >> dropped << dropped).float() / 255)


def _solarised(pixels: Tensor, strength: Tensor) -> Tensor:
    """What is brighter than a threshold inverted: nothing at strength 0, everything at 1."""
    strength = strength.float()[:, None, None, None]
    return pixels.where((pixels < 1 - strength) | (strength == 0), 1 - pixels)


def _equalised(pixels: Tensor) -> Tensor:
    """Each channel's levels spread so that they are about equally frequent; a channel of one level stays."""
    count, channels, *sides = pixels.shape
    levels = _levels(pixels).reshape(count, channels, -1)
    counts = torch.zeros(count, channels, 256).scatter_add_(2, levels, torch.ones(levels.shape))
    below = counts.cumsum(2)
    least = below.masked_fill(counts == 0, torch.inf).amin(2, keepdim=True)
    table = (below - least) / (levels.shape[2] - least).clamp_min(1)
    flat = (counts > 0).sum(2, keepdim=True) == 1
    spread = table.gather(2, levels).where(~flat, pixels.reshape(count, channels, -1))
    return spread.view(count, channels, *sides)
