"""What can be wrong with a command, found before torch is imported: names, paths and values."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprogram.answers.kinds import holds_answers
from reprogram.cli.arguments import read, spell
from reprogram.cli.commands import (
    AuditCommand,
    ForecastCommand,
    LogitsCommand,
    MapCommand,
    MapPredictCommand,
    UpdateCommand,
)
from reprogram.data.group_patterns import GroupPattern
from reprogram.data.registry import check_data_spec
from reprogram.errors import ReprogramError, nearest, shown, unknown
from reprogram.files import read_json, read_sealed, settle_folder
from reprogram.files.foreign import expanded, is_file, is_folder
from reprogram.files.tables import form_of
from reprogram.mappings.places import artefact_folder, holds_reference
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.mappings.settings import PRIORS
from reprogram.references.defaults import shared_config
from reprogram.references.registry import REFERENCES
from reprogram.run.config import GIVEN, OWNERS, REFERENCE, REFERENCE_SETTINGS, FitConfig
from reprogram.run.paths import located
from reprogram.settings import spelled_by
from reprogram.sources.registry import SOURCES, check_model_name, find_source

_COMPARED = 1000  # names in a folder among which a similar one is looked for


@dataclass(frozen=True)
class FitPlan:
    """What `reprogram fit` shall do.

    Attributes:
        config: the settings that were given, with absolute paths; for a run that is continued, all of them.
        out: the run folder, or None for one by the name of the data.
        resume: whether the run in it is continued.
    """

    config: FitConfig
    out: Path | None
    resume: bool


def check_fit(given: dict[str, Any]) -> FitPlan:
    """Read the flags of `fit` over a configuration file or the run that is continued."""
    values = dict(given)
    out, file, resume = values.pop("out", None), values.pop("config", None), bool(values.pop("resume", False))
    before, method, _ = _before(values, out, file, resume)
    if resume and method is not None:
        raise ReprogramError(
            f"{shown(out)} holds the reference {method}; continue it with reprogram reference {method} --resume, or choose "
            "another --out"
        )
    config = _checked_config(values, before, resume)
    return FitPlan(config, None if out is None else expanded(out, "--out"), resume)


@dataclass(frozen=True)
class ReferencePlan:
    """What `reprogram reference` shall do.

    Attributes:
        name: the method.
        settings: its own, those that were given.
        fit: the rest, as for `reprogram fit`.
    """

    name: str
    settings: dict[str, Any]
    fit: FitPlan


def check_reference(given: dict[str, Any]) -> ReferencePlan:
    """The same for a reference method: its settings stand apart from those that every run has."""
    values = dict(given)
    name = str(values.pop("method"))
    known = REFERENCES[name].settings.model_fields
    out, file, resume = values.pop("out", None), values.pop("config", None), bool(values.pop("resume", False))
    own = {setting: values.pop(setting) for setting in list(values) if setting in REFERENCES.setting_names()}
    before, method, told = _before(values, out, file, resume)
    if resume and before and method != name:
        there = "a run of reprogram fit" if method is None else f"the reference {method}"
        raise ReprogramError(f"{shown(out)} holds {there}, but {name} was named; choose another --out")
    if not resume:
        own = {setting: value for setting, value in told.items() if setting in known} | own
    checked = REFERENCES.read(name, own, spell)
    config = _checked_config(values, before, resume)
    with spelled_by(spell):
        shared_config(name, config)
    plan = FitPlan(config, None if out is None else expanded(out, "--out"), resume)
    return ReferencePlan(name, {setting: getattr(checked, setting) for setting in own}, plan)


def _before(
    values: dict[str, Any], out: str | None, file: str | None, resume: bool
) -> tuple[dict[str, Any], str | None, dict[str, Any]]:
    """What the configuration file says, or that of the run that is continued; of a reference, which and its settings.

    `values` learn of the data that were given as a word.
    """
    if (word := values.pop("images", None)) is not None:
        if "data" in values:
            raise ReprogramError(f"{shown(word)} and --data {values['data']} were both given; give one of them")
        values["data"] = word
    before: Any = {}
    if resume:
        if out is None or file is not None:
            raise ReprogramError("--resume continues the run in --out with its own settings; give --out and no --config")
        stored = expanded(out, "--out") / "config.json"
        if is_file(stored):
            before = read_sealed(stored, "run configuration", remedy="make the run again")
        elif "data" not in values:
            raise ReprogramError(
                f"{shown(out)} holds no run to resume; check the path, or say with --data what to train on if it shall be "
                "begun"
            )
    elif file is not None:
        path = expanded(file, "--config")
        if not is_file(path):
            raise ReprogramError(f"configuration {shown(file)} {no_file(path)}")
        before = read_json(path, "configuration")
    if not isinstance(before, dict) or not isinstance(before.get(GIVEN, {}), dict):
        raise ReprogramError(f"configuration {file or out!r} holds no table of settings; write a JSON object")
    method, own, given = before.get(REFERENCE), before.get(REFERENCE_SETTINGS), before.get(GIVEN)
    plain = {name: value for name, value in before.items() if name not in (REFERENCE, REFERENCE_SETTINGS)}
    if given is not None:
        own = given.get(REFERENCE_SETTINGS, own)  # what was decided may be decided otherwise
        plain[GIVEN] = {name: value for name, value in given.items() if name != REFERENCE_SETTINGS}
    return plain, None if method is None else str(method), own if isinstance(own, dict) else {}


def _checked_config(values: dict[str, Any], before: dict[str, Any], resume: bool) -> FitConfig:
    """The settings that were given over those of before, checked and with absolute paths."""
    decided = {name: value for name, value in before.items() if name != GIVEN}
    # a run's own file also has what was decided for it; another protocol or model decides anew
    begun = resume and bool(before)
    before = decided if begun else before.get(GIVEN, before)
    before = _still_meant(before, values)
    config = FitConfig.read({**before, **values}, spell=spell)
    check_data_spec(config.data, expanded(config.data_root, "--data-root"), config.group)
    check_model_name(config.model, config.weights)
    _check_prior(values.get("prior"))
    config = located(config)
    if begun:  # its paths were located when it was begun, perhaps in another folder
        kept = {name: before[name] for name in before if name not in values and name != "download"}
        said = {**config.given, **kept}
        for name in {"epochs", "minutes"} - set(values):  # how long a run shall be is not said anew by going on with it
            said.pop(name, None)
        config = FitConfig.read(said)
    return config


def _still_meant(before: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file without those that it has for a mapping, program or source which a flag replaces."""
    kept = dict(before)
    for part, field in (("mapping", "mapping"), ("program", "program"), ("source", "model")):
        old, new = before.get(field, FitConfig.model_fields[field].default), values.get(field)
        if part == "source" and new is not None:
            old, new = str(old).partition(":")[0], str(new).partition(":")[0]
        if new not in (None, old):
            kept = {name: value for name, value in kept.items() if name not in OWNERS[part].setting_names()}
    return kept


def check_update(command: UpdateCommand) -> UpdateCommand:
    """There is something to change, and something to change it by."""
    check_folder(command.artefact)
    if command.add is None and command.forget is None and command.remove is None:
        raise ReprogramError("nothing was said that could change it; give --add, --forget or --remove")
    if command.samples is not None and command.remove is None:
        raise ReprogramError(f"--samples {command.samples} goes with --remove; name the classes to remove")
    check_labels(command.labels)
    check_artefact(command.artefact)
    return command


def check_map(given: dict[str, Any]) -> tuple[MapCommand, dict[str, Any]]:
    """The command, and the settings of its mapping."""
    own = {name: value for name, value in given.items() if name in MapCommand.model_fields}
    command, settings = read(MapCommand, own), {name: value for name, value in given.items() if name not in own}
    if not command.files:
        raise ReprogramError("no shard was given; write reprogram map 'shards/*.npz', or reprogram map predict MAPPING FILE")
    check_labels(command.labels)
    out = expanded(command.out, "--out")
    try:
        settle_folder(Path(os.path.abspath(out)))  # noqa: PTH100  # without . and .., which are no names
    except OSError as error:
        raise ReprogramError(f"--out {shown(command.out)} can be no folder ({error.strerror}); choose another one") from None
    if exists(out) and not command.replace:
        raise ReprogramError(f"{command.out!r} exists already; choose another --out, or add --replace")
    if command.group is not None:
        GroupPattern.read(command.group)
    if command.mapping in (None, AUTO):
        for name, value in settings.items():
            raise ReprogramError(
                f"{spell(name, value)} was given, but mapping auto chooses it; leave it out, or name a mapping"
            )
        return command, {}
    mapping = str(command.mapping)
    if mapping not in MAPPINGS:
        raise unknown("mapping", mapping, (*MAPPINGS, AUTO))
    checked = MAPPINGS.read(mapping, settings, spell)
    _check_prior(settings.get("prior"))
    return command, {name: getattr(checked, name) for name in settings}


def check_mapping(command: MapPredictCommand) -> MapPredictCommand:
    """The mapping is there."""
    check_folder(command.mapping)
    check_labels(command.labels)
    if command.out is not None:
        form_of(expanded(command.out, "--out"))
        check_place(command.out)
    check_artefact(command.mapping)
    return command


def check_logits(given: dict[str, Any]) -> tuple[LogitsCommand, dict[str, Any]]:
    """The command, and the options of its model source."""
    own = {name: value for name, value in given.items() if name in LogitsCommand.model_fields}
    command, options = read(LogitsCommand, own), {name: value for name, value in given.items() if name not in own}
    if command.run is not None:
        check_folder(command.run)
        check_artefact(command.run)
    else:
        check_model_name(command.model, command.weights)
    if command.data is not None:
        check_data_spec(command.data, expanded(command.data_root, "--data-root"), command.group)
    elif command.group is not None:
        raise ReprogramError(f"--group {shown(command.group)} goes with --data; name the images, too")
    checked = SOURCES.read(find_source(command.model)[0].prefix, options, spell)
    return command, {name: getattr(checked, name) for name in options}


@dataclass(frozen=True)
class ForecastPlan:
    """What `reprogram forecast` shall do.

    Attributes:
        command: the command.
        settings: of its mapping.
        options: of its model source.
        answers: whether shards were given, not images.
        factors: how many times the labels at hand.
    """

    command: ForecastCommand
    settings: dict[str, Any]
    options: dict[str, Any]
    answers: bool
    factors: tuple[float, ...]


def check_forecast(given: dict[str, Any]) -> ForecastPlan:
    """The command, what its samples are, and the settings of its mapping and of its model source."""
    own = {name: value for name, value in given.items() if name in ForecastCommand.model_fields}
    command, extras = read(ForecastCommand, own), {name: value for name, value in given.items() if name not in own}
    if not command.files and command.run is None:
        raise ReprogramError("neither images nor shards were given; write reprogram forecast DATA, or FILE [FILE ...]")
    if command.out is not None and expanded(command.out, "--out").suffix.lower() not in (".json", ".csv"):
        raise ReprogramError(f"--out {shown(command.out)} is neither .json nor .csv; name it so")
    if command.out is not None:
        check_place(command.out)
    answers = holds_answers(command.files)
    wrong = _ANSWERS_ONLY if not answers else _IMAGES_ONLY
    for name in [name for name in wrong if name in command.model_fields_set]:
        kind = "images" if not answers else "shards"
        raise ReprogramError(f"{spell(name, getattr(command, name))} was given, but the samples are {kind}; leave it out")
    settings = _own_settings(command.mapping, extras)
    options = {name: value for name, value in extras.items() if name not in settings}
    if answers and options:
        raise ReprogramError(f"{spell(*next(iter(options.items())))} was given, but the samples are shards; leave it out")
    if command.run is not None:
        check_folder(command.run)
        check_artefact(command.run)
    elif not answers:
        check_model_name(command.model, command.weights)
    if not answers and command.files:
        check_data_spec(command.files[0], expanded(command.data_root, "--data-root"))
    checked = SOURCES.read(find_source(command.model)[0].prefix, options, spell)
    options = {name: getattr(checked, name) for name in options}
    return ForecastPlan(command, settings, options, answers, _factors(command.factors))


_ANSWERS_ONLY = ("classes", "source_labels", "scores")
_IMAGES_ONLY = (
    *("model", "pretrained", "weights", "run", "data_root", "download", "canvas", "batch_size", "cache", "skip_bad"),
    "device",
)


def _own_settings(mapping: str | None, extras: dict[str, Any]) -> dict[str, Any]:
    """Those of what was given that are settings of mappings, checked for the one that was named."""
    settings = {name: value for name, value in extras.items() if name in MAPPINGS.setting_names()}
    if mapping in (None, AUTO):
        for name, value in settings.items():
            why = "no mapping was named" if mapping is None else "mapping auto chooses it"
            raise ReprogramError(f"{spell(name, value)} was given, but {why}; leave it out, or name a mapping")
        return {}
    if mapping not in MAPPINGS:
        raise unknown("mapping", str(mapping), (*MAPPINGS, AUTO))
    checked = MAPPINGS.read(str(mapping), settings, spell)
    return {name: getattr(checked, name) for name in settings}


def _factors(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(1 < factor <= 64 for factor in found):
        raise ReprogramError(f"--factors {shown(text)} was given, but numbers above 1 and up to 64 with commas are expected")
    return tuple(sorted(set(found)))


def _check_prior(prior: str | None) -> None:
    """Raise where a prior that was asked for is no word that means one, and no file."""
    if prior == "matrix":
        raise ReprogramError("--prior matrix was given, but it is to be told which; give a .npz or .csv file")
    if prior is not None and prior not in PRIORS and not is_file(path := expanded(prior, "--prior")):
        raise ReprogramError(f"--prior {shown(prior)} {no_file(path)}")


def check_audit(given: dict[str, Any]) -> tuple[AuditCommand, dict[str, Any], dict[str, Any]]:
    """The command, the settings of its mapping, and the options of its model source."""
    own = {name: value for name, value in given.items() if name in AuditCommand.model_fields}
    command, rest = read(AuditCommand, own), {name: value for name, value in given.items() if name not in own}
    if command.out is not None and Path(command.out).suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        raise ReprogramError(f"--out {shown(command.out)} is none of .csv, .jsonl, .parquet; name it so")
    if command.out is not None:
        check_place(command.out)
    if not command.data and command.run is None:
        raise ReprogramError("no data were given to audit; write reprogram audit DATA, or --run RUN for the data of a run")
    if command.run is not None:
        check_folder(command.run)
        check_artefact(command.run)
    else:
        check_model_name(command.model, command.weights)
    if len(command.data) == 1 and not command.shards:
        word = command.data[0]
        if not is_file(expanded(word, "data")) and not any(sign in word for sign in "*?["):  # which may be shards
            check_data_spec(word, expanded(command.data_root, "--data-root"))
    sources = {name: rest.pop(name) for name in list(rest) if name in SOURCES.setting_names()}
    options = SOURCES.read(find_source(command.model)[0].prefix, sources, spell)
    mapping = command.mapping
    if mapping is not None and mapping != AUTO and mapping not in MAPPINGS:
        raise unknown("mapping", mapping, (*MAPPINGS, AUTO))
    if mapping in (None, AUTO):
        for name, value in rest.items():
            why = "is chosen by mapping auto" if mapping == AUTO else "belongs to a mapping"
            raise ReprogramError(f"{spell(name, value)} was given, but it {why}; name a mapping with --mapping")
        return command, {}, {name: getattr(options, name) for name in sources}
    settings = MAPPINGS.read(mapping, rest, spell)
    return command, {name: getattr(settings, name) for name in rest}, {name: getattr(options, name) for name in sources}


def check_folder(path: str) -> None:
    """Raise unless this is a folder that may hold an artefact."""
    if not is_folder(expanded(path)):
        raise ReprogramError(
            f"{shown(path)} is not a folder; give a run folder or an artefact folder{_beside(expanded(path), folders=True)}"
        )


def check_artefact(path: str) -> None:
    """Raise unless this is an artefact, or a run that holds one. What is written in it is read later."""
    artefact_folder(expanded(path))


def check_record(path: str) -> None:
    """Raise unless there is something to look at: an artefact, a run that holds one, or a reference."""
    if not holds_reference(expanded(path)):
        check_artefact(path)


def check_place(out: str) -> None:
    """Raise if something stands at the place of a file that is none, such as a folder or a device."""
    path = expanded(out, "--out")
    if exists(path) and not is_file(path):
        raise ReprogramError(f"--out {shown(out)} is there and no plain file, so it is left alone; choose another one")


def check_labels(labels: str | None) -> None:
    """The table of labels is there, if one was named."""
    if labels is not None and not is_file(path := expanded(labels, "--labels")):
        raise ReprogramError(f"--labels {shown(labels)} {no_file(path)}")


def exists(path: Path) -> bool:
    """Whether anything stands there, a link that leads nowhere among it."""
    return os.path.lexists(path)


def no_file(path: Path) -> str:
    """What is wrong with a path that is no plain file."""
    if exists(path):
        return "is no plain file; give a file on a disk"
    return f"does not exist; check the path{_beside(path)}"


def _beside(path: Path, *, folders: bool = False) -> str:
    """A clause that proposes what lies there (perhaps only folders) under a similar name, or an empty text."""
    try:
        with os.scandir(path.parent) as entries:
            some = [entry for entry in itertools.islice(entries, _COMPARED) if not folders or entry.is_dir()]
            names = [entry.name for entry in some if not entry.name.startswith(".")]
    except (OSError, ValueError):
        return ""
    return nearest(path.name, names, alike=0.8)  # names of files have much in common, such as how they end
