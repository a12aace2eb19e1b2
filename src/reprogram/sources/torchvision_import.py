"""Our one place that imports torchvision."""

import importlib
from types import ModuleType

import torch

from reprogram.errors import extra_missing

_MISSING_OPERATORS = "operator torchvision::nms does not exist"
_KEPT_ALIVE: list[torch.library.Library] = []


def import_torchvision() -> ModuleType:
    """Import torchvision, also beside a torch build that its compiled operators do not fit.

    A CUDA wheel of torchvision next to a CPU-only torch cannot load its operator library, and then its Python side fails
    at import because two detection operators have no schema. Declaring the schemas, without an implementation, is all
    that classification needs. Where torchvision imports by itself nothing is touched.
    """
    try:
        return importlib.import_module("torchvision")
    except ModuleNotFoundError:
        raise extra_missing("torchvision", "models") from None
    except RuntimeError as error:
        if _MISSING_OPERATORS not in str(error):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")  # kept alive below for the whole process
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT_ALIVE.append(library)
    return importlib.import_module("torchvision")
