"""The numbers that a training depends on, checked and documented; the command line's flags are these fields."""

from typing import Annotated, Any, Literal

from pydantic import Field

from reprogram.images.settings import Augment
from reprogram.mappings.asked import Calibration
from reprogram.settings import Settings

Optimizer = Literal["adam", "sgd"]
Schedule = Literal["multistep", "cosine", "onecycle", "constant"]
LossTemperatureSetting = Literal["none", "auto"] | Annotated[float, Field(gt=0, le=1e37)]


#: For a field's `json_schema_extra`: its default depends on the model or the data, so no number is told in help texts.
RESOLVED: dict[str, Any] = {"resolved": True}


class TrainingSettings(Settings):
    """How a program is trained."""

    epochs: int = Field(20, ge=1, description="Passes over the training set (the paper: 200).")
    minutes: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Train for about so long: as many epochs as fit, at most --epochs (`reprogram fit`: 200 if not said), "
        "with a schedule of that length. The number is decided once, by timing a few steps on this machine, and is told: as "
        "--epochs it repeats the run. Loading counts, the report at the end does not.",
    )
    batch_size: int = Field(64, ge=1, le=2**31, description="Images per step (the paper: 256; 64 for DTD and OxfordPets).")
    lr: float = Field(
        0.05,
        gt=0,
        le=1e37,
        description="Learning rate of the program; `reprogram fit` takes 0.1 for padding and 0.002 for a watermark (the "
        "paper: 0.01 over 200 epochs, 40 with sgd on CLIP).",
        json_schema_extra=RESOLVED,
    )
    optimizer: Optimizer = Field("adam", description="Optimiser of the program; sgd has momentum 0.9.")
    schedule: Schedule = Field(
        "multistep",
        description="Learning rate: multistep (×0.1 at 50 % and 72 % of the epochs, the paper), cosine to 0 over all steps, "
        "onecycle (up over the first fifth of all steps, then cosine to 0), or constant. `reprogram fit` has onecycle where "
        "nothing is said; the trial of --program auto and --protocol paper have multistep.",
        json_schema_extra=RESOLVED,
    )
    loss_temperature: LossTemperatureSetting = Field(
        "none",
        description="Divide target logits by this in the loss, and only there: a number; auto, what makes their softmax "
        "honest, by the epoch before, and 1 for learned mappings; or none, 1 (the paper). `reprogram fit` takes auto.",
        json_schema_extra=RESOLVED,
    )
    average: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="Evaluate and keep the mean of the program over about so many last epochs; 0: the program as it is.",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="Stop when so many evaluations have not improved the validation accuracy, which makes little sense with "
        "a schedule that gains most at its end; by default, only the trial of --program auto ends so, after 2.",
    )
    augment: Augment = Field(
        "none",
        description="Training images: as they are, random crop, flip (crop and mirroring), trivial (one random operation of "
        "random strength: turned by up to 30 degrees, brighter, equalised ...), or trivial-flip (mirroring before it); "
        "`reprogram fit` chooses among the first three by program and data.",
        json_schema_extra=RESOLVED,
    )
    views: int = Field(
        1,
        ge=0,
        le=1000,
        description="Estimate the mapping from so many windows of each training image, which share its weight; mirrored, "
        "too, with --augment flip or trivial-flip. Needs a program that is not trained.",
    )
    mapping_lr: float = Field(0.1, gt=0, le=1e37, description="Learning rate of the learned mappings' own Adam.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="The run is a function of its settings and this number.")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "fp32",
        description="Precision of the frozen model's passes. auto: bf16 where the processor multiplies it itself and most "
        "of the model's work is of a kind that gains, else fp32. bf16 without the hardware can take 100 times as long; "
        "fp16 is for GPUs.",
    )
    evaluate_every: int = Field(1, ge=1, description="Validate and test after every so many epochs, and after the last one.")
    calibration: Calibration = Field(
        "temperature",
        description="Probabilities: by a temperature that is measured at the end, or none, the plain softmax (the paper).",
        json_schema_extra=RESOLVED,
    )
