"""The one place where a default is decided that depends on the model, the data or the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.programs.registry import PROGRAMS
from reprogram.programs.settings import Surroundings
from reprogram.run.config import PUBLISHED, FitConfig, tried_program
from reprogram.sources.registry import SOURCES, find_source

#: Epochs of the paper, and the most that a training by the clock has where nothing is said.
LONGEST = 200


@dataclass(frozen=True)
class Facts:
    """What defaults depend on besides the configuration.

    Attributes:
        input_size: the side that the model was trained for.
        default_program: the program that suits the model.
        frame: width of the free outer frame of a watermark on a canvas of 224, where the model asks for one.
        paper_training: what the paper trains this kind of model with, where that differs.
        native_size: shorter side of a typical image of the data.
        published_size: side of the image on a canvas of 224 that the paper prescribes for the data, if any.
        published_batch: images per step that the paper prescribes for the data, if any.
        flip_safe: whether a mirrored image keeps its class; None where nobody has said so.
    """

    input_size: int
    default_program: str = "padding"
    frame: int | None = None
    paper_training: dict[str, Any] = field(default_factory=dict)
    native_size: int = 224
    published_size: int | None = None
    published_batch: int | None = None
    flip_safe: bool | None = None


def resolve(config: FitConfig, facts: Facts) -> FitConfig:
    """Fill in everything that was left open; what was given stays, and a resolved configuration stays as it is.

    >>> resolved = resolve(FitConfig(protocol="paper", mapping="blm"), Facts(input_size=224, native_size=500))
    >>> resolved.epochs, resolved.lr, resolved.batch_size, resolved.extras["refresh"], resolved.extras["image_size"]
    (200, 0.01, 256, 'fresh', 128)
    >>> resolve(resolved, Facts(input_size=32)) == resolved
    True
    """
    as_published = config.protocol == "paper"
    values: dict[str, Any] = {"canvas": facts.input_size}
    if as_published:
        values |= {"program": facts.default_program, "mapping": PUBLISHED}
        values |= {"epochs": LONGEST, "lr": 0.01, "val_fraction": 0.0, "batch_size": facts.published_batch or 256}
        values |= {"schedule": "multistep", "loss_temperature": "none", "calibration": "none"}
        values |= facts.paper_training
    if config.minutes is not None:
        values["epochs"] = LONGEST
    values |= config.given
    canvas, program_name = values["canvas"], values.setdefault("program", AUTO)
    if program_name == AUTO:
        alone = config.views > 1 or config.shots == 0  # what is counted otherwise is for images unchanged
        program_name = "none" if alone else tried_program(facts.default_program)
        values["program"] = AUTO if program_name != "none" else "none"  # where nothing can be trained, nothing is tried
        # the trial begins with the very images of the first answer, and may end before a long cycle has come to anything
        values = {"augment": "none", "schedule": "multistep"} | values
    around = Surroundings(
        canvas=canvas,
        native_size=facts.native_size,
        published_size=facts.published_size if as_published else None,
        flip_safe=facts.flip_safe,
        frame=None if facts.frame is None else max(1, canvas * facts.frame // 224),
        as_published=as_published,
    )
    program = PROGRAMS.read(program_name, config.options("program"))
    mirrored = config.views > 1 and bool(facts.flip_safe)
    values.setdefault("augment", "flip" if mirrored else program.augment(around))
    if program_name != "none":
        values = {"lr": program.rate, "schedule": "onecycle", "loss_temperature": "auto"} | values
    values |= program.resolved(around).model_dump()
    values |= SOURCES.read(find_source(config.model)[0].prefix, config.options("source")).model_dump()
    resolved = FitConfig.read({**config.model_dump(include=set(FitConfig.model_fields)), **config.extras, **values})
    return resolved if resolved.mapping == AUTO else with_mapping(resolved, resolved.mapping, config.options("mapping"))


def without_program(config: FitConfig) -> FitConfig:
    """The same resolved configuration for the images unchanged: nothing is put on them, nothing is trained."""
    others = {name: value for name, value in config.model_dump().items() if name not in PROGRAMS.setting_names()}
    return FitConfig.read({**others, "program": "none", "augment": "none"})


def with_mapping(config: FitConfig, name: str, given: Mapping[str, Any]) -> FitConfig:
    """The same with this mapping and all its settings: those given, those that were said for any mapping, and defaults."""
    known = MAPPINGS[name].settings.model_fields
    said = {setting: value for setting, value in config.options("mapping").items() if setting in known} | dict(given)
    checked = MAPPINGS.read(name, said)
    settings: dict[str, Any] = {setting: getattr(checked, setting) for setting in known}
    if config.protocol == "paper" and settings.get("refresh") == "reuse" and "refresh" not in said:
        settings["refresh"] = "fresh"  # the paper's algorithms estimate ω by a pass of its own before each epoch
    others = {setting: value for setting, value in config.model_dump().items() if setting not in MAPPINGS.setting_names()}
    return FitConfig.read({**others, "mapping": name, **settings})
