"""`fit`: one loop for every program and mapping."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.training.evaluation import Evaluation as Evaluation
    from reprogram.training.evaluation import evaluate as evaluate
    from reprogram.training.loop import fit as fit
    from reprogram.training.result import Diverged as Diverged
    from reprogram.training.result import FitResult as FitResult
    from reprogram.training.settings import TrainingSettings as TrainingSettings

_WHERE = {
    "Diverged": "reprogram.training.result",
    "evaluate": "reprogram.training.evaluation",
    "Evaluation": "reprogram.training.evaluation",
    "fit": "reprogram.training.loop",
    "FitResult": "reprogram.training.result",
    "TrainingSettings": "reprogram.training.settings",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
