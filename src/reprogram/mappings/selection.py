"""The mapping itself, and its α, λ, normalisation and shrinkage, chosen from cached logits without any training.

Bayesian and Gaussian mappings are judged by exact leave-one-out, one-to-one mappings on held-out folds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reprogram.errors import ReprogramError, ignore_evidence_warnings, unknown
from reprogram.mappings.assignment import one_to_one
from reprogram.mappings.gaussians import GaussianFit
from reprogram.mappings.leave_one_out import bayes_without, gaussian_without, normalised_without
from reprogram.mappings.settings import Normalize, Shrinkage
from reprogram.scores import accuracy_interval
from reprogram.statistics.gaussian import LARGEST_COVARIANCE, GaussianStatistics
from reprogram.statistics.joint import JointStatistics, TopRatio, mean_and_deviation, top_count

Block = tuple[Tensor, Tensor]
Blocks = Callable[[], Iterable[Block]]
RATIOS: tuple[TopRatio, ...] = (0.01, 0.05, 0.15, 0.5, 1.0)  # the paper's grid
SMOOTHINGS: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # the paper's grid
SHRINKAGES: tuple[Shrinkage, ...] = ("oas", 0.1, 0.3, 0.6)
SELECTABLE = ("flm", "blm", "blm+", "gaussian")
_FOLDS = 5
NORMALIZATIONS: tuple[Normalize, ...] = ("none", "centre", "standardise")
_RESAMPLES = 1000


@dataclass(frozen=True)
class Candidate:
    """A mapping that could be chosen, by the arguments that `make_mapping` takes."""

    method: str
    settings: dict[str, Any]

    def __str__(self) -> str:
        """`blm+ (smoothing 1, top_ratio 0.15)`."""
        described = ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in self.settings.items()
        )
        return f"{self.method} ({described})" if described else self.method


@dataclass(frozen=True)
class Judged:
    """How a candidate did on samples that it was not estimated from."""

    candidate: Candidate
    correct: int
    n: int
    how: str

    @property
    def accuracy(self) -> float:
        """Share of the samples that it got right."""
        return self.correct / max(self.n, 1)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        interval = list(accuracy_interval(self.correct, self.n))
        name, settings = self.candidate.method, self.candidate.settings
        return {
            "mapping": name,
            **settings,
            "accuracy": self.accuracy,
            "interval_95": interval,
            "n": self.n,
            "how": self.how,
        }


@dataclass(frozen=True)
class Selection:
    """What was tried, what is best, and how sure that is.

    Attributes:
        table: all candidates, the best first; among equals the order of trial decides.
        certainty: in which share of 1,000 resamples of the samples a candidate of the chosen method comes first.
        runner_up: the best candidate of another method; None if there was only one method.
        lead: how many points of accuracy the choice is ahead of it, with a 95 % interval of the paired difference.
    """

    table: list[Judged]
    certainty: float
    runner_up: Judged | None
    lead: tuple[float, float, float] | None
    notes: tuple[str, ...] = ()

    @property
    def choice(self) -> Candidate:
        """The best candidate."""
        return self.table[0].candidate

    def __str__(self) -> str:
        """The choice in one or two sentences."""
        best = self.table[0]
        if not best.n:
            return f"{best.candidate}: {self.notes[-1]}"
        share = f"{100 * best.accuracy:.1f} % by {best.how} on {best.n} samples"
        text = f"{best.candidate}, out of {len(self.table)} tried: {share}"
        if self.runner_up is not None and self.lead is not None:
            lead, low, high = (100 * value for value in self.lead)
            text += (
                f"; {lead:.1f} points (95 % interval {low:.1f} to {high:.1f}) ahead of {self.runner_up.candidate}, "
                f"{self.table[0].candidate.method} first in {100 * self.certainty:.0f} % of resamples"
            )
        return text

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "choice": {"mapping": self.choice.method, **self.choice.settings},
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
    grid: Any = None,
    smoothings: Sequence[float] = SMOOTHINGS,
    top_ratios: Sequence[TopRatio] = RATIOS,
    normalizations: Sequence[Normalize] = NORMALIZATIONS,
    shrinkages: Sequence[Shrinkage] = SHRINKAGES,
    span: Tensor | None = None,
    block_size: int = 2048,
) -> Selection:
    """Judge every mapping of the grid on samples that it was not estimated from, and choose the best.

    Args:
        blocks: logits (n, k_S) and integer targets (n,); or, for more than fits into memory, a function that starts a new
            pass over such pairs, the same ones in the same order every time. There are two passes.
        k_target: the number of classes, also of absent ones.
        methods: which mappings to try, of flm, blm, blm+ and gaussian. For fixed logits ilm is flm.
        smoothings: λ of blm and blm+.
        top_ratios: α of blm+.
        normalizations: of all but the Gaussian mapping, which does not depend on it.
        shrinkages: of the Gaussian mapping.
        span: orthonormal columns that span the logits; the Gaussian mapping of very many labels needs it.
        block_size: rows at a time where whole arrays are given.

    >>> logits = torch.eye(3)[[0, 0, 1, 1, 2, 2]] * 4
    >>> found = select((logits, torch.tensor([1, 1, 0, 0, 2, 2])), k_target=3, methods=["blm"])
    >>> found.table[0].accuracy, found.choice.method
    (1.0, 'blm')
    """
    methods = methods or SELECTABLE
    for method in methods:
        if method not in SELECTABLE:
            raise unknown("mapping to select from", method, SELECTABLE)
    if not callable(blocks):
        logits, targets = blocks
        start = _in_blocks(logits, targets, block_size)
    else:
        start = blocks
    bench = _gather(start, k_target, methods, top_ratios, span)
    if bench.n < 2:
        raise ReprogramError(f"{bench.n} samples were given, but at least 2 are needed to leave one out")
    candidates: list[tuple[Candidate, str]] = []
    flags: list[Tensor] = []
    for logits, targets, folds in bench.numbered(start()):
        judged = bench.judge(logits, targets, folds, smoothings, list(normalizations), shrinkages)
        candidates = [(candidate, how) for candidate, how, _ in judged]
        if not candidates:
            raise ReprogramError("there is nothing to choose from; give at least one method with at least one value each")
        # Nothing is left of a class whose only sample is left out: it tells nothing about the mapping.
        told = (bench.samples[targets.cpu()] > 1).to(targets.device)
        flags.append(torch.stack([_clearly_right(scores, targets)[told] for _, _, scores in judged], dim=1))
    if not sum(map(len, flags)):
        return _untold(methods, tuple(bench.notes))
    return _conclude(candidates, torch.cat(flags).cpu(), tuple(bench.notes))


def _untold(methods: Sequence[str], notes: tuple[str, ...]) -> Selection:
    """The choice where no class has two samples."""
    chosen = Candidate("gaussian", {"shrinkage": "oas"}) if "gaussian" in methods else Candidate(methods[0], {})
    note = "no class has two samples, so nothing could be left out and judged; this is the default"
    return Selection([Judged(chosen, 0, 0, "default")], 0.0, None, None, (*notes, note))


def _clearly_right(scores: Tensor, targets: Tensor) -> Tensor:
    """Whether the true class leads, (N,). What is equal up to rounding is no lead: it would be won by chance."""
    own = targets[:, None]
    lead = scores.gather(1, own).flatten() - scores.scatter(1, own, -torch.inf).amax(1)
    return lead > 1e-9 * scores.abs().amax(1)


def _in_blocks(logits: Tensor, targets: Tensor, size: int) -> Blocks:
    return lambda: zip(logits.split(size), targets.split(size), strict=True)


@dataclass
class _Bench:
    """The statistics that all candidates are made of."""

    k_target: int
    counts: JointStatistics | None = None
    soft: dict[TopRatio, JointStatistics] = field(default_factory=dict)
    normals: GaussianStatistics | None = None
    one_to_one: bool = False
    best: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)  # best source label, class and fold of samples
    moments: Tensor | None = None  # (folds, 3, k_S): how many samples, their summed logits and summed squares
    notes: list[str] = field(default_factory=list)
    n: int = 0
    samples: Tensor = field(default_factory=lambda: torch.zeros(0))
    _fit: GaussianFit | None = None
    _assigned: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    def numbered(self, blocks: Iterable[Block]) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        """Blocks with the fold of each sample: its number within its class, so that classes spread evenly."""
        seen = torch.zeros(self.k_target, dtype=torch.int64)
        for logits, targets in blocks:
            order = targets.cpu().argsort(stable=True)
            ranked = targets.cpu()[order]
            counts = torch.bincount(ranked, minlength=self.k_target)
            within = torch.arange(len(ranked)) - (counts.cumsum(0) - counts)[ranked]
            folds = torch.empty_like(ranked).index_put_((order,), (seen[ranked] + within) % _FOLDS)
            seen += counts
            yield logits, targets, folds

    def judge(
        self,
        logits: Tensor,
        targets: Tensor,
        folds: Tensor,
        smoothings: Sequence[float],
        normalizations: list[Normalize],
        shrinkages: Sequence[Shrinkage],
    ) -> list[tuple[Candidate, str, Tensor]]:
        """Every candidate with the scores (N, k_T) it gives to a block of samples that it does not know."""
        judged: list[tuple[Candidate, str, Tensor]] = []
        exact = "leave-one-out"
        whole = self._mean_and_deviation(list(range(_FOLDS)))
        inputs = [normalised_without(logits, whole, self.n, normalize) for normalize in normalizations]
        for statistics, method, settings in self._bayesian():
            spoken = statistics.evidence(logits)
            for smoothing in smoothings:
                variants = bayes_without(statistics, spoken, targets, smoothing, inputs)
                for normalize, scores in zip(normalizations, variants, strict=True):
                    chosen = {"smoothing": smoothing, **settings, "normalize": normalize}
                    judged.append((Candidate(method, chosen), exact, scores))
        if self.normals is not None:
            self._fit = self._fit or GaussianFit.of(self.normals)
            inside = logits.double() if self.normals.span is None else logits.double() @ self.normals.span
            for shrinkage in shrinkages:
                scores = gaussian_without(self._fit, inside, targets, shrinkage)
                judged.append((Candidate("gaussian", {"shrinkage": shrinkage}), exact, scores))
        for normalize in normalizations if self.one_to_one else []:
            chosen = {"normalize": normalize}
            judged.append((Candidate("flm", chosen), f"{_FOLDS} folds", self._one_to_one(logits, folds, normalize)))
        return judged

    def count_moments(self, logits: Tensor, folds: Tensor) -> None:
        """Add a block to the sums that means and deviations are made of, apart for each fold."""
        if self.moments is None:
            self.moments = torch.zeros(_FOLDS, 3, logits.shape[1], dtype=torch.float64, device=logits.device)
        members = torch.nn.functional.one_hot(folds, _FOLDS).double().to(logits.device)
        logits = logits.double()
        self.moments += torch.stack(
            [members.sum(0)[:, None].expand(-1, logits.shape[1]), members.T @ logits, members.T @ logits.square()], dim=1
        )

    def _mean_and_deviation(self, folds: list[int]) -> tuple[Tensor, Tensor]:
        assert self.moments is not None
        return mean_and_deviation(*self.moments[folds].sum(0))

    def _bayesian(self) -> Iterable[tuple[JointStatistics, str, dict[str, Any]]]:
        if self.counts is not None:
            yield self.counts, "blm", {}
        for ratio, statistics in self.soft.items():
            yield statistics, "blm+", {"top_ratio": ratio}

    def _one_to_one(self, logits: Tensor, folds: Tensor, normalize: Normalize) -> Tensor:
        if not self._assigned:
            best, targets, of = (torch.cat(part) for part in zip(*self.best, strict=True))
            for number in range(_FOLDS):
                left = of != number
                counts = torch.zeros(logits.shape[1], self.k_target, dtype=torch.int64)
                counts.index_put_((best[left], targets[left]), torch.ones(1, dtype=torch.int64), accumulate=True)
                with ignore_evidence_warnings():
                    omega = one_to_one(counts)
                mean, deviation = self._mean_and_deviation([fold for fold in range(_FOLDS) if fold != number])
                self._assigned.append((omega.argmax(0).to(mean.device), mean, deviation.where(deviation > 0, 1)))
        scores = torch.empty(len(logits), self.k_target, dtype=torch.float64, device=logits.device)
        for fold, (labels, mean, deviation) in enumerate(self._assigned):
            chosen = (folds == fold).to(logits.device)
            inputs = logits[chosen][:, labels].double()
            if normalize != "none":
                inputs = inputs - mean[labels]
            scores[chosen] = inputs / deviation[labels] if normalize == "standardise" else inputs
        return scores


def _gather(
    start: Blocks,
    k_target: int,
    methods: Sequence[str],
    top_ratios: Sequence[TopRatio],
    span: Tensor | None,
) -> _Bench:
    bench = _Bench(k_target, samples=torch.zeros(k_target))
    for logits, targets, folds in bench.numbered(start()):
        if bench.n == 0:
            _prepare(bench, logits.shape[1], methods, top_ratios, span)
            for part in (bench.counts, bench.normals, *bench.soft.values()):
                if part is not None:
                    part.to(logits.device)
        bench.n += len(targets)
        bench.samples = bench.samples + torch.bincount(targets.cpu(), minlength=k_target)
        bench.count_moments(logits, folds)
        for part in (bench.counts, bench.normals, *bench.soft.values()):
            if part is not None:
                part.update(logits, targets)
        if bench.one_to_one:
            bench.best.append((logits.argmax(1).cpu(), targets.cpu(), folds))
    return bench


def _prepare(
    bench: _Bench,
    k_source: int,
    methods: Sequence[str],
    top_ratios: Sequence[TopRatio],
    span: Tensor | None,
) -> None:
    k_target = bench.k_target
    if "blm" in methods:
        bench.counts = JointStatistics.counts(k_source, k_target)
    if "blm+" in methods:
        seen: set[int] = set()
        for ratio in top_ratios:  # ratios with the same K are the same mapping
            if (top_k := top_count(ratio, k_target, k_source)) not in seen:
                bench.soft[ratio] = JointStatistics.probabilities(k_source, k_target, top_k)
                seen.add(top_k)
    if "gaussian" in methods:
        coordinates = k_source if span is None else span.shape[1]
        if coordinates <= LARGEST_COVARIANCE:
            bench.normals = GaussianStatistics(coordinates, k_target, span=span)
        else:
            bench.notes.append(f"gaussian was not tried: its covariance of {k_source} source labels is too large")
    if "flm" in methods:
        bench.one_to_one = k_target <= k_source
        if not bench.one_to_one:
            bench.notes.append(f"flm was not tried: {k_target} classes do not find a label each among {k_source}")


def _conclude(candidates: list[tuple[Candidate, str]], right: Tensor, notes: tuple[str, ...]) -> Selection:
    """Rank the columns of `right` (n, candidates), and resample its rows to see how much the ranking depends on them."""
    n = len(right)
    correct = right.sum(0).tolist()
    order = sorted(range(len(candidates)), key=lambda index: -correct[index])
    table = [Judged(candidates[index][0], correct[index], n, candidates[index][1]) for index in order]
    best = order[0]
    method = candidates[best][0].method
    rival = next((index for index in order if candidates[index][0].method != method), None)
    generator = torch.Generator().manual_seed(0)
    own = torch.tensor([candidate.method == method for candidate, _ in candidates])
    wins, leads = 0.0, []
    hits = right.double()
    for _ in range(_RESAMPLES // 50):
        drawn = torch.randint(n, (50, n), generator=generator)
        times = torch.zeros(50, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(50, n, dtype=torch.float64))
        scores = times @ hits
        first, others = scores[:, own].amax(1), scores.masked_fill(own, -1).amax(1)
        wins += float((first > others).sum() + (first == others).sum() / 2)
        if rival is not None:
            leads.append((scores[:, best] - scores[:, rival]) / n)
    if rival is None:
        return Selection(table, 1.0, None, None, notes)
    low, high = torch.cat(leads).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    runner_up = Judged(candidates[rival][0], correct[rival], n, candidates[rival][1])
    return Selection(table, wins / _RESAMPLES, runner_up, ((correct[best] - correct[rival]) / n, low, high), notes)
