"""`hf:<model>`: image classifiers of transformers, from a folder or from the Hub, fed as their image processor says."""

import importlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reprogram.errors import ReprogramError, extra_missing, first_line
from reprogram.images.pictures import Interpolation
from reprogram.sources.declared import MOST_SIDE, check_declared, check_numbers
from reprogram.sources.foreign_code import allowed, no_foreign_code
from reprogram.sources.frozen import Frozen
from reprogram.sources.network import HubAccess
from reprogram.sources.request import Request
from reprogram.sources.settings import SourceOptions
from reprogram.sources.torchvision_import import import_torchvision

_NO_CONVERSION = "DISABLE_SAFETENSORS_CONVERSION"
_MISFITS = ("missing_keys", "unexpected_keys", "mismatched_keys")
# of the arguments that a timm_wrapper hands on to timm.create_model: others name files that timm would load
_WRAPPED = allowed(
    "act_layer class_token depth depths drop_path_rate drop_rate dynamic_img_size embed_dim global_pool img_size in_chans "
    "init_values mlp_ratio no_embed_class norm_layer num_heads output_stride patch_size reg_tokens window_size"
)
_WRAPPED_NAME = re.compile(r"\w[\w.-]*")
_NEAREST, _BILINEAR = 0, 2  # PIL's numbers; the others (bicubic, lanczos, box, hamming) are closest to bicubic


def load_transformers(request: Request[SourceOptions]) -> Frozen:
    """Load an image classifier of transformers, from safetensors alone and without code from the Hub."""
    local, where = request.path is not None, str(request.path or request.architecture)
    state = request.state()
    pretrained = request.pretrained and state is None
    options = {"local_files_only": local or request.offline, "trust_remote_code": False}
    transformers = _import_transformers()
    try:
        with _restrained(transformers), HubAccess(not local and not request.offline), no_foreign_code(request.name):
            _check_config(transformers, request.name, where, local_files_only=local or request.offline)
            config = transformers.AutoConfig.from_pretrained(where, **options)
            processor = _processor(transformers, request.name, where, options)
            labels = _labels(config)
            if local:
                check_declared(
                    lambda: transformers.AutoModelForImageClassification.from_config(config),
                    [request.weights] if request.weights else Path(where).glob("*.safetensors"),
                    request.name,
                )
            if state is not None and (outputs := _outputs(transformers, config, state)) != config.num_labels:
                config.num_labels, labels = outputs, None
            if pretrained:
                model = _trained(transformers, request.name, where, config, options)
            else:
                model = transformers.AutoModelForImageClassification.from_config(config, dtype=torch.float32)
            if state is not None:
                model = _filled(type(model), config, state, request.name)
        feeding = _measure(processor, request.name, getattr(config, "image_size", None))
    except ReprogramError:
        raise
    except Exception as error:
        if request.offline and not local:
            raise ReprogramError(
                f"{request.name} is not on this machine yet, so it cannot be described; load it once with the network on"
            ) from error
        if not local:
            raise ReprogramError(
                f"{request.name} could not be fetched from the Hub ({first_line(error)}); connect to the network, "
                "or write hf:FOLDER for a copy on this machine"
            ) from error
        raise ReprogramError(
            f"{request.name} cannot be loaded ({first_line(error)}); write the folder with save_pretrained, as safetensors"
        ) from error
    try:
        return Frozen(
            _Logits(model, feeding.reversed_channels),
            mean=feeding.mean,
            std=feeding.std,
            input_size=feeding.input_size,
            labels=labels,
            interpolation=feeding.interpolation,
            label_source=None if labels is None else "config.id2label",
        )
    except ReprogramError:
        raise
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:  # asked about one blank image
        raise ReprogramError(
            f"{request.name} does not take the images that its processor makes ({first_line(error)}); mend its configuration"
        ) from None


def _import_transformers() -> ModuleType:
    import_torchvision()  # transformers imports torchvision where it is installed, so it must be importable first
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError:
        raise extra_missing("transformers", "hf") from None


@contextmanager
def _restrained(transformers: ModuleType) -> Iterator[None]:
    """Keep its progress bars and its advice off the terminal, and keep it from taking weights from anywhere else.

    What matters of its advice becomes an error of ours. Where a model on the Hub has pickled weights alone, it would
    otherwise ask a service to convert them and load what that service proposes, which the model's owner has not seen.
    """
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    conversion = os.environ.get(_NO_CONVERSION)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.environ[_NO_CONVERSION] = "1"
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        if conversion is None:
            del os.environ[_NO_CONVERSION]
        else:
            os.environ[_NO_CONVERSION] = conversion


def _check_config(transformers: ModuleType, name: str, where: str, **options: Any) -> None:
    """Refuse a configuration that asks for compiled kernels, or timm for more than an architecture and its sizes."""
    config, _ = transformers.PreTrainedConfig.get_config_dict(where, **options)
    check_numbers(config, name)
    if "quantization_config" in config:
        raise ReprogramError(f"{name} has quantized weights, which are not read; choose one with weights in floating point")
    for key, value in _settings(config):
        if key.endswith("_implementation") and isinstance(value, str) and "/" in value:
            raise ReprogramError(
                f"{name} asks for {key} = {value!r}, which is code from the Hub and is never run; take it out of its "
                "config.json"
            )
    if config.get("model_type") == "timm_wrapper":
        _check_wrapper(config, name)


def _settings(config: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All settings in a configuration and its parts; what is inside a table also counts as of the table's name."""
    for inner, value in config.items():
        yield inner, value
        if isinstance(value, dict):
            yield from _settings(value, inner)
        elif key:
            yield key, value


def _check_wrapper(config: dict[str, Any], name: str) -> None:
    """Refuse a wrapper of timm that asks timm for anything but an architecture and its sizes, such as a pickled file."""
    architecture, asked = config.get("architecture", "resnet50"), config.get("model_args") or {}
    if not isinstance(architecture, str) or not _WRAPPED_NAME.fullmatch(architecture):
        raise ReprogramError(
            f"{name} gives its architecture as {architecture!r}, but a plain name of timm is expected; mend its config.json"
        )
    if not isinstance(asked, dict):
        raise ReprogramError(f"{name} gives model_args as {asked!r}, but a table is expected; mend its config.json")
    for key, value in asked.items():
        if key not in _WRAPPED or isinstance(value, dict):
            raise ReprogramError(
                f"{name} asks timm for {key} = {value!r} in its model_args, which is not handed on, because timm would "
                "load files that are named there; take it out of its config.json"
            )


def _processor(transformers: ModuleType, name: str, where: str, options: dict[str, Any]) -> Any:
    try:
        return transformers.AutoImageProcessor.from_pretrained(where, **options)
    except Exception as error:
        if (
            isinstance(error, ReprogramError)
            or not Path(where).is_dir()
            or (Path(where) / "preprocessor_config.json").exists()
        ):
            raise
        raise ReprogramError(
            f"{name} does not say how its images are prepared ({first_line(error)}); "
            "save its image processor beside it, as preprocessor_config.json"
        ) from error


def _trained(transformers: ModuleType, name: str, where: str, config: Any, options: dict[str, Any]) -> Any:
    model, loading = transformers.AutoModelForImageClassification.from_pretrained(
        where, config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **options
    )
    # transformers would fill what is missing with random numbers and carry on.
    if lacking := sorted(loading["missing_keys"]) + sorted(str(key[0]) for key in loading["mismatched_keys"]):
        raise ReprogramError(
            f"{name} is not a trained classifier: {len(lacking)} of its tensors are not in its file "
            f"(the first is {lacking[0]}); choose a model that was trained to classify images"
        )
    return model


def _filled(kind: Any, config: Any, state: dict[str, Tensor], name: str) -> Any:
    """Build it with a state dict of the user's own; transformers itself must do it, as its files keep older key names."""
    try:
        model, loading = kind.from_pretrained(
            None, config=config, state_dict=state, dtype=torch.float32, output_loading_info=True
        )
    except RuntimeError as error:
        problem = first_line(error)
    else:
        keys = [key if isinstance(key, str) else key[0] for part in _MISFITS for key in sorted(loading[part])]
        if not keys:
            return model
        problem = f"{len(keys)} tensors differ, the first is {keys[0]}"
    raise ReprogramError(f"the weights do not fit {name} ({problem}); give the state dict of that architecture")


def _labels(config: Any) -> list[str] | None:
    """The names in `config.id2label` in the order of the outputs, or None where transformers only numbered them."""
    names = {int(index): str(name) for index, name in (config.id2label or {}).items()}
    if sorted(names) != list(range(len(names))) or all(name == f"LABEL_{index}" for index, name in names.items()):
        return None
    return [names[index] for index in range(len(names))]


def _outputs(transformers: ModuleType, config: Any, state: dict[str, Tensor]) -> int:
    """How many outputs a state dict of the user's own has; the head's bias or weight is the architecture's last tensor."""
    with torch.device("meta"):
        last = list(transformers.AutoModelForImageClassification.from_config(config).state_dict())[-1]
    return len(state[last]) if last in state and state[last].ndim else int(config.num_labels)


@dataclass(frozen=True)
class _Feeding:
    mean: list[float]
    std: list[float]
    input_size: int
    interpolation: Interpolation
    reversed_channels: bool


def _measure(processor: Any, name: str, side: Any) -> _Feeding:
    """Learn from three plain pictures what the image processor does.

    Its flags (do_rescale, rescale_factor, offsets, do_normalize, channel order, crops) mean other things in other classes;
    what it makes of black, white and red says it all: a shift and a scale per channel, their order, and the size.
    """
    check_numbers({key: value for key, value in processor.to_dict().items() if key.endswith("size")}, name)
    side = side if isinstance(side, int) and 0 < side <= MOST_SIDE else 224
    black, white, red = (np.full((side, side, 3), colour, np.uint8) for colour in (0, 255, (255, 0, 0)))
    pixels = processor(images=[black, white, red], return_tensors="pt")["pixel_values"].double()
    if pixels.ndim != 4 or pixels.shape[1] != 3 or pixels.shape[2] != pixels.shape[3]:
        raise ReprogramError(
            f"{name} takes images of shape {tuple(pixels.shape[1:])}, but square RGB images are expected; "
            "choose another model"
        )
    middle = pixels.shape[2] // 2
    low, high, first = pixels[:, :, middle, middle]
    if not bool((high > low).all()):
        raise ReprogramError(f"the image processor of {name} makes black and white the same; mend its configuration")
    backwards = bool((first[0] - low[0]).abs() < (first[2] - low[2]).abs())
    if backwards:  # we normalise RGB and turn the channels around afterwards
        low, high = low.flip(0), high.flip(0)
    std = 1 / (high - low)
    return _Feeding(
        mean=(-low * std).tolist(),
        std=std.tolist(),
        input_size=pixels.shape[2],
        interpolation="bilinear" if getattr(processor, "resample", None) in (_NEAREST, _BILINEAR) else "bicubic",
        reversed_channels=backwards,
    )


class _Logits(nn.Module):
    """A model of transformers as a plain module from (N, 3, S, S) to logits (N, k_S)."""

    def __init__(self, model: nn.Module, reversed_channels: bool) -> None:
        super().__init__()
        self.model, self.reversed_channels = model, reversed_channels

    def forward(self, x: Tensor) -> Tensor:
        x = x.flip(1) if self.reversed_channels else x
        return self.model(pixel_values=x, return_dict=True).logits  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"reversed_channels={self.reversed_channels}"
