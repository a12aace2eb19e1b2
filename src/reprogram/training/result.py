"""What a fit has found."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.reprogrammed import Reprogrammed
from reprogram.training.cards import result_card
from reprogram.training.evaluation import Evaluation


@dataclass(frozen=True)
class FitResult:
    """What a fit has found.

    Attributes:
        model: the model, left at the selected epoch.
        accuracy: test accuracy `last` (final epoch), `selected` (the epoch with the best validation accuracy; None without
            a validation set) and `best_on_test` (the maximum over epochs, the published protocol, an optimistic number).
        selected_epoch: the epoch that the model was left at, counted from 1; 0 where it is left without a program.
        records: one dictionary per epoch, as in `metrics.jsonl`; that of epoch 0 tells of the images unchanged.
        test: the test predictions of the model as it was left.
        seconds: time of all epochs.
        skipped: what was wrong with each image that was left out.
        notes: what a reader of the result should know.
        steps: what `reprogram fit` and `fit_data` have tried one after the other, and what each brought.
        right: (n,) which validation images the model as it was left has right; None without a validation set.
    """

    model: Reprogrammed
    accuracy: dict[str, float | None]
    selected_epoch: int
    records: list[dict[str, Any]]
    test: Evaluation
    seconds: float
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[dict[str, Any], ...] = ()
    right: Tensor | None = None

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return result_card(self)


class Diverged(ReprogramError):  # noqa: N818 - it is what happened, not a kind of mistake
    """A fit that cannot go on, as its numbers are no longer finite.

    The model is left at the selected one of the epochs that were completed, or as it was given if there is none. The
    checkpoint stays that of the last completed epoch.

    Attributes:
        result: what the completed epochs have found; None if there is none.
    """

    def __init__(self, message: str, result: FitResult | None = None) -> None:
        super().__init__(message)
        self.result = result
