"""`reprogram evaluate`: what a run's model is good for."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from reprogram.cli.commands import EvaluateCommand
from reprogram.cli.outside import files_matter
from reprogram.cli.text import percent, show, show_table
from reprogram.data.dataset import DataSet, Split
from reprogram.data.decode import Decoding
from reprogram.data.folders import load_labelled
from reprogram.data.load import load_data
from reprogram.data.registry import absolute_spec
from reprogram.devices import choose_device
from reprogram.errors import ReprogramError
from reprogram.files import write_text
from reprogram.mappings.asked import Asked
from reprogram.progress import for_stream
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import configured_data, divided_data
from reprogram.run.config import FitConfig
from reprogram.run.folder import seen_images, stored_config
from reprogram.settings import Settings
from reprogram.text import printable
from reprogram.threads import granted_cpus
from reprogram.training.evaluation import Evaluation
from reprogram.training.evaluation import evaluate as evaluate_split
from reprogram.training.mistakes import mistakes_csv, mistakes_json

_WORST = 5


def load_model(run: str, device: str, weights: str | None) -> Reprogrammed:
    """The model of a run or artefact folder, where it shall compute."""
    there = choose_device(device)  # first: one that is not there costs no loading
    model = Reprogrammed.load(Path(run).expanduser(), weights=weights).to(there)
    if model.precision_note is not None:
        print(printable(f"note: {model.precision_note}"), file=sys.stderr)  # standard output may be rows
    return model


def evaluate(command: EvaluateCommand) -> None:
    """Measure a run's model on labelled images."""
    run = Path(command.run).expanduser()
    config = stored_config(run) if (run / "config.json").exists() else None
    model = load_model(command.run, command.device, command.weights)
    name, split = _split_to_measure(command, model, config)
    progress = for_stream()
    if command.out is not None:
        files_matter()
    skip_bad = command.skip_bad or (config is not None and config.skip_bad)
    seen = seen_images(run)  # now, so that a damaged list costs no pass over the images
    evaluation = evaluate_split(
        model,
        split,
        batch_size=command.batch_size,
        decoding=Decoding(cache=command.cache, skip_bad=skip_bad, processes=granted_cpus()),
        progress=progress,
        **asked_of(command),
    )
    rows = [
        [label, str(s.n), str(s.correct), percent(s.accuracy if s.n else None)]
        for label, s in evaluation.per_class().items()
    ]
    if command.out is not None:
        _write_mistakes(command, name, evaluation)
    show_table(("class", "images", "correct", "accuracy"), rows, numbers=("images", "correct", "accuracy"))
    _show_confusions(evaluation)
    progress.say(f"accuracy on {name}: {evaluation.score}")
    for line in _reliability_lines(evaluation, command):
        progress.say(line)
    for text in evaluation.skipped[:5]:
        progress.say(f"note: skipped: {text}")
    if trained_on := split.count_among(seen):
        progress.say(
            f"note: {trained_on} of {len(split)} images were used in training or to select the epoch, so this accuracy is "
            "not that of new images"
        )
    if command.out is not None:
        progress.say(f"{len(evaluation.mistakes())} mistakes, the surest first: {command.out}")


def _show_confusions(evaluation: Evaluation) -> None:
    found = evaluation.confusions()
    rows = [
        [
            one.name,
            f"{one.score.n - one.score.correct} of {one.score.n}",
            [f"{name} ({images})" for name, images in one.others[:3]],
        ]
        for one in found[:_WORST]
    ]
    if rows:
        show_table(("worst classes", "wrong", "taken for"), rows, numbers=("wrong",))
    if len(found) > _WORST:
        show(f"... and {len(found) - _WORST} more classes with mistakes")


def _write_mistakes(command: EvaluateCommand, name: str, evaluation: Evaluation) -> None:
    path, mistakes = Path(str(command.out)).expanduser(), evaluation.mistakes()
    if (command.format or path.suffix.lower().removeprefix(".")) == "csv":
        write_text(path, "".join(mistakes_csv(mistakes)))
        return
    facts = {"run": command.run, "data": name, **evaluation.score.to_json()}
    write_text(path, mistakes_json(mistakes, evaluation.confusions(), **facts))


def asked_of(command: Settings) -> dict[str, Any]:
    """What a command asks for beside the class."""
    return {name: getattr(command, name) for name in Asked.model_fields if hasattr(command, name)}


def _reliability_lines(evaluation: Evaluation, command: EvaluateCommand) -> Iterator[str]:
    """How far the probabilities can be believed, and how often the prediction sets hold the truth."""
    yield f"expected calibration error: {evaluation.calibration_error():.3f}"
    raw, honest = evaluation.raw, evaluation.honest
    if raw is not None and honest is not None:
        changes = "" if raw == honest else f" (plain softmax: {raw})"
        yield f"probabilities: {honest}{changes}"
    if evaluation.coverage is not None and evaluation.set_sizes is not None:
        score = evaluation.coverage
        size = float(evaluation.set_sizes.double().mean()) if score.n else 0.0
        yield f"prediction sets for {percent(command.coverage)}: {score} hold the class; {size:.2f} classes on average"


def _split_to_measure(command: EvaluateCommand, model: Reprogrammed, config: FitConfig | None) -> tuple[str, Split]:
    """The images that `evaluate` is asked for, and their name: the run's own data by default, or others."""
    if command.data is None and config is None:
        raise ReprogramError(f"{command.run!r} does not tell its data; say what to measure on with --data")
    if config is not None and command.data_root is not None:
        config = FitConfig.read({**config.model_dump(), "data_root": str(Path(command.data_root).expanduser())})
    if config is not None and command.group is not None:
        config = FitConfig.read({**config.model_dump(), "group": command.group})
    if config is not None and (command.data is None or absolute_spec(command.data) == config.data):
        data = divided_data(config, configured_data(config))
    elif Path(str(command.data)).expanduser().is_dir():
        folder = Path(str(command.data)).expanduser()
        return f"{folder.resolve().name} ({command.split})", load_labelled(
            folder, command.split, model.classes, command.group
        )
    else:
        # data without splits of their own are measured as a whole
        root = Path(command.data_root or "data").expanduser()
        data = load_data(str(command.data), split_seed=None, root=root, group=command.group)
        return f"{data.name} ({command.split})", _in_terms_of(_part(data, command.split), data.classes, model.classes)
    return f"{data.name} ({command.split})", _part(data, command.split)


def _in_terms_of(split: Split, classes: Sequence[str], known: Sequence[str]) -> Split:
    """The same images with the model's class numbers; data may lack classes of the model."""
    foreign = [name for name in classes if name not in known]
    if foreign:
        raise ReprogramError(
            f"the data have a class {foreign[0]!r}, but the model has {', '.join(known[:4])}"
            f"{' ...' if len(known) > 4 else ''}; give data with the model's class names"
        )
    numbers = torch.tensor([list(known).index(name) for name in classes])
    renumbered = split.subset(torch.arange(len(split)))
    renumbered.labels, renumbered.classes = numbers[split.labels], tuple(known)
    return renumbered


def _part(data: DataSet, name: str) -> Split:
    if name not in data.splits:
        raise ReprogramError(f"data {data.name!r} has no {name} split; choose another one with --split")
    return data.splits[name]
