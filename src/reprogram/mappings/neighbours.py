"""Whether samples that a mapping is measured on are views of what it was estimated from: then groups are missing."""

import torch
from torch import Tensor

#: How many rows of each side are compared at the most.
MOST_MEASURED, MOST_FITTED = 512, 8192
_FURTHER = 20  # the neighbour that the nearest one is compared with
_NEAR = 0.25  # of its distance, squared
_SHARE = 0.15  # of the measured samples; on sets without repeated views it was at most 0.06
_LEAST = 40  # samples on either side: of fewer, nothing is said


def near_share(fitted: Tensor, measured: Tensor) -> float:
    """The share of measured samples (N, k) that have a fitted one (M, k) nearly on the spot, in any linear features.

    Each feature is centred and scaled by its deviation. A sample is nearly on the spot if its nearest fitted one is less
    than half as far away as the 21st: so frames of a video stand out, but not the images of a class that are all alike. All
    pairs are compared, so both sides should be of a bounded size; a group of more than 20 fitted samples is not seen.

    >>> features = torch.randn(100, 20, generator=torch.Generator().manual_seed(0))
    >>> near_share(features[:50], features[50:]), near_share(features[:50], features[:10] + 0.01)
    (0.0, 1.0)
    """
    fitted, measured = fitted.double(), measured.double()
    deviation, mean = torch.std_mean(fitted, 0)
    kept = deviation > mean.abs() * 1e-6
    if not bool(kept.any()) or len(fitted) <= _FURTHER:
        return 0.0
    ours, theirs = ((part[:, kept] - mean[kept]) / deviation[kept] for part in (fitted, measured))
    squares = ours.square().sum(1)
    near = 0
    for part in theirs.split(256):
        distances = torch.addmm(squares, part, ours.T, alpha=-2) + part.square().sum(1, keepdim=True)
        nearest = distances.clamp_min_(0).topk(_FURTHER + 1, largest=False).values
        near += int((nearest[:, 0] < _NEAR * nearest[:, -1]).sum())
    return near / max(len(theirs), 1)


def missing_groups(fitted: Tensor, measured: Tensor, what: str = "samples") -> str | None:
    """A hint in one sentence where groups seem to be missing, by features (N, k) of either side; or None."""
    fitted, measured = (part[spread_places(len(part), most)] for part, most in _sides(fitted, measured))
    if min(len(fitted), len(measured)) < _LEAST:
        return None
    share = near_share(fitted, measured)
    if share < _SHARE:
        return None
    return (
        f"about {100 * share:.0f} % of the {what} measured on look like views of ones that were fitted, such as frames of "
        "one video; if so, say with --group what belongs together, as this accuracy flatters"
    )


def spread_places(count: int, most: int) -> Tensor:
    """At most so many of `count` places, evenly spread.

    >>> spread_places(9, 3).tolist(), spread_places(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    return torch.arange(count) if count <= most else torch.linspace(0, count - 1, most, dtype=torch.float64).round().long()


def _sides(fitted: Tensor, measured: Tensor) -> tuple[tuple[Tensor, int], tuple[Tensor, int]]:
    return (fitted, MOST_FITTED), (measured, MOST_MEASURED)
