"""`reprogram update`: a run or a mapping with samples added or taken out, and classes removed."""

from pathlib import Path

from reprogram.answers.mapping import AnswerMapping
from reprogram.answers.update import Change, update_mapping
from reprogram.cli.commands import UpdateCommand
from reprogram.cli.outside import files_matter
from reprogram.cli.text import pasted, show, show_table
from reprogram.errors import ReprogramError
from reprogram.mappings.artefact import artefact_folder, changing, check_new, read_description
from reprogram.progress import Progress, for_stream
from reprogram.report.write import REPORT
from reprogram.run.update import update_run
from reprogram.text import shortened

_SHOWN = 20


def update(command: UpdateCommand) -> None:
    """Change a run or a mapping, and show what has changed."""
    files_matter()
    folder = Path(command.artefact).expanduser()
    out = None if command.out is None else Path(command.out).expanduser()
    if out is not None:
        check_new(out, replace=False)
    content = read_description(artefact_folder(folder))
    of_model = "frozen" in content
    known = content.get("classes")
    remove = [] if command.remove is None else _class_names(command.remove, known if isinstance(known, list) else [])
    progress = for_stream()
    changing = _change_run if of_model else _change_mapping
    change, notes = changing(command, folder, remove, out, progress)
    _show(change)
    for what, facts in change.record.items():
        if what in ("add", "forget"):
            new = ", ".join(map(shortened, facts.get("new_classes", ())))
            added = f"; new: {new}" if new else ""
            progress.say(f"{'added' if what == 'add' else 'forgot'} {facts['samples']} samples of {facts['from']}{added}")
    if remove:
        progress.say(f"removed {', '.join(map(shortened, remove))}")
    for note in notes:
        progress.say(f"note: {note}")
    page = folder / REPORT if out is None and (folder / REPORT).is_file() else None
    if of_model and artefact_folder(folder) != folder and out is None:
        files = ["result.json", "predictions.csv", *([] if page is None else [REPORT])]
        told = f"{', '.join(files[:-1])} and {files[-1]} tell of it as trained"
        progress.say(f"the model in {command.artefact} has changed; {told}")
    else:
        progress.say(f"written to {command.out or command.artefact}")
        if page is not None:
            progress.say(f"{REPORT} in it tells of the mapping before")
    if page is not None:  # with the data of a run it takes a while, so it is left to whoever wants it
        progress.say(f"write the report anew: reprogram report {pasted(folder)}")


def _change_run(
    command: UpdateCommand, folder: Path, remove: list[str], out: Path | None, progress: Progress
) -> tuple[Change, list[str]]:
    if command.labels is not None:
        raise ReprogramError(
            f"--labels {command.labels} goes with files of answers, but {command.artefact!r} takes images; leave it out"
        )
    change = update_run(
        folder,
        add=command.add,
        forget=command.forget,
        remove=remove,
        samples=command.samples,
        out=out,
        weights=command.weights,
        device=command.device,
        progress=progress,
    )
    return change, []


def _change_mapping(
    command: UpdateCommand, folder: Path, remove: list[str], out: Path | None, progress: Progress
) -> tuple[Change, list[str]]:
    with changing(folder, out):
        saved = AnswerMapping.load(folder)
        updated, change = update_mapping(
            saved,
            add=command.add,
            forget=command.forget,
            remove=remove,
            samples=command.samples,
            labels=command.labels,
            progress=progress,
        )
        updated.save(out or artefact_folder(folder), replace=out is None)
    held = saved.held_out
    return change, [] if held is None else [f"the accuracy of {held.score} was that of the mapping before"]


def _class_names(text: str, known: list[str]) -> list[str]:
    """Names with commas between them; a class may have a comma in its own name."""
    if text in known:
        return [text]
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ReprogramError(f"--remove {text!r} names no class; write names with commas between them")
    return list(dict.fromkeys(names))


def _show(change: Change) -> None:
    names = [name for name in {**change.before, **change.after} if change.before.get(name) != change.after.get(name)]
    rows = [[name, *(str(part.get(name, "-")) for part in (change.before, change.after))] for name in names[:_SHOWN]]
    show_table(("class", "samples before", "now"), rows, numbers=("samples before", "now"))
    if len(names) > _SHOWN:
        show(f"... and {len(names) - _SHOWN} more classes")
