"""Two rounds: every label is judged by a mapping that does not know it, then by one that does not trust the worst of them.

In the first round each training row is judged by leave-one-out. The most suspicious rows are then taken out of the
statistics, exactly, and all are judged again: the kept ones by leave-one-out among the kept ones, those set aside, and the
rows of other splits, by the mapping of the kept ones.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reprogram.answers.labels import Rows
from reprogram.audit.certainty import Certainty, fitted_certainty
from reprogram.audit.material import Material
from reprogram.audit.views import View
from reprogram.errors import ignore_evidence_warnings
from reprogram.statistics.base import Statistics

#: How a row was judged.
LEFT_OUT, BY_TRAIN, SET_ASIDE, UNJUDGED = range(4)
_IN_MEMORY = 1 << 24  # scores; more of them lie on disk
_MOST = 0.5  # of a class that may be set aside
_REASONS = 3
_TUNED_BY = 1000  # rows by which settings are chosen


@dataclass(frozen=True)
class Judged:
    """What is said about each row.

    Attributes:
        suggested: (n,) the class that the judging mapping gives.
        sure: (n,) the calibrated probability of that class.
        lead: (n,) by how much the best other class is ahead of the given one, in log-odds; the more, the more suspicious.
        log_given: (n,) the logarithm of the calibrated probability of the given label.
        wrong: (n,) the probability that the given label is wrong; 0 where nothing can be said.
        how: (n,) LEFT_OUT, BY_TRAIN, SET_ASIDE or UNJUDGED.
        reasons: (n, 6) source labels: three that speak for the suggested and against the given class, three that speak the
            other way; −1 where there is none, and where the two are the same class.
        amounts: (n, 6) by how much they do.
        certainty: how target logits became probabilities, and how many labels are wrong.
    """

    suggested: Tensor
    sure: Tensor
    lead: Tensor
    log_given: Tensor
    wrong: Tensor
    how: Tensor
    reasons: Tensor
    amounts: Tensor
    certainty: Certainty

    @property
    def judged(self) -> Tensor:
        """(n,) whether anything could be said."""
        return self.how != UNJUDGED


@torch.no_grad()
def judge(material: Material, view: View, *, rounds: int = 2) -> Judged:
    """Judge all rows; the view's mapping is left as that of the rows that were kept.

    Args:
        material: the rows.
        view: the mapping, and how it takes them.
        rounds: 1 or 2.
    """
    train = material.splits == 0
    statistics = view.mapping.new_statistics()
    for _, rows in material.only(train):
        view.count(statistics, rows)
    view.tune(lambda: (rows for _, rows in material.only(_some(train))), statistics)
    kept = train.clone()
    with _scores(len(material), len(material.classes)) as scores, ignore_evidence_warnings():
        for further in reversed(range(rounds)):
            _leave_out(material, view, statistics, kept, scores)
            aside = torch.zeros_like(kept)
            if further:
                aside = _to_set_aside(material, scores, kept)
            if not bool(aside.any()):
                break
            gone = statistics.empty()
            for _, rows in material.only(aside):
                view.count(gone, rows)
            statistics.subtract(gone)
            kept = kept & ~aside
        view.mapping.estimate(statistics)
        for where, rows in material.only(~kept):
            scores[where] = view.scores(rows).float().cpu()
        known = _judgeable(material, kept).nonzero().flatten()
        known = known[:: max(1, len(known) * scores.shape[1] // _IN_MEMORY)]
        certainty = fitted_certainty(scores[known], material.labels[known])
        return _concluded(material, view, kept, scores, certainty)


def _some(mask: Tensor) -> Tensor:
    """A mask (n,) of at most so many of the rows of another, spread evenly."""
    places = mask.nonzero().flatten()
    chosen = torch.zeros_like(mask)
    chosen[places[:: -(-len(places) // _TUNED_BY) or 1]] = True
    return chosen


def _leave_out(material: Material, view: View, statistics: Statistics, kept: Tensor, scores: Tensor) -> None:
    """Score the kept rows, each by the mapping of the others."""
    places = (where for where, _ in material.only(kept))
    for found in view.left_out(lambda: (rows for _, rows in material.only(kept)), statistics):
        scores[next(places)] = found.float().cpu()


def _judgeable(material: Material, kept: Tensor) -> Tensor:
    """(n,) whether the judging mapping knows the row's class: some other kept row has it."""
    samples = torch.bincount(material.labels[kept], minlength=len(material.classes))
    return samples[material.labels] - kept.long() > 0


def _to_set_aside(material: Material, scores: Tensor, kept: Tensor) -> Tensor:
    """(n,) the worse half of the kept rows that are given another label, but at most half of a class and all but two of it.

    Half, because the better half are mostly hard examples, without which the classes would look simpler than they are.
    """
    lead = _leads(scores, material.labels).where(kept & _judgeable(material, kept), -torch.inf)
    count = int((lead > 0).sum()) // 2
    candidates = torch.zeros_like(kept)
    candidates[lead.argsort(descending=True, stable=True)[:count]] = True
    aside = torch.zeros_like(kept)
    samples = torch.bincount(material.labels[kept], minlength=len(material.classes)).tolist()
    for label in material.labels[candidates].unique().tolist():
        members = (candidates & (material.labels == label)).nonzero().flatten()
        most = min(int(samples[label] * _MOST), samples[label] - 2)
        aside[members[lead[members].argsort(descending=True, stable=True)[: max(most, 0)]]] = True
    return aside


def _leads(scores: Tensor, labels: Tensor) -> Tensor:
    """By how much the best other class is ahead of the given one, (n,)."""
    lead = torch.empty(len(labels))
    for where in torch.arange(len(labels)).split(4096):
        part = scores[where].clone()
        given = part.gather(1, labels[where, None])
        lead[where] = part.scatter_(1, labels[where, None], -torch.inf).amax(1) - given.flatten()
    return lead


def _concluded(material: Material, view: View, kept: Tensor, scores: Tensor, certainty: Certainty) -> Judged:
    n, train = len(material), material.splits == 0
    how = torch.full((n,), BY_TRAIN)
    how[kept], how[train & ~kept] = LEFT_OUT, SET_ASIDE
    how[~_judgeable(material, kept)] = UNJUDGED
    suggested, sure, log_given = torch.zeros(n, dtype=torch.int64), torch.zeros(n), torch.zeros(n, dtype=torch.float64)
    reasons, amounts = torch.full((n, 2 * _REASONS), -1, dtype=torch.int32), torch.zeros(n, 2 * _REASONS)
    for where in torch.arange(n).split(4096):
        best = certainty.probabilities(scores[where]).max(1)
        sure[where], suggested[where] = best.values.float(), best.indices
        log_given[where] = certainty.log_probability(scores[where], material.labels[where])
    for where, rows in material.only((suggested != material.labels) & (how != UNJUDGED)):
        reasons[where], amounts[where] = _strongest(view, rows, suggested[where])
    wrong = certainty.wrong(log_given, len(material.classes)).masked_fill(how == UNJUDGED, 0)
    lead = _leads(scores, material.labels) / certainty.temperature
    return Judged(suggested, sure, lead, log_given, wrong.float(), how, reasons, amounts, certainty)


def _strongest(view: View, rows: Rows, suggested: Tensor) -> tuple[Tensor, Tensor]:
    labels, amounts = view.contributions(rows, suggested, rows.targets)
    count = min(_REASONS, amounts.shape[1])
    found = torch.full((len(rows), 2 * _REASONS), -1, dtype=torch.int32)
    how_much = torch.zeros(len(rows), 2 * _REASONS)
    for begin, sign in ((0, 1), (_REASONS, -1)):
        most, order = (sign * amounts).topk(count, dim=1)
        place = slice(begin, begin + count)
        speaking = most > 0
        found[:, place] = labels.gather(1, order).where(speaking, -1).int()
        how_much[:, place] = (sign * most).where(speaking, 0)
    return found, how_much


@contextmanager
def _scores(rows: int, k_target: int) -> Iterator[Tensor]:
    """A table of scores, in memory or, where that is too much for it, in a file that is gone at the end."""
    if rows * k_target <= _IN_MEMORY:
        yield torch.zeros(rows, k_target)
        return
    with tempfile.TemporaryDirectory(prefix="reprogram-") as folder:
        yield torch.from_numpy(np.memmap(Path(folder) / "scores", dtype=np.float32, mode="w+", shape=(rows, k_target)))
