"""The source labels that stand for each class, with example images beside them: the paper's Figures 4 and 11 to 15."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from reprogram.errors import unknown
from reprogram.figures.drawing import Drawing, Plot, Rows, panels
from reprogram.figures.style import Look, named, plain_picture
from reprogram.mappings.explain import ClassLabel
from reprogram.run.examples import Examples
from reprogram.run.record import RunRecord

_MOST_CLASSES = 20
_LABELS = 3
_IMAGES = 3


@Plot
def labels(record: RunRecord, examples: Examples | None = None, classes: Sequence[str] = ()) -> Drawing:
    """For each class its images, and the source labels of the largest weight: what stands for it.

    Of more than 20 classes, 20 that are evenly spread over the list are shown, or those that `classes` names.
    """
    for name in classes:
        if name not in record.classes:
            raise unknown("class", name, record.classes)
    explained = record.mapping.explain(10).classes
    rows: Rows = [
        {"class": name, "rank": rank, "source_label": label.source, "weight": label.weight}
        for name in classes or record.classes
        for rank, label in enumerate(explained[name], start=1)
    ]
    chosen = list(classes)[:_MOST_CLASSES] or _spread(record.classes)
    images = {} if examples is None else examples.classes
    pictures = max((len(images.get(name, ())[:_IMAGES]) for name in chosen), default=0)
    columns = 1 if len(chosen) <= 6 else 2
    lines = math.ceil(len(chosen) / columns)
    largest = max((abs(label.weight) for name in chosen for label in explained[name][:_LABELS]), default=1.0) or 1.0

    def paint(ax: Axes, look: Look) -> None:
        ratios = [*([0.62] * pictures), 2.9]
        blocks = panels(ax, lines, columns * len(ratios), width_ratios=ratios * columns, wspace=0.02, hspace=0.04)
        for place in range(lines * columns):
            row, block = place % lines, place // lines
            cells = blocks[row, block * len(ratios) : (block + 1) * len(ratios)]
            for cell in cells:
                cell.set_axis_off()
            if place >= len(chosen):
                continue
            name = chosen[place]
            for cell, example in zip(cells[:pictures], images.get(name, ()), strict=False):
                cell.set_axis_on()
                plain_picture(cell, example.pixels, look.faint)
            _bars(cells[-1], look, name, explained[name][:_LABELS], largest)

    some = f" ({len(chosen)} of {len(record.classes)} classes)" if len(chosen) < len(record.classes) else ""
    title = f"What stands for each class in {named(record.name, 28)}: weights of {record.mapping.name}{some}"
    width = columns * (3.3 + 0.66 * pictures)
    return Drawing(title, rows, (max(width, 5.6), 0.84 * lines + 0.45), paint, panels=True)


def _spread(names: Sequence[str]) -> list[str]:
    count = min(len(names), _MOST_CLASSES)
    return [names[round(place * (len(names) - 1) / max(count - 1, 1))] for place in range(count)]


def _bars(ax: Axes, look: Look, name: str, found: Sequence[ClassLabel], largest: float) -> None:
    """The strongest labels of a class: bars with their names behind them."""
    ax.set_axis_on()
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_xlim(0, 1)
    ax.set_ylim(_LABELS - 0.5, -1.55)
    ax.text(0, -0.98, named(name, 34), fontsize=8.5, fontweight="bold", va="center")
    if not found:
        ax.text(0, 0, "no source label speaks for it", fontsize=7.5, color=look.ink, va="center", style="italic")
    for place, label in enumerate(found):
        weight, source = label.weight, label.source
        length = 0.30 * abs(weight) / largest
        ax.barh(place, length, height=0.72, color=look.good if weight >= 0 else look.bad)
        sign = "" if weight >= 0 else "−"
        text = f"{sign}{abs(weight):.2g}" if largest < 0.095 else f"{sign}{abs(weight):.2f}"
        ax.text(length + 0.012, place, f"{text}  {named(source, 30)}", va="center", fontsize=7.5)
