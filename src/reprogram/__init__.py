"""Give a frozen image classifier other labels: a program on the input, a gradient-free mapping on the output."""

from typing import TYPE_CHECKING, Any

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.answers.fit import fit_files as fit_files
    from reprogram.audit.api import audit_data as audit_data
    from reprogram.audit.api import audit_files as audit_files
    from reprogram.audit.api import audit_logits as audit_logits
    from reprogram.data.load import load_data as load_data
    from reprogram.errors import ReprogramError as ReprogramError
    from reprogram.mappings.base import Mapping as Mapping
    from reprogram.mappings.forecasting import Forecast as Forecast
    from reprogram.mappings.forecasting import forecast as forecast
    from reprogram.mappings.label_mapper import LabelMapper as LabelMapper
    from reprogram.mappings.label_mapper import LabelMapperCV as LabelMapperCV
    from reprogram.mappings.making import make_mapping as make_mapping
    from reprogram.programs.base import make_program as make_program
    from reprogram.reprogrammed import Reprogrammed as Reprogrammed
    from reprogram.run.one_call import fit_data as fit_data
    from reprogram.sources.black_box import BlackBox as BlackBox
    from reprogram.sources.frozen import Frozen as Frozen
    from reprogram.sources.load import load_frozen as load_frozen
    from reprogram.training.evaluation import evaluate as evaluate
    from reprogram.training.loop import fit as fit

_WHERE = {
    "audit_data": "reprogram.audit.api",
    "audit_files": "reprogram.audit.api",
    "audit_logits": "reprogram.audit.api",
    "BlackBox": "reprogram.sources.black_box",
    "evaluate": "reprogram.training.evaluation",
    "fit": "reprogram.training.loop",
    "fit_data": "reprogram.run.one_call",
    "fit_files": "reprogram.answers.fit",
    "forecast": "reprogram.mappings.forecasting",
    "Forecast": "reprogram.mappings.forecasting",
    "Frozen": "reprogram.sources.frozen",
    "LabelMapper": "reprogram.mappings.label_mapper",
    "LabelMapperCV": "reprogram.mappings.label_mapper",
    "load_data": "reprogram.data.load",
    "load_frozen": "reprogram.sources.load",
    "make_mapping": "reprogram.mappings.making",
    "make_program": "reprogram.programs.base",
    "Mapping": "reprogram.mappings.base",
    "ReprogramError": "reprogram.errors",
    "Reprogrammed": "reprogram.reprogrammed",
}
_get, __dir__, __all__ = lazy_names(__name__, _WHERE)

__version__: str


def __getattr__(name: str) -> Any:
    """A public name, or the version; looking that up takes longer than all else here, and few ask."""
    if name != "__version__":
        return _get(name)
    from importlib.metadata import version

    return version("reprogram")
