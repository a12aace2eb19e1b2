"""`reprogram <verb>`: demo, fit, evaluate, predict, map, logits, models, datasets."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from pydantic import Field
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reprogram.cli.answers import LogitsCommand, MapCommand, logits_verb, map_verb
from reprogram.cli.arguments import parse, peek
from reprogram.data.load import Split, load_data, load_labelled
from reprogram.data.paper import PAPER, check_paper, find_paper
from reprogram.data.registry import FORMATS
from reprogram.errors import EvidenceWarning, ReprogramError, unknown
from reprogram.files import claimed_folder, read_json
from reprogram.mappings.base import METHODS
from reprogram.progress import Progress, for_stream
from reprogram.reprogrammed import Predictions, Reprogrammed
from reprogram.run.config import FitConfig, choose_device
from reprogram.run.folder import format_accuracy, run_fit, stored_config
from reprogram.settings import Settings
from reprogram.sources.load import describe_model, explain_sources, list_models
from reprogram.training.evaluation import evaluate
from reprogram.training.loop import FitResult

DEMO_METHODS = ("rlm", "flm", "ilm", "blm", "blm+", "gaussian")
RunFolder = Annotated[
    str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN"), Field(description="Run folder or artefact folder.")
]


class FitCommand(FitConfig):
    """Train a program and estimate a mapping, so that a frozen model classifies your images; fills a run folder."""

    out: str | None = Field(
        None, description="Run folder; by default runs/<data>-<program>-<mapping>, numbered if it exists."
    )
    resume: bool = Field(False, description="Continue the run in --out; its settings need not be repeated.")
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
    split: str = Field("test", description="train, val or test.")
    weights: str | None = Field(None, description="The source model's weights file, if that has moved since the run.")
    batch_size: int = Field(64, ge=1, description="Images per step.")
    device: str = Field("auto", description="auto, cpu, cuda, mps ...")


class PredictCommand(Settings):
    """Classify image files with a run's model, and say which source labels decided."""

    run: RunFolder
    images: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")] = Field(description="Image files.")
    evidence: int = Field(3, ge=0, description="Source labels to name for each image.")
    format: Literal["text", "json"] = Field("text", description="Text for a reader, or one JSON object per image.")
    weights: str | None = Field(None, description="The source model's weights file, if that has moved since the run.")
    batch_size: int = Field(64, ge=1, description="Images per step.")
    device: str = Field("auto", description="auto, cpu, cuda, mps ...")


class ModelsCommand(Settings):
    """List the frozen models that can be loaded, or `show NAME` to describe one."""

    words: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="PATTERN | show NAME")] = Field(
        [], description="A pattern such as 'timm:resne*' or a part of a name; or `show` and the name of a model."
    )


class DatasetsCommand(Settings):
    """List what --data takes and which of the paper's data sets are there, or `check NAME` to verify one."""

    words: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="check NAME")] = Field(
        [], description="Nothing, or `check` and the name of one of the paper's data sets."
    )
    data_root: str = Field("data", description="Folder that holds the data sets.")


def fit_verb(arguments: Sequence[str]) -> None:
    """Run `reprogram fit`."""
    command = parse(FitCommand, arguments, "fit", None if _asks_for_help(arguments) else _fit_defaults(arguments))
    config = FitConfig.read(command.model_dump(include=set(FitConfig.model_fields)))
    name = config.data
    if Path(config.data).is_dir():  # an absolute path, so that the run can be continued and evaluated from anywhere
        config = config.model_copy(update={"data": str(Path(config.data).resolve())})
        name = Path(config.data).name
    wanted = Path(command.out or Path("runs") / f"{name}-{config.program}-{config.mapping}")
    progress = for_stream()
    with claimed_folder(wanted, numbered=command.out is None) as folder:
        try:
            result = run_fit(config, folder, resume=command.resume, progress=progress)
        except KeyboardInterrupt:
            if (folder / "config.json").exists():
                progress.say(f"interrupted; continue with: reprogram fit --resume --out {folder}")
            raise
    _show_result(result, folder, progress)


# what openclip: models have as defaults of their own: the program, and under the paper's protocol its schedule for CLIP
_CLIP: dict[str, Any] = {"program": "watermark"}
_CLIP_PUBLISHED: dict[str, Any] = {"optimizer": "sgd", "lr": 40.0, "schedule": "cosine"}


def _fit_defaults(arguments: Sequence[str]) -> FitCommand | None:
    """What the flags are laid over: a run that is continued, a configuration file, or nothing."""
    out, file = peek(arguments, "--out"), peek(arguments, "--config")
    if "--resume" in arguments:
        if out is None or file is not None:
            raise ReprogramError("--resume continues the run in --out with its own settings; give --out and no --config")
        if not (Path(out) / "config.json").exists():
            raise ReprogramError(f"{out!r} holds no run to resume; check the path, or start one without --resume")
        return FitCommand.read(stored_config(Path(out)).model_dump())
    if file is not None:
        return FitCommand.read(read_json(Path(file), "configuration"))
    on_clip = (peek(arguments, "--model") or "").startswith("openclip:")
    if peek(arguments, "--protocol") == "paper":
        entry = PAPER.get((peek(arguments, "--data") or "").removeprefix("paper:"))
        published = FitCommand(
            protocol="paper", epochs=200, lr=0.01, val_fraction=0, batch_size=entry.batch_size if entry else 256
        )
        return published.model_copy(update=_CLIP | _CLIP_PUBLISHED) if on_clip else published
    return FitCommand(**_CLIP) if on_clip else None


def _asks_for_help(arguments: Sequence[str]) -> bool:
    return bool({"-h", "--help"} & set(arguments))


def demo_verb(arguments: Sequence[str]) -> None:
    """Run `reprogram demo`."""
    command = parse(DemoCommand, arguments, "demo")
    progress = for_stream()
    progress.say("An ImageNet network that has never seen a digit learns to read them; not one of its weights changes.\n")
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("mapping", "what it is"):
        table.add_column(heading)
    for heading in ("last\nepoch", "selected\non val", "best\non test", "seconds", "images/s"):
        table.add_column(heading, justify="right")
    with claimed_folder(Path(command.out or "runs/demo"), numbered=command.out is None) as folder:
        for method in DEMO_METHODS:
            config = FitConfig(mapping=method, canvas=48, image_size=32, epochs=command.epochs, seed=command.seed)
            try:
                result = run_fit(config, folder / method, resume=True, progress=progress)
            except KeyboardInterrupt:
                again = f"reprogram demo --epochs {command.epochs} --seed {command.seed} --out {folder}"
                progress.say(f"interrupted; continue with: {again}")
                raise
            scores = [f"{100 * score:.1f} %" for score in result.accuracy.values() if score is not None]
            speed = max(record["images_per_second"] for record in result.records)
            table.add_row(method, METHODS[method].summary, *scores, f"{result.seconds:.0f}", f"{speed:.0f}")
            progress.say("")
    progress.say("test accuracy on handwritten digits (chance: 10 %)")
    Console(highlight=False).print(table)
    progress.say(f"run folders: {', '.join(str(folder / method) for method in DEMO_METHODS)}")
    progress.say(f"\nlook closer:     reprogram evaluate {folder / 'blm+'}\nyour own images: reprogram fit --data FOLDER")


def evaluate_verb(arguments: Sequence[str]) -> None:
    """Run `reprogram evaluate`."""
    command = parse(EvaluateCommand, arguments, "evaluate")
    if command.split not in ("train", "val", "test"):
        raise unknown("split", command.split, ("train", "val", "test"))
    model = _load(command.run, command.device, command.weights)
    name, split = _split_to_measure(command, model)
    progress = for_stream()
    evaluation = evaluate(model, split, batch_size=command.batch_size, progress=progress)
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("class")
    for heading in ("images", "correct", "accuracy"):
        table.add_column(heading, justify="right")
    for label, images, correct in evaluation.per_class():
        table.add_row(escape(label), str(images), str(correct), f"{100 * correct / images:.1f} %" if images else "-")
    Console(highlight=False).print(table)
    progress.say(f"accuracy on {name}: {format_accuracy(evaluation.correct, evaluation.n)}")
    progress.say(f"expected calibration error: {evaluation.calibration_error():.3f}")


def _split_to_measure(command: EvaluateCommand, model: Reprogrammed) -> tuple[str, Split]:
    """The images that `evaluate` is asked for, and their name: the run's own data by default, or a folder."""
    config = stored_config(Path(command.run)) if (Path(command.run) / "config.json").exists() else None
    own = config is not None and (command.data is None or str(Path(command.data).resolve()) == config.data)
    if command.data is None and config is None:
        raise ReprogramError(f"{command.run!r} does not tell its data; say what to measure on with --data")
    if command.data is not None and not own and Path(command.data).is_dir():
        folder = Path(command.data)
        return f"{folder.resolve().name} ({command.split})", load_labelled(folder, command.split, model.classes)
    data = config.load_data() if config is not None and own else load_data(str(command.data))
    split: Split | None = getattr(data, command.split)
    if data.classes != model.classes:
        raise ReprogramError(
            f"data {data.name!r} has the classes {_shortened(data.classes)}, but the model has {_shortened(model.classes)}; "
            "evaluate on data with the same classes"
        )
    if split is None:
        raise ReprogramError(f"data {data.name!r} has no {command.split} split; choose another one with --split")
    return f"{data.name} ({command.split})", split


def predict_verb(arguments: Sequence[str]) -> None:
    """Run `reprogram predict`."""
    command = parse(PredictCommand, arguments, "predict")
    if not command.images:
        raise ReprogramError("no image was given to predict; write reprogram predict RUN IMAGE [IMAGE ...]")
    model = _load(command.run, command.device, command.weights)
    predictions = model.predict(command.images, evidence=command.evidence, batch_size=command.batch_size)
    lines = _json_lines if command.format == "json" else _text_lines
    print("\n".join(lines(command.images, predictions)))


def models_verb(arguments: Sequence[str]) -> None:
    """Run `reprogram models`."""
    command = parse(ModelsCommand, arguments, "models")
    if command.words[:1] == ["show"]:
        if len(command.words) != 2:
            raise ReprogramError(
                "models show needs the name of one model; write for example: reprogram models show timm:vgg16"
            )
        _show_model(describe_model(command.words[1]))
        return
    pattern = _single_word(command.words, "models", "*")
    names, explained = list_models(pattern), explain_sources(pattern)
    if not names and not explained:
        raise ReprogramError(f"no model matches {pattern!r}; try 'timm:resne*' or 'bundled:*'")
    print("\n".join([*names, *(f"{form}  ({meaning})" for form, meaning in explained.items())]))


def _show_model(facts: dict[str, Any]) -> None:
    rows = {
        "model": facts["name"],
        "labels": f"{facts['classes']}: {'; '.join(label.split(',')[0] for label in facts['labels'])} ...",
        "their names": facts["label_source"],
        "input": f"{facts['input_size']} x {facts['input_size']} px, resized {facts['interpolation']}",
        "normalised": "  ".join(f"{key} {' '.join(map(str, value))}" for key, value in facts["normalisation"].items()),
        "parameters": f"{facts['parameters']:,}" if facts["parameters"] else "unknown",
        "gradients": "yes" if facts["differentiable"] else "no: --program none only",
    }
    width = max(map(len, rows))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in rows.items()))


def datasets_verb(arguments: Sequence[str]) -> None:
    """Run `reprogram datasets`."""
    command = parse(DatasetsCommand, arguments, "datasets")
    root = Path(command.data_root)
    if command.words[:1] == ["check"]:
        _check_data(_single_word(command.words[1:], "datasets check", None), root)
        return
    if command.words:
        raise unknown("word", command.words[0], ["check"])
    rows = {record.form: record.meaning for record in FORMATS.values()}
    width = max(map(len, rows))
    print("\n".join(f"{name:<{width}}  {text}" for name, text in rows.items()))
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("the paper's sets", "classes", "train", "val", "test", f"under {root}/"):
        table.add_column(heading, justify="right" if heading in ("classes", "train", "val", "test") else "left")
    for name, entry in PAPER.items():
        counts = [f"{entry.counts[split]:,}" if entry.counts.get(split) else "-" for split in ("train", "val", "test")]
        there = "present" if find_paper(name, root) is not None else "missing"
        table.add_row(f"paper:{name}", str(entry.classes), *counts, there)
    Console(highlight=False).print(table)
    missing = [name for name in PAPER if find_paper(name, root) is None]
    if missing:
        print("how to get the missing ones:")
        print("\n".join(f"  {name}: {PAPER[name].how_to_get}" for name in missing))
    print("reprogram datasets check NAME counts one that is there and decodes every file of it")


def _check_data(spec: str, root: Path) -> None:
    name = spec.removeprefix("paper:")
    if name not in PAPER:
        raise unknown("data set of the paper", name, PAPER)
    progress = for_stream()
    findings = check_paper(name, root, progress)
    for finding in findings:
        progress.say(finding)
    if findings:
        raise ReprogramError(f"paper:{name} under {str(root)!r} is not as published ({len(findings)} findings above)")
    progress.say(f"paper:{name}: all counts are as published and every image can be decoded")


def _single_word(words: Sequence[str], verb: str, default: str | None) -> str:
    if len(words) > 1 or (not words and default is None):
        raise ReprogramError(
            f"reprogram {verb} takes one name, but {list(words)} was given; see reprogram {verb.split()[0]} --help"
        )
    return words[0] if words else str(default)


VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo_verb,
    "fit": fit_verb,
    "evaluate": evaluate_verb,
    "predict": predict_verb,
    "map": map_verb,
    "logits": logits_verb,
    "models": models_verb,
    "datasets": datasets_verb,
}
_SCHEMAS = (
    DemoCommand,
    FitCommand,
    EvaluateCommand,
    PredictCommand,
    MapCommand,
    LogitsCommand,
    ModelsCommand,
    DatasetsCommand,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Dispatch to a verb; a user's mistake becomes one sentence on standard error and exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = _show_warning
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_overview())
        elif arguments[0] == "--version":
            from reprogram import __version__

            print(f"reprogram {__version__}")
        elif arguments[0] not in VERBS:
            raise unknown("verb", arguments[0], VERBS)
        else:
            VERBS[arguments[0]](arguments[1:])
    except ReprogramError as error:
        print(f"reprogram: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a folder that cannot be made or read, a full disk
        reason = error.strerror or error
        print(f"reprogram: {reason} ({error.filename}); check the path, its permissions and the space", file=sys.stderr)
        return 2
    return 0


def _overview() -> str:
    lines = [
        "usage: reprogram VERB [FLAGS]",
        "",
        "Give a frozen image model new labels, without changing a weight of it.",
        "",
    ]
    lines += [f"  {verb:<9} {(schema.__doc__ or '').strip()}" for verb, schema in zip(VERBS, _SCHEMAS, strict=True)]
    return "\n".join([*lines, "", "reprogram VERB --help explains every flag."])


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if issubclass(category, EvidenceWarning):
        print(f"reprogram: warning: {message}", file=sys.stderr)


def _show_result(result: FitResult, folder: Path, progress: Progress) -> None:
    names = {
        "last": "last epoch",
        "selected": f"selected on validation (epoch {result.selected_epoch})",
        "best_on_test": "best on test (the published protocol; optimistic)",
    }
    progress.say("\ntest accuracy")
    for key, value in result.accuracy.items():
        progress.say(f"  {names[key]:<50} {'-' if value is None else f'{100 * value:.1f} %'}")
    low, high = result.interval
    progress.say(f"  {'95 % interval of the saved model':<50} {100 * low:.1f} to {100 * high:.1f} %")
    progress.say(f"\nrun folder {folder}\nclassify an image: reprogram predict {folder} IMAGE")


def _load(run: str, device: str, weights: str | None) -> Reprogrammed:
    if not Path(run).is_dir():
        raise ReprogramError(f"run {run!r} is not a folder; give a run folder or an artefact folder")
    return Reprogrammed.load(run, weights=weights).to(choose_device(device))


def _text_lines(images: Sequence[str], predictions: Predictions) -> list[str]:
    confidence = predictions.probabilities.max(1).values.tolist()
    lines = []
    for image, label, share, reasons in zip(images, predictions.labels, confidence, predictions.evidence, strict=True):
        lines.append(f"{image}: {label} ({100 * share:.1f} %)")
        lines += [f"    {reason.weight:.3f} x {reason.logit:+.2f}  {reason.source}" for reason in reasons]
    return lines


def _json_lines(images: Sequence[str], predictions: Predictions) -> list[str]:
    lines = []
    for row, image in enumerate(images):
        content = {
            "image": image,
            "label": predictions.labels[row],
            "probability": float(predictions.probabilities[row].max()),
            "evidence": [
                {
                    "source": reason.source,
                    "weight": reason.weight,
                    "logit": reason.logit,
                    "contribution": reason.contribution,
                }
                for reason in predictions.evidence[row]
            ],
        }
        lines.append(json.dumps(content, ensure_ascii=False))
    return lines


def _shortened(classes: Sequence[str]) -> str:
    return ", ".join(classes[:4]) + (f" ... ({len(classes)} in all)" if len(classes) > 4 else "")
