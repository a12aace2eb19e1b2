"""Several views of each image in the statistics: each counts as a part of its image, and the image counts once."""

from typing import Any

import torch
from torch import Tensor

from reprogram.devices import Precision
from reprogram.errors import ReprogramError
from reprogram.images.settings import mirrors
from reprogram.images.views import numbered_view
from reprogram.reprogrammed import Reprogrammed
from reprogram.statistics.base import Statistics
from reprogram.training.settings import TrainingSettings


@torch.no_grad()
def count_images(
    model: Reprogrammed,
    images: Tensor,
    labels: Tensor,
    statistics: Statistics,
    *,
    views: int = 1,
    seed: int = 0,
    mirror: bool = False,
    precision: Precision | None = None,
    known: Tensor | None = None,
) -> Tensor:
    """Add a batch of images to the statistics, seen as often as there are views.

    Args:
        model: its program and frozen model make the logits.
        images: (N, C, H, W).
        labels: (N,) class numbers.
        statistics: what they are added to; made with weights where there is more than one view.
        views: how many; see `numbered_view`. An image of several views is one sample, whose views share its weight of 1.
        seed: decides which windows.
        mirror: whether an image may be mirrored.
        precision: of the frozen model; by default that of the model, where it is in hardware.
        known: the source logits of the images as they are, which is the first view, if they are at hand.

    Returns:
        The source logits of the images as they are.
    """
    part = statistics if views == 1 else statistics.empty()
    weights = None if views == 1 else torch.full((len(labels),), 1 / views, dtype=torch.float64)
    for number in range(views):
        logits = known
        if logits is None or number:
            logits = model.source_logits(numbered_view(images, number, seed, mirror=mirror), precision)
        known = logits if known is None else known
        part.update(logits, labels, weights, log_probabilities=model.frozen.log_probabilities)
    if views > 1:
        statistics.merge(part.as_views(views))
    assert known is not None
    return known


def check_views(model: Reprogrammed, views: int) -> None:
    """Raise where a mapping cannot be estimated from so many views of each image."""
    if views != 1 and model.trainable:
        what = f"views = {views} was given" if views else "no image shall be counted (0 shots)"
        raise ReprogramError(
            f"{what}, but program {model.program.name!r} or mapping {model.mapping.name!r} is trained by gradient, where "
            "every image is seen once per epoch; use program none and a mapping that is estimated"
        )
    if views > 1 and not getattr(model.mapping.statistics, "weighted", True):
        raise ReprogramError(
            f"views = {views} was given, but this mapping takes no sample weights; make it with weighted=True"
        )


def view_settings(settings: TrainingSettings) -> dict[str, Any]:
    """What `count_images` is told for these settings."""
    mirror = mirrors(settings.augment)
    return {"views": settings.views, "seed": settings.seed, "mirror": mirror, "precision": settings.precision}
