"""The mapping itself and its settings, chosen from logits without any training.

Every family that has a scorer (see `reprogram.mappings.scorers`) is tried with the values that its settings name, on samples
that the mapping was not estimated from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reprogram.errors import ReprogramError, unknown
from reprogram.mappings.bootstrap import Bootstrap
from reprogram.mappings.fold_scorer import CandidatesOnFolds
from reprogram.mappings.grouping import Block as Block
from reprogram.mappings.grouping import Blocks as Blocks
from reprogram.mappings.grouping import Part, Passes, in_blocks
from reprogram.mappings.registry import MAPPINGS, Family
from reprogram.mappings.scorers import LEAVE_ONE_GROUP_OUT, LEAVE_ONE_OUT, Scorer
from reprogram.mappings.scorers import Candidate as Candidate
from reprogram.registry import imported
from reprogram.scores import GroupSums, Score
from reprogram.statistics.answers import TopK

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
        certainty: in which share of 1,000 resamples of the samples, or of their groups, a candidate of the chosen mapping
            comes first.
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
        inside = "" if best.score.groups is None else f" in {best.score.groups} groups"
        share = f"{100 * best.score.accuracy:.1f} % by {best.how} on {best.score.n} samples{inside}"
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

    Memory does not grow with the number of samples (for groups, see `Passes`).

    Args:
        blocks: logits (n, k_S), or `TopK` answers, integer targets (n,) and perhaps groups (n,), any whole numbers: samples
            of one group are left out together, and are in one fold. Or, for more than fits into memory, a function that
            starts a new pass over such blocks, the same ones in the same order every time. There are two passes.
        k_target: the number of classes, also of absent ones.
        methods: which mappings to try; None: all that have a scorer and can take what is given. For fixed logits ilm is flm.
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
    passes = Passes(blocks if callable(blocks) else in_blocks(blocks, block_size), k_target)
    scorers: list[Scorer] = []
    for logits, targets, folds in passes.first():
        if not scorers:
            options: dict[str, Any] = {"span": span, "log_probabilities": log_probabilities}
            if isinstance(logits, TopK):
                families, options["answers"] = _taking_answers(families, methods), True
            scorers = [
                imported(family.scorer)(family, logits.shape[1], k_target, grids[family.name], **options)
                for family in families
            ]
            if passes.given:
                scorers = [scorer if scorer.knows_groups else CandidatesOnFolds(scorer) for scorer in scorers]
        for scorer in scorers:
            if scorer.candidates:
                scorer.gather(logits, targets, folds)
    if (n := int(passes.samples.sum())) >= 2**31:
        raise ReprogramError(f"{n} samples were given, but a choice counts at most {2**31 - 1}; choose on a part of them")
    if n < 2:
        raise ReprogramError(f"{n} samples were given, but at least 2 are needed to leave one out")
    notes = tuple(f"{scorer.family.name} was not tried: {scorer.obstacle}" for scorer in scorers if scorer.obstacle)
    scorers = [scorer for scorer in scorers if scorer.candidates]
    if not scorers:
        raise ReprogramError("there is nothing to choose from; give at least one method with at least one value each")
    # Nothing is left of a class whose only sample, or only group, is left out: it says nothing about the mapping.
    if not bool(passes.judged.any()):
        return _default(scorers, notes, "samples" if passes.groups is None else "groups of samples")
    return _conclude(scorers, _Judged(passes, scorers), notes)


class _Judged:
    """What the second pass has found: how many samples each candidate got right, and how that varies.

    With groups, these are what is resampled: frames of one video are right or wrong together.

    Attributes:
        n: how many samples were judged.
        correct: how many of them each candidate got right.
        shares: (resamples, candidates) float64, the share that was right in each resample.
    """

    def __init__(self, passes: Passes, scorers: Sequence[Scorer]) -> None:
        columns = sum(len(scorer.candidates) for scorer in scorers)
        judged, grouped = passes.judged, passes.groups is not None
        self.n = int(passes.samples[judged].sum())
        bootstrap = Bootstrap(passes.groups or self.n, columns + grouped, _RESAMPLES)
        self._groups = [GroupSums() for _ in range(columns)] if grouped else None
        self.how = LEAVE_ONE_GROUP_OUT if grouped else LEAVE_ONE_OUT
        for part in passes.second():
            kept = judged.to(part.targets.device)[part.targets]
            found = [leads(scores, part.targets) & kept for scorer in scorers for scores in scorer.scores_of(part)]
            hits = torch.stack(found, dim=1).cpu()
            if part.groups is None:
                bootstrap.add(hits[kept.cpu()])
            else:
                bootstrap.add(self._by_group(part, torch.cat([hits, kept.cpu()[:, None]], 1)))
        self.correct: list[int] = bootstrap.totals[:columns].tolist()
        sizes = bootstrap.sums[:, columns:] if grouped else torch.tensor(float(self.n), dtype=torch.float64)
        self.shares = bootstrap.sums[:, :columns] / sizes.clamp_min(1)

    def score(self, candidate: int) -> Score:
        """Of one candidate, with the uncertainty that groups leave."""
        return Score(self.correct[candidate], self.n) if self._groups is None else self._groups[candidate].score()

    def _by_group(self, part: Part, flags: Tensor) -> Tensor:
        """Rows of flags (N, columns + 1) summed up by group."""
        assert part.groups is not None
        assert self._groups is not None
        names, index = part.groups.cpu().unique(return_inverse=True)
        rows = torch.zeros(len(names), flags.shape[1], dtype=torch.int64).index_add_(0, index, flags.long())
        sizes = rows[:, -1].tolist()
        for sums, hits in zip(self._groups, rows[:, :-1].T.tolist(), strict=True):
            sums.add(hits, sizes)
        return rows


def _selectable() -> dict[str, Family]:
    return {name: family for name, family in MAPPINGS.items() if family.scorer is not None}


def _families(methods: Sequence[str] | None) -> list[Family]:
    selectable = _selectable()
    for method in methods or ():
        if method not in selectable:
            raise unknown("mapping to select from", method, selectable)
    return list(selectable.values()) if methods is None else [selectable[method] for method in dict.fromkeys(methods)]


def _taking_answers(families: Sequence[Family], methods: Sequence[str] | None) -> list[Family]:
    """The families that can be judged by top-K answers; none that was asked for may be missing."""
    able = [family for family in families if imported(family.scorer).takes_answers]
    if methods is not None and len(able) < len(families):
        missing = next(family.name for family in families if family not in able)
        raise ReprogramError(f"mapping {missing!r} cannot be judged by top-K answers; leave it out, or take gaussian+")
    return able


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


def leads(scores: Tensor, targets: Tensor) -> Tensor:
    """Whether the true class leads, (N,). What is equal up to rounding is no lead: it would be won by chance."""
    own = targets[:, None]
    lead = scores.gather(1, own).flatten() - scores.scatter(1, own, -torch.inf).amax(1)
    return lead > 1e-9 * scores.abs().amax(1)


def _default(scorers: Sequence[Scorer], notes: tuple[str, ...], what: str) -> Selection:
    """The choice where no class has two samples, or two groups."""
    chosen = next((scorer for scorer in scorers if scorer.one_shot), scorers[0])
    note = f"no class has two {what}, so nothing could be left out and judged; this is the default"
    return Selection([Scored(chosen.default(), Score(0, 0), "default")], 0.0, None, None, (*notes, note))


def _trusted_first(order: list[int], trusted: list[bool], judged: _Judged, k_target: int) -> list[int]:
    """The order, best first, with the best trusted candidate before all unless another one leads it clearly."""
    place = next((index for index in order if trusted[index]), None)
    if place is None or trusted[order[0]]:
        return order
    spread = float((judged.shares[:, order[0]] - judged.shares[:, place]).std())
    lead = (judged.correct[order[0]] - judged.correct[place]) / max(judged.n, 1)
    if lead > _MARGIN * spread and judged.n >= _JUDGED * k_target:
        return order
    return [place, *(index for index in order if index != place)]


def _conclude(scorers: Sequence[Scorer], judged: _Judged, notes: tuple[str, ...]) -> Selection:
    """Rank the candidates, and see by the resamples how much the ranking depends on the samples."""
    correct = judged.correct
    tried = [(candidate, scorer.how) for scorer in scorers for candidate in scorer.candidates]
    rows = [
        Scored(candidate, judged.score(index), judged.how if how == LEAVE_ONE_OUT else how)
        for index, (candidate, how) in enumerate(tried)
    ]
    order = sorted(range(len(rows)), key=lambda index: (-correct[index], tried[index][1] != LEAVE_ONE_OUT))
    trusted = [scorer.one_shot for scorer in scorers for _ in scorer.candidates]
    order = _trusted_first(order, trusted, judged, scorers[0].k_target)
    table, best = [rows[index] for index in order], order[0]
    own = torch.tensor([row.candidate.mapping == rows[best].candidate.mapping for row in rows])
    rival = next((index for index in order if not own[index]), None)
    if rival is None:
        return Selection(table, 1.0, None, None, notes)
    first, others = judged.shares[:, own].amax(1), judged.shares[:, ~own].amax(1)
    wins = float((first > others).sum() + (first == others).sum() / 2)
    leads = judged.shares[:, best] - judged.shares[:, rival]
    low, high = leads.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    lead = ((correct[best] - correct[rival]) / judged.n, low, high)
    return Selection(table, wins / len(judged.shares), rows[rival], lead, notes)
