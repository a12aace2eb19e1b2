"""Reprogrammed = program + frozen model + mapping: a classifier for the target labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from reprogram.acceleration.accelerate import Accelerated, accelerate
from reprogram.errors import ReprogramError
from reprogram.files import read_json, read_tensors, write_folder, write_json, write_tensors
from reprogram.images.pictures import large_images_allowed, pil_to_tensor, read_image
from reprogram.mappings.base import Mapping, make_mapping
from reprogram.programs.base import Program, make_program
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import load_frozen

FORMAT = 1
_WORTH_PREPARING = 4_000_000  # pixels: less than that runs faster than a network is prepared
_FILES = ("artefact.json", "artefact.safetensors")
Picture = str | Path | Image.Image
Pictures = Tensor | Picture | Sequence[Picture]


@dataclass(frozen=True)
class Evidence:
    """One source label's part in a prediction: its weight in ω, its logit, and their product."""

    source: str
    weight: float
    logit: float

    @property
    def contribution(self) -> float:
        """Weight × logit; over all source labels these add up to the target logit, less the bias of a Gaussian mapping."""
        return self.weight * self.logit


@dataclass(frozen=True)
class Predictions:
    """What a reprogrammed model says about N images.

    Attributes:
        labels: N target class names.
        indices: (N,) their numbers.
        probabilities: (N, k_T) softmax of the target logits.
        evidence: for each image, the source labels that decided it, the largest |weight × logit| first.
    """

    labels: list[str]
    indices: Tensor
    probabilities: Tensor
    evidence: list[list[Evidence]]


class Reprogrammed(nn.Module):
    """A frozen model that serves other labels.

    Args:
        program: what is done to the images; its θ is the only trained part (learned mappings aside).
        frozen: the source model, never changed.
        mapping: source logits → target logits.
        classes: the k_T target class names.
    """

    def __init__(self, program: Program, frozen: Frozen, mapping: Mapping, classes: Sequence[str]) -> None:
        super().__init__()
        if mapping.weights.shape != (frozen.k_source, len(classes)):
            raise ReprogramError(
                f"a mapping of shape {tuple(mapping.weights.shape)} was given for {frozen.k_source} source labels and "
                f"{len(classes)} classes; make it with make_mapping(name, frozen.labels, classes)"
            )
        for name in ("mean", "std"):
            ours, theirs = (getattr(part, name).flatten().cpu() for part in (program, frozen))
            if not torch.allclose(ours, theirs):
                raise ReprogramError(
                    f"the program normalises with {name} {[round(v, 4) for v in ours.tolist()]}, but the frozen model needs "
                    f"{[round(v, 4) for v in theirs.tolist()]}; make the program with mean=frozen.mean, std=frozen.std"
                )
        self.program, self.frozen, self.mapping, self.classes = program, frozen, mapping, tuple(classes)
        self.accelerated: Accelerated | None = None

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1], or uint8, to target logits (N, k_T): f_out(f_pre(f_in(x)))."""
        return self.mapping(self.source_logits(images))  # type: ignore[no-any-return]

    def source_logits(self, images: Tensor) -> Tensor:
        """Map images to the frozen model's logits (N, k_S) under the program: f_pre(f_in(x))."""
        images = images.to(self.device)
        if self.accelerated is None:
            return self.frozen(self.program(images))  # type: ignore[no-any-return]
        if not self.accelerated.fits(self.frozen, self.program):  # moved to another device, or given another program
            self.accelerated = accelerate(self.frozen, self.program)
        return self.accelerated(images)

    def source_features(self, images: Tensor) -> Tensor:
        """Map images to what `frozen.from_features` makes source logits of: shorter than these for a CLIP of many texts."""
        if type(self.frozen).features is Frozen.features:
            return self.source_logits(images)
        return self.frozen.features(self.program(images.to(self.device)))

    def accelerate(self, passes: int | None = None) -> str:
        """Prepare the frozen model and the program for many images; the numbers stay the same up to rounding.

        Args:
            passes: how many images will go through. Few of them do not repay the preparation, which takes seconds, and
                leave the model as it is; None prepares it in any case.

        Returns:
            What was chosen, in one line.
        """
        if passes is not None and passes * self.program.canvas**2 < _WORTH_PREPARING:
            return "the module as it is (few images)" if self.accelerated is None else self.accelerated.describe()
        if self.accelerated is None or not self.accelerated.fits(self.frozen, self.program, thoroughly=True):
            self.accelerated = accelerate(self.frozen, self.program)
        return self.accelerated.describe()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "accelerated": None}  # prepared for these very tensors, not for their copies

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.program.mean.device

    @property
    def trainable(self) -> bool:
        """Whether there is anything for a gradient to change."""
        return any(parameter.numel() for parameter in self.parameters())

    @torch.no_grad()
    def predict(self, images: Pictures, *, evidence: int = 3, batch_size: int = 64) -> Predictions:
        """Classify images and say why.

        Args:
            images: a batch (N, C, H, W), a file path or PIL image, or a list of those.
            evidence: how many source labels to name for each image.
            batch_size: how many images go through the model at once.
        """
        if isinstance(images, (str, Path, Image.Image)):
            images = [images]
        batches = [images[start : start + batch_size] for start in range(0, len(images), batch_size)]
        labels: list[str] = []
        indices: list[Tensor] = [torch.empty(0, dtype=torch.int64)]
        probabilities: list[Tensor] = []
        reasons: list[list[Evidence]] = []
        self.accelerate(len(images))
        for batch in batches:
            source = self.source_logits(self._tensor(batch)).float()
            target = self.mapping(source)
            best = target.argmax(1)
            indices.append(best.cpu())
            labels += [self.classes[index] for index in best.tolist()]
            probabilities.append(target.softmax(1).cpu())
            reasons += self._evidence(source, best, evidence)
        together = torch.cat(probabilities) if probabilities else torch.empty(0, len(self.classes))
        return Predictions(labels, torch.cat(indices), together, reasons)

    def save(self, folder: str | Path) -> None:
        """Write `artefact.json` and `artefact.safetensors` (θ, ω and J; no source weight) into a folder of their own.

        An artefact that stands there is replaced; anything else is left alone, with an error.
        """
        folder = Path(folder)
        if folder.exists() and not (folder.is_dir() and {entry.name for entry in folder.iterdir()} <= set(_FILES)):
            raise ReprogramError(f"{str(folder)!r} exists and is not an artefact; save to a folder that does not exist yet")

        def fill(fresh: Path) -> None:
            content = {
                "format": FORMAT,
                "reprogram": version("reprogram"),
                "classes": list(self.classes),
                "program": self.program.config(),
                "frozen": {**self.frozen.spec, "fingerprint": self.frozen.fingerprint, "k_source": self.frozen.k_source},
                "mapping": self.mapping.config(),
            }
            write_json(fresh / "artefact.json", content)
            write_tensors(fresh / "artefact.safetensors", self.state_dict())

        write_folder(folder, fill)

    @classmethod
    def load(cls, folder: str | Path, frozen: Frozen | None = None, *, weights: str | Path | None = None) -> "Reprogrammed":
        """Read what `save` wrote.

        Args:
            folder: the artefact, or a run folder that contains one.
            frozen: the source model; by default it is loaded again by its name. Needed where it was your own module.
            weights: where the source model's weights file is now, if it was loaded from one and has moved.

        Raises:
            ReprogramError: there is no artefact, or the source model is not the one it was made with.
        """
        path = Path(folder)
        path = path / "artefact" if (path / "artefact").is_dir() else path
        if (path / "checkpoint").is_dir() and not (path / "artefact").exists():
            raise ReprogramError(
                f"the run in {str(path)!r} is not finished; continue it with: reprogram fit --resume --out {path}"
            )
        content = read_json(path / "artefact.json", "artefact")
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ReprogramError(f"{str(path)!r} is not an artefact of format {FORMAT}; make it again with this version")
        source = dict(content["frozen"])
        expected = source.pop("fingerprint")
        k_source = source.pop("k_source")
        if frozen is None:
            if not source.get("name"):
                raise ReprogramError(
                    f"artefact {str(path)!r} was made with a model of your own (k_S = {k_source}); "
                    "load it from Python with Reprogrammed.load(folder, frozen=Frozen(module, ...))"
                )
            frozen = load_frozen(**(source if weights is None else {**source, "weights": weights}))
        if frozen.fingerprint != expected:
            raise ReprogramError(
                f"artefact {str(path)!r} was made with a source model of fingerprint {expected[:12]}, but {frozen.name} has "
                f"{frozen.fingerprint[:12]}; give the weights that it was made with"
            )
        classes = content["classes"]
        mapping = make_mapping(
            source_labels=frozen.labels, classes=classes, span=getattr(frozen, "span", None), **content["mapping"]
        )
        model = cls(make_program(**content["program"]), frozen, mapping, classes)
        tensors, _ = read_tensors(path / "artefact.safetensors", "artefact")
        try:
            model.load_state_dict(tensors)
        except RuntimeError:
            raise ReprogramError(
                f"the tensors of artefact {str(path)!r} do not fit its description; make it again"
            ) from None
        return model

    def _tensor(self, batch: Tensor | Sequence[Picture]) -> Tensor:
        if isinstance(batch, Tensor):
            return batch
        size, how = self.program.image_size, self.program.interpolation
        with large_images_allowed():
            return torch.stack(
                [pil_to_tensor(x, size, how) if isinstance(x, Image.Image) else read_image(x, size, how) for x in batch]
            )

    def _evidence(self, source: Tensor, best: Tensor, count: int) -> list[list[Evidence]]:
        weights, source = self.mapping.weights.T[best], self.mapping.affine.normalised(source)
        order = (weights * source).abs().topk(min(count, source.shape[1]), dim=1).indices
        rows = zip(order.tolist(), weights.gather(1, order).tolist(), source.gather(1, order).tolist(), strict=True)
        return [
            [Evidence(self.frozen.labels[i], weight, logit) for i, weight, logit in zip(*row, strict=True)] for row in rows
        ]
