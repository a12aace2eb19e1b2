"""One look for all figures: colours that colour-blind people can tell apart, for light paper and for a dark screen."""

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprogram.errors import extra_missing
from reprogram.text import printable

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
except ImportError:
    raise extra_missing("matplotlib", "figures", "a figure") from None

#: Points: of a figure's text, and of the smallest that is still read in print.
SIZE, SMALLEST = 8.5, 4.5
_ELLIPSIS = "…"


@dataclass(frozen=True)
class Look:
    """Colours for one ground.

    Attributes:
        ground: behind everything.
        ink: text and axes.
        faint: lines that only guide the eye, and what is missing.
        good: what is right, or better (blue).
        bad: what is wrong (vermilion).
        others: for further curves, in this order: orange, green, purple, sky blue.
        amounts: from nothing (the ground) to much, one hue.
        signed: from against (vermilion) over nothing to for (blue).
    """

    ground: str
    ink: str
    faint: str
    good: str
    bad: str
    others: tuple[str, ...]
    amounts: LinearSegmentedColormap
    signed: LinearSegmentedColormap

    def text_on(self, share: float) -> str:
        """What can be read on `amounts(share)`."""
        red, green, blue, _ = self.amounts(share)
        return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"


def _map(name: str, *colours: str) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list(name, colours)


# Okabe and Ito's palette; on a dark ground its dark members are lightened
LIGHT = Look(
    ground="#ffffff",
    ink="#1b1e23",
    faint="#d4d7dc",
    good="#0072b2",
    bad="#d55e00",
    others=("#e69f00", "#009e73", "#cc79a7", "#56b4e9"),
    amounts=_map("amounts", "#ffffff", "#c6dff0", "#5fa8d3", "#0072b2", "#00304d"),
    signed=_map("signed", "#7a2f00", "#d55e00", "#f3c19c", "#f7f7f7", "#9cc9e3", "#0072b2", "#00304d"),
)
DARK = Look(
    ground="#15171c",
    ink="#e8eaed",
    faint="#434852",
    good="#56b4e9",
    bad="#f08a4b",
    others=("#f0c245", "#2fc79a", "#e29bc3", "#9ad4f5"),
    amounts=_map("amounts", "#1d2026", "#1d4a66", "#2f86b8", "#7cc6f0", "#f2faff"),
    signed=_map("signed", "#ffd9bd", "#f08a4b", "#6b3a18", "#22252b", "#1d4a66", "#56b4e9", "#e3f4fd"),
)


def look(dark: bool) -> Look:
    """The colours for a dark ground, or for a light one."""
    return DARK if dark else LIGHT


@contextmanager
def styled(colours: Look) -> Iterator[None]:
    """Within this, whatever is drawn has our look; no text is taken for a formula, whatever is in it."""
    settings: Any = {
        "text.parse_math": False,
        "text.usetex": False,
        "axes.formatter.use_mathtext": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Noto Sans", "Arial", "Liberation Sans"],
        "font.size": SIZE,
        "axes.titlesize": SIZE + 1,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": SIZE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "axes.edgecolor": colours.ink,
        "axes.labelcolor": colours.ink,
        "axes.titlecolor": colours.ink,
        "axes.facecolor": colours.ground,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "grid.color": colours.faint,
        "grid.linewidth": 0.6,
        "text.color": colours.ink,
        "xtick.color": colours.ink,
        "ytick.color": colours.ink,
        "xtick.labelsize": SIZE - 0.5,
        "ytick.labelsize": SIZE - 0.5,
        "figure.facecolor": colours.ground,
        "savefig.facecolor": colours.ground,
        "figure.titlesize": SIZE + 2,
        "figure.titleweight": "bold",
        "legend.frameon": False,
        "legend.fontsize": SIZE - 0.5,
        "lines.linewidth": 1.8,
        "image.interpolation": "nearest",
        "svg.fonttype": "path",  # glyphs as outlines: no text of a label stands in the file
        "svg.hashsalt": "reprogram",
        "pdf.fonttype": 42,
        "path.simplify": True,
    }
    with mpl.rc_context(settings):
        yield


def named(label: str, width: int) -> str:
    """A label on one line of at most `width` letters: of several names that it lists the first, then cut.

    >>> named("great white shark, white shark, Carcharodon carcharias", 20), named("$x$" * 30, 8)
    ('great white shark', '$x$$x$$…')
    """
    text = printable(label[: 4 * width + 200])
    if _width(text) > width and ", " in text:
        text = text.partition(", ")[0]
    if _width(text) <= width:
        return text
    while text and _width(text) > width - 1:
        text = text[:-1]
    return f"{text.rstrip()}{_ELLIPSIS}"


def _width(text: str) -> int:
    """How many letters wide a text is; those of East Asia are two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def name_ticks(ax: Axes, axis: str, names: list[str], size: float = SIZE - 0.5, **options: Any) -> None:
    """Put names at 0, 1, 2 ... on the "x" or the "y" axis, none of them taken for a formula."""
    place = np.arange(len(names))
    setter = ax.set_xticks if axis == "x" else ax.set_yticks
    setter(place, labels=names, fontsize=max(size, SMALLEST), **options)
    for text in ax.get_xticklabels() if axis == "x" else ax.get_yticklabels():
        text.set_parse_math(False)
    ax.tick_params(axis=axis, length=0)  # type: ignore[arg-type]


def plain_picture(ax: Axes, pixels: Any, edge: str | None = None, width: float = 1.0) -> None:
    """Show a picture without axes, perhaps in a coloured frame."""
    ax.imshow(pixels, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(edge is not None)
        spine.set_color(edge or "none")
        spine.set_linewidth(width)
