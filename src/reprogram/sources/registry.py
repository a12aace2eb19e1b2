"""Where frozen models come from: one record per source, which says how its names are written and what it takes.

To add a source, write a loader and register its record, here or in a package of your own:

    register_source(Source("mine", load="my_package.models:load", form="mine:NAME", meaning="our own classifiers"))

The loader gets a `Request` and returns a `Frozen`. Nothing here imports torch: a loader may be named as "module:function".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reprogram.errors import ReprogramError, short, shown
from reprogram.files.foreign import absolute, expanded, is_file, is_folder
from reprogram.registry import SettingsRegistry
from reprogram.sources.settings import OnnxOptions, SourceOptions, TextOptions

CLIP_CONFIG = "open_clip_config.json"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_COMMON = frozenset(
    ("name", "pretrained", "weights", "seed", "classes", "progress")
)  # what load_frozen takes for any source


@dataclass(frozen=True)
class Kind:
    """What goes with a kind of frozen model, known before one is loaded.

    Attributes:
        default_program: the program that suits it.
        default_frame: how wide the free frame of a watermark is on a canvas of 224; None for every pixel.
        needs_classes: its labels are texts about the task's classes.
        paper_training: the paper's training for it, where that differs from the paper's training of a classifier.
    """

    default_program: str = "padding"
    default_frame: int | None = None
    needs_classes: bool = False
    paper_training: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


CLASSIFIER = Kind()
BLACK_BOX = Kind(default_program="none")  # no gradients, so no program can be trained
VISION_LANGUAGE = Kind(
    default_program="watermark",
    default_frame=30,
    needs_classes=True,
    paper_training=MappingProxyType({"optimizer": "sgd", "lr": 40.0, "schedule": "cosine"}),
)


@dataclass(frozen=True)
class Source:
    """A source of frozen models.

    Attributes:
        prefix: what stands before the colon of its names.
        load: the function from a `Request` to a `Frozen`, or "module:function".
        form: how names are written that no list holds.
        meaning: what those are, in words.
        names: the function that lists its names without the prefix, or "module:function"; None where no list holds them.
        settings: what may be said about a model besides its name.
        kind: what goes with its models.
        path: the path in a name, or None where the name is no path; of a source whose names are never paths, None.
        file: its names are files, which hold the weights.
        text_encoder: the function from a `Request` to a `TextEncoder`, or "module:function", where its models have one.
    """

    prefix: str
    load: str | Callable[..., Any]
    form: str
    meaning: str
    names: str | Callable[[], Sequence[str]] | None = None
    settings: type[SourceOptions] = SourceOptions
    kind: Kind = CLASSIFIER
    path: Callable[[str], Path | None] | None = None
    file: bool = False
    text_encoder: str | Callable[..., Any] | None = None

    @property
    def listed(self) -> bool:
        """Whether a list holds all its names."""
        return self.names is not None and self.path is None

    def find_path(self, architecture: str) -> Path | None:
        """The path in the part of a name behind the colon, with ~ expanded; None where that is no path."""
        return None if self.path is None else self.path(architecture)


SOURCES: SettingsRegistry[Source] = SettingsRegistry("model source")


def register_source(source: Source) -> None:
    """Make a source known, so that `load_frozen`, the lists and the command line know its models."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]+", source.prefix):
        raise ReprogramError(
            f"{source.prefix!r} was given as a model source, but two or more of a-z, 0-9, _ and - are expected"
        )
    if taken := sorted(_COMMON & set(source.settings.model_fields)):
        raise ReprogramError(f"source {source.prefix!r} has an option {taken[0]!r}, which every source has; rename it")
    SOURCES.register(source.prefix, source)


def find_source(name: str) -> tuple[Source, str]:
    """The source of a model and the part of its name behind the colon.

    >>> source, architecture = find_source("timm:resnet18")
    >>> source.prefix, architecture
    ('timm', 'resnet18')
    """
    prefix, separator, architecture = name.partition(":")
    if not separator or prefix not in SOURCES:
        raise ReprogramError(
            f"model {shown(name)} is not of the form source:name with a source of {', '.join(SOURCES)}; "
            f"write for example bundled:efficientnet_lite0 or timm:{short(architecture or name)}"
        )
    source = SOURCES[prefix]
    if not architecture and source.names is not None:
        raise ReprogramError(f"model {shown(name)} names no architecture; list them with: reprogram models '{prefix}:*'")
    if not architecture:
        raise ReprogramError(f"model {shown(name)} names no model; write {source.form}")
    return source, architecture


def check_model_name(name: str, weights: str | Path | None = None) -> Source:
    """Find what is wrong with a model's name and its weights file before anything heavy is imported.

    Args:
        name: as for `load_frozen`.
        weights: as for `load_frozen`.
    """
    source, architecture = find_source(name)
    path = source.find_path(architecture)
    if weights is not None:
        find_weights(weights)
    elif source.file and path is not None and not is_file(path):
        raise missing_file(source.prefix, path)
    return source


def absolute_name(name: str) -> str:
    """A model's name with an absolute path in it, where it holds one, so that it means the same from any folder."""
    source, architecture = find_source(name)
    path = source.find_path(architecture)
    return name if path is None else f"{source.prefix}:{absolute(path)}"


def find_weights(weights: str | Path) -> Path:
    """The path of a weights file of the user's own, with ~ expanded."""
    path = expanded(weights, "weights")
    if not is_file(path):
        raise ReprogramError(
            f"weights file {shown(str(path))} does not exist; give a .safetensors or a torch state dict file"
        )
    return path


def missing_file(prefix: str, path: Path) -> ReprogramError:
    """The error for a model that is a file, where there is no such file."""
    return ReprogramError(f"{prefix} file {shown(str(path))} does not exist; give the path of a .{prefix} file")


def _onnx_path(architecture: str) -> Path:
    return expanded(architecture, "model")


def _transformers_path(architecture: str) -> Path | None:
    folder = expanded(architecture, "model")
    if not is_folder(folder) and not _HUB_NAME.fullmatch(architecture):
        raise ReprogramError(
            f"hf:{short(architecture)} is neither a folder nor a name on the Hub; write hf:FOLDER or hf:owner/model"
        )
    return folder if is_folder(folder) else None


def _openclip_path(architecture: str) -> Path | None:
    path = expanded(architecture, "model")
    return path if path.suffix == ".json" or is_file(path / CLIP_CONFIG) else None


register_source(
    Source(
        "bundled",
        load="reprogram.sources.bundled:load_bundled",
        form="bundled:NAME",
        meaning="an ImageNet model whose weights come inside a package, so nothing is downloaded",
        names="reprogram.sources.bundled:list_bundled",
    )
)
register_source(
    Source(
        "timm",
        load="reprogram.sources.timm_models:load_timm",
        form="timm:NAME or timm:NAME.TAG",
        meaning="a classifier of timm",
        names="reprogram.sources.timm_models:list_timm",
    )
)
register_source(
    Source(
        "torchvision",
        load="reprogram.sources.torchvision_models:load_torchvision",
        form="torchvision:NAME or torchvision:NAME.TAG",
        meaning="a classifier of torchvision",
        names="reprogram.sources.torchvision_models:list_torchvision",
    )
)
register_source(
    Source(
        "hf",
        load="reprogram.sources.transformers_models:load_transformers",
        form="hf:FOLDER or hf:NAME",
        meaning="an image classifier of transformers: a folder that save_pretrained wrote, or a name on the Hub",
        path=_transformers_path,
    )
)
register_source(
    Source(
        "onnx",
        load="reprogram.sources.onnx_models:load_onnx",
        form="onnx:FILE",
        meaning="any classifier as an ONNX file; it gives no gradients, so it goes with --program none",
        settings=OnnxOptions,
        kind=BLACK_BOX,
        path=_onnx_path,
        file=True,
    )
)
register_source(
    Source(
        "openclip",
        load="reprogram.sources.openclip_models:load_openclip",
        form="openclip:FOLDER or openclip:FILE.json",
        meaning="a CLIP model on disk: a folder with open_clip_config.json and its weights, or such a configuration, with "
        "--weights; the names above need the package open_clip_torch",
        names="reprogram.sources.openclip_models:list_openclip",
        settings=TextOptions,
        kind=VISION_LANGUAGE,
        path=_openclip_path,
        text_encoder="reprogram.sources.openclip_models:load_clip_texts",
    )
)
