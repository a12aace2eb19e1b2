"""Numbers as short texts for the page's data, pictures as data URIs, and the order in which a matrix shows its structure."""

import base64
import io
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_QUALITY = 42  # of WebP: a thumbnail of 56 pixels then has about 1 KB, and can still be recognised
_MOST_ORDERED = 400  # labels that are brought into an order by likeness; it takes the cube of that


def packed(values: NDArray[Any], kind: str) -> str:
    """Numbers as base64: "u8", "u16" or "f32" in little-endian order, or "varint", seven bits to a byte.

    >>> packed(np.array([1, 300]), "varint")
    'AawC'
    """
    if kind == "varint":
        return base64.b64encode(_varints(int(value) for value in values.ravel())).decode()
    layout = {"u8": "<u1", "u16": "<u2", "f32": "<f4"}[kind]
    return base64.b64encode(np.ascontiguousarray(values).astype(layout).tobytes()).decode()


def _varints(numbers: Iterable[int]) -> bytes:
    found = bytearray()
    for number in numbers:
        while number > 127:
            found.append(number & 127 | 128)
            number >>= 7
        found.append(number)
    return bytes(found)


def picture(pixels: NDArray[np.uint8], *, lossless: bool = False) -> str:
    """An image (H, W, 3) as a data URI; programs are lossless, because their noise is what is looked at."""
    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(held, "WEBP", quality=_QUALITY, method=6, lossless=lossless)
    return f"data:image/webp;base64,{base64.b64encode(held.getvalue()).decode()}"


def by_likeness(vectors: NDArray[np.floating[Any]]) -> list[int]:
    """An order of rows (n, d) in which like ones stand together: average linkage, read from one end to the other.

    >>> by_likeness(np.array([[1.0, 0], [0, 1], [1, 0.1], [0, 0.9]]))
    [0, 2, 1, 3]
    """
    n = len(vectors)
    if not 2 < n <= _MOST_ORDERED:
        return list(range(n))
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.where(norms > 0, norms, 1)).astype(np.float64)
    likeness = (unit @ unit.T).round(9)  # the last digits depend on the processor, and would turn the order
    np.fill_diagonal(likeness, -np.inf)
    groups = [[place] for place in range(n)]
    alive = np.ones(n, bool)
    for _ in range(n - 1):
        one, other = divmod(int(likeness.argmax()), n)
        one, other = min(one, other), max(one, other)
        a, b = len(groups[one]), len(groups[other])
        groups[one] = _joined(groups[one], groups[other], unit)
        merged = (a * likeness[one] + b * likeness[other]) / (a + b)
        alive[other] = False
        merged[~alive] = -np.inf
        merged[one] = -np.inf
        likeness[one], likeness[:, one] = merged, merged
        likeness[other], likeness[:, other] = -np.inf, -np.inf
    return groups[0]


def _joined(one: list[int], other: list[int], unit: NDArray[np.float64]) -> list[int]:
    """Two ordered groups, each perhaps turned round, so that the ends that meet are alike; the first keeps its start."""
    ways = [(one, other), (one, other[::-1]), (one[::-1], other), (one[::-1], other[::-1])]
    best = max(range(4), key=lambda way: (round(float(unit[ways[way][0][-1]] @ unit[ways[way][1][0]]), 9), -way))
    return ways[best][0] + ways[best][1]
