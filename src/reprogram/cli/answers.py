"""`reprogram map` and `reprogram logits`: label mappings from files of answers, and such files from images."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import tyro
from pydantic import Field
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reprogram.answers.fit import fit_files
from reprogram.answers.mapping import AnswerPredictions, SavedMapping, check_free
from reprogram.answers.parallel import Engine
from reprogram.answers.shards import find_shards
from reprogram.answers.write import write_logits
from reprogram.cli.arguments import parse
from reprogram.data.decode import Decoding
from reprogram.errors import ReprogramError
from reprogram.files import write_file
from reprogram.mappings.base import METHODS, Normalize
from reprogram.progress import for_stream
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.config import FitConfig, check_canvas, choose_device
from reprogram.run.folder import format_accuracy, stored_config
from reprogram.settings import Settings

ShardFiles = Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
_FILES = "Shards of answers: .npz, .csv, .parquet or .jsonl files, folders of them, or quoted patterns."
_WORTH_PROCESSES = 512 * 2**20  # below so many bytes, starting processes costs more than it saves
_SHOWN = 12
_COLUMNS = ("image", "label", "predicted", "share", "by_frequency", "unseen_labels")


class MapCommand(Settings):
    """Estimate a label mapping from files of a model's answers, without images; `map predict` applies it to others."""

    files: ShardFiles = Field(description=_FILES)
    mapping: str = Field("blm+", description="Label mapping: blm+, blm, gaussian, ilm, flm, rlm, none or auto.")
    out: str = Field("mapping", description="Folder for the mapping.")
    classes: str | None = Field(
        None, description="Target classes: a file with one per line (or a JSON list), or names with commas."
    )
    source_labels: str | None = Field(None, description="Source labels, written the same way; by default those found.")
    holdout: float | None = Field(
        None, ge=0, lt=1, description="Share of rows to measure on; None: the rows of split test if any, else 0.2."
    )
    test: str | None = Field(None, description="Shards to measure on instead: a file, a folder or a pattern.")
    scores: Literal["fraction", "percent"] = Field("fraction", description="Range of top-K scores: 0 to 1, or 0 to 100.")
    smoothing: float = Field(1.0, ge=0, description="λ of blm and blm+.")
    top_ratio: float | Literal["all"] = Field(0.15, description="α of blm+: K = α · classes labels count per row; or `all`.")
    top_k: int | None = Field(None, ge=1, description="K of blm+ itself, instead of α.")
    normalize: Normalize = Field("none", description="Centre or standardise the source logits before the mapping.")
    shrinkage: float | Literal["oas"] = Field("oas", description="Shrinkage of the gaussian mapping's covariance.")
    priors: bool = Field(False, description="Let the gaussian mapping prefer frequent classes.")
    optimal: bool = Field(False, description="One-to-one mappings by exact assignment instead of greedily.")
    seed: int = Field(0, ge=0, description="Of the rows that are held out, and of the random mapping.")
    engine: Literal["local", "ray"] = Field("local", description="Read the shards in processes here, or on a Ray cluster.")
    address: str | None = Field(None, description="Of the Ray cluster, such as auto or ray://host:10001; None starts one.")
    processes: int | None = Field(None, ge=1, description="Local processes, or cores of an own Ray; None: by the amount.")


class MapPredictCommand(Settings):
    """Classify files of answers with a mapping that `reprogram map` wrote."""

    mapping: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MAPPING")] = Field(description="Mapping folder.")
    files: ShardFiles = Field(description=_FILES)
    out: str | None = Field(None, description="A .csv, .jsonl or .parquet file; by default CSV on standard output.")


class LogitsCommand(Settings):
    """Write a frozen model's answers to labelled images as shards for `reprogram map`; resumable."""

    model: str = Field("bundled:efficientnet_lite0", description="Frozen model, source:name; see `reprogram models`.")
    pretrained: bool = Field(True, description="Trained weights, or random ones.")
    weights: str | None = Field(None, description="State dict file for the model, safetensors or a plain torch file.")
    templates: str = Field("paper81", description="Texts of an openclip model, as for `reprogram fit`.")
    run: str | None = Field(None, description="Run folder: take its model with its trained program, and its data.")
    data: str | None = Field(None, description="Labelled images as for `reprogram fit`; None: the run's, or digits.")
    data_root: str = Field("data", description="Folder that holds paper: and torchvision: data sets.")
    split: Literal["train", "val", "test", "all"] = Field("all", description="Which images.")
    canvas: int | None = Field(None, ge=8, description="Side of the square that the model receives; None: its own.")
    out: str = Field(description="Folder for the shards.")
    format: Literal["npz", "parquet"] = Field("npz", description="Kind of the shards.")
    shard_size: int = Field(4096, ge=1, description="Rows per shard.")
    batch_size: int = Field(64, ge=1, description="Images per step.")
    seed: int = Field(0, ge=0, description="Of the test split where the data bring none, and of random weights.")
    cache: bool = Field(True, description="Keep decoded images in the user's cache folder (REPROGRAM_CACHE).")
    skip_bad: bool = Field(False, description="Leave out images that cannot be decoded.")
    device: str = Field("auto", description="auto, cpu, cuda, mps ...")


def map_verb(arguments: Sequence[str]) -> None:
    """Run `reprogram map` or `reprogram map predict`."""
    if arguments[:1] == ["predict"]:
        _predict(parse(MapPredictCommand, arguments[1:], "map predict"))
        return
    command = parse(MapCommand, arguments, "map")
    if not command.files:
        raise ReprogramError("no shard was given; write reprogram map 'shards/*.npz', or reprogram map predict MAPPING FILE")
    check_free(Path(command.out))
    progress = for_stream()
    names = ("smoothing", "top_ratio", "top_k", "normalize", "shrinkage", "priors", "optimal")
    options = {name: getattr(command, name) for name in names}
    shards = find_shards(command.files)
    processes = command.processes or _processes(shards, command.engine)
    with Engine(command.engine, processes, command.address) as engine:
        saved = fit_files(
            shards,
            command.mapping,
            classes=_label_list(command.classes, "--classes"),
            source_labels=_label_list(command.source_labels, "--source-labels"),
            holdout=command.holdout,
            test=command.test,
            scores=command.scores,
            seed=command.seed,
            engine=engine,
            progress=progress,
            **{name: value for name, value in options.items() if value != MapCommand.model_fields[name].default},
        )
    saved.save(command.out)
    _show_labels(saved)
    rows = int(saved.samples.sum())
    progress.say(
        f"{rows} rows of {len(shards)} {'shards' if len(shards) > 1 else 'shard'}: {len(saved.sets.source_labels)} source "
        f"labels -> {len(saved.sets.classes)} classes by {saved.mapping.name} ({METHODS[saved.mapping.name].summary})"
    )
    for note in saved.notes:
        progress.say(f"note: {note}")
    _show_held_out(saved, progress.say)
    progress.say(f"mapping folder {command.out}\nclassify others: reprogram map predict {command.out} FILE")


def _processes(shards: Sequence[Path], engine: str) -> int:
    worth = engine == "ray" or sum(path.stat().st_size for path in shards) >= _WORTH_PROCESSES
    return min(len(shards), os.cpu_count() or 1) if worth else 1


def _label_list(given: str | None, flag: str) -> list[str] | None:
    """A list of labels from a file (one per line, or a JSON list) or from words with commas."""
    if given is None:
        return None
    if not Path(given).is_file():
        if "," not in given:
            raise ReprogramError(f"{flag} {given!r} is neither a file nor names with commas between them; check the path")
        return [name.strip() for name in given.split(",")]
    text = Path(given).read_text(encoding="utf-8-sig", errors="replace")
    if not text.lstrip().startswith("["):
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        return [str(name) for name in json.loads(text)]
    except ValueError as error:
        raise ReprogramError(f"{flag} {given!r} is no JSON list ({error}); write a list, or one name per line") from None


def _show_labels(saved: SavedMapping) -> None:
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("class")
    table.add_column("rows", justify="right")
    table.add_column("source labels and their weights")
    labels = saved.top_labels(3)
    for (name, found), rows in list(zip(labels, saved.samples.tolist(), strict=True))[:_SHOWN]:
        told = ", ".join(f"{escape(label.split(',')[0])} {weight:.3g}" for label, weight in found)
        table.add_row(escape(name), str(int(rows)), told)
    Console(highlight=False).print(table)
    if len(labels) > _SHOWN:
        print(f"... and {len(labels) - _SHOWN} more classes in labels.csv")


def _show_held_out(saved: SavedMapping, say: Callable[[str], None]) -> None:
    held = saved.held_out
    if held is None:
        say("no row was held out, so nothing was measured")
        return
    say(f"accuracy on {held.rows} held-out rows: {format_accuracy(held.correct, held.rows)}")
    guessed = (
        f"; {held.by_frequency} of them had no usable label and got the most frequent class" if held.by_frequency else ""
    )
    final = "; the saved mapping is then estimated from all rows" if "hash" in held.how else ""
    say(f"  held out: {held.how}{guessed}{final}")


def _predict(command: MapPredictCommand) -> None:
    saved = SavedMapping.load(command.mapping)
    shards = find_shards(command.files)
    totals = {"rows": 0, "by_frequency": 0, "unseen": 0, "labelled": 0, "correct": 0}
    blocks = _counted(saved.predict_files(shards), totals)
    if command.out is None:
        _write_csv(sys.stdout, blocks, saved)
    else:
        _write_predictions(Path(command.out), blocks, saved)
    say = for_stream().say if command.out is not None else lambda line: print(line, file=sys.stderr)
    say(f"{totals['rows']} rows classified" + (f" into {command.out}" if command.out else ""))
    if totals["by_frequency"]:
        say(f"{totals['by_frequency']} of them had no usable label and got the most frequent class (by_frequency)")
    if totals["unseen"]:
        say(f"{totals['unseen']} labels in their answers are not known to the mapping and were ignored")
    if totals["labelled"]:
        say(f"accuracy on the rows with a known label: {format_accuracy(totals['correct'], totals['labelled'])}")


def _counted(blocks: Iterator[AnswerPredictions], totals: dict[str, int]) -> Iterator[AnswerPredictions]:
    for block in blocks:
        known = block.targets >= 0
        totals["rows"] += len(block.labels)
        totals["by_frequency"] += int(block.by_frequency.sum())
        totals["unseen"] += int(block.unseen.sum())
        totals["labelled"] += int(known.sum())
        totals["correct"] += int((block.indices[known] == block.targets[known]).sum())
        yield block


def _rows(block: AnswerPredictions) -> Iterator[dict[str, Any]]:
    """One dictionary for each row; a row without a name is called by its file and number."""
    shares = block.shares.max(1).values.tolist()
    labels, images = block.block.labels, block.block.images
    for row, predicted in enumerate(block.labels):
        yield {
            "image": images[row] if images else f"{block.block.path}:{block.block.first_row + row}",
            "label": labels[row] if labels else "",
            "predicted": predicted,
            "share": round(shares[row], 6),
            "by_frequency": bool(block.by_frequency[row]),
            "unseen_labels": int(block.unseen[row]),
        }


def _write_csv(file: IO[str], blocks: Iterator[AnswerPredictions], _: SavedMapping) -> None:
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for block in blocks:
        writer.writerows(_rows(block))


def _write_json_lines(file: IO[str], blocks: Iterator[AnswerPredictions], _: SavedMapping) -> None:
    for block in blocks:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(block))


def _write_predictions(path: Path, blocks: Iterator[AnswerPredictions], saved: SavedMapping) -> None:
    text = {".csv": _write_csv, ".jsonl": _write_json_lines}.get(path.suffix.lower())
    if text is None and path.suffix.lower() != ".parquet":
        raise ReprogramError(f"--out {str(path)!r} is none of .csv, .jsonl and .parquet; name it so")

    def write_text(temporary: Path) -> None:
        assert text is not None
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            text(file, blocks, saved)

    write_file(path, write_text if text is not None else lambda temporary: _write_parquet(temporary, blocks))


def _write_parquet(path: Path, blocks: Iterator[AnswerPredictions]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ReprogramError("Parquet predictions need pyarrow; run: pip install 'reprogram[data]', or write .csv") from None
    kinds = [pyarrow.string()] * 3 + [pyarrow.float64(), pyarrow.bool_(), pyarrow.int64()]
    schema = pyarrow.schema(zip(_COLUMNS, kinds, strict=True))
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for block in blocks:
            writer.write_table(pyarrow.Table.from_pylist(list(_rows(block)), schema=schema))


def logits_verb(arguments: Sequence[str]) -> None:
    """Run `reprogram logits`."""
    command = parse(LogitsCommand, arguments, "logits")
    progress = for_stream()
    own = stored_config(Path(command.run)) if command.run and (Path(command.run) / "config.json").exists() else None
    base = {"program": "none", "mapping": "blm", "val_fraction": 0, "data": command.data or "digits"}
    names = ("model", "pretrained", "weights", "templates", "data_root", "canvas", "seed", "device")
    config = FitConfig.read({**base, **{name: getattr(command, name) for name in names}})
    data = own.load_data() if own is not None and command.data is None else config.load_data()
    if command.run is None:
        frozen = config.load_frozen(data, progress)
        model = config.build(frozen, data)
    else:
        model = Reprogrammed.load(command.run, weights=command.weights).to(choose_device(command.device))
        check_canvas(model)
    try:
        manifest = write_logits(
            model.program,
            model.frozen,
            data,
            Path(command.out),
            split=command.split,
            form=command.format,
            shard_size=command.shard_size,
            batch_size=command.batch_size,
            decoding=Decoding(command.cache, command.skip_bad, os.cpu_count()),
            progress=progress,
        )
    except KeyboardInterrupt:
        progress.say("interrupted; the same command continues with the shards that are there")
        raise
    rows = sum(shard["rows"] for shard in manifest["shards"].values())
    progress.say(
        f"{rows} rows of {len(manifest['source_labels'])} logits in {len(manifest['shards'])} shards: {command.out}\n"
        f"estimate a mapping: reprogram map {command.out}"
    )
