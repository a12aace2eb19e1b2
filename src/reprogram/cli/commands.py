"""The commands: what each takes, and where it is carried out. Nothing here imports torch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import tyro
from pydantic import Field
from pydantic.fields import FieldInfo

from reprogram.errors import ReprogramError
from reprogram.mappings.asked import Asked, Calibration
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.registry import SettingsRegistry
from reprogram.run.config import OWNERS, FitConfig
from reprogram.settings import Settings
from reprogram.training.settings import RESOLVED

RunFolder = Annotated[
    str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN"), Field(description="Run folder or artefact folder.")
]
ShardFiles = Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
MappingFolder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MAPPING")]
_FILES = (
    "Shards of answers: .npz, .csv, .parquet or .jsonl, or files of SpeciesNet, MegaDetector, BirdNET, Rekognition, Cloud "
    "Vision or pipelines; folders of them, or quoted patterns."
)
_TABLE = "CSV table of the true labels, for answers without: columns image and label, perhaps split."
_DEVICE = "auto, cpu, cuda, mps ..."
_WEIGHTS = "The source model's weights file, if that has moved since the run."


def _same(name: str) -> Any:
    """A flag that `fit` has, too."""
    return FitConfig.model_fields[name]


def _asked(name: str) -> Any:
    """A flag about what is said beside the class."""
    return Asked.model_fields[name]


class FitCommand(FitConfig):
    """Train a program and estimate a mapping, so that a frozen model classifies your images; fills a run folder."""

    images: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = Field(
        None, description="The data, as for --data."
    )
    out: str | None = Field(
        None,
        description="Run folder; by default runs/<data>, with the program and the mapping if they were named, numbered if "
        "it exists.",
    )
    resume: bool = Field(
        False, description="Continue the run in --out; its settings need not be repeated. More --epochs train it longer."
    )
    config: str | None = Field(None, description="JSON file with settings, such as a run's config.json; flags go before it.")


class DemoCommand(Settings):
    """Teach an ImageNet network, unchanged, to read handwritten digits: six label mappings side by side."""

    epochs: int = Field(8, ge=1, description="Passes over the 1,132 training digits.")
    seed: int = Field(0, ge=0, description="Seed of all runs.")
    out: str | None = Field(None, description="Folder for the run folders; by default runs/demo, numbered if it exists.")


class EvaluateCommand(Settings):
    """Measure a run's model on labelled images: accuracy with its interval, calibration, and each class."""

    run: RunFolder
    data: str | None = Field(None, description="Data set; by default the one that the run was trained on.")
    split: Literal["train", "val", "test"] = Field("test", description="Which images.")
    data_root: str | None = Field(None, description="Folder that holds paper: and torchvision: data sets.")
    group: str | None = Field(
        None, description="Groups of the images of --data, as for `reprogram fit`: the interval then counts groups."
    )
    weights: str | None = Field(None, description=_WEIGHTS)
    cache: bool = Field(True, description="Keep decoded images in the user's cache folder (REPROGRAM_CACHE).")
    skip_bad: bool = Field(False, description="Leave out images that cannot be decoded; by default as the run did.")
    batch_size: int = Field(64, ge=1, le=2**31, description="Images per step.")
    device: str = Field("auto", description=_DEVICE)
    calibration: Calibration = _asked("calibration")
    coverage: float | None = _asked("coverage")
    per_class: bool = _asked("per_class")
    strict: bool = _asked("strict")


class PredictCommand(Settings):
    """Classify image files with a run's model, and say which source labels decided."""

    run: RunFolder
    images: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")] = Field(description="Image files.")
    evidence: int = Field(3, ge=0, description="Source labels to name for each image.")
    format: Literal["text", "json"] = Field("text", description="Text for a reader, or one JSON object per image.")
    weights: str | None = Field(None, description=_WEIGHTS)
    batch_size: int = Field(64, ge=1, le=2**31, description="Images per step.")
    device: str = Field("auto", description=_DEVICE)
    calibration: Calibration = _asked("calibration")
    coverage: float | None = _asked("coverage")
    per_class: bool = _asked("per_class")
    strict: bool = _asked("strict")
    unlike: float | None = _asked("unlike")


class MapCommand(Settings):
    """Estimate a label mapping from files of a model's answers, without images; `map predict` applies it to others."""

    files: ShardFiles = Field(description=_FILES)
    labels: str | None = Field(None, description=_TABLE)
    mapping: str | None = Field(None, description="Label mapping, by default auto (of very many rows gaussian or gaussian+)")
    out: str = Field("mapping", description="Folder for the mapping.")
    replace: bool = Field(False, description="Replace the mapping that stands in --out.")
    classes: str | None = Field(
        None, description="Target classes: a file with one per line (or a JSON list), or names with commas."
    )
    source_labels: str | None = Field(None, description="Source labels, written the same way; by default those found.")
    holdout: float | None = Field(
        None, ge=0, lt=1, description="Share of rows to measure on; by default the rows of split test if any, else 0.2."
    )
    test: str | None = Field(None, description="Shards to measure on instead: a file, a folder or a pattern.")
    group: str | None = Field(
        None,
        description="Pattern that reads groups off image names, such as '{group}_*.jpg'; by default the column group. Rows "
        "of a group are held out together.",
    )
    scores: Literal["fraction", "percent"] = Field("fraction", description="Range of top-K scores: 0 to 1, or 0 to 100.")
    seed: int = Field(0, ge=0, description="Of the rows that are held out, and of the random mapping.")
    engine: Literal["local", "ray"] = Field("local", description="Read the shards in processes here, or on a Ray cluster.")
    address: str | None = Field(
        None, description="Of the Ray cluster, such as auto or ray://host:10001; else one is started."
    )
    processes: int | None = Field(
        None, ge=1, description="Local processes, or cores of an own Ray; by default by the amount."
    )
    calibration: Calibration = Field(
        "temperature", description="Measure how sure the mapping may be, by leaving each row out, or none."
    )


class MapPredictCommand(Settings):
    """Classify files of answers with a mapping that `reprogram map` wrote."""

    mapping: MappingFolder = Field(description="Mapping folder, or a run folder.")
    files: ShardFiles = Field(description=_FILES)
    labels: str | None = Field(None, description=_TABLE)
    out: str | None = Field(None, description="A .csv, .jsonl or .parquet file; by default CSV on standard output.")
    calibration: Calibration = _asked("calibration")
    coverage: float | None = _asked("coverage")
    per_class: bool = _asked("per_class")
    strict: bool = _asked("strict")
    unlike: float | None = _asked("unlike")


class UpdateCommand(Settings):
    """Add samples, forget samples or remove classes, exactly: the result equals one that was made that way at once."""

    artefact: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|MAPPING")] = Field(
        description="Run folder, or mapping folder of `reprogram map`."
    )
    add: str | None = Field(
        None, description="Samples to add: labelled images for a run, shards for a mapping; new labels become new classes."
    )
    forget: str | None = Field(None, description="Samples to take out again, given the same way.")
    remove: str | None = Field(None, description="Classes to remove: names with commas.")
    samples: str | None = Field(
        None, description="All samples of the removed classes; gaussian and gaussian+ need them, whose covariance is shared."
    )
    labels: str | None = Field(None, description=f"For a mapping: {_TABLE}")
    out: str | None = Field(None, description="Where the changed artefact goes; by default it replaces the old one.")
    weights: str | None = Field(None, description=_WEIGHTS)
    device: str = Field("auto", description=_DEVICE)


class VerifyCommand(Settings):
    """Check a run, a mapping, shards or a cache against the SHA-256 that everything written carries."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")] = Field(
        description="Run folder or folder of runs, artefact, mapping, folder of shards, cache folder, or one file of those."
    )


class LogitsCommand(Settings):
    """Write a frozen model's answers to labelled images as shards for `reprogram map`; resumable."""

    model: str = _same("model")
    pretrained: bool = _same("pretrained")
    weights: str | None = _same("weights")
    run: str | None = Field(None, description="Run folder: take its model with its trained program, and its data.")
    data: str | None = Field(None, description="Labelled images as for `reprogram fit`; by default the run's, or digits.")
    data_root: str = _same("data_root")
    download: bool = _same("download")
    group: str | None = _same("group")
    split: Literal["train", "val", "test", "all"] = Field("all", description="Which images.")
    canvas: int | None = Field(None, ge=8, description="Side of the square that the model receives; by default its own.")
    out: str = Field(description="Folder for the shards.")
    format: Literal["npz", "parquet"] = Field("npz", description="Kind of the shards.")
    shard_size: int = Field(4096, ge=1, description="Rows per shard.")
    batch_size: int = Field(64, ge=1, le=2**31, description="Images per step.")
    seed: int = Field(0, ge=0, description="Of the test split where the data bring none, and of random weights.")
    cache: bool = _same("cache")
    skip_bad: bool = Field(False, description="Leave out images that cannot be decoded.")
    device: str = Field("auto", description=_DEVICE)


class ForecastCommand(Settings):
    """Forecast the accuracy with two and four times as many labels, and which class gains most."""

    files: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="DATA|FILE")] = Field(
        [],
        description="Labelled images as for `reprogram fit`, or shards of logits or answers as for `reprogram map`; by "
        "default the run's images.",
    )
    mapping: str | None = Field(None, description="Label mapping; by default gaussian, for top-K answers gaussian+")
    factors: str = Field("2,4", description="How many times the labels at hand, with commas.")
    level: float = Field(0.9, ge=0.5, lt=1, description="How often an interval is to hold the truth.")
    out: str | None = Field(None, description="A .json or .csv file for the forecast.")
    model: str = _same("model")
    pretrained: bool = _same("pretrained")
    weights: str | None = _same("weights")
    run: str | None = Field(None, description="Run folder: take its model with its trained program, and its data.")
    data_root: str = _same("data_root")
    download: bool = _same("download")
    canvas: int | None = Field(None, ge=8, description="Side of the square that the model receives; by default its own.")
    batch_size: int = Field(64, ge=1, le=2**31, description="Images per step.")
    cache: bool = _same("cache")
    skip_bad: bool = Field(False, description="Leave out images that cannot be decoded.")
    device: str = Field("auto", description=_DEVICE)
    classes: str | None = Field(
        None, description="Of shards, the target classes: a file with one per line (or a JSON list), or names with commas."
    )
    source_labels: str | None = Field(None, description="Of shards, written the same way; by default those found.")
    scores: Literal["fraction", "percent"] = Field("fraction", description="Range of top-K scores: 0 to 1, or 0 to 100.")
    seed: int = Field(0, ge=0, description="Of the parts that are drawn, and of random weights.")


class AuditCommand(Settings):
    """Find labels that look wrong, duplicates, and classes that cannot be told apart, in images or in files of answers."""

    data: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = Field(
        [], description="Labelled images as for `reprogram fit`, or shards of answers; by default the run's data."
    )
    mapping: str | None = Field(None, description="Label mapping that judges; by default gaussian, or one for answers")
    split: Literal["train", "val", "test", "all"] = Field(
        "all", description="Which labels; those of val and test are judged by the mapping of train."
    )
    out: str | None = Field(None, description="A .csv, .jsonl or .parquet file for all labels, the most suspicious first.")
    top: int = Field(20, ge=0, description="Suspicious labels, and pairs of images and classes, to show.")
    duplicates: bool = Field(True, description="Look for images that are the same or nearly so.")
    labels: str | None = Field(None, description=f"Of shards: {_TABLE}")
    shards: bool = Field(False, description="DATA are shards, also where they could be taken for a table of images.")
    classes: str | None = Field(None, description="Of shards, target classes, as for `reprogram map`.")
    source_labels: str | None = Field(None, description="Of shards, source labels, as for `reprogram map`.")
    scores: Literal["fraction", "percent"] = Field("fraction", description="Range of top-K scores: 0 to 1, or 0 to 100.")
    model: str = _same("model")
    pretrained: bool = _same("pretrained")
    weights: str | None = _same("weights")
    run: str | None = Field(None, description="Run folder: take its model with its trained program.")
    data_root: str = _same("data_root")
    download: bool = _same("download")
    canvas: int | None = Field(None, ge=8, description="Side of the square that the model receives; by default its own.")
    batch_size: int = Field(64, ge=1, le=2**31, description="Images per step.")
    seed: int = Field(0, ge=0, description="Of the test split where the data bring none, and of random weights.")
    cache: bool = _same("cache")
    skip_bad: bool = Field(False, description="Leave out images that cannot be decoded.")
    device: str = Field("auto", description=_DEVICE)


class ModelsCommand(Settings):
    """List the frozen models that can be loaded; `models show NAME` describes one."""

    pattern: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATTERN")] = Field(
        "*", description="A pattern such as 'timm:resne*', or a part of a name."
    )


class ShowModelCommand(Settings):
    """Describe a frozen model, without fetching its weights."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = Field(description="Such as timm:resnet18.")


class DatasetsCommand(Settings):
    """List what --data takes and which of the paper's data sets are there; `datasets check NAME` verifies one."""

    data_root: str = Field("data", description="Folder that holds the data sets.")


class CheckDataCommand(Settings):
    """Count one of the paper's data sets and decode every file of it."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = Field(
        description="Name of one of the paper's data sets."
    )
    data_root: str = Field("data", description="Folder that holds the data sets.")


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        schema: what it takes.
        run: "module:function" that carries it out, given the checked schema, or what was given where `open_ended`.
        further: the fields that it takes besides, such as those of mappings.
        check: what can be checked before torch is imported.
        open_ended: whether the function gets what was given, unchecked, because settings of others are among it.
    """

    schema: type[Settings]
    run: str
    further: Callable[[], dict[str, FieldInfo]] = dict
    check: str | None = None
    open_ended: bool = False


def fit_fields() -> dict[str, FieldInfo]:
    """The settings of all mappings, programs and sources, and flags whose help names what there is."""
    fields: dict[str, FieldInfo] = {}
    for part, registry in OWNERS.items():
        own = _fields_of(registry, part, lambda settings: list(settings.model_fields))
        _check_free(own, {*fields, *FitCommand.model_fields})
        fields |= own
    for name in ("mapping", "program"):
        fields[name] = _with_names(FitConfig.model_fields[name], OWNERS[name], [AUTO])
    return fields


def map_fields() -> dict[str, FieldInfo]:
    """The settings of all mappings that matter without training."""
    fields = _fields_of(MAPPINGS, "mapping", lambda settings: settings.without_training())
    _check_free(fields, set(MapCommand.model_fields))
    return fields | {"mapping": _with_names(MapCommand.model_fields["mapping"], MAPPINGS, [AUTO])}


def judging_fields(command: type[Settings]) -> dict[str, FieldInfo]:
    """The settings of all mappings that matter without training, and the options of all model sources."""
    fields = _fields_of(MAPPINGS, "mapping", lambda settings: settings.without_training())
    own = source_fields()
    _check_free(own, set(fields))
    fields |= own
    _check_free(fields, set(command.model_fields))
    return fields | {"mapping": _with_names(command.model_fields["mapping"], MAPPINGS, [AUTO])}


def source_fields() -> dict[str, FieldInfo]:
    """The options of all model sources."""
    return _fields_of(OWNERS["source"], "source", lambda settings: list(settings.model_fields))


def _check_free(fields: dict[str, FieldInfo], taken: set[str]) -> None:
    """A setting that another package brings must not have the name of a flag that is there."""
    if clash := sorted(taken & set(fields)):
        raise ReprogramError(f"a plugin has a setting {clash[0]!r}, which is the name of another flag; rename that setting")


def _fields_of(registry: SettingsRegistry[Any], part: str, names: Callable[[Any], list[str]]) -> dict[str, FieldInfo]:
    """Each setting once, with a remark on whose it is."""
    owned: dict[str, dict[str, FieldInfo]] = {}
    for owner, record in registry.items():
        for name in names(record.settings):
            owned.setdefault(name, {})[owner] = record.settings.model_fields[name]
    return {name: _together(part, fields) for name, fields in owned.items()}


def _together(part: str, fields: dict[str, FieldInfo]) -> FieldInfo:
    """The flag of a setting that several may have: whose it is, and the default, also where that differs."""
    first, *_ = fields.values()
    text = f"{(first.description or '').rstrip('.')} [{part} {', '.join(fields)}]."
    if all(field.default == first.default for field in fields.values()):
        return FieldInfo.merge_field_infos(first, description=text)
    by_default: dict[Any, list[str]] = {}
    for owner, field in fields.items():
        by_default.setdefault(field.default, []).append(owner)
    remark = "; ".join(f"{default} for {', '.join(owners)}" for default, owners in by_default.items())
    return FieldInfo.merge_field_infos(first, description=f"{text} (default: {remark})", json_schema_extra=RESOLVED)


def _with_names(field: FieldInfo, registry: SettingsRegistry[Any], more: list[str]) -> FieldInfo:
    text = f"{(field.description or '').rstrip('.')}: {', '.join([*registry, *more])}."
    return FieldInfo.merge_field_infos(field, description=text)


COMMANDS: dict[str, Command] = {
    "demo": Command(DemoCommand, "reprogram.cli.fit:demo"),
    "fit": Command(FitCommand, "reprogram.cli.fit:fit", fit_fields, "reprogram.cli.checks:check_fit", open_ended=True),
    "evaluate": Command(EvaluateCommand, "reprogram.cli.use:evaluate", check="reprogram.cli.checks:check_run"),
    "predict": Command(PredictCommand, "reprogram.cli.use:predict", check="reprogram.cli.checks:check_predict"),
    "update": Command(UpdateCommand, "reprogram.cli.update:update", check="reprogram.cli.checks:check_update"),
    "map": Command(MapCommand, "reprogram.cli.answers:fit", map_fields, "reprogram.cli.checks:check_map", open_ended=True),
    "map predict": Command(MapPredictCommand, "reprogram.cli.answers:predict", check="reprogram.cli.checks:check_mapping"),
    "logits": Command(
        LogitsCommand, "reprogram.cli.answers:logits", source_fields, "reprogram.cli.checks:check_logits", open_ended=True
    ),
    "audit": Command(
        AuditCommand,
        "reprogram.cli.audit:audit",
        partial(judging_fields, AuditCommand),
        "reprogram.cli.checks:check_audit",
        open_ended=True,
    ),
    "forecast": Command(
        ForecastCommand,
        "reprogram.cli.forecast:forecast",
        partial(judging_fields, ForecastCommand),
        "reprogram.cli.checks:check_forecast",
        open_ended=True,
    ),
    "verify": Command(VerifyCommand, "reprogram.cli.verify:verify"),
    "models": Command(ModelsCommand, "reprogram.cli.inspect:models"),
    "models show": Command(ShowModelCommand, "reprogram.cli.inspect:show_model"),
    "datasets": Command(DatasetsCommand, "reprogram.cli.inspect:datasets"),
    "datasets check": Command(CheckDataCommand, "reprogram.cli.inspect:check_data"),
}
