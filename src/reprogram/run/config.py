"""The one schema of a run: what `reprogram fit` takes as flags, `--config` reads and `config.json` holds.

What belongs to a mapping, a program or a model source is declared by these; a configuration holds their settings beside its
own fields, all in one flat table. Only what was given counts as given: everything else is filled in by `resolve`.
"""

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from reprogram.errors import ReprogramError, unknown
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.programs.registry import PROGRAMS, TRIED
from reprogram.registry import SettingsRegistry
from reprogram.settings import spelling
from reprogram.sources.registry import SOURCES, find_source
from reprogram.training.settings import RESOLVED, TrainingSettings

#: Under this name a run's config.json keeps what was given; beside it stands everything that was decided.
GIVEN = "given"
#: Under these names the config.json of a reference method keeps which it is, and its settings.
REFERENCE, REFERENCE_SETTINGS = "reference", "reference_settings"
#: The paper's mapping.
PUBLISHED = "blm+"
#: Who owns the settings that a configuration holds beside its own fields.
OWNERS: dict[str, SettingsRegistry[Any]] = {"mapping": MAPPINGS, "program": PROGRAMS, "source": SOURCES}


class FitConfig(TrainingSettings):
    """A run: a frozen model, a data set, a program, a mapping, and how to train."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    model: str = Field("bundled:efficientnet_lite0", description="Frozen model, source:name; see `reprogram models`.")
    pretrained: bool = Field(
        True, description="Trained weights (timm, torchvision and the Hub download them), or random ones."
    )
    weights: str | None = Field(None, description="State dict file for the model, safetensors or a plain torch file.")
    data: str = Field("digits", description="A folder, table, array file or named set; see `reprogram datasets`.")
    data_root: str = Field("data", description="Folder that holds paper: and torchvision: data sets.")
    download: bool = Field(False, description="Let torchvision: data sets be downloaded into --data-root.")
    program: str = Field(
        AUTO,
        description="Program on the input; auto: the images unchanged, then a trained watermark if validation says that it "
        "pays (the paper: padding, and watermark for CLIP)",
    )
    mapping: str = Field(AUTO, description="Label mapping; auto: chosen by leave-one-out (the paper: blm+)")
    canvas: int = Field(
        224,
        ge=8,
        le=8192,
        description="Side of the square that the model receives; by default its own input size.",
        json_schema_extra=RESOLVED,
    )
    protocol: Literal["default", "paper"] = Field(
        "default",
        description="Defaults: sensible ones, or the paper's (200 epochs, its batch sizes and flips, lr 0.01, a pass for "
        "the mapping before each epoch; for openclip sgd with lr 40 and a cosine schedule).",
    )
    shots: int | None = Field(
        None, ge=0, description="Keep this many training images of each class; 0 counts none, and the prior decides."
    )
    views: int = Field(1, ge=1, le=1000, description=TrainingSettings.model_fields["views"].description)
    group: str | None = Field(
        None,
        description="What must not be divided, such as frames of one video: a table's column, or a pattern on file names "
        "such as '{group}_*.jpg' or '{group}/*'.",
    )
    fraction: float | None = Field(None, gt=0, le=1, description="Keep this stratified share of the training images.")
    val_fraction: float = Field(
        0.1, ge=0, lt=1, description="Share of the training images for validation, where the data brings none."
    )
    split_seed: int = Field(
        0, ge=0, description="Decides which images are for testing and validation, where the data brings no split."
    )
    cache: bool = Field(True, description="Keep decoded images in the user's cache folder (REPROGRAM_CACHE).")
    skip_bad: bool = Field(False, description="Leave out images that cannot be decoded, and list them in result.json.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps ...")

    @model_validator(mode="after")
    def _known_settings(self) -> Self:
        """Every further name must be a setting of this run's mapping, program or source; its value must be possible."""
        find_source(self.model)
        if self.mapping != AUTO and self.mapping not in MAPPINGS:
            raise unknown("mapping", self.mapping, (*MAPPINGS, AUTO))
        if self.program != AUTO and self.program not in PROGRAMS:
            raise unknown("program", self.program, (*PROGRAMS, AUTO))
        find_source(self.model)
        for name, value in self.extras.items():
            owner = next((part for part, registry in OWNERS.items() if name in registry.setting_names()), None)
            if owner is None:
                known = {*type(self).model_fields}.union(*(registry.setting_names() for registry in OWNERS.values()))
                raise unknown("setting", name, sorted(known))
            chosen = owner == "mapping" and self.named_mapping == AUTO
            if chosen and value is not None and name not in training_settings():
                raise ReprogramError(
                    f"{spelling()(name, value)} was given, but mapping auto chooses it; leave it out, or name a mapping"
                )
        checked = [self.options(part) for part in OWNERS]
        for options in checked:  # kept as their owners read them, so that a flag's text equals a file's number
            (self.__pydantic_extra__ or {}).update(options)
        return self

    @property
    def extras(self) -> dict[str, Any]:
        """What was given beside the run's own fields."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def given(self) -> dict[str, Any]:
        """What was said: fields and further settings, without those that were left to the defaults."""
        names = (*type(self).model_fields, *self.extras)  # always in one order, that of the schema
        said = {name: getattr(self, name) for name in names if name in self.model_fields_set}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def named_mapping(self) -> str:
        """The mapping, or auto; where none was said, the paper's protocol means the paper's."""
        return PUBLISHED if self.protocol == "paper" and "mapping" not in self.model_fields_set else self.mapping

    @property
    def named_program(self) -> str:
        """The program that is trained, if one is; where none was said, the paper's protocol means the one for the model."""
        suits = find_source(self.model)[0].kind.default_program
        if self.protocol == "paper" and "program" not in self.model_fields_set:
            return suits
        return tried_program(suits) if self.program == AUTO else self.program

    def options(self, part: str) -> dict[str, Any]:
        """The given settings of the mapping, the program or the source, checked by their owner."""
        registry = OWNERS[part]
        given = {
            name: value for name, value in self.extras.items() if name in registry.setting_names() and value is not None
        }
        checked = registry.read(self._owner(part), given) if given else None
        return {name: getattr(checked, name) for name in given}

    def _owner(self, part: str) -> str:
        if part == "source":
            return find_source(self.model)[0].prefix
        if part == "program":
            return self.named_program
        # whichever mapping is chosen, it is told how to be trained
        return next(iter(trained_mappings())) if self.named_mapping == AUTO else self.named_mapping

    def training(self) -> TrainingSettings:
        """The part that `fit` takes."""
        settings = {name: getattr(self, name) for name in TrainingSettings.model_fields}
        return TrainingSettings.read(settings | ({"views": 0} if self.shots == 0 else {}))


def tried_program(suits: str) -> str:
    """What `--program auto` tries to train for a model that this program suits: nothing where nothing can be trained."""
    return "none" if suits == "none" else TRIED


def trained_mappings() -> list[str]:
    """The mappings that `auto` can choose and that know all settings of training."""
    names = training_settings()
    return [
        name for name, family in MAPPINGS.items() if family.scorer is not None and names <= set(family.settings.model_fields)
    ]


def training_settings() -> set[str]:
    """The settings of mappings that say how they are trained, not what they are: `auto` leaves them to the user."""
    return {
        name
        for family in MAPPINGS.values()
        if family.scorer is not None
        for name in set(family.settings.model_fields) - set(family.settings.without_training())
    }
