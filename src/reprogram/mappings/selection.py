"""The mapping itself and its settings, chosen from logits without any training.

Every family that has a scorer (see `reprogram.mappings.scorers`) is tried with the values that its settings name, on samples
that the mapping was not estimated from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reprogram.errors import ReprogramError, unknown
from reprogram.mappings.bootstrap import Bootstrap
from reprogram.mappings.registry import MAPPINGS, Family
from reprogram.mappings.scorers import FOLDS, LEAVE_ONE_OUT, Scorer
from reprogram.mappings.scorers import Candidate as Candidate
from reprogram.registry import imported
from reprogram.scores import Score
from reprogram.statistics.base import check_finite, checked_targets

Block = tuple[Tensor, Tensor]
Blocks = Callable[[], Iterable[Block]]
_RESAMPLES = 1000
#: How far another family must lead the trusted one to be chosen, and how many samples that takes: of 75 candidates that
#: are tried on few samples, one leads by chance.
_MARGIN = 3.0  # standard errors of the paired difference
_JUDGED = 5  # samples per class


@dataclass(frozen=True)
class Scored:
    """How a candidate did on samples that it was not estimated from.

    Attributes:
        candidate: the mapping and its settings.
        score: how many of how many it got right.
        how: by leave-one-out, or on folds.
    """

    candidate: Candidate
    score: Score
    how: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**self.candidate.to_json(), **self.score.to_json(), "how": self.how}


@dataclass(frozen=True)
class Selection:
    """What was tried, what is best, and how sure that is.

    Attributes:
        table: all candidates, the choice first, then by how they did; among equals those judged by leave-one-out, then the
            order of trial decides. The choice is the best one of the trusted mapping, `gaussian`, unless that of another
            leads it by more than three standard errors, on at least five samples per class.
        certainty: in which share of 1,000 resamples of the samples a candidate of the chosen mapping comes first.
        runner_up: the best candidate of another mapping; None if there was only one mapping.
        lead: how many points of accuracy the choice is ahead of it, with a 95 % interval of the paired difference; below 0
            where the lead of the other one may be chance.
        notes: what was not tried, and why.
    """

    table: list[Scored]
    certainty: float
    runner_up: Scored | None
    lead: tuple[float, float, float] | None
    notes: tuple[str, ...] = ()

    @property
    def choice(self) -> Candidate:
        """The best candidate."""
        return self.table[0].candidate

    def __str__(self) -> str:
        """The choice in one or two sentences."""
        best = self.table[0]
        if not best.score.n:
            return f"{best.candidate}: {self.notes[-1]}"
        share = f"{100 * best.score.accuracy:.1f} % by {best.how} on {best.score.n} samples"
        text = f"{best.candidate}, out of {len(self.table)} tried: {share}"
        if self.runner_up is not None and self.lead is not None:
            lead, low, high = (100 * value for value in self.lead)
            if lead < 0:
                other = f"{self.runner_up.candidate} is {-lead:.1f} points (95 % interval {-high:.1f} to {-low:.1f}) ahead"
                return f"{text}; {other}, which may be chance"
            text += (
                f"; {lead:.1f} points (95 % interval {low:.1f} to {high:.1f}) ahead of {self.runner_up.candidate}, "
                f"{best.candidate.mapping} first in {100 * self.certainty:.0f} % of resamples"
            )
        return text

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "choice": self.choice.to_json(),
            "certainty": self.certainty,
            "lead": None if self.lead is None else list(self.lead),
            "runner_up": None if self.runner_up is None else self.runner_up.to_json(),
            "notes": list(self.notes),
            "table": [row.to_json() for row in self.table],
        }


def select(
    blocks: Blocks | Block,
    k_target: int,
    *,
    methods: Sequence[str] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    span: Tensor | None = None,
    log_probabilities: bool = False,
    block_size: int = 2048,
) -> Selection:
    """Judge every mapping of the grid on samples that it was not estimated from, and choose the best.

    Memory does not grow with the number of samples.

    Args:
        blocks: logits (n, k_S) and integer targets (n,); or, for more than fits into memory, a function that starts a new
            pass over such pairs, the same ones in the same order every time. There are two passes.
        k_target: the number of classes, also of absent ones.
        methods: which mappings to try; None: all that have a scorer. For fixed logits ilm is flm.
        grid: the values to try by the name of the setting, instead of those that the mappings' own settings name:
            {"smoothing": [1, 10], "priors": [False, True]}. Each mapping takes the ones it has.
        span: orthonormal columns that span the logits; the Gaussian mapping of very many labels needs it.
        log_probabilities: whether the logits are logarithms of probabilities (see `Statistics.update`).
        block_size: rows at a time where whole arrays are given.

    >>> logits = torch.eye(3)[[0, 0, 1, 1, 2, 2]] * 4
    >>> found = select((logits, torch.tensor([1, 1, 0, 0, 2, 2])), k_target=3, methods=["blm"])
    >>> found.table[0].score.accuracy, found.choice.mapping
    (1.0, 'blm')
    """
    families = _families(methods)
    grids = _grids(families, grid or {})
    start = blocks if callable(blocks) else in_blocks(*blocks, block_size)
    scorers: list[Scorer] = []
    samples = torch.zeros(k_target, dtype=torch.int64)
    for logits, targets, folds in with_folds(start(), k_target):
        if not scorers:
            options = {"span": span, "log_probabilities": log_probabilities}
            scorers = [
                imported(family.scorer)(family, logits.shape[1], k_target, grids[family.name], **options)
                for family in families
            ]
        samples += torch.bincount(targets.cpu(), minlength=k_target)
        for scorer in scorers:
            if scorer.candidates:
                scorer.gather(logits, targets, folds)
    if (n := int(samples.sum())) >= 2**31:
        raise ReprogramError(f"{n} samples were given, but a choice counts at most {2**31 - 1}; choose on a part of them")
    if n < 2:
        raise ReprogramError(f"{n} samples were given, but at least 2 are needed to leave one out")
    notes = tuple(f"{scorer.family.name} was not tried: {scorer.obstacle}" for scorer in scorers if scorer.obstacle)
    scorers = [scorer for scorer in scorers if scorer.candidates]
    if not scorers:
        raise ReprogramError("there is nothing to choose from; give at least one method with at least one value each")
    # Nothing is left of a class whose only sample is left out: it says nothing about the mapping.
    judged = samples > 1
    if not bool(judged.any()):
        return _default(scorers, notes)
    bootstrap = Bootstrap(int(samples[judged].sum()), sum(len(scorer.candidates) for scorer in scorers), _RESAMPLES)
    for logits, targets, folds in with_folds(start(), k_target):
        samples -= torch.bincount(targets.cpu(), minlength=k_target)
        if bool((samples < 0).any()):
            break
        kept = judged.to(targets.device)[targets]
        hits = [_leads(scores, targets)[kept] for scorer in scorers for scores in scorer.scores(logits, targets, folds)]
        bootstrap.add(torch.stack(hits, dim=1).cpu())
    if bool(samples.any()):
        raise ReprogramError("the second pass gave other samples than the first; start every pass with the same blocks")
    return _conclude(scorers, bootstrap, notes)


def _selectable() -> dict[str, Family]:
    return {name: family for name, family in MAPPINGS.items() if family.scorer is not None}


def _families(methods: Sequence[str] | None) -> list[Family]:
    selectable = _selectable()
    for method in methods or ():
        if method not in selectable:
            raise unknown("mapping to select from", method, selectable)
    return list(selectable.values()) if methods is None else [selectable[method] for method in dict.fromkeys(methods)]


def _grids(families: Sequence[Family], grid: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, tuple[Any, ...]]]:
    """What is tried of each family: its own grid, with the caller's values in place of its own, checked."""
    judges = {family.name: imported(family.scorer).judges for family in _selectable().values()}
    known = sorted({name for names in judges.values() for name in names})
    for name in grid:
        if name not in known:
            raise unknown("setting to try", name, known)
    grids = {}
    for family in families:
        grids[family.name] = family.settings.grid()
        for name in set(grid).intersection(judges[family.name]):
            grids[family.name][name] = tuple(_checked(family, name, value) for value in grid[name])
    return grids


def _checked(family: Family, name: str, value: Any) -> Any:
    return getattr(MAPPINGS.read(family.name, {name: value}), name)


def with_folds(blocks: Iterable[Block], k_target: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Blocks with int64 targets and the fold of each sample: its number within its class, so that classes spread evenly."""
    seen = torch.zeros(k_target, dtype=torch.int64)
    for logits, given in blocks:
        check_finite(logits)
        targets = checked_targets(given, len(logits), k_target)
        order = targets.cpu().argsort(stable=True)
        ranked = targets.cpu()[order]
        counts = torch.bincount(ranked, minlength=k_target)
        within = torch.arange(len(ranked)) - (counts.cumsum(0) - counts)[ranked]
        folds = torch.empty_like(ranked).index_put_((order,), (seen[ranked] + within) % FOLDS)
        seen += counts
        yield logits, targets, folds


def in_blocks(logits: Tensor, targets: Tensor, size: int) -> Blocks:
    """A function that starts a pass over whole arrays, so many rows at a time."""
    return lambda: zip(logits.split(size), targets.split(size), strict=True)


def _leads(scores: Tensor, targets: Tensor) -> Tensor:
    """Whether the true class leads, (N,). What is equal up to rounding is no lead: it would be won by chance."""
    own = targets[:, None]
    lead = scores.gather(1, own).flatten() - scores.scatter(1, own, -torch.inf).amax(1)
    return lead > 1e-9 * scores.abs().amax(1)


def _default(scorers: Sequence[Scorer], notes: tuple[str, ...]) -> Selection:
    """The choice where no class has two samples."""
    chosen = next((scorer for scorer in scorers if scorer.one_shot), scorers[0])
    note = "no class has two samples, so nothing could be left out and judged; this is the default"
    return Selection([Scored(chosen.default(), Score(0, 0), "default")], 0.0, None, None, (*notes, note))


def _trusted_first(order: list[int], trusted: list[bool], bootstrap: Bootstrap, k_target: int) -> list[int]:
    """The order, best first, with the best trusted candidate before all unless another one leads it clearly."""
    place = next((index for index in order if trusted[index]), None)
    if place is None or trusted[order[0]]:
        return order
    spread = float((bootstrap.sums[:, order[0]] - bootstrap.sums[:, place]).double().std())
    lead = float(bootstrap.totals[order[0]] - bootstrap.totals[place])
    if lead > _MARGIN * spread and bootstrap.n >= _JUDGED * k_target:
        return order
    return [place, *(index for index in order if index != place)]


def _conclude(scorers: Sequence[Scorer], bootstrap: Bootstrap, notes: tuple[str, ...]) -> Selection:
    """Rank the candidates, and see by the resamples how much the ranking depends on the samples."""
    n, correct = bootstrap.n, bootstrap.totals.tolist()
    tried = [(candidate, scorer.how) for scorer in scorers for candidate in scorer.candidates]
    rows = [Scored(candidate, Score(hits, n), how) for (candidate, how), hits in zip(tried, correct, strict=True)]
    order = sorted(range(len(rows)), key=lambda index: (-correct[index], rows[index].how != LEAVE_ONE_OUT))
    trusted = [scorer.one_shot for scorer in scorers for _ in scorer.candidates]
    order = _trusted_first(order, trusted, bootstrap, scorers[0].k_target)
    table, best = [rows[index] for index in order], order[0]
    own = torch.tensor([row.candidate.mapping == rows[best].candidate.mapping for row in rows])
    rival = next((index for index in order if not own[index]), None)
    if rival is None:
        return Selection(table, 1.0, None, None, notes)
    first, others = bootstrap.sums[:, own].amax(1), bootstrap.sums[:, ~own].amax(1)
    wins = float((first > others).sum() + (first == others).sum() / 2)
    leads = (bootstrap.sums[:, best] - bootstrap.sums[:, rival]) / n
    low, high = leads.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    lead = ((correct[best] - correct[rival]) / n, low, high)
    return Selection(table, wins / len(bootstrap.sums), rows[rival], lead, notes)
