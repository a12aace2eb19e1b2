"""The reference methods by name. Nothing here imports torch."""

from dataclasses import dataclass
from typing import Any

from reprogram.references.settings import (
    FinetuneFullSettings,
    FinetuneLinearSettings,
    ProbeSettings,
    ReferenceSettings,
)
from reprogram.registry import SettingsRegistry, imported


@dataclass(frozen=True)
class Reference:
    """A method that reprogramming is compared with.

    Attributes:
        name: what it is called.
        summary: what it is, in a few words.
        settings: what it can be told, a subclass of `ReferenceSettings`.
        work: "module:function" that trains its model: from `Prepared`, the settings, the book of the run and progress to a
            `FitResult`.
        source: whether the weights of the source model are trained, of a copy of it; else a new last layer alone.
        views: whether it can train on random views of the images.
    """

    name: str
    summary: str
    settings: type[ReferenceSettings]
    work: str
    source: bool = False
    views: bool = True

    def load(self) -> Any:
        """The function that trains it."""
        return imported(self.work)


#: The methods that `reprogram reference` knows.
REFERENCES: SettingsRegistry[Reference] = SettingsRegistry("reference")
for _reference in (
    Reference(
        "probe",
        "logistic regression on the penultimate features",
        ProbeSettings,
        "reprogram.references.probe:fit_probe",
        views=False,
    ),
    Reference(
        "finetune-linear",
        "a new last layer, trained on the frozen features",
        FinetuneLinearSettings,
        "reprogram.references.finetune:finetune",
    ),
    Reference(
        "finetune-full",
        "a copy of the source model with a new last layer, all of it trained",
        FinetuneFullSettings,
        "reprogram.references.finetune:finetune",
        source=True,
    ),
):
    REFERENCES.register(_reference.name, _reference)
