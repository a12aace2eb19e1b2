"""The numbers that a training depends on, checked and documented; the command line's flags are these fields."""

from collections.abc import Iterable
from typing import Literal, Self

import pydantic
from pydantic import ConfigDict, Field

from reprogram.augmentation import Augment
from reprogram.errors import ReprogramError, unknown

Optimizer = Literal["adam", "sgd"]
Schedule = Literal["multistep", "cosine", "constant"]


def expectation(message: str) -> str:
    """What pydantic's message says the value should be, in our words.

    >>> expectation("Input should be a valid integer, unable to parse string as an integer")
    'an integer'
    """
    wanted = message.removeprefix("Input should be ").split(", unable")[0]
    kind = wanted.removeprefix("a valid ")
    return wanted if kind == wanted else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def first_problem(error: pydantic.ValidationError, known: Iterable[str]) -> ReprogramError:
    """Turn pydantic's report into our one sentence about its first finding."""
    finding = error.errors()[0]
    field = ".".join(str(part) for part in finding["loc"][:1])
    if finding["type"] == "extra_forbidden":
        return unknown("setting", field, known)
    given = f"{field} = {finding['input']!r}" if field else repr(finding["input"])
    return ReprogramError(f"{given} was given, but it should be {expectation(finding['msg'])}; change that value")


class Settings(pydantic.BaseModel):
    """Base of all settings: immutable, no unknown names, and mistakes in one sentence."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def read(cls, values: object) -> Self:
        """Validate a dictionary, with a `ReprogramError` for the first mistake in it."""
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            raise first_problem(error, cls.model_fields) from None


class TrainingSettings(Settings):
    """How a program is trained."""

    epochs: int = Field(20, ge=1, description="Passes over the training set (the paper: 200).")
    batch_size: int = Field(64, ge=1, description="Images per step (the paper: 256; 64 for DTD and OxfordPets).")
    lr: float = Field(
        0.05, gt=0, description="Learning rate of the program (the paper: 0.01 over 200 epochs; 40 with sgd on CLIP)."
    )
    optimizer: Optimizer = Field("adam", description="Optimiser of the program; sgd has momentum 0.9.")
    schedule: Schedule = Field(
        "multistep", description="Learning rate: ×0.1 at 50 % and 72 % of the epochs, cosine over all steps, or constant."
    )
    augment: Augment | None = Field(
        None, description="Training images: none, random crop, or flip (crop and mirroring); None: by program and data."
    )
    mapping_lr: float = Field(0.1, gt=0, description="Learning rate of the learned mappings' own Adam.")
    seed: int = Field(0, ge=0, description="The run is a function of its settings and this number.")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "fp32", description="Precision of the frozen model's passes; auto: bf16 where the hardware has it, else fp32."
    )
    evaluate_every: int = Field(1, ge=1, description="Validate and test after every so many epochs, and after the last one.")
