"""Mappings by the names of the labels alone: the same name on both sides, or the texts about a class."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.mappings.assignment import selection
from reprogram.mappings.linear import LinearMapping
from reprogram.names import plain_name
from reprogram.sources.texts import Texts
from reprogram.statistics.base import Statistics


def same_labels(source_labels: Sequence[str], classes: Sequence[str]) -> Tensor:
    """No mapping at all, where the label sets agree: each class takes the source label of the same name.

    Case, `_` and `-` do not matter, and one synonym of a comma-separated source label suffices, if no label has the whole
    name. A name that means several source labels is refused. Where the source labels are texts about the classes, each class
    takes its text in the default template: CLIP's zero-shot classifier.

    >>> same_labels(["tench, Tinca tinca", "goldfish", "hen"], ["Goldfish", "tinca_tinca"]).argmax(0).tolist()
    [1, 0]
    """
    if isinstance(source_labels, Texts):
        return source_labels.zero_shot(classes)
    whole = _places([label] for label in source_labels)
    synonyms = _places(label.split(",") for label in source_labels)
    places = {name: whole.get(plain_name(name)) or synonyms.get(plain_name(name), []) for name in classes}
    missing = [name for name in classes if not places[name]]
    if missing:
        raise ReprogramError(
            f"mapping 'none' needs every class among the source labels, but {missing[0]!r} "
            f"({len(missing)} of {len(classes)}) is not there; choose a mapping such as blm+"
        )
    for name, found in places.items():
        if len(found) > 1:
            raise ReprogramError(
                f"class {name!r} may be any of the source labels number {' and '.join(map(str, found))}, which have that "
                "name, so mapping 'none' cannot tell which; give them different names, or choose a mapping such as blm+"
            )
    return selection(torch.tensor([places[name][0] for name in classes]), len(source_labels))


def _places(named: Iterable[Sequence[str]]) -> dict[str, list[int]]:
    """The numbers of the labels that have a name, for each of the names of each label."""
    places: dict[str, list[int]] = {}
    for number, names in enumerate(named):
        for name in dict.fromkeys(map(plain_name, names)):
            places.setdefault(name, []).append(number)
    return places


class NamedMapping(LinearMapping):
    """Base of mappings that need no data."""

    @override
    def rule(self, statistics: Statistics) -> Tensor:
        return self.weights


class SameLabelsMapping(NamedMapping):
    """No mapping at all: the source labels as they are."""

    @override
    def first_weights(self) -> Tensor:
        return same_labels(self.source_labels, self.classes)


class EnsembleMapping(NamedMapping):
    """The usual zero-shot classifier of a model that compares images with texts."""

    @override
    def first_weights(self) -> Tensor:
        if not isinstance(self.source_labels, Texts):
            raise ReprogramError(
                "mapping 'ensemble' averages texts about the classes, but this model has labels of its own; "
                "choose an openclip: model, or a mapping such as blm+"
            )
        return self.source_labels.ensemble(self.classes)
