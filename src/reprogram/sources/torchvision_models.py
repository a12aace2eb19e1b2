"""`torchvision:<model>`: torchvision's classifiers, fed and labelled as their weight catalogue says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from reprogram.errors import ReprogramError, nearest, unknown
from reprogram.sources.frozen import Frozen
from reprogram.sources.network import check_reachable
from reprogram.sources.request import Request, unavailable
from reprogram.sources.settings import SourceOptions
from reprogram.sources.torchvision_import import import_torchvision
from reprogram.sources.weights import fill


def list_torchvision() -> list[str]:
    """The classifiers that torchvision has."""
    models = import_torchvision().models
    names: list[str] = models.list_models(module=models)
    return names


def load_torchvision(request: Request[SourceOptions]) -> Frozen:
    """Load one of them."""
    state = request.state()
    name, pretrained = request.architecture, request.pretrained and state is None
    torchvision = import_torchvision()
    base, _, tag = name.partition(".")
    known = list_torchvision()
    if base not in known:
        raise ReprogramError(
            f"torchvision has no classifier {name!r}{nearest(base, known)} "
            "(list them with: reprogram models 'torchvision:*')"
        )
    catalogue = torchvision.models.get_model_weights(base)
    if tag and tag not in catalogue.__members__:
        raise unknown(f"weight tag of torchvision:{base}", tag, catalogue.__members__)
    entry = catalogue[tag] if tag else catalogue.DEFAULT
    labels: list[str] | None = list(entry.meta["categories"])
    # Some weight tags were trained at a size of their own, which transformers must be built for.
    changed: dict[str, Any] = {"image_size": entry.meta["min_size"][0]} if base.startswith("vit_") else {}
    if state is not None:
        # The head is the last tensor of the architecture, which is not the last one in every file.
        with torch.device("meta"):
            last = list(torchvision.models.get_model(base, weights=None).state_dict())[-1]
        outputs = len(state[last]) if last in state and state[last].ndim else len(labels or ())
        if outputs != len(labels or ()):
            changed["num_classes"], labels = outputs, None
    try:
        if pretrained and not (Path(torch.hub.get_dir()) / "checkpoints" / Path(entry.url).name).exists():
            check_reachable(entry.url)
        with _safe_downloads(type(entry)):
            module = torchvision.models.get_model(base, weights=entry if pretrained else None, **changed)
    except Exception as error:
        raise unavailable(request.name, error, pretrained) from error
    if state is not None:
        fill(module, state, request.name)
    preset = entry.transforms()
    return Frozen(
        module,
        mean=preset.mean,
        std=preset.std,
        input_size=preset.crop_size[0],
        labels=labels,
        interpolation="bicubic" if preset.interpolation.value == "bicubic" else "bilinear",
        label_source=None if labels is None else f"torchvision {entry.name} categories",
    )


@contextmanager
def _safe_downloads(catalogue: Any) -> Iterator[None]:
    """Make torchvision read what it downloads without running code from it; its builders do not offer that."""
    original = catalogue.get_state_dict

    def get_state_dict(self: Any, *args: Any, **options: Any) -> Any:
        return original(self, *args, **{**options, "weights_only": True})

    catalogue.get_state_dict = get_state_dict
    try:
        yield
    finally:
        del catalogue.get_state_dict  # the inherited one shows again
