"""What can be wrong with a command, found before torch is imported: names, paths and values."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprogram.cli.arguments import read, spell
from reprogram.cli.commands import (
    EvaluateCommand,
    LogitsCommand,
    MapCommand,
    MapPredictCommand,
    PredictCommand,
    UpdateCommand,
)
from reprogram.data.registry import check_data_spec
from reprogram.errors import ReprogramError, unknown
from reprogram.files import read_json, read_sealed, settle_folder
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.run.config import GIVEN, OWNERS, FitConfig
from reprogram.run.paths import located
from reprogram.sources.registry import SOURCES, check_model_name, find_source


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
    if (word := values.pop("images", None)) is not None:
        if "data" in values:
            raise ReprogramError(f"{word!r} and --data {values['data']} were both given; give one of them")
        values["data"] = word
    before: dict[str, Any] = {}
    if resume:
        if out is None or file is not None:
            raise ReprogramError("--resume continues the run in --out with its own settings; give --out and no --config")
        stored = Path(out).expanduser() / "config.json"
        if stored.exists():
            before = read_sealed(stored, "run configuration", remedy="make the run again")
        elif "data" not in values:
            raise ReprogramError(
                f"{out!r} holds no run to resume; check the path, or say with --data what to train on if it shall be begun"
            )
    elif file is not None:
        before = read_json(Path(file).expanduser(), "configuration")
    if not isinstance(before, dict) or not isinstance(before.get(GIVEN, {}), dict):
        raise ReprogramError(f"configuration {file or out!r} holds no table of settings; write a JSON object")
    decided = {name: value for name, value in before.items() if name != GIVEN}
    # a run's own file also has what was decided for it; another protocol or model decides anew
    begun = resume and bool(before)
    before = decided if begun else before.get(GIVEN, before)
    before = _still_meant(before, values)
    config = FitConfig.read({**before, **values}, spell=spell)
    check_data_spec(config.data, Path(config.data_root).expanduser())
    check_model_name(config.model, config.weights)
    config = located(config)
    if begun:  # its paths were located when it was begun, perhaps in another folder
        config = FitConfig.read({**config.given, **{name: before[name] for name in before if name not in values}})
    return FitPlan(config, None if out is None else Path(out).expanduser(), resume)


def _still_meant(before: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file without those that it has for a mapping, program or source which a flag replaces."""
    kept = dict(before)
    for part, field in (("mapping", "mapping"), ("program", "program"), ("source", "model")):
        old, new = before.get(field, FitConfig.model_fields[field].default), values.get(field)
        if part == "source" and new is not None:
            old, new = str(old).partition(":")[0], new.partition(":")[0]
        if new not in (None, old):
            kept = {name: value for name, value in kept.items() if name not in OWNERS[part].setting_names()}
    return kept


def check_run(command: EvaluateCommand) -> EvaluateCommand:
    """The run is there, and so is the data."""
    check_folder(command.run)
    if command.data is not None:
        check_data_spec(command.data, Path(command.data_root or "data").expanduser())
    return command


def check_predict(command: PredictCommand) -> PredictCommand:
    """The run is there, and so is every image."""
    check_folder(command.run)
    if not command.images:
        raise ReprogramError("no image was given to predict; write reprogram predict RUN IMAGE [IMAGE ...]")
    for image in command.images:
        path = Path(image).expanduser()
        if path.is_dir():
            raise ReprogramError(f"{image!r} is a folder, but image files are expected; write {image.rstrip('/')}/*")
        if not path.exists():
            raise ReprogramError(f"image {image!r} does not exist; check the path")
    return command


def check_update(command: UpdateCommand) -> UpdateCommand:
    """There is something to change, and something to change it by."""
    check_folder(command.artefact)
    if command.add is None and command.forget is None and command.remove is None:
        raise ReprogramError("nothing was said that could change it; give --add, --forget or --remove")
    if command.samples is not None and command.remove is None:
        raise ReprogramError(f"--samples {command.samples} goes with --remove; name the classes to remove")
    return command


def check_map(given: dict[str, Any]) -> tuple[MapCommand, dict[str, Any]]:
    """The command, and the settings of its mapping."""
    own = {name: value for name, value in given.items() if name in MapCommand.model_fields}
    command, settings = read(MapCommand, own), {name: value for name, value in given.items() if name not in own}
    if not command.files:
        raise ReprogramError("no shard was given; write reprogram map 'shards/*.npz', or reprogram map predict MAPPING FILE")
    out = Path(command.out).expanduser()
    settle_folder(out)
    if out.exists() and not command.replace:
        raise ReprogramError(f"{command.out!r} exists already; choose another --out, or add --replace")
    if command.mapping == AUTO:
        for name, value in settings.items():
            raise ReprogramError(
                f"{spell(name, value)} was given, but mapping auto chooses it; leave it out, or name a mapping"
            )
        return command, {}
    if command.mapping not in MAPPINGS:
        raise unknown("mapping", command.mapping, (*MAPPINGS, AUTO))
    checked = MAPPINGS.read(command.mapping, settings, spell)
    return command, {name: getattr(checked, name) for name in settings}


def check_mapping(command: MapPredictCommand) -> MapPredictCommand:
    """The mapping is there."""
    check_folder(command.mapping)
    return command


def check_logits(given: dict[str, Any]) -> tuple[LogitsCommand, dict[str, Any]]:
    """The command, and the options of its model source."""
    own = {name: value for name, value in given.items() if name in LogitsCommand.model_fields}
    command, options = read(LogitsCommand, own), {name: value for name, value in given.items() if name not in own}
    if command.run is not None:
        check_folder(command.run)
    else:
        check_model_name(command.model, command.weights)
    if command.data is not None:
        check_data_spec(command.data, Path(command.data_root).expanduser())
    checked = SOURCES.read(find_source(command.model)[0].prefix, options, spell)
    return command, {name: getattr(checked, name) for name in options}


def check_folder(path: str) -> None:
    """Raise unless this is a folder that may hold an artefact."""
    if not Path(path).expanduser().is_dir():
        raise ReprogramError(f"{path!r} is not a folder; give a run folder or an artefact folder")
