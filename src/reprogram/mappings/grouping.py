"""Two passes over samples that may belong to groups: which groups there are, and blocks that hold whole groups.

Samples of one group (frames of one video, photos of one animal) must be left out together. They may come scattered over the
stream; what can be told of a sample without its group is known only once the whole group is at hand.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import check_finite, checked_targets

#: Logits (N, k_S) or answers, targets (N,) and perhaps groups (N,), any whole numbers.
Block = tuple[Tensor | TopK, Tensor] | tuple[Tensor | TopK, Tensor, Tensor]
Blocks = Callable[[], Iterable[Block]]
FOLDS = 5
_HELD = 1 << 25  # logits of groups that wait for the rest of their samples: 128 MB
_READY = 2048  # rows of complete groups that are handed out together
_OTHER = "the second pass gave other samples than the first; start every pass with the same blocks"


@dataclass(frozen=True)
class Part:
    """Some samples of the second pass.

    Attributes:
        logits: (N, k_S), or `TopK` answers.
        targets: (N,) int64.
        folds: (N,) from 0 to `FOLDS` − 1; a group is in one fold.
        groups: (N,) int64, all samples of each group; None where every sample stands for itself.
        places: (N,) the numbers of the samples in the stream, ascending where there are no groups.
    """

    logits: Any
    targets: Tensor
    folds: Tensor
    groups: Tensor | None
    places: Tensor


class Passes:
    """The two passes of `select` and `LeftOut`.

    The folds of samples without groups are their numbers within their class, modulo `FOLDS`; those of groups are the same
    with groups counted, each for the class of its first sample. Groups that have one sample each are no groups.

    Memory does not grow with the number of samples, but for a few numbers for each group. Groups that are scattered over
    the stream wait for the rest of their samples in up to 128 MB; what finds no room waits for another pass. The largest
    group has to fit into memory.

    Args:
        start: starts a pass, the same samples in the same order every time.
        k_target: how many classes there are.

    Attributes:
        samples: (k_T,) int64, how many samples of each class the first pass has met.
        judged: (k_T,) whether something is left of a class when a sample, or a group, is left out.
        lengths: how many samples each block had.
    """

    def __init__(self, start: Blocks, k_target: int) -> None:
        self._start, self.k_target = start, k_target
        self.samples = torch.zeros(k_target, dtype=torch.int64)
        self.lengths: list[int] = []
        self._given: bool | None = None
        self._sizes: dict[int, int] = {}
        self._folds: dict[int, int] = {}
        self._several = torch.zeros(k_target, dtype=torch.bool)

    @property
    def groups(self) -> int | None:
        """How many groups there are; None where samples stand for themselves."""
        return len(self._sizes) if self._given and len(self._sizes) < int(self.samples.sum()) else None

    @property
    def given(self) -> bool:
        """Whether groups were given, known from the first block on."""
        return bool(self._given)

    @property
    def judged(self) -> Tensor:
        """See the class."""
        return self.samples > 1 if self.groups is None else self._several

    def first(self) -> Iterator[tuple[Any, Tensor, Tensor]]:
        """The first pass: logits, targets and folds."""
        seen = torch.zeros(self.k_target, dtype=torch.int64)
        firsts: dict[int, int] = {}
        for logits, targets, groups in self._blocks():
            folds = _next_folds(seen, targets) if groups is None else self._meet(groups, targets.cpu(), seen, firsts)
            self.samples += torch.bincount(targets.cpu(), minlength=self.k_target)
            self.lengths.append(len(targets))
            yield logits, targets, folds

    def second(self) -> Iterator[Part]:
        """The second pass, or several where groups are scattered widely; the first must have come to its end."""
        yield from self._single() if self.groups is None else self._whole()

    def alone(self) -> Iterator[Part]:
        """The samples in the only pass that what knows their sums needs; nothing where groups are given."""
        seen, start = torch.zeros(self.k_target, dtype=torch.int64), 0
        for logits, targets, groups in self._blocks():
            if groups is not None:
                return
            yield Part(logits, targets, _next_folds(seen, targets), None, torch.arange(start, start + len(targets)))
            start += len(targets)

    def in_order(self, parts: Iterable[tuple[Tensor, Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """What was made of each sample, (places, values, targets), as the blocks were; what comes too early is kept."""
        pages: dict[int, list[Any]] = {}
        ends = torch.tensor(self.lengths).cumsum(0)
        due = 0
        for places, values, targets in parts:
            page_of = torch.searchsorted(ends, places, right=True)
            for page in page_of.unique().tolist():
                chosen = page_of == page
                size = self.lengths[page]
                if page not in pages:
                    pages[page] = [values.new_zeros(size, values.shape[1]), targets.new_zeros(size), 0]
                inside = places[chosen] - (int(ends[page]) - size)
                pages[page][0][inside.to(values.device)] = values[chosen.to(values.device)]
                pages[page][1][inside.to(targets.device)] = targets[chosen.to(targets.device)]
                pages[page][2] += int(chosen.sum())
            while due in pages and pages[due][2] == self.lengths[due]:
                made, of, _ = pages.pop(due)
                due += 1
                yield made, of

    def _blocks(self) -> Iterator[tuple[Any, Tensor, Tensor | None]]:
        for block in self._start():
            logits, targets = block[0], checked_targets(block[1], len(block[0]), self.k_target)
            if not isinstance(logits, TopK):
                check_finite(logits)
            groups = _checked_groups(block[2], len(logits)) if len(block) == 3 else None
            if self._given is None:
                self._given = groups is not None
            if self._given != (groups is not None):
                raise ReprogramError("some blocks have groups and others have none; give all of them groups, or none")
            if len(logits):
                yield logits, targets, groups

    def _meet(self, groups: Tensor, targets: Tensor, seen: Tensor, firsts: dict[int, int]) -> Tensor:
        """Take note of the groups of a block, and give their folds."""
        numbers = groups.tolist()
        for number, target in zip(numbers, targets.tolist(), strict=True):
            if number not in self._sizes:
                self._sizes[number] = 0
                self._folds[number] = int(seen[target]) % FOLDS
                seen[target] += 1
            self._sizes[number] += 1
            if firsts.setdefault(target, number) != number:
                self._several[target] = True
        return torch.tensor([self._folds[number] for number in numbers])

    def _single(self) -> Iterator[Part]:
        seen, start, left = torch.zeros(self.k_target, dtype=torch.int64), 0, self.samples.clone()
        for logits, targets, _ in self._blocks():
            folds = _next_folds(seen, targets)
            left -= torch.bincount(targets.cpu(), minlength=self.k_target)
            if bool((left < 0).any()):
                raise ReprogramError(_OTHER)
            yield Part(logits, targets, folds, None, torch.arange(start, start + len(targets)))
            start += len(targets)
        if bool(left.any()):
            raise ReprogramError(_OTHER)

    def _whole(self) -> Iterator[Part]:
        waiting: set[int] | None = None  # groups that found no room so far; None in the beginning: all of them
        while waiting is None or waiting:
            hall = _Hall(self._sizes, waiting)
            start = 0
            for logits, targets, groups in self._blocks():
                assert groups is not None
                hall.enter(logits, targets, groups, start)
                start += len(targets)
                if hall.ready_rows >= _READY:
                    yield self._part(hall)
            if start != int(self.samples.sum()) or hall.waits:
                raise ReprogramError(_OTHER)
            if hall.ready_rows:
                yield self._part(hall)
            waiting = hall.refused

    def _part(self, hall: "_Hall") -> Part:
        logits, targets, groups, places = hall.leave()
        folds = torch.tensor([self._folds[number] for number in groups.tolist()])
        return Part(logits, targets, folds, groups.to(logits.device), places)


Rows = tuple[Any, Tensor, Tensor, Tensor]


class _Hall:
    """Where samples wait for the others of their group.

    Args:
        sizes: of the groups.
        admitted: the groups that are meant in this pass; None for all.

    Attributes:
        ready_rows: how many samples of complete groups there are.
        refused: the groups that found no room.
    """

    def __init__(self, sizes: dict[int, int], admitted: set[int] | None) -> None:
        self._sizes, self._admitted = sizes, admitted
        self._waiting: dict[int, tuple[int, list[Rows]]] = {}
        self._held = 0
        self._ready: list[Rows] = []
        self.ready_rows = 0
        self.refused: set[int] = set()

    @property
    def waits(self) -> bool:
        """Whether a group is not complete."""
        return bool(self._waiting)

    def enter(self, logits: Tensor | TopK, targets: Tensor, groups: Tensor, start: int) -> None:
        """Take in a block whose first sample has this number."""
        places = torch.arange(start, start + len(targets))
        names, index, counts = groups.unique(return_inverse=True, return_counts=True)
        whole = torch.zeros(len(names), dtype=torch.bool)
        for place, (name, count) in enumerate(zip(names.tolist(), counts.tolist(), strict=True)):
            size = self._sizes.get(name, 0)
            if count > size:
                raise ReprogramError(_OTHER)
            if self._admitted is not None and name not in self._admitted:
                continue
            if count == size:
                whole[place] = True
            elif self._admits(name, size * logits.shape[1]):
                chosen = (index == place).nonzero().flatten()
                self._wait(name, size, _rows_at(chosen, logits, targets, groups, places))
        chosen = whole[index].nonzero().flatten()
        if len(chosen):
            self._finish([_rows_at(chosen, logits, targets, groups, places)])

    def leave(self) -> Rows:
        """Take out all samples of complete groups."""
        logits, *others = zip(*self._ready, strict=True)
        self._ready, self.ready_rows = [], 0
        targets, groups, places = (torch.cat(column) for column in others)
        return TopK.together(logits) if isinstance(logits[0], TopK) else torch.cat(logits), targets, groups, places

    def _admits(self, name: int, values: int) -> bool:
        if name in self._waiting:
            return True
        if name in self.refused:
            return False
        if self._held and self._held + values > _HELD:
            self.refused.add(name)
            return False
        self._held += values
        return True

    def _wait(self, name: int, size: int, rows: Rows) -> None:
        count, parts = self._waiting.pop(name, (0, []))
        count += len(rows[1])
        parts.append(rows)
        if count > size:
            raise ReprogramError(_OTHER)
        if count < size:
            self._waiting[name] = count, parts
            return
        self._held -= size * rows[0].shape[1]
        self._finish(parts)

    def _finish(self, parts: list[Rows]) -> None:
        self._ready += parts
        self.ready_rows += sum(len(part[1]) for part in parts)


def group_numbers(groups: Any, count: int, what: str = "samples") -> Tensor:
    """Names or numbers of groups, one for each sample, as int64 numbers from 0 in the order of their appearance.

    >>> group_numbers(["b", "a", "b"], 3).tolist()
    [0, 1, 0]
    """
    values = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if not isinstance(values, list) or len(values) != count:
        found = len(values) if isinstance(values, list) else "one"
        raise ReprogramError(f"{found} groups were given for {count} {what}; give one for each")
    numbers: dict[Any, int] = {}
    try:
        return torch.tensor([numbers.setdefault(value, len(numbers)) for value in values], dtype=torch.int64)
    except TypeError:
        raise ReprogramError(
            f"groups such as {values[0]!r:.60} were given, but one text or number for each of the {what} is expected"
        ) from None


def group_hash(*parts: bytes) -> int:
    """A number of 63 bits for a group by its name: the same in every process, and different for different names."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return int.from_bytes(digest.digest(), "big") >> 1


def in_blocks(whole: Sequence[Any], size: int) -> Blocks:
    """A function that starts a pass over whole arrays, so many rows at a time."""
    return lambda: zip(*(part.split(size) for part in whole), strict=True)


def _next_folds(seen: Tensor, targets: Tensor) -> Tensor:
    """The fold of each sample: its number within its class, so that classes spread evenly; `seen` goes on."""
    order = targets.cpu().argsort(stable=True)
    ranked = targets.cpu()[order]
    counts = torch.bincount(ranked, minlength=len(seen))
    within = torch.arange(len(ranked)) - (counts.cumsum(0) - counts)[ranked]
    folds = torch.empty_like(ranked).index_put_((order,), (seen[ranked] + within) % FOLDS)
    seen += counts
    return folds


def _checked_groups(groups: Tensor, count: int) -> Tensor:
    if groups.shape != (count,) or groups.is_floating_point():
        raise ReprogramError(
            f"groups are {groups.dtype} of shape {tuple(groups.shape)}, but {count} whole numbers are expected"
        )
    return groups.long().cpu()


def _rows_at(chosen: Tensor, logits: Tensor | TopK, targets: Tensor, groups: Tensor, places: Tensor) -> Rows:
    here = chosen.to(logits.device)
    return logits[here], targets[chosen.to(targets.device)], groups[chosen], places[chosen]
