"""An order in which alike things stand side by side."""

from typing import Any

import numpy as np

Matrix = np.ndarray[Any, np.dtype[np.float64]]


def alike_order(columns: Matrix) -> list[int]:
    """The columns of a matrix in an order in which alike ones are neighbours: average linkage of cosines, its leaves.

    Two clusters are joined at those ends that are most alike; equal ones keep their order.

    >>> alike_order(np.array([[1.0, 0, 1], [0, 1, 0.1]]))
    [0, 2, 1]
    """
    count = columns.shape[1]
    lengths = np.linalg.norm(columns, axis=0)
    unit = columns / np.where(lengths > 0, lengths, 1)
    likeness = np.nan_to_num(unit.T @ unit).round(9)  # the last digits depend on the processor, and would turn the order
    groups: dict[int, list[int]] = {place: [place] for place in range(count)}
    between = likeness.copy()
    np.fill_diagonal(between, -np.inf)
    sizes = np.ones(count)
    for _ in range(count - 1):
        first, second = sorted(int(place) for place in np.unravel_index(int(np.argmax(between)), between.shape))
        groups[first] = _joined(groups[first], groups.pop(second), likeness)
        merged = (between[first] * sizes[first] + between[second] * sizes[second]) / (sizes[first] + sizes[second])
        sizes[first] += sizes[second]
        between[first], between[:, first] = merged, merged
        between[first, first] = -np.inf
        between[second], between[:, second] = -np.inf, -np.inf
    return groups[next(iter(groups))] if groups else []


def _joined(first: list[int], second: list[int], likeness: Matrix) -> list[int]:
    """Two lists as one, turned so that the ends that meet are as alike as they can be."""
    ways = [(one, other) for one in (first, first[::-1]) for other in (second, second[::-1])]
    ways += [(other, one) for one, other in ways]
    best = max(range(len(ways)), key=lambda place: (likeness[ways[place][0][-1], ways[place][1][0]], -place))
    return [*ways[best][0], *ways[best][1]]


def diagonal_order(rows: Matrix) -> list[int]:
    """The rows of a matrix, whose columns have their order, so that what is large runs down the diagonal."""
    strength = np.abs(rows)
    best, total = strength.argmax(1), strength.sum(1)
    centre = (strength * np.arange(rows.shape[1])).sum(1) / np.where(total > 0, total, 1)
    return [int(place) for place in np.lexsort((centre, -strength.max(1), best))]
