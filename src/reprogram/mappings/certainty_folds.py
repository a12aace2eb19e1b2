"""The folds that certainty is measured on: which samples are in them, and the mappings without each of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.errors import ReprogramError, ignore_evidence_warnings
from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.grouping import in_blocks
from reprogram.statistics.answers import TopK

FOLDS = 10
_SMALLEST = 1e-300  # of a share, whose logarithm is taken


@dataclass(frozen=True)
class Samples:
    """Some labelled samples: a block of `LeftOut`, perhaps with weights.

    Attributes:
        inputs: logits (N, k_S), or `TopK` answers.
        targets: (N,) class numbers.
        groups: (N,) whole numbers; None where every sample stands for itself.
        weights: (N,) or None.
    """

    inputs: Any
    targets: Tensor
    groups: Tensor | None = None
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def answers(self) -> bool:
        """Whether they are answers, and not logits."""
        return isinstance(self.inputs, TopK)

    @property
    def block(self) -> Any:
        """Without the weights, as `LeftOut` takes them."""
        return (self.inputs, self.targets) if self.groups is None else (self.inputs, self.targets, self.groups)


def passes(blocks: Any, block_size: int) -> Callable[[], Iterator[Samples]]:
    """A function that starts a pass over `Samples` on the CPU.

    Args:
        blocks: (logits or answers, targets), with groups or None as a third and weights as a fourth part; or a function that
            starts a pass over such blocks.
        block_size: rows at a time where whole arrays are given.
    """
    start = blocks if callable(blocks) else in_blocks([part for part in blocks if part is not None], block_size)
    there = None if callable(blocks) else [part is not None for part in blocks]

    def given() -> Iterator[Samples]:
        for block in start():
            parts: Any = iter(block)
            whole = block if there is None else [next(parts) if each else None for each in there]
            moved: list[Any] = [None if part is None else part.to("cpu") for part in whole]
            yield Samples(*moved)

    return given


class FoldNumbers:
    """The fold of each sample of a pass; a group is in one fold.

    A tenth goes to fold 0 by lot, a hash of its place in the pass, which depends on nothing that the samples are: they are
    exchangeable with new ones. The others go round the other folds class by class, so that no fold takes all of a small
    class away. Of groups, the same is done with groups counted, each for the class of its first sample.

    Attributes:
        units: (FOLDS, k_T) int64, how many samples, or groups, of each class are in each fold so far.
    """

    def __init__(self, k_target: int, count: int = FOLDS) -> None:
        self._count, self._seen, self._within = count, 0, torch.zeros(k_target, dtype=torch.int64)
        self.units = torch.zeros(count, k_target, dtype=torch.int64)
        self._groups: dict[int, int] = {}
        self._classes: set[tuple[int, int]] = set()

    def __call__(self, targets: Tensor, groups: Tensor | None = None) -> Tensor:
        """The folds (N,) of the next samples."""
        if groups is None:
            folds = self._dealt(targets)
            self.units.index_put_((folds, targets), torch.ones(1, dtype=torch.int64), accumulate=True)
            return folds
        pairs = list(zip(groups.tolist(), targets.tolist(), strict=True))
        fresh: dict[int, int] = {}  # new groups, with their first class
        for group, target in pairs:
            if group not in self._groups:
                fresh.setdefault(group, target)
        dealt = self._dealt(torch.tensor(list(fresh.values()), dtype=torch.int64))
        self._groups |= zip(fresh, dealt.tolist(), strict=True)
        for pair in pairs:
            if pair not in self._classes:
                self._classes.add(pair)
                self.units[self._groups[pair[0]], pair[1]] += 1
        return torch.tensor([self._groups[group] for group, _ in pairs], dtype=torch.int64)

    def _dealt(self, targets: Tensor) -> Tensor:
        """The folds of samples, or of groups, of these classes."""
        lots = torch.from_numpy(_lots(self._seen, len(targets)) % self._count)
        self._seen += len(targets)
        dealt = lots != 0
        for number in targets[dealt].unique().tolist():
            chosen = dealt & (targets == number)
            order = torch.arange(int(chosen.sum())) + self._within[number]
            lots[chosen] = order % (self._count - 1) + 1
            self._within[number] += len(order)
        return lots


def _lots(first: int, count: int) -> Any:
    """Numbers that look drawn, of places from `first` on (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(33)).astype(np.int64)


class FoldMappings:
    """The mappings without each fold, by exact subtraction.

    Args:
        mapping: whose family and settings count, not what it holds.
        log_probabilities: see `Statistics.update`.

    Attributes:
        affines: these mappings, once they were asked for.
    """

    def __init__(self, mapping: Mapping, *, log_probabilities: bool = False) -> None:
        self._mapping, self._log_probabilities = mapping, log_probabilities
        self._parts = [mapping.new_statistics().cpu() for _ in range(FOLDS)]
        self._affines: list[Affine] = []

    def count(self, samples: Samples, folds: Tensor) -> None:
        """First pass: take in samples with their folds (N,)."""
        if samples.answers and not self._mapping.takes_answers:
            raise ReprogramError("top-K answers were given, but this mapping needs all logits; give logits")
        with ignore_evidence_warnings():
            for fold in folds.unique().tolist():
                chosen = folds == fold
                inputs, targets = samples.inputs[chosen], samples.targets[chosen]
                weights = None if samples.weights is None else samples.weights[chosen]
                if isinstance(inputs, TopK):
                    self._parts[fold].update_top_k(inputs.indices, inputs.probabilities, targets, weights)
                else:
                    self._parts[fold].update(inputs, targets, weights, log_probabilities=self._log_probabilities)

    @property
    def affines(self) -> list[Affine]:
        """See the class."""
        if not self._affines:
            total = self._mapping.new_statistics().cpu()
            for part in self._parts:
                total.merge(part)
            with ignore_evidence_warnings():
                for part in self._parts:
                    rest = total.copy().subtract(part).to(self._mapping.weights.device)
                    found = self._mapping.solve(rest).checked(self._mapping.name)
                    self._affines.append(found.to(torch.device("cpu")))
            self._parts = []
        return self._affines

    def scores(self, samples: Samples, folds: Tensor) -> tuple[Tensor, Tensor]:
        """Second pass: `scores_by` of each sample by the mapping without its fold."""
        scores = torch.zeros(len(samples), self._mapping.k_target, dtype=torch.float64)
        silent = torch.zeros(len(samples), dtype=torch.bool)
        for fold in folds.unique().tolist():
            chosen = folds == fold
            scores[chosen], silent[chosen] = scores_by(self._mapping, self.affines[fold], samples.inputs[chosen])
        return scores, silent


def scores_by(mapping: Mapping, affine: Affine, inputs: Tensor | TopK) -> tuple[Tensor, Tensor]:
    """What a mapping of this family says by this affine function: (N, k_T) float64, and where (N,) it has nothing to say.

    These are target logits or, of answers, the logarithms of the shares of the classes; all equal where nothing in an answer
    speaks for any class.
    """
    affine = affine.to(torch.device("cpu")).to(torch.float64)
    if isinstance(inputs, TopK):
        shares, silent = mapping.answer_shares(affine, inputs.to(affine.omega.device))
        return shares.clamp_min(_SMALLEST).log().masked_fill(silent[:, None], 0), silent
    return affine(mapping.inputs(inputs.cpu().double())), torch.zeros(len(inputs), dtype=torch.bool)
