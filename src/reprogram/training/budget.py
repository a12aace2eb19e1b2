"""A training that fits itself into a span of time: how many epochs that is, and when it is over.

The number of epochs is decided once, before the first one, by a few steps that change nothing; from there on the training is
what it would be with that number of epochs. Only where the machine turns out slower than it was does it end before.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from reprogram.data.dataset import DataSet, Split
from reprogram.devices import clock
from reprogram.errors import NonFiniteError, ignore_evidence_warnings
from reprogram.images.views import centre_view
from reprogram.progress import Progress
from reprogram.randomness import generator
from reprogram.training.state import FitState, pixel_sizes

_TIMED = 3  # steps and passes that are timed, after one that is not
_SPARE = 0.1  # of the time: what is left for the end of a training, and for a machine that becomes slower


@dataclass(frozen=True)
class Budget:
    """So many seconds for a training.

    Attributes:
        seconds: that may be spent in all.
        spent: those that were spent before the training.
        every: epochs from one measured epoch to the next, which is where a training can end.
    """

    seconds: float
    spent: float = 0.0
    every: int = 1

    def epochs(self, each: float, first: float, most: int) -> int:
        """How many epochs fit, at least 1 and at most `most`.

        Args:
            each: seconds that an epoch takes.
            first: seconds that the first one takes beyond that.
            most: what there may be.

        >>> Budget(60, spent=10).epochs(each=2.0, first=1.0, most=200), Budget(60).epochs(100.0, 0.0, 200)
        (21, 1)
        """
        left = (1 - _SPARE) * self.seconds - self.spent - first
        return max(1, min(most, int(left / max(each, 1e-9))))

    def used_up(self, records: list[dict[str, Any]], between: float = 0.0) -> bool:
        """Whether those up to the next measured epoch would not fit; only after one that was measured.

        Each is taken to be as long as the longest of the last ones, and `between` any two pass so many seconds more.

        >>> record = {"seconds": 5.0, "accuracy": {"test": 0.5}}
        >>> [Budget(20).used_up([record] * epochs) for epochs in (0, 3, 4)]
        [False, False, True]
        >>> [Budget(20, every=2).used_up([record] * epochs) for epochs in (2, 4)]
        [False, True]
        """
        if not records or records[-1]["accuracy"]["test"] is None:
            return False
        seconds: list[float] = [record["seconds"] + between for record in records]
        return self.spent + sum(seconds) + self.every * max(seconds[-3:]) > self.seconds


def planned(state: FitState, data: DataSet, seconds: float, spent: Callable[[], float], progress: Progress) -> int:
    """How many epochs fit into a span of time, by what steps take now; nothing that is trained or counted changes.

    Args:
        state: of a fit that is about to begin.
        data: what it is fitted to.
        seconds: that may be spent in all.
        spent: says how many of them are gone; asked when the steps were timed, which takes some, too.
        progress: where the number is told.
    """
    each, first = _epoch_seconds(state, data)
    budget = Budget(seconds, spent())
    epochs = budget.epochs(each, first, state.epochs)
    left = f"{seconds / 60:g} minutes, of which {_told(budget.spent)} are gone"
    if budget.spent + first + each > seconds:
        progress.say(f"{left}: the first epoch takes about {_told(first + each)}, so only that one is trained")
    elif epochs == state.epochs:
        progress.say(f"{left}: an epoch takes about {_told(each)}, so that all {epochs} fit")
    else:
        progress.say(f"{left}: an epoch takes about {_told(each)}, so {epochs} are trained (--epochs {epochs} repeats it)")
    return epochs


def _told(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _epoch_seconds(state: FitState, data: DataSet) -> tuple[float, float]:
    """What an epoch takes, and what the first one takes in addition."""
    frozen = state.model.frozen
    memory = frozen.memory
    frozen.memory = None  # what is remembered comes quicker than a pass, and what is timed is no answer to remember
    try:
        return _timed(state, data)
    finally:
        frozen.memory = memory


def _timed(state: FitState, data: DataSet) -> tuple[float, float]:
    model, mapping, settings, train = state.model, state.model.mapping, state.settings, data.train
    size = min(settings.batch_size, len(train))
    batches = torch.arange(len(train) // size * size).split(size)  # whole ones: a last, smaller one would look quick
    reuses = mapping.statistics is not None and mapping.refresh == "reuse"
    counted = [statistics.to(model.device) for statistics in state.new_statistics()] if reuses else []

    def step(turn: int) -> None:
        draw = generator(settings.seed, "augmentation", 0)
        for images, labels, indices, _ in state.batches(train, batches[turn % len(batches)], Progress(), "", draw):
            logits = state.source_logits(images)
            F.cross_entropy(mapping(logits), labels).backward()
            if reuses:
                with contextlib.suppress(NonFiniteError):  # the first epoch will tell, and leave the model as it was given
                    state.count(counted, logits.detach(), labels, indices)
                    state.count_all(counted)
        for parameter in model.parameters():
            parameter.grad = None

    once = _seconds(step, model.device)
    stepping = once * len(train) / size
    sizes = pixel_sizes(model.program, settings.augment)
    testing = sum(_pass_seconds(state, split, sizes[name]) for name, split in data.splits.items() if name != "train")
    if not model.moves:  # their logits are kept
        return stepping, testing
    passing = 0.0 if mapping.statistics is None else _pass_seconds(state, train, sizes["train"])
    estimating = 0.0 if mapping.statistics is None else _estimate_seconds(state)
    again = passing + estimating if mapping.refresh in ("fresh", "after") else 0.0
    if mapping.refresh == "reuse":
        again = estimating
    return stepping + testing / settings.evaluate_every + again, passing + estimating


def _pass_seconds(state: FitState, split: Split, size: int) -> float:
    """What it takes to classify a split whose images are decoded to squares of so many pixels."""
    model, settings = state.model, state.settings
    batch = centre_view(split.pixels(size, model.program.interpolation)[: settings.batch_size], model.program.image_size)

    def look(_: int) -> None:
        with torch.inference_mode():
            model.mapping(model.source_logits(batch, settings.precision))

    shared = len(split) / state.ranks.size  # a pass is shared out among the processes
    return _seconds(look, model.device) * shared / len(batch) if len(batch) else 0.0


def _estimate_seconds(state: FitState) -> float:
    """What it takes to make the mapping of its statistics, and with folds those without each of them."""
    mapping, device = state.model.mapping, state.model.device
    labels = torch.arange(4 * mapping.k_target) % mapping.k_target
    drawn = torch.randn(len(labels), mapping.k_source, generator=torch.Generator().manual_seed(0))
    parts = [statistics.to(device) for statistics in state.new_statistics()]
    with ignore_evidence_warnings():
        statistics = parts[0].update(drawn.to(device), labels.to(device))
        once = _seconds(lambda _: mapping.solve(statistics), device)
    return once * (1 if len(parts) == 1 else 1 + len(parts))


def _seconds(act: Callable[[int], object], device: torch.device) -> float:
    """The mean of a few calls, after one that is not counted."""
    act(0)
    started = clock(device)
    for turn in range(1, _TIMED + 1):
        act(turn)
    return (clock(device) - started) / _TIMED
