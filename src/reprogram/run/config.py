"""The one schema of a run: what `reprogram fit` takes as flags, `--config` reads and `config.json` holds."""

from typing import Any, Literal

import torch
from pydantic import Field

from reprogram.data.load import DataSet, load_data
from reprogram.errors import ReprogramError, unknown
from reprogram.mappings.base import METHODS, Normalize, make_mapping
from reprogram.mappings.selection import Candidate
from reprogram.programs.base import Program, make_program
from reprogram.progress import Progress
from reprogram.randomness import derived_seed
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import load_frozen
from reprogram.sources.vision_language import VisionLanguage
from reprogram.training.settings import TrainingSettings


class FitConfig(TrainingSettings):
    """A run: a frozen model, a data set, a program, a mapping, and how to train."""

    model: str = Field("bundled:efficientnet_lite0", description="Frozen model, source:name; see `reprogram models`.")
    pretrained: bool = Field(
        True, description="Trained weights (timm, torchvision and the Hub download them), or random ones."
    )
    weights: str | None = Field(None, description="State dict file for the model, safetensors or a plain torch file.")
    templates: str = Field(
        "paper81",
        description="Texts of an openclip model: default, imagenet80, paper81 (both), or a file with one template per line.",
    )
    data: str = Field("digits", description="A folder, table, array file or named set; see `reprogram datasets`.")
    program: str = Field("padding", description="Program on the input: padding, watermark or none.")
    mapping: str = Field(
        "blm+",
        description="Label mapping: rlm, flm, ilm, blm, blm+, gaussian, linear, sigmoid, none, ensemble; auto chooses one.",
    )
    image_size: int | None = Field(
        None,
        ge=1,
        description="Side of the image inside a padding program; by default 32 for tiny images, else 4/7 of the canvas.",
    )
    canvas: int | None = Field(
        None, ge=8, description="Side of the square that the model receives; by default its own input size."
    )
    frame: int | None = Field(
        None,
        ge=1,
        description="Width of a watermark's free outer frame; by default every pixel is free, or 30 of 224 for openclip.",
    )
    smoothing: float = Field(1.0, ge=0, description="λ of blm and blm+.")
    top_ratio: float | Literal["all"] = Field(
        0.15, description="α of blm+: K = α · classes labels count per image; or `all`."
    )
    refresh: Literal["never", "fresh", "reuse"] | None = Field(
        None,
        description="Estimate the mapping once, by a fresh pass per epoch, or from the epoch's outputs; None: by method.",
    )
    normalize: Normalize = Field(
        "none", description="Centre or standardise the source logits before the mapping; none as published."
    )
    shrinkage: float | Literal["oas"] = Field(
        "oas", description="Shrinkage of the gaussian mapping's covariance, above 0 and up to 1; oas computes it."
    )
    priors: bool = Field(False, description="Let the gaussian mapping prefer frequent classes.")
    folds: int | None = Field(
        None,
        ge=0,
        description="Score images by a mapping estimated without their fold, of so many; None: by method.",
    )
    optimal: bool = Field(False, description="One-to-one mappings by exact assignment instead of greedily.")
    data_root: str = Field("data", description="Folder that holds paper: and torchvision: data sets.")
    protocol: Literal["default", "paper"] = Field(
        "default",
        description="Defaults: sensible ones, or the paper's (200 epochs, its batch sizes and flips, lr 0.01; for openclip "
        "sgd with lr 40 and a cosine schedule).",
    )
    shots: int | None = Field(None, ge=1, description="Keep this many training images of each class.")
    fraction: float | None = Field(None, gt=0, le=1, description="Keep this stratified share of the training images.")
    cache: bool = Field(True, description="Keep decoded images in the user's cache folder (REPROGRAM_CACHE).")
    skip_bad: bool = Field(False, description="Leave out images that cannot be decoded, and list them in result.json.")
    val_fraction: float = Field(
        0.1, ge=0, lt=1, description="Share of the training images for validation, where the data brings none."
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps ...")

    @property
    def has_texts(self) -> bool:
        """Whether the source labels are texts about the task's classes."""
        return self.model.startswith("openclip:")

    def load_data(self) -> DataSet:
        """The data set, with a validation split and as few training images as were asked for."""
        data = load_data(self.data, seed=self.seed, root=self.data_root).with_validation(self.val_fraction, self.seed)
        return data.with_fewer(shots=self.shots, fraction=self.fraction, seed=self.seed)

    def training_settings(self, data: DataSet) -> TrainingSettings:
        """The part of the configuration that `fit` takes, with the augmentation that suits the program and the data."""
        settings = TrainingSettings.read(self.model_dump(include=set(TrainingSettings.model_fields)))
        augment = self.augment
        if augment is None and self.program == "watermark" and self.frame is None and not self.has_texts:
            # mirrored digits and traffic signs change their meaning: only the paper's protocol mirrors them all the same
            augment = "flip" if data.flip_safe or self.protocol == "paper" else "crop"
        return settings.model_copy(update={"augment": augment or "none"})

    def load_frozen(self, data: DataSet | None = None, progress: Progress | None = None) -> Frozen:
        """The frozen model; one that compares images with texts has texts about the classes of the data."""
        return load_frozen(
            self.model,
            pretrained=self.pretrained,
            weights=self.weights,
            seed=derived_seed(self.seed, "weights"),
            classes=data.classes if self.has_texts and data is not None else None,
            templates=self.templates if self.has_texts or self.templates != "paper81" else None,
            progress=progress,
        )

    def make_program(self, frozen: Frozen, data: DataSet) -> Program:
        """The program, with the sizes that the model and the images ask for where none are given."""
        canvas = self.canvas or frozen.input_size
        settings: dict[str, object] = {
            "canvas": canvas,
            "mean": frozen.mean.flatten().tolist(),
            "std": frozen.std.flatten().tolist(),
        }
        if self.program == "padding":
            settings["image_size"] = (
                self.image_size or _published_size(data, canvas) or default_image_size(data.train.native_size(), canvas)
            )
        elif self.image_size is not None:
            raise ReprogramError(
                f"image_size = {self.image_size} was given, but only program padding takes it; leave it out"
            )
        if isinstance(frozen, VisionLanguage):
            settings["interpolation"] = frozen.interpolation
        if self.program == "watermark":
            settings["frame"] = self.frame or (max(1, canvas * 30 // 224) if isinstance(frozen, VisionLanguage) else None)
        elif self.frame is not None:
            raise ReprogramError(f"frame = {self.frame} was given, but only program watermark takes it; leave it out")
        return make_program(self.program, **settings)

    def mapping_settings(self) -> dict[str, Any]:
        """What `make_mapping` takes besides the label sets; for `auto` nothing may be set, because it is chosen."""
        names = ("smoothing", "top_ratio", "normalize", "shrinkage", "priors", "folds", "refresh", "optimal")
        settings = {name: getattr(self, name) for name in names}
        if self.mapping in METHODS:
            return {"name": self.mapping, **settings}
        if self.mapping != "auto":
            raise unknown("mapping", self.mapping, (*METHODS, "auto"))
        for name, value in settings.items():
            if value != FitConfig.model_fields[name].default:
                raise ReprogramError(
                    f"{name} = {value} was given, but mapping auto chooses it; leave it out, or name a mapping"
                )
        return {"name": "blm+"}

    def build(self, frozen: Frozen, data: DataSet, chosen: Candidate | None = None) -> Reprogrammed:
        """Program, frozen model and mapping together, on the device; for mapping `auto`, with the chosen one."""
        settings = self.mapping_settings() if chosen is None else {"name": chosen.mapping, **chosen.settings}
        mapping = make_mapping(
            source_labels=frozen.labels,
            classes=data.classes,
            seed=derived_seed(self.seed, "mapping"),
            span=getattr(frozen, "span", None) if settings["name"] == "gaussian" else None,
            **settings,
        )
        if not frozen.differentiable and self.program != "none":
            raise ReprogramError(
                f"{frozen.name} gives no gradients, so program {self.program!r} cannot be trained; use --program none"
            )
        model = Reprogrammed(self.make_program(frozen, data), frozen, mapping, data.classes)
        model.to(choose_device(self.device))
        check_canvas(model)
        return model


def _published_size(data: DataSet, canvas: int) -> int | None:
    return None if data.image_size is None else max(1, data.image_size * canvas // 224)


def default_image_size(native: int, canvas: int) -> int:
    """The paper's sizes, 32 for images of at most 32 pixels and 128 for others, carried over to a canvas other than 224.

    >>> default_image_size(32, 224), default_image_size(500, 224), default_image_size(8, 64), default_image_size(8, 48)
    (32, 128, 32, 24)
    """
    return min(32, canvas // 2) if native <= 32 else max(1, canvas * 4 // 7)


def choose_device(name: str) -> torch.device:
    """Read a device name; `auto` takes the best there is."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise ReprogramError(
            f"device {name!r} is not available here; choose auto, cpu, or a device that torch sees"
        ) from None
    return device


@torch.no_grad()
def check_canvas(model: Reprogrammed) -> None:
    """Send one blank canvas through the frozen model, to learn now and not in an epoch that it is refused."""
    canvas = model.program.canvas
    try:
        model.frozen(torch.zeros(1, 3, canvas, canvas, device=model.device))
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).strip().split("\n")[0][:160]
        raise ReprogramError(
            f"{model.frozen.name} does not take a canvas of {canvas} ({reason}); use its own size, {model.frozen.input_size}"
        ) from None
