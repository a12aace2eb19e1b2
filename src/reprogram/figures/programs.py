"""The program: alone, on images, and as it grew over the epochs."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from reprogram.errors import ReprogramError
from reprogram.figures.drawing import Drawing, Plot, Rows, panels
from reprogram.figures.style import Look, named, plain_picture
from reprogram.programs.appearance import appearance
from reprogram.run.examples import Examples
from reprogram.run.record import RunRecord

_FULL = 0.5  # from grey to black or white
_BINS = 41


def _strongest(moved: "np.ndarray[Any, Any]") -> float:
    """How far nearly all pixels are moved at the most: single ones may be far beyond."""
    return float(np.quantile(np.abs(moved), 0.995)) if moved.size else 0.0


def _factor(moved: "np.ndarray[Any, Any]") -> float:
    """By how much to amplify, so that the range of colours is used; 1 where it is already."""
    return max(1.0, 0.9 * _FULL / max(_strongest(moved), 1e-6))


def _seen(moved: "np.ndarray[Any, Any]", factor: float = 1.0) -> "np.ndarray[Any, Any]":
    return np.clip(_FULL + factor * moved, 0, 1)


@Plot
def program(record: RunRecord) -> Drawing:
    """The program alone on a grey canvas: as the model is shown it, amplified where it is faint, and how strong it is."""
    assert record.program is not None
    moved = appearance(record.program).permute(1, 2, 0).numpy()
    factor, kind, side = _factor(moved), record.program.name, record.program.canvas
    free = _free(record)
    values = moved[free]
    edges = np.linspace(-1, 1, _BINS + 1) * max(float(np.abs(values).max(initial=0)), 1e-6)
    counts = np.stack([np.histogram(values[:, channel], edges)[0] for channel in range(3)])
    rows: Rows = [
        {"channel": channel, "from": low, "to": high, "pixels": int(count)}
        for channel, row in zip(("red", "green", "blue"), counts, strict=True)
        for low, high, count in zip(edges[:-1], edges[1:], row.tolist(), strict=True)
    ]
    amplified = factor >= 1.25

    def paint(ax: Axes, look: Look) -> None:
        shown = panels(ax, 1, 3 if amplified else 2, width_ratios=[1, 1, 1.15] if amplified else [1, 1.15])[0]
        plain_picture(shown[0], _seen(moved), look.faint)
        shown[0].set_title("as the model is shown it", fontweight="normal")
        if amplified:
            plain_picture(shown[1], _seen(moved, factor), look.faint)
            shown[1].set_title(f"amplified {factor:.2g} times", fontweight="normal")
        last = shown[-1]
        middle = (edges[:-1] + edges[1:]) / 2
        for row, colour, label in zip(counts, (look.bad, look.others[1], look.good), ("red", "green", "blue"), strict=True):
            last.plot(middle, row / max(row.sum(), 1), color=colour, label=label)
        last.axvline(0, color=look.faint, linewidth=1)
        last.set_title("how far pixels are moved", fontweight="normal")
        last.set_xlabel("distance from grey (1: from black to white)")
        last.set_ylabel("share of free pixels")
        last.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
        last.legend(loc="upper right", handlelength=1.2)
        last.margins(y=0.12)

    title = f"The program of {named(record.name, 40)}: {kind}, {side} × {side} pixels"
    return Drawing(title, rows, (8.4 if amplified else 6.2, 2.9), paint, panels=True)


def _free(record: RunRecord) -> "np.ndarray[Any, Any]":
    """(canvas, canvas) which pixels the training could choose."""
    assert record.program is not None
    mask = np.zeros(record.program.canvas**2, dtype=bool)
    free = getattr(record.program, "free", None)
    mask[slice(None) if free is None else free.cpu().numpy()] = True
    return mask.reshape(record.program.canvas, record.program.canvas)


@Plot
def program_on_image(record: RunRecord, examples: Examples | None) -> Drawing:
    """Images as they are, and with the program: what the frozen model is shown."""
    found = () if examples is None else examples.canvases
    if not found:
        notes = "" if examples is None else f" ({'; '.join(examples.notes)})"
        raise ReprogramError(f"{str(record.folder)!r} gives no image to show the program on{notes}; say where its data are")
    rows: Rows = [
        {
            "image": one.name,
            "class": one.label,
            "image_side": len(one.before),
            "canvas_side": len(one.after),
            "mean_before": float(one.before.mean() / 255),
            "mean_after": float(one.after.mean() / 255),
        }
        for one in found
    ]

    def paint(ax: Axes, look: Look) -> None:
        shown = panels(ax, 2, len(found))
        for column, one in enumerate(found):
            before, after = shown[:, column]
            plain_picture(before, one.before, look.faint)
            plain_picture(after, one.after, look.faint)
            before.set_title(named(one.label, 24), fontweight="normal", loc="center")
        shown[0, 0].set_ylabel("the image")
        shown[1, 0].set_ylabel("what the model is shown")

    return Drawing(f"Images before and after the program of {named(record.name, 30)}", rows, (5.6, 4.2), paint, panels=True)


@Plot
def program_epochs(record: RunRecord) -> Drawing:
    """The program after some of the epochs, amplified by one factor for all of them, so that growth is seen as growth."""
    assert record.history is not None
    epochs, moved = record.history.epochs, record.history.moved().numpy()
    factor = _factor(moved[-1])
    strengths = [_strongest(one) for one in moved]
    rows: Rows = [
        {
            "epoch": epoch,
            "strongest": strength,
            "root_mean_square": float(np.sqrt((one**2).mean())),
            "change": None if place == 0 else float(np.sqrt(((one - moved[place - 1]) ** 2).mean())),
        }
        for place, (epoch, strength, one) in enumerate(zip(epochs, strengths, moved, strict=True))
    ]
    columns = min(len(epochs), 6)
    lines = math.ceil(len(epochs) / columns)

    def paint(ax: Axes, look: Look) -> None:
        shown = panels(ax, lines, columns).flatten()
        for place, one in enumerate(shown):
            if place >= len(epochs):
                one.set_axis_off()
                continue
            plain_picture(one, _seen(moved[place], factor), look.faint)
            one.set_title(f"epoch {epochs[place]}", fontweight="normal", fontsize=8)

    amplified = "" if factor < 1.25 else f", amplified {factor:.2g} times"
    kept = _kept(record)
    title = f"The program of {named(record.name, 30)} over the epochs{amplified}{kept}"
    return Drawing(title, rows, (max(1.35 * columns, 4.4), 1.6 * lines + 0.45), paint, panels=True)


def _kept(record: RunRecord) -> str:
    """That a program was tried and not kept, where that is so."""
    return "; it was not kept" if record.program is not None and not record.program.free_parameters else ""
