"""`reprogram audit`: labels that look wrong, duplicates, and classes that cannot be told apart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reprogram.answers.registry import READERS
from reprogram.answers.shards import read_blocks
from reprogram.audit.api import audit_data, audit_files
from reprogram.audit.report import Audit, Reason
from reprogram.cli.answers import asked_model
from reprogram.cli.commands import AuditCommand, LogitsCommand
from reprogram.cli.outside import files_matter
from reprogram.cli.text import percent, show_table
from reprogram.data.decode import Decoding
from reprogram.data.registry import FORMATS
from reprogram.data.splits import PARTS
from reprogram.errors import ReprogramError, shown
from reprogram.files.foreign import expanded, is_file, is_folder, listed
from reprogram.files.tables import form_of
from reprogram.names import read_names, short_names
from reprogram.progress import Progress, for_stream
from reprogram.scores import Score
from reprogram.threads import granted_cpus

_NAME_PARTS = 3  # of a path that are shown


def audit(checked: tuple[AuditCommand, dict[str, Any], dict[str, Any]]) -> None:
    """Judge labels, show what was found, and write all of them."""
    command, settings, options = checked
    out = None if command.out is None else Path(command.out).expanduser()
    if out is not None:
        form_of(out)
        files_matter()
    progress = for_stream()
    found = _found(command, settings, options, progress)
    if out is not None:
        found.save(out)
    _show_labels(found, command.top)
    _show_duplicates(found, command.top)
    _show_classes(found, command.top)
    for line in found.summary():
        progress.say(line)
    for note in found.notes:
        progress.say(f"note: {note}")
    if command.out is not None:
        progress.say(f"all {len(found)} labels, the most suspicious first: {command.out}")


def _found(command: AuditCommand, settings: dict[str, Any], options: dict[str, Any], progress: Progress) -> Audit:
    if command.data and (command.shards or holds_shards(command.data)):
        for name in ("run", "canvas"):
            if getattr(command, name) is not None:
                raise ReprogramError(f"--{name} was given, but {shown(command.data[0])} holds answers already; leave it out")
        return audit_files(
            command.data,
            mapping=command.mapping,
            classes=None if command.classes is None else read_names(command.classes, "--classes"),
            source_labels=None if command.source_labels is None else read_names(command.source_labels, "--source-labels"),
            scores=command.scores,
            labels=command.label_table,
            split=command.split,
            duplicates=command.duplicates,
            progress=progress,
            **settings,
        )
    if len(command.data) > 1:
        raise ReprogramError(
            f"{len(command.data)} data sets were given, but images are audited one set at a time; give one of them"
        )
    own = {name: getattr(command, name) for name in command.model_fields_set & LogitsCommand.model_fields.keys() - {"data"}}
    asked = LogitsCommand.read({**own, "out": "-", **({"data": command.data[0]} if command.data else {})})
    model, data, skip_bad = asked_model(asked, options, progress)
    return audit_data(
        data,
        model,
        mapping=command.mapping or "gaussian",
        split=command.split,
        duplicates=command.duplicates,
        decoding=Decoding(cache=command.cache, skip_bad=skip_bad, processes=granted_cpus()),
        batch_size=command.batch_size,
        progress=progress,
        **settings,
    )


def holds_shards(words: Sequence[str]) -> bool:
    """Whether these words name shards of answers and not labelled images: by what the first file holds."""
    path = expanded(words[0], "data")
    if is_folder(path):
        inside = listed(path)
        if any(is_folder(entry) for entry in inside):
            return False
        path = next((entry for entry in inside if is_file(entry) and entry.suffix.lower() in READERS), path)
    elif any(sign in words[0] for sign in "*?[") and not is_file(path):
        return True
    if not is_file(path) or path.suffix.lower() not in READERS:
        return False
    if not any(record.matches(str(path)) for record in FORMATS.values()):
        return True
    try:
        next(read_blocks(path, logits=False), None)
    except ReprogramError:
        return False
    return True


def _show_labels(found: Audit, count: int) -> None:
    suspects = [row for row in found.suspicious(count) if row.differs]
    names = short_names({reason.source for row in suspects for reason in (*row.reasons_for, *row.reasons_against)})
    rows = [
        [
            _short(row.name),
            row.split,
            row.given,
            row.suggested or "-",
            percent(row.wrong),
            percent(row.sure),
            _reasons(row.reasons_for, names),
            _reasons(row.reasons_against, names),
        ]
        for row in suspects
    ]
    if rows:
        headings = ("image", "split", "label", "rather", "wrong", "sure", "for", "against")
        show_table(headings, rows, numbers=("wrong", "sure"))


def _show_duplicates(found: Audit, count: int) -> None:
    rows = [
        [
            "same" if pair.exact else f"{pair.similarity:.3f}",
            *(
                cell
                for place in (pair.first, pair.second)
                for cell in (
                    _short(found.names[place]),
                    PARTS[int(found.splits[place])],
                    found.classes[int(found.labels[place])],
                )
            ),
        ]
        for pair in found.duplicates[:count]
    ]
    if rows:
        show_table(("alike", "image", "split", "label", "image", "split", "label"), rows, numbers=("alike",))


def _show_classes(found: Audit, count: int) -> None:
    pairs = [[pair.first, pair.second, _share(pair.forth), _share(pair.back)] for pair in found.confusions[:count]]
    if pairs:
        show_table(("class", "taken for", "of it (95 % interval)", "the other way"), pairs)
    small = [[one.name, str(one.examples), _share(one.score) if one.score.n else "-"] for one in found.small_classes[:count]]
    if small:
        show_table(("few examples", "in train", "judged rightly (95 % interval)"), small, numbers=("in train",))


def _share(score: Score) -> str:
    low, high = (100 * bound for bound in score.interval)
    return f"{percent(score.accuracy)} ({low:.0f} to {high:.0f}), {score.correct} of {score.n}"


def _reasons(reasons: Sequence[Reason], names: Mapping[str, str]) -> list[str]:
    return [f"{names[reason.source].split(',')[0]} {reason.amount:+.1f}" for reason in reasons[:2]]


def _short(name: str) -> str:
    """The end of a path, which tells images apart."""
    return "/".join(name.split("/")[-_NAME_PARTS:])
