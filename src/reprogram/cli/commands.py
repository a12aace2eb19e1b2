"""The commands: what each takes, and where it is carried out. Nothing here imports torch."""

from typing import Annotated, Any, Literal

import tyro
from pydantic import Field

from reprogram.export.settings import Format
from reprogram.mappings.asked import Asked, Calibration
from reprogram.run.config import FitConfig
from reprogram.serve.settings import Backend
from reprogram.settings import Settings

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


class ReferenceCommand(Settings):
    """Train what reprogramming is compared with: a linear probe, a new last layer, or a copy of the whole source model."""

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")] = Field(
        description="probe, finetune-linear or finetune-full."
    )
    images: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = Field(
        None, description="The data, as for --data."
    )
    out: str | None = Field(None, description="Run folder; by default runs/<data>-<method>, numbered if it exists.")
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
    """Measure a run's model on labelled images: accuracy with its interval, calibration, each class, and its mistakes."""

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
    out: str | None = Field(
        None, description="A file for all mistakes, the surest first: path, true class, predicted class."
    )
    format: Literal["json", "csv"] | None = Field(None, description="Kind of that file; by default what its name ends with.")
    calibration: Calibration = _asked("calibration")
    coverage: float | None = _asked("coverage")
    per_class: bool = _asked("per_class")
    strict: bool = _asked("strict")


class PredictCommand(Settings):
    """Classify images, any number of them, with a run's model, and say which source labels decided."""

    run: RunFolder
    images: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="PATH")] = Field(
        description="Image files, folders of them, quoted patterns such as 'photos/**/*.jpg', or - for a list of files on "
        "standard input, one per line."
    )
    out: str | None = Field(
        None, description="A .csv, .jsonl or .parquet file for the rows; by default text on standard output."
    )
    resume: bool = Field(False, description="Continue what an interrupted command has left of --out.")
    replace: bool = Field(False, description="Replace --out, and begin anew what was interrupted.")
    format: Literal["text", "json", "jsonl", "csv", "parquet"] | None = Field(
        None,
        description="Text for a reader, JSON lines (json or jsonl), csv or parquet; by default as the suffix of --out says, "
        "else text.",
    )
    evidence: int = Field(3, ge=0, description="Source labels to name for each image.")
    top: int = Field(
        0, ge=0, description="Classes to name with their probabilities, the likeliest first; 0 for the label alone."
    )
    null: bool = Field(False, description="A zero byte ends each path of the list, not a line end (find -print0).")
    workers: int | None = Field(
        None, ge=0, le=1024, description="Processes that decode; by default one per core, for few images none."
    )
    save_every: int = Field(1024, ge=1, description="Rows of --out after which they are kept for --resume.")
    engine: Literal["local", "ray"] = Field("local", description="Classify here, or on a Ray cluster.")
    address: str | None = Field(
        None, description="Of the Ray cluster, such as auto or ray://host:10001; else one is started."
    )
    processes: int | None = Field(None, ge=1, description="Cores of an own Ray; by default all.")
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


class ReportCommand(Settings):
    """Write one HTML page about a run, or about several side by side: a summary in plain words, and charts to look into."""

    runs: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = Field(
        description="Run folders, or mapping folders of `reprogram map`."
    )
    out: str | None = Field(
        None, description="The HTML file; by default report.html in the folder of a single run, or here for several."
    )
    images: bool = Field(True, description="Put small pictures of the data into the page.")
    text: bool = Field(False, description="Print the table of the runs instead.")


class VerifyCommand(Settings):
    """Check a run, a mapping, an export, shards or a cache against the SHA-256 that everything written carries."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")] = Field(
        description="Run folder or folder of runs, artefact, mapping, export, folder of shards, cache folder, or one file "
        "of those."
    )


class FigureCommand(Settings):
    """Draw a figure of a run or a mapping, as PNG, SVG or PDF, or write its data as CSV; without a name, list them."""

    words: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="RUN|NAME")] = Field(
        [], description="Run or mapping folder, for a comparison several, then the name of the figure."
    )
    out: str | None = Field(None, description="File to write, which ends with .png, .svg, .pdf or .csv.")
    dark: bool = Field(False, description="Colours for a dark ground.")
    classes: list[str] = Field([], description="Classes to show, in the figure `labels`; by default 20, evenly spread.")


class ExportCommand(Settings):
    """Write a run's model as files that need no reprogram: ONNX, an adapter on a common backbone, or a torch program."""

    run: RunFolder
    format: Format = Field(
        "onnx",
        description="onnx: one file from images to probabilities; onnx-adapter: a backbone once, and kilobytes for each "
        "task; torch: a torch.export program.",
    )
    out: str | None = Field(None, description="Folder for the export; by default exported/<run>.")
    backbone: str | None = Field(
        None,
        description="For onnx-adapter, the ONNX file that tasks share: written if it is not there; by default "
        "backbone.onnx in --out.",
    )
    replace: bool = Field(False, description="Replace the export that stands in --out.")
    images: int = Field(100, ge=1, le=100_000, description="Images of the run on which it is compared with the live model.")
    weights: str | None = Field(None, description=_WEIGHTS)


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
    label_table: str | None = Field(None, description=f"Of shards: {_TABLE}")
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


class ServeCommand(Settings):
    """Answer over HTTP: many tasks on one frozen model, with a page at `/`; ends on SIGTERM, after the last answer."""

    runs: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="RUN|FOLDER")] = Field(
        description="Run, artefact or (--backend onnxruntime) exported folders, each a task of that name; and at most one "
        "folder of them."
    )
    host: str = Field("127.0.0.1", description="Address to listen at; 0.0.0.0 lets other machines in.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen at; 0 takes any that is free.")
    token: str | None = Field(
        None, description="File whose first line clients have to show as bearer token; else REPROGRAM_TOKEN, else none."
    )
    allow_upload: bool = Field(False, description="Let clients add, replace and remove tasks with PUT and DELETE.")
    watch: bool = Field(True, description="Follow what comes and goes in the folder of tasks.")
    max_upload: int = Field(32, ge=1, le=2**20, description="MiB that a request may have.")
    max_pixels: int = Field(2**26, ge=1, le=2**27, description="Pixels that an image may have.")
    max_images: int = Field(64, ge=1, le=2**20, description="Images that a request may have.")
    max_batch: int | None = Field(
        None, ge=1, le=2**20, description="Images that go through the model at once; by default 4 on a CPU, else 32."
    )
    queue: int = Field(512, ge=1, le=2**31, description="Images that may wait for the model.")
    task_memory: int = Field(
        1024, ge=1, le=2**30, description="MiB for tasks in memory; those unused longest wait on the disk."
    )
    backend: Backend = Field(
        "torch", description="What computes; onnxruntime serves exported folders without torch, and exports runs first."
    )
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
