"""Images that are the same or nearly so, told by what the frozen model answers to them.

Exact copies have the same bytes, or the same answer to the last bit. Nearly the same are images whose answers lie in nearly
the same direction from the average answer, in coordinates where the model's answers to these images vary alike.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.audit.material import Material
from reprogram.data.fingerprints import content_hash

#: The cosine from which on two images count as nearly the same; more where so much is likely by chance.
THRESHOLD = 0.9
_BY_CHANCE = 0.05  # pairs of random directions that may reach it
_DIMENSIONS = 256
_FLOOR = 1.0  # times the mean variance, added to each: what varies little is mostly noise
_SAMPLE = 1024  # rows that the coordinates are made of
_AT_ONCE = 1024  # rows that are compared with as many others at once
_LEAST_SCORED = 3  # labels with scores that make answers comparable: shorter ones are often the same by chance


@dataclass(frozen=True)
class Duplicate:
    """Two images that are the same or nearly so.

    Attributes:
        first: the place of the one among all rows.
        second: that of the other, which comes later.
        similarity: 1 for the same image, and from THRESHOLD on for nearly the same.
        exact: whether bytes or answers are equal.
        across: whether the two are in different splits.
    """

    first: int
    second: int
    similarity: float
    exact: bool
    across: bool


@torch.no_grad()
def find_duplicates(material: Material, threshold: float = THRESHOLD) -> list[Duplicate]:
    """Pairs of images that are the same or nearly so: exact ones first, then by similarity.

    Every further copy of an image is paired with the first one. A row that is no copy is paired with the row most like it,
    and with the one most like it in another split. Top-K answers tell too little for more than exact copies.
    """
    splits = material.splits.tolist()
    pairs = dict.fromkeys(_copies(material), (1.0, True))
    if material.answers is None:
        single = torch.ones(len(material), dtype=torch.bool)
        single[[second for _, second in pairs]] = False
        for first, second, similarity in _alike(material, single, threshold):
            pairs.setdefault((first, second), (similarity, False))
    found = [
        Duplicate(first, second, similarity, exact, splits[first] != splits[second])
        for (first, second), (similarity, exact) in pairs.items()
    ]
    return sorted(found, key=lambda pair: (not pair.exact, -pair.similarity, not pair.across, pair.first, pair.second))


def _copies(material: Material) -> Iterator[tuple[int, int]]:
    """The first of its kind and each later copy, by the images' bytes or the bytes of the answers."""
    first: dict[str, int] = {}
    for where, rows in material.blocks():
        for row, place in enumerate(where.tolist()):
            marks = [] if material.fingerprints is None else [material.fingerprints[place]]
            if rows.logits is not None:
                marks.append("logits " + content_hash(rows.logits[row].contiguous().numpy().tobytes()))
            elif rows.indices is not None and rows.probabilities is not None and not bool(rows.unscored[row]):
                named = rows.indices[row] >= 0
                if int(named.sum()) >= _LEAST_SCORED:
                    parts = rows.indices[row][named], rows.probabilities[row][named]
                    marks.append("answer " + content_hash(*(part.contiguous().numpy().tobytes() for part in parts)))
            known = min((first[mark] for mark in marks if mark in first), default=None)
            for mark in filter(None, marks):
                first.setdefault(mark, place if known is None else known)
            if known is not None:
                yield known, place


def _alike(material: Material, single: Tensor, threshold: float) -> Iterator[tuple[int, int, float]]:
    """Pairs of single rows (n,) with at least this cosine: for each row the nearest, and the nearest of another split."""
    places = single.nonzero().flatten()
    if len(places) < 2:
        return
    space = _Space.of(_sampled(material, places))
    points = torch.empty(len(material), space.directions.shape[1])
    for where, rows in material.only(single):
        assert rows.logits is not None
        points[where] = space(rows.logits)
    threshold = max(threshold, space.least_cosine(len(places)))
    splits = material.splits[places]
    best = torch.full((2, len(places)), -2.0)  # of all others, and of those in another split
    whom = torch.full((2, len(places)), -1)
    for begin in range(0, len(places), _AT_ONCE):
        left = points[places[begin : begin + _AT_ONCE]]
        for other in range(begin, len(places), _AT_ONCE):
            right = points[places[other : other + _AT_ONCE]]
            cosines = left @ right.T
            if other == begin:
                cosines.fill_diagonal_(-2.0)
            if float(cosines.max()) < threshold:
                continue
            apart = cosines.masked_fill(
                splits[begin : begin + len(left), None] == splits[None, other : other + len(right)], -2.0
            )
            for kind, table in enumerate((cosines, apart)):
                for start, offset, side in ((begin, other, table), (other, begin, table.T)):
                    value, place = side.max(1)
                    part = slice(start, start + len(value))
                    better = value > best[kind, part]
                    best[kind, part] = best[kind, part].where(~better, value)
                    whom[kind, part] = whom[kind, part].where(~better, place + offset)
    for kind in range(2):
        for row in (best[kind] >= threshold).nonzero().flatten().tolist():
            pair = sorted((int(places[row]), int(places[whom[kind, row]])))
            yield pair[0], pair[1], min(float(best[kind, row]), 1.0)


@dataclass(frozen=True)
class _Space:
    """Coordinates in which answers are compared.

    Attributes:
        mean: (k_S,) the average answer.
        directions: (k_S, r) the directions in which answers vary most, each divided by how much they do.
        dimensions: in how many of them points vary, by their participation ratio.
    """

    mean: Tensor
    directions: Tensor
    dimensions: float

    @classmethod
    def of(cls, logits: Tensor) -> Self:
        """Of a sample of answers (N, k_S)."""
        mean = logits.double().mean(0)
        centred = logits.double() - mean
        values, vectors = torch.linalg.eigh(centred @ centred.T / len(logits))  # N is small, k_S may not be
        # of few samples, all but the first directions are those of single samples
        count = min(_DIMENSIONS, max(len(values) // 4, 2))
        kept = values.argsort(descending=True)[:count]
        kept = kept[values[kept] > values.max().clamp_min(1e-300) * 1e-9]
        # a unit vector along a direction is centredᵀ·v / sqrt(N·λ)
        scale = (len(logits) * values[kept]).sqrt() * (values[kept] + _FLOOR * values[kept].mean()).sqrt()
        spread = values[kept] / (values[kept] + _FLOOR * values[kept].mean())
        dimensions = float(spread.sum() ** 2 / spread.square().sum().clamp_min(1e-300))
        return cls(mean.float(), (centred.T @ vectors[:, kept] / scale).float(), dimensions)

    def least_cosine(self, rows: int) -> float:
        """Above it, fewer than 0.05 pairs of so many random directions are expected.

        Two random directions in d dimensions have a cosine above c with a probability of at most (1 − c²)^((d − 1) / 2).
        """
        chance = (2 * _BY_CHANCE / max(rows, 2) ** 2) ** (2 / max(self.dimensions - 1, 0.05))
        return math.sqrt(1 - min(chance, 1.0))

    def __call__(self, logits: Tensor) -> Tensor:
        """Points of length 1, (N, r)."""
        return F.normalize((logits.float().cpu() - self.mean) @ self.directions, dim=1, eps=1e-30)


def _sampled(material: Material, places: Tensor) -> Tensor:
    """The answers of some of these rows, spread evenly."""
    chosen = torch.zeros(len(material), dtype=torch.bool)
    chosen[places[:: -(-len(places) // _SAMPLE)]] = True
    return torch.cat([rows.logits.cpu() for _, rows in material.only(chosen) if rows.logits is not None])
