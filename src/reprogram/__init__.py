"""Give a frozen image classifier other labels: a program on the input, a gradient-free mapping on the output."""

from typing import TYPE_CHECKING, Any

from reprogram.black_box import BlackBox
from reprogram.data import ArraySplit, DataSet, load_data
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.evaluation import Evaluation, evaluate
from reprogram.explanations import explain
from reprogram.frozen import Frozen
from reprogram.gaussian import GaussianStatistics, gaussian
from reprogram.mapping_files import fit_files
from reprogram.mappings import make_mapping
from reprogram.programs import Padding, Resize, Watermark, make_program
from reprogram.reprogrammed import Predictions, Reprogrammed
from reprogram.rules import bayes, one_to_one, random
from reprogram.saved_mapping import SavedMapping
from reprogram.selection import Selection, select
from reprogram.settings import TrainingSettings
from reprogram.statistics import JointStatistics
from reprogram.training import FitResult, fit
from reprogram.vision_language import VisionLanguage
from reprogram.zoo import describe_model, list_models, load_frozen, load_text_encoder

if TYPE_CHECKING:
    from reprogram.estimator import LabelMapper, LabelMapperCV

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
