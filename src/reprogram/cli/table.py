"""The table of commands: the settings of each verb, the flags that mappings, programs and model sources add, its code."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic.fields import FieldInfo

from reprogram.cli.commands import (
    AuditCommand,
    CheckDataCommand,
    DatasetsCommand,
    DemoCommand,
    EvaluateCommand,
    ExportCommand,
    FigureCommand,
    FitCommand,
    ForecastCommand,
    LogitsCommand,
    MapCommand,
    MapPredictCommand,
    ModelsCommand,
    PredictCommand,
    ReferenceCommand,
    ReportCommand,
    ServeCommand,
    ShowModelCommand,
    UpdateCommand,
    VerifyCommand,
)
from reprogram.cli.compare_command import CompareCommand, axes_of
from reprogram.cli.reproduce_command import ReproduceCommand
from reprogram.errors import ReprogramError
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.references.defaults import FOREIGN
from reprogram.references.registry import REFERENCES
from reprogram.registry import SettingsRegistry
from reprogram.run.config import OWNERS, FitConfig
from reprogram.settings import Settings
from reprogram.training.settings import RESOLVED


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        schema: what it takes.
        run: "module:function" that carries it out, given the checked schema, or what was given where `open_ended`.
        further: the fields that it takes besides, such as those of mappings.
        check: what can be checked before torch is imported.
        open_ended: whether the function gets what was given, unchecked, because settings of others are among it.
        shared: whether processes that `torchrun` starts carry it out together.
    """

    schema: type[Settings]
    run: str
    further: Callable[[], dict[str, FieldInfo]] = dict
    check: str | None = None
    open_ended: bool = False
    shared: bool = False


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


def compare_fields() -> dict[str, FieldInfo]:
    """The flags of `fit`, each with one or more values."""
    return axes_of(fit_fields())


def reference_fields() -> dict[str, FieldInfo]:
    """What `fit` takes but programs and mappings, and the settings of the reference methods."""
    fields = {name: field for name, field in FitConfig.model_fields.items() if name not in FOREIGN}
    for name, text in _OF_REFERENCES.items():
        fields[name] = FieldInfo.merge_field_infos(fields[name], description=text, json_schema_extra=RESOLVED)
    for own in (source_fields(), _fields_of(REFERENCES, "reference", lambda settings: list(settings.model_fields))):
        _check_free(own, {*fields, *ReferenceCommand.model_fields})
        fields |= own
    return fields


_OF_REFERENCES = {
    "lr": "Learning rate: 0.001 for finetune-linear, 0.0001 for finetune-full.",
    "mapping_lr": "Learning rate of the new layer of finetune-full, by its own Adam (0.001).",
    "optimizer": "Optimiser of what --lr is the rate of (adam); sgd has momentum 0.9.",
    "augment": "Training images: as they are (none, for probe and finetune-linear), random crop, or flip (crop and "
    "mirroring); finetune-full takes crop, or flip where the data are known to allow it.",
}


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
    "fit": Command(
        FitCommand, "reprogram.cli.fit:fit", fit_fields, "reprogram.cli.checks:check_fit", open_ended=True, shared=True
    ),
    "reference": Command(
        ReferenceCommand,
        "reprogram.cli.reference:reference",
        reference_fields,
        "reprogram.cli.checks:check_reference",
        open_ended=True,
    ),
    "compare": Command(
        CompareCommand,
        "reprogram.cli.compare:compare",
        compare_fields,
        "reprogram.cli.compare_command:check_compare",
        open_ended=True,
    ),
    "reproduce": Command(
        ReproduceCommand, "reprogram.cli.reproduce:reproduce", check="reprogram.cli.reproduce_command:check_reproduce"
    ),
    "evaluate": Command(EvaluateCommand, "reprogram.cli.use:evaluate", check="reprogram.cli.run_checks:check_run"),
    "predict": Command(PredictCommand, "reprogram.cli.predict:predict", check="reprogram.cli.run_checks:check_predict"),
    "serve": Command(ServeCommand, "reprogram.cli.serve:serve", check="reprogram.cli.run_checks:check_serve"),
    "update": Command(UpdateCommand, "reprogram.cli.update:update", check="reprogram.cli.checks:check_update"),
    "export": Command(ExportCommand, "reprogram.cli.export:export", check="reprogram.cli.run_checks:check_export"),
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
    "figure": Command(FigureCommand, "reprogram.cli.figure:figure", check="reprogram.cli.run_checks:check_figure"),
    "report": Command(ReportCommand, "reprogram.cli.report:report", check="reprogram.cli.run_checks:check_report"),
    "verify": Command(VerifyCommand, "reprogram.cli.verify:verify"),
    "models": Command(ModelsCommand, "reprogram.cli.inspect:models"),
    "models show": Command(ShowModelCommand, "reprogram.cli.inspect:show_model"),
    "datasets": Command(DatasetsCommand, "reprogram.cli.inspect:datasets"),
    "datasets check": Command(CheckDataCommand, "reprogram.cli.inspect:check_data"),
}
