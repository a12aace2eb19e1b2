"""Give a frozen image classifier other labels: a program on the input, a gradient-free mapping on the output."""

from typing import TYPE_CHECKING, Any

from reprogram.answers.fit import fit_files
from reprogram.answers.mapping import SavedMapping
from reprogram.data.load import ArraySplit, DataSet, load_data
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.mappings.base import make_mapping
from reprogram.mappings.closed_form import bayes, one_to_one, random
from reprogram.mappings.explain import explain
from reprogram.mappings.gaussian import gaussian
from reprogram.mappings.selection import Selection, select
from reprogram.programs.base import Padding, Resize, Watermark, make_program
from reprogram.reprogrammed import Predictions, Reprogrammed
from reprogram.sources.black_box import BlackBox
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import describe_model, list_models, load_frozen, load_text_encoder
from reprogram.sources.vision_language import VisionLanguage
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics
from reprogram.training.evaluation import Evaluation, evaluate
from reprogram.training.loop import FitResult, fit
from reprogram.training.settings import TrainingSettings

if TYPE_CHECKING:
    from reprogram.mappings.label_mapper import LabelMapper, LabelMapperCV

__version__ = "0.1.0"

__all__ = [
    "ArraySplit",
    "BlackBox",
    "DataSet",
    "Evaluation",
    "EvidenceWarning",
    "FitResult",
    "Frozen",
    "GaussianStatistics",
    "JointStatistics",
    "LabelMapper",
    "LabelMapperCV",
    "Padding",
    "Predictions",
    "ReprogramError",
    "Reprogrammed",
    "Resize",
    "SavedMapping",
    "Selection",
    "TrainingSettings",
    "VisionLanguage",
    "Watermark",
    "bayes",
    "describe_model",
    "evaluate",
    "explain",
    "fit",
    "fit_files",
    "gaussian",
    "list_models",
    "load_data",
    "load_frozen",
    "load_text_encoder",
    "make_mapping",
    "make_program",
    "one_to_one",
    "random",
    "select",
]


def __getattr__(name: str) -> Any:
    """Import scikit-learn only for those who ask for its face."""
    if name in ("LabelMapper", "LabelMapperCV"):
        from reprogram import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'reprogram' has no attribute {name!r}")
