"""`reprogram report`: one HTML page about runs, or their table on the terminal; and the page at the end of `fit`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reprogram.cli.commands import ReportCommand
from reprogram.cli.outside import files_matter
from reprogram.cli.text import fits, pasted, show, show_table
from reprogram.errors import first_line
from reprogram.progress import Progress, for_stream
from reprogram.report.outline import distinct_names, outline
from reprogram.report.write import REPORT, comparison, write_report
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.record import read_run

#: Headings in two lines, so that the table fits a terminal.
_NARROW = {"95 % interval": "95 %\ninterval", "accuracy": "saved\nmodel", "selected": "sel.\non val", "last": "last\nepoch"}
_NARROW |= {"best": "best\non test", "epochs": "epo-\nchs", "trained": "trained\nnumbers", "seconds": "sec-\nonds"}
#: What is told under the table where that is too wide, one after the other until it is not.
_ASIDE = ("run", "model", "data", "program")  # the first gives the lines their numbers
Headings = list[tuple[str, bool]]


def report(command: ReportCommand) -> None:
    """Write the page, or print the table that it shows for several runs."""
    if command.text:
        _show_runs(command.runs)
        return
    files_matter()
    progress = for_stream()
    written = write_report(command.runs, command.out, images=command.images)
    progress.say(f"report {written}")


def _show_runs(runs: Sequence[str]) -> None:
    """Print the table of runs, within the width of the terminal."""
    records = [read_run(run) for run in runs]
    told = [outline(*both) for both in zip(records, distinct_names(records), strict=True)]
    headings, rows, same = comparison([replace(one, settings="") for one in told])
    shared = f"{'all runs: ' if len(rows) > 1 else ''}{same}" if same else "selected on val is what you get"
    show(f"test accuracy in %; {shared}")
    if all(one.selected in (None, one.accuracy) for one in told):  # the saved model is the selected one: said once
        headings, rows = _without(headings, rows, "selected")
    if not any(one.reference for one in told):  # which are there for their cost, too
        headings, rows = _without(headings, rows, "trained")
    rows = [[cell.replace(" %", "").replace(" to ", "–") for cell in row] for row in rows]
    aside: list[str] = []
    for text in _ASIDE:
        if fits([_NARROW.get(name, name) for name, _ in headings], rows):
            break
        headings, rows, aside = _told_aside(headings, rows, aside, text)
    names = {text: _NARROW.get(text, text) for text, _ in headings}
    show_table(list(names.values()), rows, numbers=[names[text] for text, numeric in headings if numeric])
    for line in aside:
        show(line)


def _without(headings: Headings, rows: list[list[str]], name: str) -> tuple[Headings, list[list[str]]]:
    place = [text for text, _ in headings].index(name)
    return headings[:place] + headings[place + 1 :], [row[:place] + row[place + 1 :] for row in rows]


def _told_aside(
    headings: Headings, rows: list[list[str]], aside: list[str], name: str
) -> tuple[Headings, list[list[str]], list[str]]:
    """Tell a column in lines under the table, one for each run; the first column, their names, becomes numbers."""
    columns = [text for text, _ in headings]
    if name == columns[0]:
        numbered = list(enumerate(rows, start=1))
        return headings, [[str(number), *row[1:]] for number, row in numbered], [f"{n}: {row[0]}" for n, row in numbered]
    if name in columns:
        place = columns.index(name)
        aside = [f"{line}, {name} {row[place]}" for line, row in zip(aside, rows, strict=True)]
        headings, rows = _without(headings, rows, name)
    return headings, rows, aside


def report_at_the_end(
    runs: Sequence[Path], out: Path, progress: Progress, models: Sequence[Reprogrammed | None] = ()
) -> None:
    """Write the page of what was just done. What was done stays done if that fails, which is then said."""
    try:
        written = write_report(runs, out, models=models)
    except Exception as error:  # whatever it is: hours of training must not end in an error because of a picture
        again = " ".join(pasted(run) for run in runs)
        progress.say(f"note: the report could not be written ({first_line(error)}); try: reprogram report {again}")
        return
    progress.say(f"report {written}")


__all__ = ["REPORT", "report", "report_at_the_end"]
