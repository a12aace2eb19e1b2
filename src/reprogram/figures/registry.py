"""The figures by their names: what each shows, and what a run must have for it. Nothing here imports torch or matplotlib."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from reprogram.errors import ReprogramError, unknown

Need = Literal["program", "history", "epochs", "mapping", "joint", "test", "images"]
#: What a figure can be written as; csv is its data.
SUFFIXES = (".png", ".svg", ".pdf", ".csv")
#: How many runs are compared in one figure.
MOST_RUNS = 6


@dataclass(frozen=True)
class FigureKind:
    """A figure.

    Attributes:
        name: what it is called.
        meaning: what it shows, in one line.
        implementation: "module:name" of its `Plot`.
        needs: what a run must have.
        examples: whether single images are shown, or may be: then data and model are loaded.
        several: whether it compares runs.
    """

    name: str
    meaning: str
    implementation: str
    needs: tuple[Need, ...] = ()
    examples: bool = False
    several: bool = False


FIGURES: dict[str, FigureKind] = {
    kind.name: kind
    for kind in (
        FigureKind(
            "program", "the program alone, as it looks and amplified", "reprogram.figures.programs:program", ("program",)
        ),
        FigureKind(
            "program-on-image",
            "images before and after the program",
            "reprogram.figures.programs:program_on_image",
            ("program", "images"),
            examples=True,
        ),
        FigureKind("program-epochs", "the program as it grew", "reprogram.figures.programs:program_epochs", ("history",)),
        FigureKind(
            "labels",
            "the source labels that stand for each class, with their weights and example images",
            "reprogram.figures.top_labels:labels",
            ("mapping",),
            examples=True,
        ),
        FigureKind(
            "mapping",
            "the mapping as a heat map, alike classes together",
            "reprogram.figures.matrices:mapping",
            ("mapping",),
        ),
        FigureKind(
            "mappings",
            "the first ten source labels and classes of one mapping or several",
            "reprogram.figures.matrices:mappings",
            ("mapping",),
            several=True,
        ),
        FigureKind(
            "joint",
            "how often the model sees which of its labels in images of which class",
            "reprogram.figures.matrices:joint",
            ("mapping", "joint"),
        ),
        FigureKind(
            "logits",
            "what the frozen model sees in single images",
            "reprogram.figures.single:logits",
            ("mapping", "test", "images"),
            examples=True,
        ),
        FigureKind(
            "evidence",
            "why single images were classified as they were, right and wrong",
            "reprogram.figures.single:evidence",
            ("mapping", "test", "images"),
            examples=True,
        ),
        FigureKind(
            "epochs",
            "loss, accuracies and change of the mapping by epoch",
            "reprogram.figures.training:epochs",
            ("epochs",),
        ),
        FigureKind("confusion", "which class is taken for which", "reprogram.figures.outcomes:confusion", ("test",)),
        FigureKind("classes", "the accuracy of each class", "reprogram.figures.outcomes:classes", ("test",)),
        FigureKind(
            "reliability", "whether probabilities can be believed", "reprogram.figures.outcomes:reliability", ("test",)
        ),
        FigureKind(
            "abstention",
            "accuracy where only sure predictions are given",
            "reprogram.figures.outcomes:abstention",
            ("test",),
        ),
    )
}


def find_figure(name: str) -> FigureKind:
    """The figure of this name, or an error that names those there are."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    return FIGURES[name]


def check_suffix(suffix: str, what: str) -> None:
    """Raise unless a figure can be written as this."""
    if suffix.lower() not in SUFFIXES:
        raise ReprogramError(f"{what} was given, but a figure is written as {', '.join(SUFFIXES)}; choose one of these ends")


def check_count(kind: FigureKind, runs: Iterable[object]) -> None:
    """Raise where a figure of one run is given several, or a comparison too many."""
    count = len(list(runs))
    if count > 1 and not kind.several:
        several = ", ".join(name for name, other in FIGURES.items() if other.several)
        raise ReprogramError(f"figure {kind.name!r} shows one run, but {count} were given; give one, or take {several}")
    if count > MOST_RUNS:
        raise ReprogramError(f"{count} runs were given, but figure {kind.name!r} has room for {MOST_RUNS}; give fewer")
