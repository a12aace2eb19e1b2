"""`load_frozen("source:name")`: frozen models with their labels, from the sources in the registry."""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reprogram.errors import ReprogramError
from reprogram.progress import Progress
from reprogram.registry import imported
from reprogram.sources.frozen import Frozen
from reprogram.sources.registry import SOURCES, Source, find_source, find_weights
from reprogram.sources.request import Request
from reprogram.sources.torchvision_import import import_torchvision
from reprogram.sources.vision_language import TextEncoder

__all__ = ["describe_model", "explain_sources", "import_torchvision", "list_models", "load_frozen", "load_text_encoder"]


def load_frozen(
    name: str,
    *,
    pretrained: bool = True,
    weights: str | Path | None = None,
    seed: int = 0,
    classes: Sequence[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
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
        classes: for a source whose labels are texts, the class names that they are about, such as `data.classes`.
        progress: where the embedding of many texts is shown; silent by default.
        options: what the source takes besides, see `reprogram.sources.settings`. `onnx:` takes `input_size`, `mean`, `std`,
            `labels` and `outputs`. `openclip:` takes `templates`: `default` ("This is a photo of a {}."), `imagenet80`
            (OpenAI's 80), `paper81` (both, and what is taken where nothing is said), a file, or a list of them.

    Raises:
        ReprogramError: the name is not known, an option is not for it, the weights cannot be had or do not fit.
    """
    asked = _Asked.read(name, options, pretrained=pretrained, weights=weights, seed=seed, classes=classes, progress=progress)
    return _frozen(asked)


def describe_model(
    name: str,
    *,
    weights: str | Path | None = None,
    seed: int = 0,
    classes: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Tell what a model is like without its trained weights, so without a download.

    Args:
        name: as for `load_frozen`.
        weights: as for `load_frozen`.
        seed: as for `load_frozen`.
        classes: as for `load_frozen`.
        options: as for `load_frozen`.

    Returns:
        name, classes (k_S), input_size, parameters, normalisation (mean and std), interpolation, differentiable,
        label_source (where the label names come from) and labels (the first five).
    """
    asked = _Asked.read(name, options, pretrained=False, weights=weights, seed=seed, classes=classes, offline=True)
    frozen = _frozen(asked)
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


def load_text_encoder(
    name: str, *, weights: str | Path | None = None, pretrained: bool = True, seed: int = 0
) -> TextEncoder:
    """Load the text tower of a model that compares images with texts, to compare the meanings of label names with.

    Args:
        name: as for `load_frozen`, such as `openclip:ViT-B-32/openai`.
        weights: as for `load_frozen`.
        pretrained: as for `load_frozen`.
        seed: as for `load_frozen`.
    """
    asked = _Asked.read(name, {}, pretrained=pretrained, weights=weights, seed=seed)
    if asked.source.text_encoder is None:
        raise ReprogramError(f"{name!r} has no text encoder; name a model such as openclip:ViT-B-32/openai")
    encoder: TextEncoder = asked.call(asked.source.text_encoder)
    return encoder


def list_models(pattern: str = "*") -> list[str]:
    """List loadable names that match a shell pattern such as `timm:resne*`; a bare word is searched in all names.

    Models that no list holds, such as those of `hf:` and `onnx:`, are what `explain_sources` tells about.
    """
    wanted = pattern if ":" in pattern else f"*:*{pattern}*"
    asked = [source for prefix, source in SOURCES.items() if source.names and fnmatch.fnmatch(prefix, wanted.split(":")[0])]
    names = [f"{source.prefix}:{name}" for source in asked for name in imported(source.names)()]
    return [name for name in names if fnmatch.fnmatch(name, wanted)]


def explain_sources(pattern: str = "*") -> dict[str, str]:
    """Say how names are written that no list holds, for the sources that a pattern such as `hf:*` asks for.

    >>> list(explain_sources("onnx:*")), list(explain_sources("timm:*"))
    (['onnx:FILE'], [])
    """
    wanted = pattern.split(":")[0] if ":" in pattern or pattern == "*" else ""
    return {
        source.form: source.meaning
        for prefix, source in SOURCES.items()
        if not source.listed and fnmatch.fnmatch(prefix, wanted)
    }


@dataclass(frozen=True)
class _Asked:
    """A request and the source that it goes to."""

    source: Source
    request: Request[Any]

    @classmethod
    def read(
        cls,
        name: str,
        options: dict[str, Any],
        *,
        pretrained: bool,
        weights: str | Path | None,
        offline: bool = False,
        **more: Any,
    ) -> "_Asked":
        source, architecture = find_source(name)
        if more.get("classes") is not None and not source.kind.needs_classes:
            raise ReprogramError(f"classes was given, but {name} has labels of its own; leave it out")
        request = Request(
            source.prefix,
            architecture,
            SOURCES.read(source.prefix, options),
            path=source.find_path(architecture),
            pretrained=pretrained or (offline and source.file),  # a file that holds the weights can be read offline
            weights=None if weights is None else find_weights(weights),
            offline=offline,
            **more,
        )
        return cls(source, request)

    def call(self, loader: str | Callable[..., Any]) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.request.seed)  # of the CPU alone: other generators are the caller's
            return imported(loader)(self.request)


def _frozen(asked: _Asked) -> Frozen:
    request = asked.request
    frozen: Frozen = asked.call(asked.source.load)
    frozen.spec = {
        "name": request.name if request.path is None else f"{request.source}:{request.path.resolve()}",
        "pretrained": request.pretrained,
        "weights": None if request.weights is None else str(request.weights.resolve()),
        "seed": request.seed,
        **request.options.absolute().model_dump(mode="json", exclude_unset=True),
        **frozen.spec,  # a loader knows better what to say of its files
    }
    # Convolutions run faster on channels-last weights; strides change, values do not.
    frozen.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return frozen
