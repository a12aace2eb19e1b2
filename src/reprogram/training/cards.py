"""The result of a fit as a card: the accuracies, what each means, and the classes that are worst."""

from typing import TYPE_CHECKING

from reprogram.cards import Bar, Listing, card
from reprogram.mappings.cards import mapping_notes, strongest
from reprogram.programs.pictures import seen_of
from reprogram.scores import Score
from reprogram.training.evaluation import Evaluation

if TYPE_CHECKING:
    from reprogram.training.result import FitResult

_WORST = 5
_MEANINGS = {
    "selected": "selected on validation",
    "last": "last epoch",
    "best_on_test": "best on test (optimistic)",
}


def result_card(result: "FitResult") -> str:
    """What a fit has found."""
    model, saved = result.model, result.test
    what = f"epoch {result.selected_epoch}" if result.selected_epoch else "without a program"
    facts: dict[str, str | Bar] = {"test accuracy": Bar(saved.accuracy, f"{saved.score}; the model as it is left, {what}")}
    others = {_MEANINGS.get(name, name): share for name, share in result.accuracy.items() if share is not None}
    if len(result.records) > 1:
        facts["over the epochs"] = ", ".join(f"{name} {share:.1%}" for name, share in others.items())
    facts["calibration"] = f"expected calibration error {saved.calibration_error():.3f}"
    facts["cost"] = (
        f"{len(result.records)} epochs in {result.seconds:.0f} s" if result.records else f"{result.seconds:.0f} s"
    )
    facts |= model.facts()
    skipped = [f"{len(result.skipped)} images were left out, such as {result.skipped[0]}"] if result.skipped else []
    return card(
        "FitResult",
        f"{model.frozen.name} for {len(model.classes):,} classes",
        facts,
        listings=[*_worst(saved), *strongest(model.mapping)],
        notes=[*result.notes, *skipped, *mapping_notes(model.mapping)],
        picture=seen_of(model.program),
    )


def evaluation_card(evaluation: Evaluation) -> str:
    """The outcome on one split."""
    facts: dict[str, str | Bar] = {
        "accuracy": Bar(evaluation.accuracy, str(evaluation.score)),
        "calibration": f"expected calibration error {evaluation.calibration_error():.3f}",
    }
    skipped = [f"{len(evaluation.skipped)} images were left out"] if evaluation.skipped else []
    return card("Evaluation", f"{len(evaluation.labels):,} images", facts, listings=_worst(evaluation), notes=skipped)


def _worst(evaluation: Evaluation) -> list[Listing]:
    found = evaluation.confusions()[:_WORST]
    rows: list[list[str | int | Bar]] = [
        [row.name, Bar(row.score.accuracy, _share(row.score)), row.taken_for()] for row in found
    ]
    return [Listing(("worst classes", "accuracy", "taken for"), rows)] if rows else []


def _share(score: Score) -> str:
    low, high = (100 * bound for bound in score.interval)
    return f"{score.accuracy:.1%} ({low:.0f} to {high:.0f}), {score.correct:,} of {score.n:,}"
