"""What a fit has found."""

from dataclasses import dataclass
from typing import Any

from reprogram.reprogrammed import Reprogrammed
from reprogram.training.evaluation import Evaluation


@dataclass(frozen=True)
class FitResult:
    """What a fit has found.

    Attributes:
        model: the model, left at the selected epoch.
        accuracy: test accuracy `last` (final epoch), `selected` (the epoch with the best validation accuracy; None without
            a validation set) and `best_on_test` (the maximum over epochs, the published protocol, an optimistic number).
        selected_epoch: the epoch that the model was left at, counted from 1.
        records: one dictionary per epoch, as in `metrics.jsonl`.
        test: the test predictions of the model as it was left.
        seconds: time of all epochs.
        skipped: what was wrong with each image that was left out.
    """

    model: Reprogrammed
    accuracy: dict[str, float | None]
    selected_epoch: int
    records: list[dict[str, Any]]
    test: Evaluation
    seconds: float
    skipped: tuple[str, ...] = ()
