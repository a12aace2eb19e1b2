"""The best labels of each row of numbers, the first among equals, and the softmax of those labels alone."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

#: Numbers of a softmax in float64 that are held at once on the CPU, 2 MB: fewer have threads wait for each other too often.
_HELD = 2**18
#: Numbers that are looked through several times on the CPU, 0.5 MB in fp32: what the nearer caches hold.
_NEAR = 2**17
#: So few labels are found one after the other.
_FEW = 6
#: Rows at least so many times as long as what is sought are thinned out first.
_LONG = 8

_Numbers = npt.NDArray[Any]


def stable_top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row with their indices, the largest first; among equal values the lowest index comes first.

    >>> [part.tolist() for part in stable_top_k(torch.tensor([[1.0, 3.0, 1.0, 1.0]]), 2)]
    [[[3.0, 1.0]], [[1, 0]]]
    """
    chosen = top_labels(values, k).sort(1).values
    top, order = values.gather(1, chosen).sort(dim=1, descending=True, stable=True)
    return top, chosen.gather(1, order)


def top_labels(values: Tensor, k: int) -> Tensor:
    """The indices (N, k) of the k largest of each row, in any order; among equal values at the edge the lowest index wins.

    `torch.topk` leaves open which of several equal values it returns, and takes most of the time of all that is counted on a
    CPU. There, numpy finds the k-th value alone. NaN is the largest of all, as in torch.

    >>> top_labels(torch.tensor([[1.0, 3.0, 1.0, 1.0]]), 2).sort(1).values.tolist()
    [[0, 1]]
    """
    values = values.detach()
    if values.device.type != "cpu" or type(values) is not Tensor:
        return values.argmax(1, keepdim=True) if k == 1 else _by_top_k(values, k)
    if values.dtype not in (torch.float32, torch.float64):  # numpy has no bf16, is slow with fp16; integers have no −∞
        values = values.float() if values.is_floating_point() else values.double()
    if k == 1:
        return torch.from_numpy(values.numpy().argmax(1))[:, None]  # quicker than torch's by far, and the first as well
    count = values.shape[1]
    if k <= _FEW and k < count:
        return _one_by_one(values, k)
    if count < _LONG * k:
        return _by_sorting(values, k) if bool(values.sum().isnan()) else _by_edge(values, k)
    return _by_groups(values, k, round(math.sqrt(count / k)))


def top_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """The softmax of logits (N, k_S), in float64 whatever they are, at some labels (N, K) of each row.

    >>> top_softmax(torch.tensor([[0.7, 0.2, 0.1]]).log(), torch.tensor([[2, 0]])).round(decimals=6).tolist()
    [[0.1, 0.7]]
    """
    logits, rows = logits.detach(), max(_HELD // logits.shape[1], 1)  # what is counted has no gradient
    if logits.device.type != "cpu":
        return logits.softmax(1, dtype=torch.float64).gather(1, labels)
    if len(logits) > rows:
        return torch.cat([top_softmax(*part) for part in zip(logits.split(rows), labels.split(rows), strict=True)])
    scores = logits.to(torch.float64, copy=True)  # and the softmax in its place: half the memory, and nearer to the core
    return torch.softmax(scores, 1, out=scores).gather(1, labels)


def _by_groups(values: Tensor, k: int, size: int) -> Tensor:
    """By the largest of each group of so many columns: what is among the k largest stands in one of the k best groups.

    Were it in another, each of those k had one that is at least as large. So few columns are left to look at closely.
    """
    groups = values.shape[1] // size
    table, rest = values[:, : size * groups].unflatten(1, (size, groups)), values[:, size * groups :]
    largest = table.amax(1).numpy()  # columns of the table are groups: quicker than neighbours
    if np.isnan(largest.sum() + rest.numpy().sum()):
        return _by_sorting(values, k)
    best, tied = _first(largest, _edge(largest, k), k)
    near = table.gather(2, torch.from_numpy(best)[:, None, :].expand(-1, size, -1)).flatten(1).numpy()
    if rest.shape[1]:
        near = np.concatenate([near, rest.numpy()], 1)
    edge = _edge(near, k)
    places, _ = _first(near, edge, k)
    lines = places // k
    chosen = lines * groups + best.take(places - lines * k + _starts(len(best), k), mode="clip")
    if rest.shape[1]:
        chosen = np.where(places < size * k, chosen, places + size * (groups - k))
    if tied:  # then one as large as the last may stand in a group that was left out, and at a lower index
        unsure = np.flatnonzero((largest >= edge).sum(1) > k)
        chosen[unsure] = _by_edge(values[torch.from_numpy(unsure)], k)
    return torch.from_numpy(chosen)


def _one_by_one(values: Tensor, k: int) -> Tensor:
    """The largest of each row, then the largest of the others, and so on, a few rows at a time that stay near the core."""
    numbers, (count, columns) = values.numpy(), values.shape
    rows = max(min(_NEAR // columns, count), 1)
    held, starts = np.empty((rows, columns), dtype=numbers.dtype), _starts(rows, columns)[:, 0]
    taken, chosen = held.reshape(-1), np.empty((k, count), dtype=np.int64)
    for begin in range(0, count, rows):
        part = numbers[begin : begin + rows]
        left, into = held[: len(part)], chosen[:, begin : begin + rows]
        left[:] = part
        for place in range(k):
            largest = left.argmax(1, out=into[place]) + starts[: len(part)]
            if place < k - 1:
                taken[largest] = -np.inf
            elif np.isneginf(taken[largest]).any():
                return _by_sorting(values, k)  # which cannot be told from what was taken out
    return torch.from_numpy(chosen.T)


def _by_edge(values: Tensor, k: int) -> Tensor:
    numbers = values.numpy()
    return torch.from_numpy(_first(numbers, _edge(numbers, k), k)[0])


def _by_sorting(values: Tensor, k: int) -> Tensor:
    return values.sort(dim=1, descending=True, stable=True).indices[:, :k]


def _by_top_k(values: Tensor, k: int) -> Tensor:
    top, indices = values.topk(k, dim=1)
    reached = ~(values < top[:, -1:])  # NaN too
    if int(reached.count_nonzero()) > top.numel():
        tied = reached.sum(1) > k
        indices[tied] = _by_sorting(values[tied], k)
    return indices


def _edge(values: _Numbers, k: int) -> _Numbers:
    """The k-th largest of each row, (N, 1)."""
    place = values.shape[1] - k
    return np.partition(values, place, axis=1)[:, place, None]


def _first(values: _Numbers, edge: _Numbers, k: int) -> tuple[_Numbers, bool]:
    """Where the k values from the edge up are, (N, k) rising, by index among those on it; and whether any was left over."""
    reached = values >= edge
    tied = bool(np.count_nonzero(reached) > len(values) * k)
    if tied:
        more = reached.sum(1) - k
        rows = more > 0
        level = values[rows] == edge[rows]
        level &= level.cumsum(1) > (level.sum(1) - more[rows])[:, None]
        reached[rows] &= ~level
    return np.flatnonzero(reached).reshape(-1, k) - _starts(*values.shape), tied


def _starts(rows: int, columns: int) -> _Numbers:
    """Where each row of a table begins, counted through it, (rows, 1)."""
    return np.arange(0, rows * columns, columns)[:, None]
