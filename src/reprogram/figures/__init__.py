"""Figures of a run: matplotlib, one look, each as a function, as a file and as rows of data."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.figures.drawing import draw_figure as draw_figure
    from reprogram.figures.drawing import plot_of as plot_of
    from reprogram.figures.matrices import joint as joint
    from reprogram.figures.matrices import mapping as mapping
    from reprogram.figures.matrices import mappings as mappings
    from reprogram.figures.outcomes import abstention as abstention
    from reprogram.figures.outcomes import classes as classes
    from reprogram.figures.outcomes import confusion as confusion
    from reprogram.figures.outcomes import reliability as reliability
    from reprogram.figures.programs import program as program
    from reprogram.figures.programs import program_epochs as program_epochs
    from reprogram.figures.programs import program_on_image as program_on_image
    from reprogram.figures.registry import FIGURES as FIGURES
    from reprogram.figures.single import evidence as evidence
    from reprogram.figures.single import logits as logits
    from reprogram.figures.top_labels import labels as labels
    from reprogram.figures.training import epochs as epochs

_WHERE = {
    "abstention": "reprogram.figures.outcomes",
    "classes": "reprogram.figures.outcomes",
    "confusion": "reprogram.figures.outcomes",
    "draw_figure": "reprogram.figures.drawing",
    "epochs": "reprogram.figures.training",
    "evidence": "reprogram.figures.single",
    "FIGURES": "reprogram.figures.registry",
    "joint": "reprogram.figures.matrices",
    "labels": "reprogram.figures.top_labels",
    "logits": "reprogram.figures.single",
    "mapping": "reprogram.figures.matrices",
    "mappings": "reprogram.figures.matrices",
    "plot_of": "reprogram.figures.drawing",
    "program": "reprogram.figures.programs",
    "program_epochs": "reprogram.figures.programs",
    "program_on_image": "reprogram.figures.programs",
    "reliability": "reprogram.figures.outcomes",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
