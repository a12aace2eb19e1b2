"""Predictions → rows of a table: what is said of one image, in columns that depend on what was asked."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from reprogram.answers.predictions import further_columns
from reprogram.files.tables import Column, Row
from reprogram.mappings.asked import Asked
from reprogram.mappings.predictions import Contribution, Predictions
from reprogram.settings import Settings

_REASON = tuple(
    Column(name, "text" if name == "source" else "number") for name in ("source", "weight", "logit", "contribution")
)
_CHOICE = (Column("label"), Column("probability", "number"))


class Wanted(Settings):
    """What is wanted of each image.

    Attributes:
        evidence: source labels to name.
        top: classes to name with their probabilities, the likeliest first; 0 for the label alone.
        batch_size: images that go through the model at once. Rows depend on it, in the last digits.
        asked: what else is asked for.
    """

    evidence: int = Field(3, ge=0)
    top: int = Field(0, ge=0)
    batch_size: int = Field(64, ge=1)
    asked: Asked = Asked()

    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows."""
        top = (Column("top", "records", _CHOICE, lambda one: f"{one['label']} {one['probability']}"),)
        evidence = (Column("evidence", "records", _REASON, lambda one: f"{one['source']} {one['contribution']:+.3g}"),)
        return (
            Column("image"),
            Column("label"),
            Column("probability", "number"),
            *(top if self.top else ()),
            *(evidence if self.evidence else ()),
            *further_columns(self.asked),
            Column("error"),
        )


def rows_of(
    images: Sequence[str], problems: Sequence[str | None], said: Predictions, classes: Sequence[str], wanted: Wanted
) -> Iterator[Row]:
    """One row for each image.

    Args:
        images: their paths.
        problems: for each what is wrong with it, or None where it was classified.
        said: about those that were.
        classes: of the model.
        wanted: of each image.
    """
    names = [column.name for column in wanted.columns()]
    good = _classified(said, classes, wanted)
    for image, problem in zip(images, problems, strict=True):
        found = {**next(good), "error": None} if problem is None else {"error": problem}
        found["image"] = image
        yield {name: found.get(name) for name in names}


def _classified(said: Predictions, classes: Sequence[str], wanted: Wanted) -> Iterator[dict[str, Any]]:
    """What is said of each image; numbers with six digits, which do not depend on how a processor rounds."""
    shares = said.confidence.tolist()
    places, values = said.likeliest(wanted.top)
    for row, label in enumerate(said.labels):
        facts: dict[str, Any] = {"label": label, "probability": round(shares[row], 6)}
        choices = zip(places[row].tolist(), values[row].tolist(), strict=True)
        facts["top"] = [{"label": classes[place], "probability": round(share, 6)} for place, share in choices]
        facts["evidence"] = [_reason(one) for one in said.evidence[row]]
        if said.sets is not None:
            facts["set"] = list(said.sets[row])
        if said.typicality is not None and said.unlike is not None:
            facts["p_typical"] = round(float(said.typicality[row]), 6)
            facts["none_of_these"] = bool(said.unlike[row])
        yield facts


def _reason(one: Contribution) -> dict[str, Any]:
    numbers = {"weight": one.weight, "logit": one.logit, "contribution": one.product}
    return {"source": one.source, **{name: float(f"{value:.6g}") for name, value in numbers.items()}}
