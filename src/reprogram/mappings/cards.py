"""Mappings as cards: the label sets, the settings, how sure it is, and the source labels of a few classes."""

from typing import Any

from reprogram.cards import Listing, card, named
from reprogram.errors import NonFiniteError
from reprogram.mappings.base import Mapping
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.selection import Selection
from reprogram.names import short_names
from reprogram.text import printable, shortened

_CLASSES = 6
_SOURCES = 3


def mapping_card(mapping: Mapping) -> str:
    """A mapping by itself."""
    return card("Mapping", mapping.name, mapping_facts(mapping), listings=strongest(mapping), notes=mapping_notes(mapping))


def mapper_card(kind: str, mapping: Mapping, classes: Any, asked: str, selection: Selection | None = None) -> str:
    """The mapping of a fitted estimator.

    Args:
        kind: what the estimator is called.
        mapping: its mapping.
        classes: its labels, as they were given.
        asked: the estimator as scikit-learn writes it, with its parameters.
        selection: how the mapping was chosen, if it was.
    """
    chosen = {} if selection is None else {"chosen": str(selection)}
    facts = {**mapping_facts(mapping), "classes": named(map(str, classes)), **chosen, "parameters": asked}
    return card(kind, f"fitted, {mapping.name}", facts, listings=strongest(mapping), notes=mapping_notes(mapping))


def mapping_facts(mapping: Mapping) -> dict[str, str]:
    """What a mapping is, in short values."""
    record = MAPPINGS.get(mapping.name)
    counted = "" if mapping.statistics is None else f"{float(mapping.statistics.samples.sum()):,.10g}"
    settings = mapping.settings.model_dump(exclude_defaults=True)
    return {
        "mapping": mapping.name + ("" if record is None else f": {record.summary}"),
        "settings": ", ".join(f"{name} {value}" for name, value in settings.items() if value != "none"),
        "labels": f"{mapping.k_source:,} source labels → {mapping.k_target:,} classes",
        "classes": named(mapping.classes),
        "samples": counted,
        "certainty": "" if mapping.certainty is None else str(mapping.certainty).replace("->", "→"),
    }


def mapping_notes(mapping: Mapping) -> list[str]:
    """What a reader should know: classes that nothing was counted of, and numbers that are out of date."""
    notes = []
    if mapping.statistics is not None:
        empty = [name for name, n in zip(mapping.classes, mapping.statistics.samples.tolist(), strict=True) if not n]
        if len(empty) == mapping.k_target:
            notes.append("nothing was counted yet")
        elif empty:
            notes.append(f"no samples of {named(empty, 4)}")
    if mapping.certainty is not None and mapping.certainty.outdated:
        notes.append("how sure it is was measured before its last change")
    return notes


def strongest(mapping: Mapping) -> list[Listing]:
    """The source labels of the largest |weight| of the first classes; nothing where nothing speaks for any."""
    try:
        explained = mapping.explain(_SOURCES).classes
    except NonFiniteError:
        return []
    if mapping.statistics is not None and not bool(mapping.statistics.samples.any()):
        return []  # still uniform
    names = short_names(mapping.source_labels)
    rows = [
        [name, ", ".join(f"{_first(names[label.source])} {label.weight:.3g}" for label in labels)]
        for name, labels in list(explained.items())[:_CLASSES]
    ]
    more = mapping.k_target - len(rows)
    return [Listing(("class", "source labels and their weights"), rows, f"and {more:,} more classes" if more else "")]


def _first(name: str) -> str:
    return shortened(printable(name.split(",")[0]), 28)
