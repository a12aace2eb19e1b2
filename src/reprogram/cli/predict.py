"""`reprogram predict`: a run's model on any number of images."""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprogram.answers.parallel import Workers
from reprogram.cli.commands import PredictCommand
from reprogram.cli.outside import files_matter, standard_output
from reprogram.cli.run_checks import PredictPlan
from reprogram.cli.text import percent, show
from reprogram.cli.use import asked_of, load_model
from reprogram.files import sha256
from reprogram.files.foreign import expanded
from reprogram.files.tables import Row, TableForm, check_form, form_of, table_head, table_line
from reprogram.mappings.artefact import FILES, artefact_folder
from reprogram.mappings.asked import Asked
from reprogram.predict.cluster import Model, predicted_by
from reprogram.predict.output import Output, output
from reprogram.predict.paths import some_images
from reprogram.predict.rows import Wanted
from reprogram.predict.stream import Prepared, predicted, prepared
from reprogram.predict.words import Meant
from reprogram.progress import for_stream
from reprogram.reprogrammed import Reprogrammed
from reprogram.text import printable
from reprogram.threads import granted_cpus

#: The exit code where the work is done, but some images could not be read.
SOME_FAILED = 3
_FORMS: dict[str, TableForm] = {"json": "jsonl", "jsonl": "jsonl", "csv": "csv", "parquet": "parquet"}


def predict(plan: PredictPlan) -> int:
    """Classify images; the exit code says whether all could be read."""
    command = plan.command
    wanted = Wanted.read(
        {
            "evidence": command.evidence,
            "top": command.top,
            "batch_size": command.batch_size,
            "asked": Asked.read(asked_of(command)),
        }
    )
    if command.out is None:
        return _to_standard_output(plan, wanted)
    files_matter()
    return _to_file(plan, wanted, expanded(command.out, "--out"))


def _to_file(plan: PredictPlan, wanted: Wanted, out: Path) -> int:
    command = plan.command
    form = form_of(out) if command.format is None else _FORMS[command.format]
    check_form(form)
    progress = for_stream()
    model = load_model(command.run, command.device, command.weights)
    with output(
        out,
        form,
        wanted.columns(),
        _identity(command, wanted, form),
        resume=command.resume,
        replace=command.replace,
        save_every=command.save_every,
    ) as table:
        if table.complete:
            progress.say(f"{command.out} is complete; nothing was done (--replace makes it anew)")
            return 0
        try:
            _fill(table, plan, model, wanted)
        except KeyboardInterrupt:
            progress.say("interrupted; the same command with --resume continues")
            raise
    good = table.rows - table.failed
    progress.say(f"{good:,} {'image' if good == 1 else 'images'} classified into {command.out}")
    for note in plan.overlooked.notes():
        progress.say(f"note: {note}")
    if table.failed:
        progress.say(f"{table.failed:,} of {table.rows:,} images could not be read; the column error says why")
    return SOME_FAILED if table.failed else 0


def _fill(table: Output, plan: PredictPlan, model: Reprogrammed, wanted: Wanted) -> None:
    ready = _prepared(plan, model)
    images = table.rest_of(ready.images)
    progress = for_stream()
    if table.rows:
        progress.say(f"{table.rows:,} images are there already")
    for rows in progress.count(_predicted(plan.command, model, images, wanted, ready), "classifying", table.rows):
        table.add(rows)


def _to_standard_output(plan: PredictPlan, wanted: Wanted) -> int:
    command = plan.command
    model = load_model(command.run, command.device, command.weights)
    ready, tally = _prepared(plan, model), _Tally()
    rows = tally.counting(_predicted(command, model, ready.images, wanted, ready))
    if command.format in (None, "text"):
        for row in rows:
            for line in _text_lines(row):
                show(line)
    else:
        _show_table(rows, command, wanted)
    lines = [f"note: {note}" for note in plan.overlooked.notes()]
    if tally.failed:
        lines.append(f"{tally.failed:,} of {tally.rows:,} images could not be read")
    for line in lines:
        print(printable(line), file=sys.stderr)
    return SOME_FAILED if tally.failed else 0


@dataclass
class _Tally:
    """What is said about all rows together."""

    rows: int = 0
    failed: int = 0

    def counting(self, parts: Iterator[list[Row]]) -> Iterator[Row]:
        """The rows, counted on their way; those of a batch are to be seen before the next one is waited for."""
        for part in parts:
            for row in part:
                self.rows += 1
                self.failed += row["error"] is not None
                yield row
            sys.stdout.flush()


def _prepared(plan: PredictPlan, model: Reprogrammed) -> Prepared:
    return prepared(model, some_images(plan.command.images, plan.images, plan.overlooked))


def _predicted(
    command: PredictCommand, model: Reprogrammed, images: Iterator[Meant], wanted: Wanted, ready: Prepared
) -> Iterator[list[Row]]:
    """The rows, computed here or on a cluster."""
    if command.engine == "local":
        yield from predicted(model, images, wanted, ready.workers if command.workers is None else command.workers)
        return
    folder = str(artefact_folder(Path(command.run)).absolute())
    weights = None if command.weights is None else str(expanded(command.weights).absolute())
    with Workers("ray", command.processes or granted_cpus(), command.address) as workers:
        yield from predicted_by(workers, Model(folder, weights, command.device, ready.passes), images, wanted)


def _identity(command: PredictCommand, wanted: Wanted, form: TableForm) -> dict[str, Any]:
    """What the rows depend on besides the images."""
    artefact = artefact_folder(Path(command.run)) / FILES[0]
    return {
        "model": sha256(artefact),
        "form": form,
        **{name: value for name, value in wanted.model_dump().items() if name != "asked"},
        **wanted.asked.model_dump(),
    }


def _show_table(rows: Iterator[Row], command: PredictCommand, wanted: Wanted) -> None:
    """Print rows for programs."""
    form, columns = _FORMS[str(command.format)], wanted.columns()
    if form == "jsonl":  # every encoding bears it
        ascii_only = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") != "utf8"
        for row in rows:
            show(table_line(form, columns, row, ascii_only=ascii_only).removesuffix("\n"))
        return
    first = next(rows, None)
    with standard_output() as file:
        clean = printable if file.isatty() else None
        file.write(table_head(form, columns))
        for row in () if first is None else itertools.chain([first], rows):
            file.write(table_line(form, columns, row, clean))


def _text_lines(row: Row) -> Iterator[str]:
    """What is said of an image, for a reader."""
    if row["error"] is not None:
        yield f"{row['image']}: no class: {row['error']}"
        return
    others = "".join(f"; {one['label']} ({percent(one['probability'])})" for one in row.get("top", ())[1:])
    yield f"{row['image']}: {row['label']} ({percent(row['probability'])}){others}{_more(row)}"
    for reason in row.get("evidence", ()):
        yield f"    {reason['weight']:.3f} x {reason['logit']:+.2f}  {reason['source']}"


def _more(row: Row) -> str:
    """What is said about it besides: its set, and whether it is none of the classes."""
    text = ""
    if "set" in row:
        text += f"; one of: {', '.join(row['set']) or 'no class fits'}"
    if "p_typical" in row:
        text += f"; {'none of these, ' if row['none_of_these'] else ''}p = {row['p_typical']:.3g}"
    return text
