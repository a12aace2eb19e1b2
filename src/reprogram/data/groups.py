"""Drawing whole groups (frames of one video, photos of one animal) for splits and folds, every class spread evenly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reprogram.randomness import generator


def has_groups(groups: Tensor | None) -> bool:
    """Whether there is a group of several samples."""
    return groups is not None and len(groups.unique()) < len(groups)


def grouped_split(labels: Tensor, groups: Tensor, fraction: float, seed: int, purpose: str) -> tuple[Tensor, Tensor]:
    """Draw whole groups, about `fraction` of each class and of all, never all groups of a class.

    Groups come in an order that the seed decides. One is taken if that brings the shares of its classes nearer to the
    fraction, and given back if a later one makes it too much; so a class is off by at most half of its last group. Where
    groups are so large that too few are taken, the ones follow that disturb their classes least, while that brings the share
    of all samples nearer.

    Args:
        labels: (N,) class numbers.
        groups: (N,) group numbers; a group may have samples of several classes.
        fraction: above 0 and below 1.
        seed: of the order.
        purpose: what is drawn, which has draws of its own.

    Returns:
        The places of the rest and of the drawn, both ascending.

    >>> rest, drawn = grouped_split(torch.zeros(8, dtype=torch.int64), torch.arange(8) // 2, 0.25, 0, "test")
    >>> len(drawn), (drawn // 2).unique().numel()
    (2, 1)
    """
    drawing = _Drawing.of(labels, groups, fraction)
    order = torch.randperm(len(drawing.contents), generator=generator(seed, "split", purpose)).tolist()
    for _ in range(4):
        changes = 0
        for group in order:
            if drawing.free(group) and drawing.gain(group) > 1e-9:
                changes += 1
                drawing.turn(group)
        if not changes:
            break
    while True:
        before = drawing.count
        touched: set[int] = set()
        for group in sorted(order, key=drawing.gain, reverse=True):
            classes = {label for label, _ in drawing.contents[group]}
            if not drawing.chosen[group] and drawing.free(group) and drawing.is_short_by(group) and not classes & touched:
                drawing.turn(group)
                touched |= classes
        if drawing.count == before:
            break
    taken = torch.tensor(drawing.chosen)[drawing.index]
    return (~taken).nonzero().flatten(), taken.nonzero().flatten()


@dataclass
class _Drawing:
    """Which groups are drawn so far, and what another one would change.

    Attributes:
        index: (N,) the groups, numbered from 0.
        contents: for each group, its classes and how many samples it has of each.
        totals: how many samples each class has.
        fraction: the share that is asked for.
        taken: how many samples of each class are drawn.
        left: how many groups of each class are not.
        chosen: which groups are drawn.
        count: how many samples are drawn.
    """

    index: Tensor
    contents: list[list[tuple[int, int]]]
    totals: list[int]
    fraction: float
    taken: list[int]
    left: list[int]
    chosen: list[bool]
    count: int = 0

    @classmethod
    def of(cls, labels: Tensor, groups: Tensor, fraction: float) -> "_Drawing":
        index, contents = _contents(labels, groups)
        totals = torch.bincount(labels).tolist()
        left = [0] * len(totals)
        for content in contents:
            for label, _ in content:
                left[label] += 1
        return cls(index, contents, totals, fraction, [0] * len(totals), left, [False] * len(contents))

    def free(self, group: int) -> bool:
        """Whether it can be drawn without emptying a class, or is drawn already."""
        return self.chosen[group] or all(self.left[label] > 1 for label, _ in self.contents[group])

    def gain(self, group: int) -> float:
        """By how much drawing it, or giving it back, brings its classes nearer to their shares, in squared samples."""
        sign, gain = (-1 if self.chosen[group] else 1), 0.0
        for label, size in self.contents[group]:
            away = self.taken[label] - self.fraction * self.totals[label]
            gain += (away**2 - (away + sign * size) ** 2) / self.totals[label]
        return gain

    def is_short_by(self, group: int) -> bool:
        """Whether drawing it brings the share of all samples nearer."""
        away = self.count - self.fraction * len(self.index)
        return abs(away + sum(size for _, size in self.contents[group])) < abs(away) - 1e-9

    def turn(self, group: int) -> None:
        """Draw it, or give it back."""
        sign = -1 if self.chosen[group] else 1
        self.chosen[group] = not self.chosen[group]
        for label, size in self.contents[group]:
            self.taken[label] += sign * size
            self.left[label] -= sign
            self.count += sign * size


def grouped_folds(labels: Tensor, groups: Tensor, folds: int, seed: int) -> Tensor:
    """A fold for each sample, (N,), the same for all of a group, every class spread over all of them as groups allow.

    The largest groups come first, equal ones in an order that the seed decides, each into the fold that has least of its
    classes, and least of all among equals.

    >>> grouped_folds(torch.zeros(6, dtype=torch.int64), torch.tensor([5, 5, 3, 3, 9, 9]), 3, seed=0).view(3, 2).tolist()
    [[0, 0], [2, 2], [1, 1]]
    """
    index, contents = _contents(labels, groups)
    folds = min(folds, len(contents))
    sizes = [sum(size for _, size in content) for content in contents]
    shuffled = torch.randperm(len(contents), generator=generator(seed, "folds")).tolist()
    held: list[dict[int, int]] = [{} for _ in range(folds)]
    total = [0] * folds
    fold_of = [0] * len(contents)
    for group in sorted(shuffled, key=lambda group: -sizes[group]):
        classes = contents[group]
        best = min(
            range(folds),
            key=lambda fold: (sum(size * held[fold].get(label, 0) for label, size in classes), total[fold], fold),
        )
        fold_of[group] = best
        total[best] += sizes[group]
        for label, size in classes:
            held[best][label] = held[best].get(label, 0) + size
    return torch.tensor(fold_of)[index]


def drawn_from_groups(groups: Tensor, count: int | None, fraction: float | None, draw: torch.Generator) -> Tensor:
    """Places among the samples of one class: `count` of as many groups as there are, or a `fraction` in whole groups.

    A smaller draw is a part of a larger one.

    Args:
        groups: (N,) group numbers of the samples of a class.
        count: how many samples: first one of each group, then a second of each, and so on.
        fraction: or how large a part: groups follow each other until the share is nearest, at least one.
        draw: decides the order.
    """
    order = torch.randperm(len(groups), generator=draw)
    members: dict[int, list[int]] = {}
    for place in order.tolist():
        members.setdefault(int(groups[place]), []).append(place)
    if count is not None:
        rounds = sorted(
            (turn, number, place) for number, group in enumerate(members.values()) for turn, place in enumerate(group)
        )
        return torch.tensor([place for _, _, place in rounds[:count]])
    wanted, kept = (fraction or 1.0) * len(groups), list[int]()
    for group in members.values():
        if kept and abs(len(kept) + len(group) - wanted) > abs(len(kept) - wanted):
            break
        kept += group
    return torch.tensor(kept)


def group_notes(classes: Sequence[str], labels: Mapping[str, Tensor], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """What a reader should know about the groups of the splits: classes of one group, and groups in several splits."""
    held: dict[int, set[str]] = {}
    for part, names in groups.items():
        for label, name in zip(labels[part].tolist(), names, strict=True):
            held.setdefault(label, set()).add(name)
    single = [classes[label] for label, names in sorted(held.items()) if len(names) == 1]
    notes = []
    if single:
        named = ", ".join(repr(name) for name in single[:5]) + (f" and {len(single) - 5} more" if len(single) > 5 else "")
        what = f"class {named} are one group" if len(single) == 1 else f"the classes {named} are one group each"
        notes.append(f"all images of {what}, so nothing can tell how well new ones are recognised")
    if "test" in groups:
        known = set().union(*(set(names) for part, names in groups.items() if part != "test"))
        shared = known & set(groups["test"])
        if shared:
            notes.append(
                f"{len(shared)} of {len(set(groups['test']))} groups of the test split, such as {min(shared)!r:.80}, have "
                "images in other splits, too: the accuracy flatters"
            )
    return notes


def _contents(labels: Tensor, groups: Tensor) -> tuple[Tensor, list[list[tuple[int, int]]]]:
    """Groups (N,) numbered from 0, and for each its classes with their numbers of samples."""
    _, index = groups.unique(return_inverse=True)
    classes = int(labels.max()) + 1
    pairs, counts = (index * classes + labels).unique(return_counts=True)
    contents: list[list[tuple[int, int]]] = [[] for _ in range(int(index.max()) + 1)]
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        contents[pair // classes].append((pair % classes, count))
    return index, contents
