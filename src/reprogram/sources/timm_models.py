"""`timm:<model>`: timm's classifiers, fed and labelled as their pretrained configuration says."""

import importlib
from types import ModuleType
from typing import Any

from torch import nn

from reprogram.errors import ReprogramError, extra_missing, nearest
from reprogram.sources.frozen import Frozen
from reprogram.sources.network import HubAccess
from reprogram.sources.request import Request, unavailable
from reprogram.sources.settings import SourceOptions
from reprogram.sources.torchvision_import import import_torchvision
from reprogram.sources.weights import fill


def import_timm() -> ModuleType:
    """Import timm."""
    import_torchvision()  # timm imports torchvision, so it must be importable first
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError:
        raise extra_missing("timm", "models") from None


def list_timm() -> list[str]:
    """The models that timm has."""
    names: list[str] = import_timm().list_models()
    return names


def load_timm(request: Request[SourceOptions]) -> Frozen:
    """Load one of them."""
    state = request.state()
    name, pretrained = request.architecture, request.pretrained and state is None
    timm = import_timm()
    base = name.split(".")[0]
    if not timm.is_model(base):
        raise ReprogramError(
            f"timm has no model {name!r}{nearest(base, timm.list_models())} (list them with: reprogram models 'timm:*')"
        )
    changed: dict[str, Any] = {}
    if state is not None:
        classifier = timm.get_pretrained_cfg(base).classifier
        head = state.get(f"{classifier}.weight") if isinstance(classifier, str) else None
        changed = {"num_classes": head.shape[0]} if head is not None and head.ndim else {}
    try:
        with HubAccess(pretrained):
            module = timm.create_model(name, pretrained=pretrained, **changed)
    except Exception as error:
        raise unavailable(request.name, error, pretrained) from error
    if not getattr(module, "num_classes", 1):
        raise ReprogramError(f"{request.name} has no classifier, so no source labels; choose a variant with a head")
    if state is not None:
        fill(module, state, request.name)
    config = timm.data.resolve_model_data_config(module)
    labels, label_source = wordnet_labels(timm, module)
    return Frozen(
        module,
        mean=config["mean"],
        std=config["std"],
        input_size=config["input_size"][-1],
        labels=labels,
        interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
        label_source=label_source,
    )


def wordnet_labels(timm: ModuleType, module: nn.Module) -> tuple[list[str] | None, str | None]:
    """The WordNet names that timm knows for this number of outputs and where they are from, or None twice."""
    subset = timm.data.infer_imagenet_subset(module)
    if subset is None:
        return None, None
    names: list[str] = timm.data.ImageNetInfo(subset).label_descriptions()
    if len(names) != getattr(module, "num_classes", len(names)):
        return None, None
    return names, f"WordNet names from timm ({subset})"
