"""Reprogrammed = program + frozen model + mapping: a classifier for the target labels."""

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from reprogram.acceleration.accelerate import Accelerated, accelerate, worth_preparing
from reprogram.acceleration.precision import Chosen, choose_precision
from reprogram.cards import card
from reprogram.devices import Precision, at_hand, autocast, precision_note
from reprogram.errors import ReprogramError, first_line
from reprogram.files import fitting
from reprogram.files.reading import AGAIN, check_schema
from reprogram.images.batches import batches_of
from reprogram.mappings.artefact import artefact_folder, described_mapping, read_artefact, write_artefact
from reprogram.mappings.asked import Asked
from reprogram.mappings.base import Mapping
from reprogram.mappings.cards import mapping_facts, mapping_notes, strongest
from reprogram.mappings.explain import Explanation, TextEncoder
from reprogram.mappings.predictions import Predictions
from reprogram.mappings.stored_certainty import read_certainty, without_certainty
from reprogram.programs.base import Program, make_program
from reprogram.programs.pictures import seen_of
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import load_frozen

_ANY_CANVAS = 2048  # pixels: a larger one must be justified by what is stored of it
_INSTEAD = "load it with reprogram.Mapping.load, or classify files of answers with reprogram map predict"


class Reprogrammed(nn.Module):
    """A frozen model that serves other labels.

    Args:
        program: what is done to the images; its θ is the only trained part (learned mappings aside). It is bound to the
            model's normalisation here.
        frozen: the source model, never changed.
        mapping: source logits → target logits, made for the model's labels; it knows the target classes.

    Attributes:
        precision: what it was trained and measured in: fp32, bf16 or fp16. Its passes are in this, or in fp32 on a device
            that would only emulate it; see `precision_here`.
    """

    def __init__(self, program: Program, frozen: Frozen, mapping: Mapping) -> None:
        super().__init__()
        if list(mapping.source_labels) != list(frozen.labels):
            raise ReprogramError(
                f"a mapping from {mapping.k_source} source labels ({_first(mapping.source_labels)}) was given for a model "
                f"with {frozen.k_source} ({_first(frozen.labels)}); make it with make_mapping(name, frozen.labels, classes)"
            )
        self.program, self.frozen, self.mapping = program.bind(frozen.mean, frozen.std), frozen, mapping
        self.accelerated: Accelerated | None = None
        self.precision: Precision = "fp32"

    @property
    def classes(self) -> tuple[str, ...]:
        """The k_T target class names."""
        return self.mapping.classes

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1], or uint8, to target logits (N, k_T): f_out(f_pre(f_in(x)))."""
        return self.mapping(self.source_logits(images))  # type: ignore[no-any-return]

    @property
    def precision_here(self) -> Precision:
        """What it computes in on its device: its own precision, or fp32 where that is not in hardware."""
        return at_hand(self.device, self.precision)

    def choose_precision(self, precision: Precision) -> Chosen:
        """Read `auto` for this model where it is now; any other precision stays what it is."""
        return choose_precision(self.frozen, self.program.canvas, precision)

    @property
    def precision_note(self) -> str | None:
        """What to tell where that is another one than it was trained in."""
        return precision_note(self.device, self.precision)

    def passes_in(self, precision: Precision | None) -> Precision:
        """What a pass is in for which this precision was asked: by default, and for `auto`, `precision_here`."""
        return self.precision_here if precision in (None, "auto") else precision

    def source_logits(self, images: Tensor, precision: Precision | None = None) -> Tensor:
        """Map images to the frozen model's logits (N, k_S) under the program: f_pre(f_in(x)).

        Args:
            images: (N, C, H, W) in [0, 1], or uint8.
            precision: of the frozen model, emulated if need be; by default, the model's own as far as it is in hardware.
        """
        images = self._on_device(images)
        with autocast(self.device, self.passes_in(precision)):
            if self.frozen.memory is None:
                return self._passed(images)
            return self.frozen.memory.recall(self.program, images, self._how(), self._passed)

    def route(self) -> dict[str, Any] | None:
        """What decides the source logits of a batch to the bit beside its pixels, as long as θ is zero; None once it is not.

        Where two models over one frozen model say the same, one pass serves both.
        """
        start = self.program.untrained()
        return None if start is None else {"program": start, "network": self._how()}

    def _how(self) -> str:
        """How the network is run."""
        return "" if self.accelerated is None or self.accelerated.schedule is None else self.accelerated.describe()

    def _on_device(self, images: Tensor) -> Tensor:
        """The images where the model is, which is prepared anew where it was moved or given another program."""
        if self.accelerated is not None and not self.accelerated.fits(self.frozen, self.program):
            self.accelerated = accelerate(self.frozen, self.program)
        return images.to(self.device)

    def _passed(self, images: Tensor) -> Tensor:
        return self.frozen(self.program(images)) if self.accelerated is None else self.accelerated(images)

    def source_features(self, images: Tensor, precision: Precision | None = None) -> Tensor:
        """Map images to what `frozen.from_features` makes source logits of: shorter than these for a CLIP of many texts."""
        if not self.frozen.short_features:
            return self.source_logits(images, precision)
        images = self._on_device(images)
        with autocast(self.device, self.passes_in(precision)):
            if self.accelerated is None:
                return self.frozen.features(self.program(images))
            return self.accelerated.features(images)

    def accelerate(self, passes: int | None = None) -> str:
        """Prepare the frozen model and the program for many images; the numbers stay the same up to rounding.

        Args:
            passes: how many images will go through. Few of them do not repay the preparation, which takes seconds, and
                leave the model as it is; None prepares it in any case.

        Returns:
            What was chosen, in one line.
        """
        if passes is not None and not worth_preparing(passes, self.program):
            if self.accelerated is not None and not self.accelerated.fits(self.frozen, self.program, thoroughly=True):
                self.accelerated = None  # prepared for other weights
            return (
                "the module as it is (too few images to repay preparing it)"
                if self.accelerated is None
                else self.accelerated.describe()
            )
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

    @property
    def moves(self) -> bool:
        """Whether training changes the source logits of an image; where it does not, one pass serves all epochs."""
        return any(parameter.numel() for parameter in self.program.parameters())

    def trained(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """What gradients change: by the optimiser of the settings (θ), and by the learned mappings' own."""
        return list(self.program.parameters()), list(self.mapping.parameters())

    @torch.no_grad()
    def check_canvas(self) -> None:
        """Send one blank canvas through the frozen model, to learn now and not in an epoch that it is refused."""
        canvas = self.program.canvas
        try:
            self.frozen(torch.zeros(1, 3, canvas, canvas, device=self.device))
        except (RuntimeError, AssertionError, ValueError) as error:
            raise ReprogramError(
                f"{self.frozen.name} does not take a canvas of {canvas} ({first_line(error)}); use its own size, "
                f"{self.frozen.input_size}"
            ) from None

    def check_gradient(self) -> None:
        """Raise where no gradient would reach the program, as the mapping changes in steps alone."""
        if self.moves and not self.mapping.settings.smooth:
            raise ReprogramError(
                f"mapping {self.mapping.name!r} was given with settings by which it changes in steps alone, so that program "
                f"{self.program.name!r} cannot be trained through it; use another mapping or weighting, or program none"
            )

    @torch.no_grad()
    def predict(self, images: Any, *, evidence: int = 3, batch_size: int = 64, **asked: Any) -> Predictions:
        """Classify images and say why.

        Args:
            images: a path, a PIL image, an array, a tensor, the bytes of a file, an open file, or any number of those.
            evidence: how many source labels to name for each image.
            batch_size: how many images go through the model at once.
            asked: `coverage=0.9` for prediction sets, `unlike=0.01` for "none of these", `calibration="none"` for the plain
                softmax, and more: see `reprogram.mappings.asked.Asked`.
        """
        Asked.read(asked)
        batches = batches_of(images, self.program.image_size, self.program.interpolation, batch_size)
        if isinstance(images, (list, tuple)) or getattr(images, "ndim", 0) == 4:
            self.accelerate(len(images))
        parts = (self.mapping.predict(self.source_logits(batch).float(), evidence=evidence, **asked) for batch in batches)
        return Predictions.together(parts, len(self.classes))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts, picture = self.facts(), seen_of(self.program)
        return card(
            "Reprogrammed",
            self.frozen.name,
            facts,
            listings=strongest(self.mapping),
            notes=mapping_notes(self.mapping),
            picture=picture,
        )

    def explain(self, count: int = 3, *, encoder: TextEncoder | None = None) -> Explanation:
        """Name the source labels that speak for each class; see `Mapping.explain`."""
        return self.mapping.explain(count, encoder=encoder)

    def facts(self) -> dict[str, str]:
        """What it is, in short values for a reader: model, program, mapping, classes, trainable parameters."""
        program, trainable = self.program, sum(parameter.numel() for parameter in self.parameters())
        own = ", ".join(f"{name} {value}" for name, value in program.own_settings().items() if value is not None)
        total = trainable + self.frozen.parameter_count
        return {
            "model": f"{self.frozen.name}, {self.frozen.k_source:,} labels",
            "program": f"{program.name}, canvas {program.canvas}" + (f", {own}" if own else ""),
            **mapping_facts(self.mapping),
            "parameters": f"{trainable:,} trainable of {total:,}" + (f" ({trainable / total:.2%})" if total else ""),
        }

    def save(self, folder: str | Path, **sections: Any) -> None:
        """Write an artefact (θ, ω and J; no source weight) into a folder of its own: JSON and safetensors.

        Args:
            folder: an artefact that stands there is replaced; anything else is left alone, with an error.
            sections: what else belongs to it, as plain JSON values.
        """
        source = {**self.frozen.spec, "fingerprint": self.frozen.fingerprint, "normalisation": _normalisation(self.frozen)}
        parts = {"program": self.program.config(), "frozen": source, "precision": self.precision, **sections}
        write_artefact(Path(folder), self.mapping, parts, self.state_dict())

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
        path = artefact_folder(Path(folder))
        content, tensors = read_artefact(path)
        if "frozen" not in content or "program" not in content:
            raise ReprogramError(f"{str(path)!r} is a mapping without a model; {_INSTEAD}")
        check_schema(content, f"artefact {str(path)!r}", _Parts, AGAIN)  # before a model is loaded because it says so
        source = content["frozen"]
        spec = {name: value for name, value in source.items() if name not in ("fingerprint", "normalisation")}
        own = frozen is not None
        if frozen is None:
            if not spec.get("name"):
                raise ReprogramError(
                    f"artefact {str(path)!r} was made with a model of your own (k_S = {len(content['source_labels'])}); "
                    "load it from Python with Reprogrammed.load(folder, frozen=Frozen(module, ...))"
                )
            frozen = load_frozen(**(spec if weights is None else {**spec, "weights": weights}))
        return cls.restored(content, tensors, path, frozen, check_labels=own)

    @classmethod
    def restored(
        cls,
        content: dict[str, Any],
        tensors: dict[str, Tensor],
        path: Path,
        frozen: Frozen,
        *,
        fingerprint: str | None = None,
        check_labels: bool = True,
    ) -> "Reprogrammed":
        """What the parts of an artefact (see `read_artefact`) describe, over a source model that is there already.

        Args:
            content: of the JSON file.
            tensors: of the other one.
            path: what errors call it.
            frozen: the source model.
            fingerprint: that of the source model, where the caller has it: it is a digest of all weights.
            check_labels: whether the model's labels have to be those of the artefact, in their order.
        """
        if "frozen" not in content or "program" not in content:
            raise ReprogramError(f"{str(path)!r} is a mapping without a model; {_INSTEAD}")
        check_schema(content, f"artefact {str(path)!r}", _Parts, AGAIN)
        source = content["frozen"]
        expected, found = str(source.get("fingerprint")), fingerprint or frozen.fingerprint
        if found != expected:
            raise ReprogramError(
                f"artefact {str(path)!r} was made with a source model of fingerprint {expected[:12]}, but {frozen.name} has "
                f"{found[:12]}; give the weights that it was made with"
            )
        if source.get("normalisation") != _normalisation(frozen):
            raise ReprogramError(
                f"artefact {str(path)!r} was made with images normalised by {source.get('normalisation')}, but "
                f"{frozen.name} has {_normalisation(frozen)}; give mean and std as they were"
            )
        if check_labels and list(frozen.labels) != list(content["source_labels"]):
            raise ReprogramError(
                f"artefact {str(path)!r} was made for the source labels {_first(content['source_labels'])}, but "
                f"{frozen.name} has {_first(frozen.labels)}; give them in the order that they had"
            )
        # the model's own labels: for a model of texts they know more than their spelling
        mapping = described_mapping({**content, "source_labels": frozen.labels}, frozen.span)
        model = cls(stored_program(content, tensors, path), frozen, mapping)
        model.load_state_dict(fitting(without_certainty(tensors), model.state_dict(), f"artefact {str(path)!r}"))
        read_certainty(content, tensors, mapping, path)
        model.precision = content.get("precision", "fp32")  # artefacts did not always say
        return model


class _Part(BaseModel):
    """A part of an artefact; what else is said of it belongs to its kind."""

    model_config = ConfigDict(strict=True, extra="allow")


class _StoredProgram(_Part):
    name: str
    canvas: int = Field(ge=1, le=2**20)


class _Normalisation(_Part):
    mean: list[float] = Field(min_length=3, max_length=3)
    std: list[float] = Field(min_length=3, max_length=3)


class _StoredSource(_Part):
    name: str | None = None
    pretrained: bool = True
    weights: str | None = None
    seed: int = Field(0, ge=0, lt=2**63)
    classes: list[str] | None = None
    progress: None = None  # no setting: what loads the model is told it otherwise
    fingerprint: str
    normalisation: _Normalisation


class _Parts(_Part):
    """What an artefact with a model says of it."""

    program: _StoredProgram
    frozen: _StoredSource
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"


def stored_program(content: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> Program:
    """The program of an artefact, without its θ, unless it would take more memory than what is stored of it justifies."""
    check_schema(content, f"artefact {str(path)!r}", _Parts, AGAIN)
    description = content["program"]
    canvas = description["canvas"]
    stored = sum(tensor.numel() for tensor in tensors.values())
    if canvas > _ANY_CANVAS and 3 * canvas**2 > 4 * stored:
        raise ReprogramError(
            f"artefact {str(path)!r} has a canvas of {canvas}, but its tensors hold only {stored:,} numbers; make it again"
        )
    return make_program(**description)


def _first(labels: Any) -> str:
    return ", ".join(str(label).split(",")[0] for label in list(labels)[:3]) + (" ..." if len(labels) > 3 else "")


def _normalisation(frozen: Frozen) -> dict[str, list[float]]:
    return {"mean": frozen.mean.flatten().tolist(), "std": frozen.std.flatten().tolist()}
