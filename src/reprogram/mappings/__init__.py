"""f_out: statistics become ω, a mapping from source labels to target classes."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.mappings.affine import Affine as Affine
    from reprogram.mappings.assignment import one_to_one as one_to_one
    from reprogram.mappings.assignment import random as random
    from reprogram.mappings.base import Mapping as Mapping
    from reprogram.mappings.bayesian import bayes as bayes
    from reprogram.mappings.explain import Explanation as Explanation
    from reprogram.mappings.forecasting import Forecast as Forecast
    from reprogram.mappings.forecasting import forecast as forecast
    from reprogram.mappings.gaussians import gaussian as gaussian
    from reprogram.mappings.label_mapper import LabelMapper as LabelMapper
    from reprogram.mappings.label_mapper import LabelMapperCV as LabelMapperCV
    from reprogram.mappings.linear import LinearMapping as LinearMapping
    from reprogram.mappings.making import make_mapping as make_mapping
    from reprogram.mappings.named import same_labels as same_labels
    from reprogram.mappings.predictions import Contribution as Contribution
    from reprogram.mappings.predictions import Predictions as Predictions
    from reprogram.mappings.registry import MAPPINGS as MAPPINGS
    from reprogram.mappings.registry import register_mapping as register_mapping
    from reprogram.mappings.selection import Candidate as Candidate
    from reprogram.mappings.selection import Selection as Selection
    from reprogram.mappings.selection import select as select
    from reprogram.mappings.settings import MappingSettings as MappingSettings

_WHERE = {
    "Affine": "reprogram.mappings.affine",
    "bayes": "reprogram.mappings.bayesian",
    "Candidate": "reprogram.mappings.selection",
    "Contribution": "reprogram.mappings.predictions",
    "Explanation": "reprogram.mappings.explain",
    "forecast": "reprogram.mappings.forecasting",
    "Forecast": "reprogram.mappings.forecasting",
    "gaussian": "reprogram.mappings.gaussians",
    "LabelMapper": "reprogram.mappings.label_mapper",
    "LabelMapperCV": "reprogram.mappings.label_mapper",
    "LinearMapping": "reprogram.mappings.linear",
    "make_mapping": "reprogram.mappings.making",
    "Mapping": "reprogram.mappings.base",
    "MAPPINGS": "reprogram.mappings.registry",
    "MappingSettings": "reprogram.mappings.settings",
    "one_to_one": "reprogram.mappings.assignment",
    "Predictions": "reprogram.mappings.predictions",
    "random": "reprogram.mappings.assignment",
    "register_mapping": "reprogram.mappings.registry",
    "same_labels": "reprogram.mappings.named",
    "select": "reprogram.mappings.selection",
    "Selection": "reprogram.mappings.selection",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
