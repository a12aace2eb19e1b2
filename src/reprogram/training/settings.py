"""The numbers that a training depends on, checked and documented; the command line's flags are these fields."""

from typing import Any, Literal

from pydantic import Field

from reprogram.images.settings import Augment
from reprogram.mappings.asked import Calibration
from reprogram.settings import Settings

Optimizer = Literal["adam", "sgd"]
Schedule = Literal["multistep", "cosine", "constant"]


#: For a field's `json_schema_extra`: its default depends on the model or the data, so no number is told in help texts.
RESOLVED: dict[str, Any] = {"resolved": True}


class TrainingSettings(Settings):
    """How a program is trained."""

    epochs: int = Field(20, ge=1, description="Passes over the training set (the paper: 200).")
    batch_size: int = Field(64, ge=1, le=2**31, description="Images per step (the paper: 256; 64 for DTD and OxfordPets).")
    lr: float = Field(
        0.05,
        gt=0,
        le=1e37,
        description="Learning rate of the program (0.002 for the one that --program auto tries; the paper: 0.01 over 200 "
        "epochs, 40 with sgd on CLIP).",
    )
    optimizer: Optimizer = Field("adam", description="Optimiser of the program; sgd has momentum 0.9.")
    schedule: Schedule = Field(
        "multistep", description="Learning rate: ×0.1 at 50 % and 72 % of the epochs, cosine over all steps, or constant."
    )
    augment: Augment = Field(
        "none",
        description="Training images: as they are, random crop, or flip (crop and mirroring); `reprogram fit` chooses by "
        "program and data.",
        json_schema_extra=RESOLVED,
    )
    views: int = Field(
        1,
        ge=0,
        le=1000,
        description="Estimate the mapping from so many windows of each training image, which share its weight; mirrored, "
        "too, with --augment flip. Needs a program that is not trained.",
    )
    mapping_lr: float = Field(0.1, gt=0, le=1e37, description="Learning rate of the learned mappings' own Adam.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="The run is a function of its settings and this number.")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "fp32", description="Precision of the frozen model's passes; auto: bf16 where the hardware has it, else fp32."
    )
    evaluate_every: int = Field(1, ge=1, description="Validate and test after every so many epochs, and after the last one.")
    calibration: Calibration = Field(
        "temperature",
        description="Probabilities: by a temperature that is measured at the end, or none, the plain softmax (the paper).",
        json_schema_extra=RESOLVED,
    )
