"""Files of a model's answers: read, written, fitted, predicted."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.answers.fit import fit_files as fit_files
    from reprogram.answers.forecast import forecast_files as forecast_files
    from reprogram.answers.mapping import AnswerMapping as AnswerMapping
    from reprogram.answers.registry import register_reader as register_reader
    from reprogram.answers.shards import find_shards as find_shards
    from reprogram.answers.shards import read_blocks as read_blocks
    from reprogram.answers.truth import LabelTable as LabelTable
    from reprogram.answers.write import write_logits as write_logits

_WHERE = {
    "AnswerMapping": "reprogram.answers.mapping",
    "LabelTable": "reprogram.answers.truth",
    "find_shards": "reprogram.answers.shards",
    "fit_files": "reprogram.answers.fit",
    "forecast_files": "reprogram.answers.forecast",
    "read_blocks": "reprogram.answers.shards",
    "register_reader": "reprogram.answers.registry",
    "write_logits": "reprogram.answers.write",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
