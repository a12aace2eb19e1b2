"""Sets of classes that hold the true one as often as is asked: conformal prediction by folds that are subtracted.

How badly a class y fits a sample is measured by a(x, y) = the best other class's score − the score of y. Each training
sample has its a_i by the mapping without its fold, and a class belongs to the set of x unless almost all of them fit better:

    p_y(x) = (1 + Σ_k #{i in fold k: a_i ≥ a^k(x, y)}) / (n + 1),   set(x) = {y: p_y(x) > 1 − coverage}

with a^k by the mapping without fold k. This is cross-conformal prediction (Vovk 2015), for scores of classes also called CV+
(Barber, Candès, Ramdas and Tibshirani 2021; Romano, Sesia and Candès 2020). For exchangeable samples the true class is in
the set with a probability of at least 1 − 2α − sqrt(2 / n) with α = 1 − coverage; that is proved, and in practice it is
about 1 − α. With one fold alone it is split conformal prediction, and 1 − α is proved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reprogram.mappings.affine import Affine
from reprogram.mappings.base import Mapping
from reprogram.mappings.certainty_folds import scores_by
from reprogram.statistics.answers import TopK


def misfits(scores: Tensor) -> Tensor:
    """How badly each class fits, (N, k_T): the best other class's score less its own; −∞ where there is no other.

    >>> misfits(torch.tensor([[3.0, 1.0, 0.0]])).tolist()
    [[-2.0, 2.0, 3.0]]
    """
    if scores.shape[1] < 2:
        return torch.full_like(scores, -torch.inf)
    best, second = scores.topk(2, dim=1).values.T
    leads = torch.arange(scores.shape[1], device=scores.device) == scores.argmax(1, keepdim=True)
    return torch.where(leads, second[:, None], best[:, None]) - scores


@dataclass(frozen=True)
class PredictionSets:
    """What sets are made from.

    Attributes:
        affines: the mapping without each fold; empty where the samples were never part of the mapping: then it judges all.
        misfits: for each fold the a_i of its samples, ascending.
        targets: for each fold the classes of those, in the same order.
    """

    affines: tuple[Affine, ...]
    misfits: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]

    @classmethod
    def of(cls, affines: Sequence[Affine], found: Sequence[tuple[Tensor, Tensor]]) -> "PredictionSets":
        """From the misfits and the classes of each fold, in any order."""
        orders = [values.argsort(stable=True) for values, _ in found]
        return cls(
            tuple(affines),
            tuple(values[order] for (values, _), order in zip(found, orders, strict=True)),
            tuple(targets[order] for (_, targets), order in zip(found, orders, strict=True)),
        )

    @property
    def n(self) -> int:
        """How many samples there are."""
        return sum(map(len, self.misfits))

    def p_values(self, mapping: Mapping, inputs: Tensor | TopK, *, per_class: bool = False, strict: bool = False) -> Tensor:
        """p_y of each class for each sample, (N, k_T) float64.

        Args:
            mapping: the one that they belong to.
            inputs: what is classified: logits (N, k_S), or answers.
            per_class: compare with the training samples of class y alone.
            strict: by fold 0 alone.
        """
        affines = self.affines or (mapping.affine,)
        above = torch.zeros(len(inputs), mapping.k_target, dtype=torch.float64)
        size = torch.zeros(mapping.k_target, dtype=torch.float64)
        for fold, affine in enumerate(affines[:1] if strict else affines):
            values = misfits(scores_by(mapping, affine, inputs)[0])
            ranked, targets = self.misfits[fold], self.targets[fold]
            if not per_class:
                above += len(ranked) - torch.searchsorted(ranked, values.contiguous())
                size += len(ranked)
                continue
            for number in targets.unique().tolist():
                own = ranked[targets == number]
                above[:, number] += len(own) - torch.searchsorted(own, values[:, number].contiguous())
                size[number] += len(own)
        return (1 + above) / (1 + size)


def sets_of(p_values: Tensor, coverage: float, classes: Sequence[str]) -> list[tuple[str, ...]]:
    """For each row the classes with p > 1 − coverage, the likeliest first; a larger coverage gives no smaller set.

    >>> sets_of(torch.tensor([[0.7, 0.04, 0.3]]), 0.9, ("cat", "dog", "bird"))
    [('cat', 'bird')]
    """
    order = p_values.argsort(dim=1, descending=True, stable=True)
    kept = (p_values > 1 - coverage + 1e-12).gather(1, order)
    rows = zip(order.tolist(), kept.tolist(), strict=True)
    return [tuple(classes[place] for place, inside in zip(*row, strict=True) if inside) for row in rows]
