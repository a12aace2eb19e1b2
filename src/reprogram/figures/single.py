"""Single images: what the frozen model sees in them, and why they were classified as they were."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from reprogram.errors import ReprogramError
from reprogram.figures.drawing import Drawing, Plot, Rows, panels
from reprogram.figures.style import Look, named, plain_picture
from reprogram.run.examples import Example, Examples
from reprogram.run.record import RunRecord

_SHOWN = 4  # right ones, and as many wrong ones
_BARS = 5
Bar = tuple[str, float, str]  # the name, how long, and the number that is written


@Plot
def logits(record: RunRecord, examples: Examples | None) -> Drawing:
    """The source labels of the largest logits for some test images (the paper's Figure 1a).

    A one-to-one mapping uses one of these numbers for each class; the others say something, too.
    """
    chosen = _chosen(record, examples, lambda example: bool(example.top))
    rows: Rows = [
        {
            "image": one.name,
            "class": one.label,
            "predicted": one.predicted,
            "source_label": seen.source,
            "logit": seen.logit,
            "probability": seen.probability,
        }
        for one in chosen
        for seen in one.top
    ]

    def bars(one: Example) -> list[Bar]:
        return [(seen.source, seen.logit, f"{seen.logit:.1f}") for seen in one.top[:_BARS]]

    return _cards(chosen, bars, "What the frozen model sees: its largest logits for single test images", rows)


@Plot
def evidence(record: RunRecord, examples: Examples | None) -> Drawing:
    """For some test images, right and wrong, the source labels that decided: weight × logit, for or against."""
    chosen = _chosen(record, examples, lambda example: bool(example.evidence))
    rows: Rows = [
        {
            "image": one.name,
            "class": one.label,
            "predicted": one.predicted,
            "confidence": one.confidence,
            "right": one.right,
            "source_label": reason.source,
            "weight": reason.weight,
            "logit": reason.logit,
            "contribution": reason.product,
        }
        for one in chosen
        for reason in one.evidence
    ]

    def bars(one: Example) -> list[Bar]:
        return [(reason.source, reason.product, f"{reason.product:+.2f}") for reason in one.evidence[:_BARS]]

    return _cards(chosen, bars, "Why: the source labels that decided (weight × logit)", rows)


def _chosen(record: RunRecord, examples: Examples | None, told: Callable[[Example], bool]) -> list[Example]:
    """Some right ones and some wrong ones, of which there is something to tell."""
    found: list[Example] = []
    if examples is not None:
        right, wrong = ([example for example in part if told(example)] for part in (examples.right, examples.wrong))
        found = [*right[:: max(1, len(right) // _SHOWN)][:_SHOWN], *wrong[:_SHOWN]]
    if not found:
        notes = "" if examples is None or not examples.notes else f" ({'; '.join(examples.notes)})"
        raise ReprogramError(
            f"nothing can be told of single images of {str(record.folder)!r}{notes}; bring its data and its model to where "
            "they were"
        )
    return found


def _cards(chosen: Sequence[Example], bars: Callable[[Example], list[Bar]], title: str, rows: Rows) -> Drawing:
    """An image, what it is and was taken for, and bars beside it; two columns."""
    columns = 2 if len(chosen) > 1 else 1
    lines = math.ceil(len(chosen) / columns)

    def paint(ax: Axes, look: Look) -> None:
        grid = panels(ax, lines, 2 * columns, width_ratios=[1, 2.35] * columns, wspace=0.04, hspace=0.1)
        for place in range(lines * columns):
            row, column = place % lines, place // lines
            picture, chart = grid[row, 2 * column : 2 * column + 2]
            picture.set_axis_off()
            chart.set_axis_off()
            if place < len(chosen):
                picture.set_axis_on()
                _card(picture, chart, look, chosen[place], bars(chosen[place]))

    return Drawing(title, rows, (4.3 * columns, 1.32 * lines + 0.45), paint, panels=True)


def _card(picture: Axes, chart: Axes, look: Look, one: Example, bars: list[Bar]) -> None:
    colour = look.good if one.right else look.bad
    plain_picture(picture, one.pixels, colour, 2.2)
    mark = "right" if one.right else "wrong"
    chart.set_xlim(-0.02, 1)
    chart.set_ylim(_BARS - 0.4, -2.5)
    sure = "" if one.confidence is None else f", {100 * one.confidence:.0f} % sure"
    chart.text(
        0, -2.0, f"{named(one.predicted or '', 24)}{sure}", fontsize=8.5, fontweight="bold", color=colour, va="center"
    )
    truth = f"{mark}" if one.right else f"{mark}: it is {named(one.label, 26)}"
    chart.text(0, -1.08, truth, fontsize=7.5, va="center")
    largest = max((abs(value) for _, value, _ in bars), default=1.0) or 1.0
    for place, (name, value, number) in enumerate(bars):
        length = 0.28 * abs(value) / largest
        chart.barh(place, length, height=0.7, color=look.good if value >= 0 else look.bad)
        chart.text(length + 0.015, place, f"{number.replace('-', '−')}  {named(name, 28)}", fontsize=7, va="center")
