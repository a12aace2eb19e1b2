"""`openclip:<model>/<tag>`: open_clip's models, with texts about the task's classes as their labels."""

import importlib
import importlib.util
import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from reprogram.errors import ReprogramError, extra_missing, first_line, nearest, unknown
from reprogram.images.pictures import Interpolation
from reprogram.sources.declared import check_declared
from reprogram.sources.foreign_code import no_foreign_code
from reprogram.sources.network import HubAccess
from reprogram.sources.openclip_config import read_config
from reprogram.sources.registry import CLIP_CONFIG
from reprogram.sources.request import Request, unavailable
from reprogram.sources.settings import TEMPLATES, TextOptions, Words
from reprogram.sources.texts import DEFAULT_TEMPLATE, Texts, checked_templates, read_templates
from reprogram.sources.torchvision_import import import_torchvision
from reprogram.sources.vision_language import TextEncoder, VisionLanguage
from reprogram.sources.weights import check_weights, read_weights

_WEIGHTS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
    "model.safetensors",
)
_FEEDING = ("mean", "std", "interpolation", "resize_mode")


def import_open_clip() -> ModuleType:
    """Import open_clip."""
    import_torchvision()  # open_clip imports torchvision, so it must be importable first
    try:
        return importlib.import_module("open_clip")
    except ModuleNotFoundError:
        raise extra_missing("open_clip_torch", "clip") from None


def list_openclip() -> list[str]:
    """The models that open_clip has, each with the tags of its trained weights; nothing where it is not installed."""
    if importlib.util.find_spec("open_clip") is None:
        return []
    open_clip = import_open_clip()
    names: list[str] = []
    for model in open_clip.list_models():
        tags = open_clip.list_pretrained_tags_by_model(model)
        names += [f"{model}/{tag}" for tag in tags] or [model]
    return names


def named_templates(templates: Words) -> tuple[str, ...]:
    """Templates by their name, from a file, or as they were given."""
    if not isinstance(templates, str):
        return checked_templates(templates)
    if templates == "default":
        return (DEFAULT_TEMPLATE,)
    if templates in TEMPLATES:
        published = tuple(str(template("{}")) for template in import_open_clip().OPENAI_IMAGENET_TEMPLATES)
        return checked_templates(published if templates == "imagenet80" else (DEFAULT_TEMPLATE, *published))
    if "{}" in templates:
        return checked_templates([templates])
    path = Path(templates).expanduser()
    if not path.is_file():
        raise unknown("set of templates", templates, (*TEMPLATES, "a file", "a list"))
    return read_templates(path)


def load_openclip(request: Request[TextOptions]) -> VisionLanguage:
    """Load one of them: embed the texts, keep the image tower, let the text tower go."""
    if request.classes is None and not request.offline:
        raise ReprogramError(
            f"{request.name} has no labels of its own; give classes=[...] (reprogram fit takes them from --data)"
        )
    templates = named_templates(request.options.templates)
    texts = Texts(request.classes or ("<your class>",), templates)
    with _Source(request) as source:
        tokenize = None if request.offline else source.tokenizer()
        clip = source.build()
        image_tower, scale = clip.visual, clip.logit_scale
        del clip.visual
        if tokenize is None:  # only asked what it is like
            key, text = None, torch.zeros(len(texts), source.width)
        else:
            encoder = TextEncoder(clip, tokenize)
            tokens = encoder.tokens(texts)
            key, text = encoder.key(tokens), encoder.embed(tokens, request.progress)
    feeding = _feeding(image_tower, request.name)
    return VisionLanguage(
        image_tower,
        text,
        texts,
        logit_scale=scale,
        mean=feeding.mean,
        std=feeding.std,
        input_size=feeding.input_size,
        interpolation=feeding.interpolation,
        text_key=key,
        label_source=f"texts: {len(templates)} templates for each class" if request.offline else None,
        spec={"classes": list(texts.classes), "templates": list(templates)},
    )


def load_clip_texts(request: Request[TextOptions]) -> TextEncoder:
    """Load the text tower of one of them."""
    with _Source(request) as source:
        clip = source.build()
        del clip.visual
        return TextEncoder(clip, source.tokenizer())


class _Source:
    """Where a model comes from (open_clip's own list, a folder, or a configuration file), while it is being loaded."""

    def __init__(self, request: Request[TextOptions]) -> None:
        self.request, self.open_clip = request, import_open_clip()
        self.name, self.tag, self.pretrained_config = request.architecture, "", dict[str, Any]()
        self.folder: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if request.path is not None:
            self._open_path(request.path)
        else:
            self._find_name()

    def __enter__(self) -> "_Source":
        return self

    def __exit__(self, *_: object) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    @cached_property
    def _hub(self) -> HubAccess:
        """To be asked only where the user asked for trained weights by name; some models have their tokenizer there."""
        request = self.request
        return HubAccess(request.pretrained and request.weights is None and not request.offline and self._temporary is None)

    def _open_path(self, path: Path) -> None:
        self.config, preprocessing = read_config(path)
        self.folder = path if path.is_dir() else None
        # open_clip gets to see what was checked, in a folder of our own, and never the file itself
        self._temporary = tempfile.TemporaryDirectory(prefix="reprogram-")
        content = json.dumps({"model_cfg": self.config, "preprocess_cfg": preprocessing})
        (Path(self._temporary.name) / CLIP_CONFIG).write_text(content, encoding="utf-8")
        self.name = f"local-dir:{self._temporary.name}"

    def _find_name(self) -> None:
        self.name, _, self.tag = self.request.architecture.partition("/")
        known = self.open_clip.list_models()
        if self.name not in known:
            raise ReprogramError(
                f"open_clip has no model {self.name!r}{nearest(self.name, known)} (list them with: reprogram models "
                f"'openclip:*'), and it is neither a folder with {CLIP_CONFIG} nor a .json file"
            )
        self.config = self.open_clip.get_model_config(self.name)
        if self.tag:
            self.pretrained_config = self.open_clip.get_pretrained_cfg(self.name, self.tag)
            if not self.pretrained_config:
                tags = self.open_clip.list_pretrained_tags_by_model(self.name)
                raise unknown(f"tag of openclip:{self.name}", self.tag, tags)

    @property
    def width(self) -> int:
        """The width d of the embeddings."""
        return int(self.config["embed_dim"])

    def build(self) -> Any:
        """The whole model with its weights."""
        request = self.request
        path = None if request.offline and request.weights is None else self._weights_file()
        held = [file for file in (path, *self._folder_weights()) if file is not None]

        def create(device: str = "cpu") -> Any:
            return self.open_clip.create_model(
                self.name,
                load_weights=False,
                pretrained_text=False,
                device=device,
                # OpenAI's weights were trained with another activation than the architecture of that name has
                force_quick_gelu=bool(self.pretrained_config.get("quick_gelu")),
                force_preprocess_cfg={key: self.pretrained_config.get(key) for key in _FEEDING},
            )

        try:
            with self._hub, no_foreign_code(request.name), _silent():
                if self._temporary is not None:  # a configuration from elsewhere
                    check_declared(lambda: create("meta"), held[:1], request.name)
                clip = create()
        except ReprogramError:
            raise
        except Exception as error:
            raise unavailable(request.name, error, pretrained=False) from error
        if path is not None:
            self._fill(clip, path)
        return clip

    def tokenizer(self) -> Any:
        """What turns texts into token numbers. CLIP's own vocabulary is inside open_clip; others are on the Hub."""
        text = self.config["text_cfg"]
        name = text.get("hf_tokenizer_name")
        try:
            with self._hub, no_foreign_code(self.request.name), _silent():
                if not name:
                    return self.open_clip.get_tokenizer(self.name)
                return self.open_clip.tokenizer.HFTokenizer(
                    str(self.folder or name),
                    context_length=text.get("context_length", self.open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
                    tokenizer_mode=text.get("tokenizer_mode"),
                    trust_remote_code=False,
                    **(text.get("tokenizer_kwargs") or {}),
                )
        except ReprogramError:
            raise
        except Exception as error:
            raise ReprogramError(
                f"the tokenizer of {self.request.name} ({name or first_line(error)}) is not on this machine; connect to the "
                "network and load the model once by its tag, or write openclip:FOLDER for a copy that holds it"
            ) from error

    def _weights_file(self) -> Path | None:
        request = self.request
        if request.weights is not None:
            return request.weights
        if not request.pretrained:
            return None
        if self.folder is not None:
            found = self._folder_weights()
            if not found:
                raise ReprogramError(
                    f"{str(self.folder)!r} holds no weights ({_WEIGHTS[0]}); put them there or give --weights"
                )
            return found[0]
        if not self.tag:
            tags = [] if self._temporary else self.open_clip.list_pretrained_tags_by_model(self.name)
            named = f"name their tag, such as {request.name}/{tags[0]}, " if tags else ""
            raise ReprogramError(
                f"{request.name} does not say which weights; {named}give a file with --weights, "
                "or take random weights with --no-pretrained"
            )
        try:
            with self._hub, _silent():
                return Path(self.open_clip.download_pretrained(self.pretrained_config))
        except Exception as error:
            raise unavailable(request.name, error, pretrained=True) from error

    def _folder_weights(self) -> list[Path]:
        """The weights in the folder, where there is one; the first of them is taken."""
        return [] if self.folder is None else [file for name in _WEIGHTS if (file := self.folder / name).is_file()]

    def _fill(self, clip: nn.Module, path: Path) -> None:
        """Load weights through open_clip, which knows the older and the foreign formats; no code in the file is run."""
        check_weights(path)
        try:
            with _silent():
                self.open_clip.load_checkpoint(clip, str(path), weights_only=True)
        except Exception as error:
            read_weights(path)  # says what is wrong with the file, if anything is
            problem = [*str(error).split("\n\t"), first_line(error)][1].rstrip(". ")
            raise ReprogramError(
                f"the weights do not fit {self.request.name} ({problem[:200]}); give the state dict of that architecture"
            ) from None


@dataclass(frozen=True)
class _Feeding:
    input_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: Interpolation


def _feeding(image_tower: Any, name: str) -> _Feeding:
    """How open_clip would prepare an image for this tower."""
    config = image_tower.preprocess_cfg
    sides = config["size"] if isinstance(config["size"], (tuple, list)) else (config["size"],) * 2
    if sides[0] != sides[-1] or config["resize_mode"] not in ("shortest", "squash"):
        raise ReprogramError(
            f"{name} takes images of {sides[0]} x {sides[-1]} pixels, resized by {config['resize_mode']!r}, but squares "
            "that are cropped or squashed are expected; choose another model"
        )
    smooth: Interpolation = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    cropped: Interpolation = "bilinear-crop" if smooth == "bilinear" else "bicubic-crop"
    mean, std = (tuple(float(value) for value in config[key]) for key in ("mean", "std"))
    return _Feeding(int(sides[0]), mean, std, cropped if config["resize_mode"] == "shortest" else smooth)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep open_clip's notes, which go to the root logger, off the terminal; what matters of them is an error of ours."""
    root, sink = logging.getLogger(), logging.NullHandler()

    def refuse(_: logging.LogRecord) -> bool:
        return False

    root.addHandler(sink)  # without any handler, the first note would install one for good
    root.addFilter(refuse)
    try:
        yield
    finally:
        root.removeFilter(refuse)
        root.removeHandler(sink)
