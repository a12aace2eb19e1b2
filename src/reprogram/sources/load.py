"""`load_frozen("source:name")`: frozen models with their labels, from six sources with one module each."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from reprogram.errors import ReprogramError
from reprogram.progress import Progress
from reprogram.sources.black_box import Outputs
from reprogram.sources.bundled import BUNDLED, list_bundled, load_bundled
from reprogram.sources.frozen import Frozen
from reprogram.sources.onnx_models import load_onnx
from reprogram.sources.openclip_models import list_openclip, load_openclip, load_text_encoder
from reprogram.sources.request import Request, Templates
from reprogram.sources.timm_models import list_timm, load_timm
from reprogram.sources.torchvision_import import import_torchvision
from reprogram.sources.torchvision_models import list_torchvision, load_torchvision
from reprogram.sources.transformers_models import load_transformers
from reprogram.sources.weights import read_weights

__all__ = [
    "BUNDLED",
    "describe_model",
    "explain_sources",
    "import_torchvision",
    "list_models",
    "load_frozen",
    "load_text_encoder",
    "read_weights",
]

_LOADERS = {
    "bundled": load_bundled,
    "timm": load_timm,
    "torchvision": load_torchvision,
    "hf": load_transformers,
    "onnx": load_onnx,
    "openclip": load_openclip,
}
_LISTS = {"bundled": list_bundled, "timm": list_timm, "torchvision": list_torchvision, "openclip": list_openclip}
_EXPLAINED = {
    "hf:FOLDER or hf:NAME": "an image classifier of transformers: a folder that save_pretrained wrote, or a name on the Hub",
    "onnx:FILE": "any classifier as an ONNX file; it gives no gradients, so it goes with --program none",
    "openclip:FOLDER or openclip:FILE.json": "a CLIP model on disk: a folder with open_clip_config.json and its weights, or "
    "such a configuration, with --weights; the names above need the package open_clip_torch",
}


def load_frozen(
    name: str,
    *,
    pretrained: bool = True,
    weights: str | Path | None = None,
    seed: int = 0,
    input_size: int | None = None,
    outputs: Outputs | None = None,
    classes: Sequence[str] | None = None,
    templates: Templates | None = None,
    progress: Progress | None = None,
) -> Frozen:
    """Load a classifier by name and freeze it.

    Args:
        name: `bundled:efficientnet_lite0|1|2` (weights come inside a package, nothing is downloaded), `timm:<model>` or
            `torchvision:<model>`, each with an optional `.<tag>` of that zoo, such as `torchvision:resnet18.IMAGENET1K_V1`;
            `hf:<folder or Hub name>` of transformers, or `onnx:<file>`. `openclip:<model>/<tag>` (or a folder, or a
            configuration file) is a CLIP model: its source labels are texts, made of `classes` and `templates`.
        pretrained: take the zoo's trained weights (timm, torchvision and the Hub download them once). False gives random
            weights.
        weights: a state dict of your own for that architecture, in safetensors or in a torch file without code in it.
            The number of outputs follows the file. For `onnx:`, where the file is now if it has moved.
        seed: of the random weights with `pretrained=False`.
        input_size: the side of the images for an `onnx:` file that leaves it open; 224 if nobody says it.
        outputs: whether an `onnx:` file answers with `logits` or `probabilities`, where that is not to be seen from it.
        classes: for `openclip:`, the class names that its texts are about, such as `data.classes`.
        templates: for `openclip:`, the texts that each class name is put into: `default` ("This is a photo of a {}."),
            `imagenet80` (OpenAI's 80), `paper81` (both, and what is taken where nothing is said), a file with one template
            per line, or a list of them.
        progress: where the embedding of many texts is shown; silent by default.

    Raises:
        ReprogramError: the name is not known, the weights cannot be had or do not fit.
    """
    return _load(
        name,
        pretrained,
        weights,
        seed,
        input_size,
        outputs,
        offline=False,
        classes=classes,
        templates=templates,
        progress=progress,
    )


def describe_model(name: str, **options: Any) -> dict[str, Any]:
    """Tell what a model is like without its trained weights, so without a download.

    Args:
        name: as for `load_frozen`.
        options: `weights`, `seed`, `input_size`, `outputs`, `classes` and `templates` of `load_frozen`.

    Returns:
        name, classes (k_S), input_size, parameters, normalisation (mean and std), interpolation, differentiable,
        label_source (where the label names come from) and labels (the first five).
    """
    options.pop("pretrained", None)
    given: dict[str, Any] = {"weights": None, "seed": 0, "input_size": None, "outputs": None, **options}
    frozen = _load(name, name.startswith("onnx:"), **given, offline=True)
    return {
        "name": name,
        "classes": frozen.k_source,
        "input_size": frozen.input_size,
        "parameters": frozen.parameter_count,
        "normalisation": {
            "mean": [round(value, 4) for value in frozen.mean.flatten().tolist()],
            "std": [round(value, 4) for value in frozen.std.flatten().tolist()],
        },
        "interpolation": frozen.interpolation,
        "differentiable": frozen.differentiable,
        "label_source": frozen.label_source,
        "labels": frozen.labels[:5],
    }


def list_models(pattern: str = "*") -> list[str]:
    """List loadable names that match a shell pattern such as `timm:resne*`; a bare word is searched in all names.

    Models that no list holds, such as those of `hf:` and `onnx:`, are what `explain_sources` tells about.
    """
    wanted = pattern if ":" in pattern else f"*:*{pattern}*"
    sources = [source for source in _LISTS if fnmatch.fnmatch(source, wanted.split(":")[0])]
    names = [f"{source}:{name}" for source in sources for name in _LISTS[source]()]
    return [name for name in names if fnmatch.fnmatch(name, wanted)]


def explain_sources(pattern: str = "*") -> dict[str, str]:
    """Say how names are written that no list holds, for the sources that a pattern such as `hf:*` asks for.

    >>> list(explain_sources("onnx:*")), list(explain_sources("timm:*"))
    (['onnx:FILE'], [])
    """
    wanted = pattern.split(":")[0] if ":" in pattern or pattern == "*" else ""
    return {form: meaning for form, meaning in _EXPLAINED.items() if fnmatch.fnmatch(form.split(":")[0], wanted)}


def _load(
    name: str,
    pretrained: bool,
    weights: str | Path | None,
    seed: int,
    input_size: int | None,
    outputs: Outputs | None,
    *,
    offline: bool,
    classes: Sequence[str] | None = None,
    templates: Templates | None = None,
    progress: Progress | None = None,
) -> Frozen:
    source, separator, architecture = name.partition(":")
    if not separator or source not in _LOADERS:
        raise ReprogramError(
            f"model {name!r} is not of the form source:name with a source of {', '.join(_LOADERS)}; "
            f"write for example bundled:efficientnet_lite0 or timm:{architecture or name}"
        )
    if not architecture and source in _LISTS:
        raise ReprogramError(f"model {name!r} names no architecture; list them with: reprogram models '{source}:*'")
    if not architecture:
        raise ReprogramError(f"model {name!r} names no model; write {' or '.join(explain_sources(name))}")
    own = {key: value for key, value in (("input_size", input_size), ("outputs", outputs)) if value is not None}
    if own and source != "onnx":
        raise ReprogramError(f"{' and '.join(own)} was given, but {name} knows it by itself; it is for onnx: files only")
    texts = [key for key, value in (("classes", classes), ("templates", templates)) if value is not None]
    if texts and source != "openclip":
        raise ReprogramError(f"{' and '.join(texts)} was given, but {name} has labels of its own; leave it out")
    path = None if weights is None else Path(weights)
    request = Request(source, architecture, pretrained, path, input_size, outputs, offline, classes, templates, progress)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # of the CPU alone: other devices' generators are the caller's
        frozen = _LOADERS[source](request)
    frozen.spec = {
        "name": name,
        "pretrained": pretrained,
        "weights": None if path is None else str(path.resolve()),
        "seed": seed,
        **own,
        **frozen.spec,  # a loader whose name is a path says where that path is from anywhere
    }
    # Convolutions run faster on channels-last weights; strides change, values do not.
    frozen.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return frozen
