"""How good the model is on test images: which classes are confused, the accuracy of each, and how sure it may be."""

import math

import numpy as np
from matplotlib.axes import Axes

from reprogram.figures.clusters import alike_order
from reprogram.figures.drawing import Drawing, Plot, Rows, panels
from reprogram.figures.style import SIZE, SMALLEST, Look, name_ticks, named
from reprogram.mappings.reliability import BINS
from reprogram.run.record import RunRecord

_FEW = 20  # classes up to which numbers stand in the cells
_MOST_NAMES = 130
_MOST_BARS, _BARS_BELOW = 120, 34


@Plot
def confusion(record: RunRecord) -> Drawing:
    """Which class (row) is taken for which (column), as a share of the row; classes that are confused stand together."""
    test = record.test
    assert test is not None
    counts, k = test.confusion, len(test.classes)
    totals = counts.sum(1, keepdims=True)
    shares = counts / np.where(totals > 0, totals, 1)
    order = list(range(k))
    if k > 2:
        order = alike_order((shares + shares.T) / 2 + np.eye(k) * 1e-9)
    rows: Rows = [
        {
            "class": test.classes[row],
            "predicted": test.classes[column],
            "images": int(counts[row, column]),
            "share": float(shares[row, column]),
        }
        for row in order
        for column in order
        if counts[row, column]
    ]
    part, numbers = shares[np.ix_(order, order)], counts[np.ix_(order, order)]
    side = min(max(0.36 * k, 1.9), 3.6) if k <= _FEW else min(3.6 + 0.062 * (k - _FEW), 9.5)
    names = [named(test.classes[place], 22) for place in order]
    size = min(SIZE - 0.5, 72 * side / k * 0.82)

    def paint(ax: Axes, look: Look) -> None:
        ax.imshow(part, cmap=look.amounts, vmin=0, vmax=1, interpolation="nearest")
        for spine in ax.spines.values():
            spine.set_visible(True)
            spine.set_color(look.faint)
        if k <= _MOST_NAMES and size >= SMALLEST - 0.5:
            name_ticks(ax, "y", names, size)
            name_ticks(ax, "x", names, size, rotation=90)
        else:
            ax.set_xticks([])
            ax.set_yticks([])
        ax.set_ylabel("true class")
        ax.set_xlabel("predicted class")
        for row in range(k if k <= _FEW else 0):
            for column in range(k):
                if numbers[row, column]:
                    colour = look.text_on(float(part[row, column]))
                    ax.text(
                        column,
                        row,
                        str(numbers[row, column]),
                        ha="center",
                        va="center",
                        fontsize=min(7.0, 72 * side / k * 0.42),
                        color=colour,
                    )
        figure = ax.get_figure(root=False)
        assert figure is not None
        bar = figure.colorbar(ax.images[0], ax=ax, fraction=0.04, pad=0.02, aspect=28)
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        bar.set_label("share of the true class")
        bar.outline.set_visible(False)

    right = float(test.right.mean())
    title = f"What is taken for what: {100 * right:.1f} % of {len(test)} test images are right"
    return Drawing(title, rows, (max(side + 2.9, 5.2), side + 2.0), paint)


@Plot
def classes(record: RunRecord) -> Drawing:
    """The accuracy of each class with its 95 % interval, the worst first."""
    test = record.test
    assert test is not None
    scores = sorted(test.per_class().items(), key=lambda item: (item[1].accuracy if item[1].n else 2.0, item[0]))
    wrong = {name: said for name, said, *_ in reversed(test.confused(len(test.classes) ** 2))}
    rows: Rows = [
        {
            "class": name,
            "images": score.n,
            "right": score.correct,
            "accuracy": score.accuracy if score.n else None,
            "interval_low": score.interval[0] if score.n else None,
            "interval_high": score.interval[1] if score.n else None,
            "most_often_taken_for": wrong.get(name, ""),
        }
        for name, score in scores
    ]
    shown = rows[:_MOST_BARS]
    columns = math.ceil(len(shown) / _BARS_BELOW)
    lines = math.ceil(len(shown) / columns)
    overall = float(test.right.mean())

    def paint(ax: Axes, look: Look) -> None:
        for place, one in enumerate(panels(ax, 1, columns)[0]):
            part = shown[place * lines : (place + 1) * lines]
            for line, row in enumerate(part):
                if row["accuracy"] is None:
                    one.text(0.01, line, "no test image", va="center", fontsize=7, style="italic")
                    continue
                colour = look.good if row["interval_high"] >= overall else look.bad
                one.plot([row["interval_low"], row["interval_high"]], [line, line], color=colour, linewidth=2.2, alpha=0.45)
                one.plot([row["accuracy"]], [line], "o", color=colour, markersize=4.5)
            one.axvline(overall, color=look.ink, linewidth=0.8, linestyle=(0, (4, 3)))
            width = 26 if columns == 1 else 20
            name_ticks(one, "y", [named(row["class"], width) for row in part])
            one.set_ylim(lines - 0.4, -0.6)
            one.set_xlim(-0.03, 1.03)
            one.grid(axis="x")
            one.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
            one.set_xlabel("accuracy on test images")

    some = f", the {_MOST_BARS} worst of {len(rows)}" if len(rows) > len(shown) else ""
    title = (
        f"Accuracy of each class{some}; lines: 95 % intervals, dashed: all classes ({100 * overall:.1f} %), "
        "orange: surely below"
    )
    return Drawing(title, rows, (max(3.2 * columns, 5.6), 0.205 * lines + 1.0), paint, panels=True)


@Plot
def reliability(record: RunRecord) -> Drawing:
    """How often predictions of each confidence are right: on the diagonal where probabilities can be believed."""
    test = record.test
    assert test is not None
    bins = test.reliability(BINS)
    rows: Rows = [
        {
            "from": float(bins.edges[place]),
            "to": float(bins.edges[place + 1]),
            "images": int(bins.count[place]),
            "confidence": float(bins.confidence[place]),
            "accuracy": float(bins.accuracy[place]),
        }
        for place in range(BINS)
    ]
    some = bins.count > 0

    def paint(ax: Axes, look: Look) -> None:
        upper, lower = panels(ax, 2, 1, height_ratios=[3.2, 1], hspace=0.06)[:, 0]
        width = bins.edges[1] - bins.edges[0]
        centres = (bins.edges[:-1] + bins.edges[1:])[some] / 2
        upper.plot([0, 1], [0, 1], color=look.ink, linewidth=0.9, linestyle=(0, (4, 3)))
        low, high = np.minimum(bins.accuracy, bins.confidence)[some], np.maximum(bins.accuracy, bins.confidence)[some]
        upper.bar(centres, low, width=0.92 * width, color=look.good)
        over = (bins.confidence > bins.accuracy)[some]
        for which, colour in ((over, look.bad), (~over, look.good)):
            upper.bar(
                centres[which],
                (high - low)[which],
                bottom=low[which],
                width=0.92 * width,
                color=colour,
                edgecolor=look.ground,
                alpha=0.5,
                hatch="////",
                linewidth=0,
            )
        upper.plot(bins.confidence[some], bins.confidence[some], "o", color=look.ink, markersize=3.2)
        upper.set_ylabel("share that is right")
        upper.set_ylim(0, 1.02)
        lower.bar(centres, bins.count[some], width=0.92 * width, color=look.good, alpha=0.7)
        lower.set_ylabel("images")
        lower.set_xlabel("confidence of the prediction")
        for one in (upper, lower):
            one.set_xlim(0, 1)
            one.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        upper.tick_params(labelbottom=False)
        upper.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        words = "hatched: the distance of confidence\nand truth; orange: too sure of itself"
        upper.text(0.03, 0.98, words, va="top", fontsize=7.5)

    title = f"Can its probabilities be believed? Mean distance {100 * bins.error:.1f} points"
    return Drawing(title, rows, (4.9, 4.4), paint, panels=True)


@Plot
def abstention(record: RunRecord) -> Drawing:
    """Accuracy of the predictions that are given, against the share of images that get one, if unsure ones are withheld."""
    test = record.test
    assert test is not None
    curve = test.abstention()
    rows: Rows = [
        {"threshold": float(t), "coverage": float(c), "accuracy": float(a)}
        for t, c, a in zip(curve.threshold, curve.coverage, curve.accuracy, strict=True)
    ]

    def paint(ax: Axes, look: Look) -> None:
        ax.plot(curve.coverage, curve.accuracy, color=look.good, linewidth=2)
        span = max(float(np.ptp(curve.accuracy)), 1e-9)
        told: list[tuple[float, float]] = []
        for wanted in (0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5):
            place = int(np.searchsorted(curve.threshold, wanted))  # the first that is at least as sure
            if place == len(curve.threshold):
                continue
            at = (float(curve.coverage[place]), float(curve.accuracy[place]))
            if at[0] > 0.01 and all(abs(at[0] - x) > 0.3 or abs(at[1] - y) > 0.09 * span for x, y in told):
                told.append(at)
                ax.plot(*at, "o", color=look.bad, markersize=4.5)
                ax.annotate(
                    f"at least {100 * wanted:.0f} % sure",
                    at,
                    xytext=(5, 4) if at[0] < 0.75 else (-5, -11),
                    ha="left" if at[0] < 0.75 else "right",
                    textcoords="offset points",
                    fontsize=7.5,
                )
        ax.set_xlabel("share of images that get a prediction")
        ax.set_ylabel("share of these that is right")
        ax.set_xlim(0, 1.02)
        ax.margins(y=0.14)
        ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        ax.grid()

    return Drawing("If only sure predictions are given", rows, (4.9, 3.4), paint)
