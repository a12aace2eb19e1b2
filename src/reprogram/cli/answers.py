"""`reprogram map`, `reprogram map predict` and `reprogram logits`: mappings from files of answers, and such files."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprogram.answers.counting import Measured
from reprogram.answers.fit import fit_files, shared_note
from reprogram.answers.holdout import HoldOutRule
from reprogram.answers.mapping import AnswerMapping, ClassifiedBlock
from reprogram.answers.parallel import Workers
from reprogram.answers.predictions import write_csv, write_predictions
from reprogram.answers.shards import find_shards
from reprogram.answers.write import write_logits
from reprogram.cli.commands import LogitsCommand, MapCommand, MapPredictCommand
from reprogram.cli.outside import files_matter, standard_output
from reprogram.cli.text import pasted, percent, show, show_table
from reprogram.cli.use import asked_of, load_model
from reprogram.data.dataset import DataSet
from reprogram.data.decode import Decoding
from reprogram.data.load import load_data
from reprogram.errors import ReprogramError
from reprogram.files.tables import form_of
from reprogram.mappings.artefact import check_new
from reprogram.mappings.asked import Asked
from reprogram.mappings.registry import MAPPINGS
from reprogram.names import read_names, short_names
from reprogram.progress import Progress, for_stream
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import build, configured_data, configured_frozen, divided_data, known_facts
from reprogram.run.config import FitConfig
from reprogram.run.defaults import resolve
from reprogram.run.folder import stored_config
from reprogram.scores import Score
from reprogram.text import printable
from reprogram.threads import granted_cpus

_WORTH_PROCESSES = 512 * 2**20  # below so many bytes, starting processes costs more than it saves
_SHOWN = 12


def fit(command_and_settings: tuple[MapCommand, dict[str, Any]]) -> None:
    """Estimate a mapping from shards, save it, and show what it is and how it did."""
    files_matter()
    command, settings = command_and_settings
    out = Path(command.out).expanduser()
    check_new(out, command.replace)
    progress = for_stream()
    if not command.files:
        raise ReprogramError("no shard was given; write reprogram map 'shards/*.npz', or reprogram map predict MAPPING FILE")
    shards = find_shards(command.files)
    processes = command.processes or _processes(shards, command.engine)
    with Workers(command.engine, processes, command.address) as workers:
        fitted = fit_files(
            shards,
            command.mapping,
            labels=command.labels,
            classes=None if command.classes is None else read_names(command.classes, "--classes"),
            source_labels=None if command.source_labels is None else read_names(command.source_labels, "--source-labels"),
            holdout=command.holdout,
            test=command.test,
            scores=command.scores,
            seed=command.seed,
            group=command.group,
            workers=workers,
            progress=progress,
            calibration=command.calibration,
            **settings,
        )
    fitted.save(out, replace=command.replace)
    _show_labels(fitted)
    rows, mapping = int(fitted.samples.sum()), fitted.mapping
    progress.say(
        f"{rows} rows: {mapping.k_source} source labels -> {mapping.k_target} classes by {mapping.name} "
        f"({MAPPINGS[mapping.name].summary})"
    )
    for note in fitted.notes:
        progress.say(f"note: {note}")
    _show_held_out(fitted, progress.say)
    if mapping.certainty is not None:
        progress.say(str(mapping.certainty))
    progress.say(f"mapping folder {command.out}")
    progress.say(f"classify others: reprogram map predict {pasted(command.out)} FILE")


def _processes(shards: Sequence[Path], engine: str) -> int:
    worth = engine == "ray" or sum(path.stat().st_size for path in shards) >= _WORTH_PROCESSES
    return min(len(shards), granted_cpus()) if worth else 1


def _show_labels(fitted: AnswerMapping) -> None:
    explained, names = fitted.mapping.explain(3).classes, short_names(fitted.labels.source_labels)
    rows = [
        [name, str(int(count)), [f"{names[label.source].split(',')[0]} {label.weight:.3g}" for label in labels]]
        for (name, labels), count in zip(explained.items(), fitted.samples.tolist(), strict=True)
    ]
    show_table(("class", "rows", "source labels and their weights"), rows[:_SHOWN], numbers=("rows",))
    if len(rows) > _SHOWN:
        show(f"... and {len(rows) - _SHOWN} more classes in labels.csv")


def _show_held_out(fitted: AnswerMapping, say: Callable[[str], None]) -> None:
    held = fitted.held_out
    if held is None:
        say("no row was held out, so nothing was measured")
        return
    say(f"accuracy on {held.score.n} held-out rows: {held.score}")
    guessed = (
        f"; {held.by_frequency} of them had no usable label and got the most frequent class" if held.by_frequency else ""
    )
    final = "; the saved mapping is then estimated from all rows" if held.refitted else ""
    say(f"  held out: {held.how}{guessed}{final}")


@dataclass
class _Totals:
    """What is said about all predictions together."""

    classes: tuple[str, ...]
    rows: int = 0
    by_frequency: int = 0
    unseen: int = 0
    shared: int = 0
    correct: int = 0
    labelled: int = 0
    measured: Measured = field(default_factory=Measured)
    covered: int = 0
    sizes: int = 0
    unlike: int = 0
    strange: Counter[str] = field(default_factory=Counter)

    def counting(self, blocks: Iterable[ClassifiedBlock]) -> Iterator[ClassifiedBlock]:
        """The same blocks, counted on their way."""
        for block in blocks:
            known, said = block.targets >= 0, block.predictions
            self.rows += len(said)
            self.by_frequency += int(said.guessed.sum())
            self.unseen += int(block.unseen.sum())
            self.shared += int(block.shared.sum())
            self.labelled += int(known.sum())
            self.correct += int((said.indices[known] == block.targets[known]).sum())
            if block.block.groups is not None:
                self._by_group(block, known.tolist())
            for names, target in zip(said.sets or (), block.targets.tolist(), strict=False):
                self.sizes += len(names)
                self.covered += target >= 0 and self.classes[target] in names
            self.unlike += 0 if said.unlike is None else int(said.unlike.sum())
            labels = zip(block.block.labels or (), known.tolist(), strict=False)
            self.strange.update(label for label, is_class in labels if label and not is_class)
            yield block

    def _by_group(self, block: ClassifiedBlock, known: Sequence[bool]) -> None:
        numbers = HoldOutRule("none", grouped=True).group_numbers(block.block, self.rows)
        assert numbers is not None
        right = (block.predictions.indices == block.targets).tolist()
        for number, hit, labelled in zip(numbers.tolist(), right, known, strict=True):
            if labelled:
                self.measured.merge(Measured(groups={number: (int(hit), 1)}))

    def score(self) -> Score:
        """How many rows with a known label were classified rightly; rows without groups are groups of their own."""
        return self.measured.score() if self.measured.groups else Score(self.correct, self.labelled)


def predict(command: MapPredictCommand) -> None:
    """Classify the rows of shards, and say how well where they have labels."""
    out = None if command.out is None else Path(command.out).expanduser()
    if out is not None:
        form_of(out)
    if not command.files:
        raise ReprogramError("no shard was given; write reprogram map predict MAPPING FILE [FILE ...]")
    shards = find_shards(command.files)
    fitted = AnswerMapping.load(command.mapping)
    totals, asked = _Totals(fitted.mapping.classes), asked_of(command)
    wanted = Asked.read(asked)
    blocks = totals.counting(fitted.predict_files(shards, command.labels, **asked))
    if out is None:
        with standard_output() as file:
            write_csv(file, blocks, printable if file.isatty() else None, wanted)
    else:
        files_matter()
        write_predictions(out, blocks, wanted)
    say = for_stream().say if out is not None else lambda line: print(printable(line), file=sys.stderr)
    say(f"{totals.rows} rows classified" + (f" into {command.out}" if command.out else ""))
    if totals.by_frequency:
        say(f"{totals.by_frequency} of them had no usable label and got the most frequent class (by_frequency)")
    if totals.unseen:
        say(f"{totals.unseen} labels in their answers are not known to the mapping and were ignored")
    if totals.shared:
        say(shared_note(totals.shared, fitted.labels))
    if totals.strange:
        named = ", ".join(repr(name) for name, _ in totals.strange.most_common(3))
        more = " ..." if len(totals.strange) > 3 else ""
        say(f"{totals.strange.total()} rows have a label that is no class of the mapping: {named}{more}")
    if totals.labelled:
        say(f"accuracy on the rows with a known label: {totals.score()}")
    if wanted.coverage is not None and totals.rows:
        told = f"; {Score(totals.covered, totals.labelled)} of the known labels are inside" if totals.labelled else ""
        say(f"prediction sets for {percent(wanted.coverage)}: {totals.sizes / totals.rows:.2f} classes on average{told}")
    if wanted.unlike is not None:
        say(f"{totals.unlike} rows are unlike all training rows (none_of_these)")


def logits(command_and_options: tuple[LogitsCommand, dict[str, Any]]) -> None:
    """Write a frozen model's answers to images as shards."""
    files_matter()
    command, options = command_and_options
    progress = for_stream()
    model, data, skip_bad = asked_model(command, options, progress)
    try:
        manifest = write_logits(
            model,
            data,
            Path(command.out).expanduser(),
            split=command.split,
            form=command.format,
            shard_size=command.shard_size,
            batch_size=command.batch_size,
            decoding=Decoding(cache=command.cache, skip_bad=skip_bad, processes=granted_cpus()),
            progress=progress,
        )
    except KeyboardInterrupt:
        progress.say("interrupted; the same command continues with the shards that are there")
        raise
    rows = sum(shard["rows"] for shard in manifest["shards"].values())
    progress.say(
        f"{rows} rows of {len(manifest['source_labels'])} logits in {len(manifest['shards'])} shards: {command.out}"
    )
    progress.say(f"estimate a mapping: reprogram map {pasted(command.out)}")


def asked_model(command: LogitsCommand, options: dict[str, Any], progress: Progress) -> tuple[Reprogrammed, DataSet, bool]:
    """The model, the images that it is asked about, and whether bad ones are left out."""
    if command.run is None:
        own = {name: getattr(command, name) for name in command.model_fields_set & FitConfig.model_fields.keys()}
        given = {name: value for name, value in {**own, **options}.items() if value is not None}
        config = FitConfig.read({"program": "none", "mapping": "blm", "val_fraction": 0, **given})
        data = configured_data(config)
        frozen = configured_frozen(config, data, progress)
        return build(resolve(config, known_facts(frozen, data)), frozen, data), data, command.skip_bad
    run = Path(command.run).expanduser()
    before = stored_config(run) if (run / "config.json").exists() else None
    model = load_model(command.run, command.device, command.weights)
    if command.data is not None:
        data = load_data(
            command.data,
            split_seed=command.seed,
            root=command.data_root,
            download=command.download,
            group=command.group,
        )
    elif before is not None:
        data = divided_data(before, configured_data(before))
    else:
        raise ReprogramError(f"{command.run!r} does not tell its data; say which images with --data")
    return model, data, command.skip_bad or (before is not None and before.skip_bad)
