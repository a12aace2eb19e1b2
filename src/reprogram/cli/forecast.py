"""`reprogram forecast`: what more labels would bring."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprogram.answers.forecast import forecast_files
from reprogram.cli.answers import asked_model
from reprogram.cli.checks import ForecastPlan
from reprogram.cli.commands import LogitsCommand
from reprogram.cli.outside import files_matter
from reprogram.cli.text import percent, show, show_table
from reprogram.data.decode import Decoding
from reprogram.data.load import load_data
from reprogram.files import write_text
from reprogram.mappings.forecasting import Forecast, ForecastPoint, Point
from reprogram.mappings.forecasting import forecast as forecast_samples
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import AUTO
from reprogram.names import read_names
from reprogram.progress import Progress, for_stream
from reprogram.text import csv_cell, csv_line, json_text
from reprogram.threads import granted_cpus
from reprogram.training.choice import select_from
from reprogram.training.kept import keep_logits

_SHOWN = 5


def forecast(plan: ForecastPlan) -> None:
    """Measure the learning curve, follow it, and show where it leads."""
    command, progress = plan.command, for_stream()
    if command.out is not None:
        files_matter()
    found = _of_shards(plan, progress) if plan.answers else _of_images(plan, progress)
    if command.out is not None:
        path = Path(command.out).expanduser()
        as_json = path.suffix.lower() == ".json"
        write_text(path, json_text(found.to_json(), indent=1) + "\n" if as_json else "".join(_csv(found)))
    _show(found)
    for note in found.notes:
        progress.say(f"note: {note}")
    show(str(found))
    if command.out is not None:
        progress.say(f"written to {command.out}")


def _of_shards(plan: ForecastPlan, progress: Progress) -> Forecast:
    command = plan.command
    return forecast_files(
        command.files,
        command.mapping,
        classes=None if command.classes is None else read_names(command.classes, "--classes"),
        source_labels=None if command.source_labels is None else read_names(command.source_labels, "--source-labels"),
        scores=command.scores,
        factors=plan.factors,
        level=command.level,
        seed=command.seed,
        progress=progress,
        **plan.settings,
    )


def _of_images(plan: ForecastPlan, progress: Progress) -> Forecast:
    command = plan.command
    shared = command.model_fields_set & LogitsCommand.model_fields.keys() - {"out"}
    asked: dict[str, Any] = {name: getattr(command, name) for name in shared}
    if command.files:
        asked["data"] = command.files[0]
    model, data, skip_bad = asked_model(LogitsCommand(out="", **asked), plan.options, progress)
    if command.files:  # nothing has to be set aside to measure on
        data = load_data(command.files[0], split_seed=None, root=command.data_root, download=command.download)
    decoding = Decoding(cache=command.cache, skip_bad=skip_bad, processes=granted_cpus())
    train, skipped = decoding.decode(data.train, model.program.image_size, model.program.interpolation, progress)
    for text in skipped[:5]:
        progress.say(f"note: skipped: {text}")
    name, settings = command.mapping or "gaussian", plan.settings
    kept = keep_logits(model, train, batch_size=command.batch_size, progress=progress)
    if name == AUTO:
        choice = select_from(kept.blocks, model, len(train)).choice
        name, settings = choice.mapping, choice.settings
    span = None if model.frozen.span is None else model.frozen.span.cpu()
    mapping = make_mapping(name, model.frozen.labels, data.classes, seed=command.seed, span=span, **settings)
    progress.say("measuring the learning curve")
    return forecast_samples(
        kept.blocks,
        mapping,
        factors=plan.factors,
        level=command.level,
        seed=command.seed,
        log_probabilities=model.frozen.log_probabilities,
    )


def _show(found: Forecast) -> None:
    interval = f"{100 * found.level:g} % interval"
    rows = [_row(point, "") for point in found.measured]
    rows += [_row(point, _gain(point)) for point in found.points]
    headings = ("labels", "accuracy", interval, "gain", "how")
    show_table(headings, rows, numbers=headings[:4])
    classes = [
        [gain.name, str(gain.samples), percent(gain.accuracy), f"{100 * gain.gain:+.1f}", _range(gain.low, gain.high)]
        for gain in found.gains[:_SHOWN]
    ]
    headings = ("class", "labels", "accuracy", f"gain at {found.points[1].factor:g} x", interval)
    show_table(headings, classes, numbers=headings[1:])
    if len(found.gains) > _SHOWN:
        show(f"... and {len(found.gains) - _SHOWN} classes that are expected to gain less")


def _row(point: Point, gain: str) -> list[str]:
    return [f"{point.size:.0f}", percent(point.accuracy), _range(point.low, point.high), gain, point.how]


def _gain(point: ForecastPoint) -> str:
    return f"{100 * point.gain:+.1f} ({_range(point.gain_low, point.gain_high)})" if point.factor > 1 else ""


def _range(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _csv(found: Forecast) -> Iterator[str]:
    """One line for each point of the curve, and one for each class's gain."""
    yield csv_line(("kind", "class", "labels", "value", "low", "high", "how"))
    for point in (*found.measured, *found.points):
        yield csv_line(("accuracy", "", *map(str, (point.size, point.accuracy, point.low, point.high)), point.how))
    for gain in found.gains:
        numbers = map(str, (gain.samples, gain.gain, gain.low, gain.high))
        yield csv_line(("gain", csv_cell(gain.name), *numbers, "forecast"))
