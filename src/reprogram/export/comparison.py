"""What was exported beside the live model, on real images: no export leaves without it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.export.settings import LIMIT
from reprogram.randomness import generator
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import configured_data, divided_data
from reprogram.run.folder import stored_config

BATCHES = (1, 7)
_AT_ONCE = 16
Array = np.ndarray[Any, Any]
#: uint8 (N, S, S, 3) to probabilities and logits (N, k_T).
Answers = Callable[[Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Material:
    """Images to compare on.

    Attributes:
        pixels: uint8 (n, 3, S, S).
        what: which images these are, in words.
        real: whether they are the run's own, and not drawn.
    """

    pixels: Tensor
    what: str
    real: bool


@dataclass(frozen=True)
class Comparison:
    """How far an export is from the live model.

    Attributes:
        images: how many images were compared.
        what: which.
        real: whether they are the run's own.
        probability: the largest difference of a probability.
        logit: the largest difference of a calibrated target logit.
        agreeing: how many images got the same class.
    """

    images: int
    what: str
    real: bool
    probability: float
    logit: float
    agreeing: int

    def __str__(self) -> str:
        """`100 images of digits (test), one by one and 7 at a time: ...`."""
        return (
            f"{self.images} {self.what}, one by one and {BATCHES[1]} at a time: probabilities differ by at most "
            f"{self.probability:.1e} from the live model's, {self.agreeing} of {self.images} classes are the same"
        )


def material(run: Path, model: Reprogrammed, count: int) -> Material:
    """Images of a run's data, spread over its test split; drawn ones where the data are gone."""
    size, interpolation = model.program.image_size, model.program.interpolation
    try:
        config = stored_config(run)
        data = divided_data(config, configured_data(config))
        places = torch.linspace(0, len(data.test) - 1, min(count, len(data.test))).round().long()
        pixels = data.test.subset(places).pixels(size, interpolation)
        return Material(pixels, f"images of {data.name} (test)", True)
    except (ReprogramError, OSError):  # an artefact without its run, or data that are gone: said where it is told
        return Material(drawn(count, size), "drawn images, as those of the run cannot be read", False)


def drawn(count: int, size: int) -> Tensor:
    """Images that are the same each time: smooth colours of random patches, and some noise on them; uint8."""
    source = generator(0, "export", 0)
    patches = torch.rand(count, 3, 4, 4, generator=source)
    smooth = torch.nn.functional.interpolate(patches, (size, size), mode="bilinear", align_corners=False)
    noise = torch.rand(count, 3, size, size, generator=source)
    return ((0.8 * smooth + 0.2 * noise) * 255).round().to(torch.uint8)


@torch.no_grad()
def live_answers(model: Reprogrammed, pixels: Tensor) -> tuple[Array, Array]:
    """Probabilities and calibrated logits (n, k_T) of the live model."""
    parts = [model.frozen(model.program(part)) for part in pixels.split(_AT_ONCE)]
    logits = torch.cat([model.mapping.honest(model.mapping(part.float())) for part in parts]).float().cpu()
    return np.asarray(logits.softmax(1)), np.asarray(logits)


def compare(answers: Answers, live: tuple[Array, Array], images: Material) -> Comparison:
    """An export beside the live model, at each of `BATCHES`."""
    rows = np.ascontiguousarray(images.pixels.permute(0, 2, 3, 1).numpy())
    differences, same = [], np.ones(len(rows), bool)
    for step in BATCHES:
        found = [answers(rows[start : start + step]) for start in range(0, len(rows), step)]
        shares, logits = (np.concatenate(parts) for parts in zip(*found, strict=True))
        differences.append((np.abs(shares - live[0]).max(initial=0), np.abs(logits - live[1]).max(initial=0)))
        best = live[0].argmax(1)
        # among classes of the same probability either is right
        ties = np.take_along_axis(live[0], shares.argmax(1)[:, None], 1)[:, 0] >= live[0].max(1, initial=0) - 2 * LIMIT
        same &= (shares.argmax(1) == best) | ties
    probability, logit = (float(np.max([pair[place] for pair in differences])) for place in (0, 1))
    return Comparison(len(rows), images.what, images.real, probability, logit, int(same.sum()))


def checked(found: Comparison, what: str) -> Comparison:
    """The same, or an error where the export is another classifier than the live model."""
    if not found.probability <= LIMIT:  # NaN, too
        raise ReprogramError(
            f"{what} gives probabilities that differ by {found.probability:.1e} from the live model's ({found.images} "
            f"{found.what}), but {LIMIT:g} is the most; choose another --format, or another model"
        )
    return found
