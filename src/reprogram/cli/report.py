"""`reprogram report`: one HTML page about runs, or their table on the terminal; and the page at the end of `fit`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reprogram.cli.commands import ReportCommand
from reprogram.cli.outside import files_matter
from reprogram.cli.text import pasted, show, show_table
from reprogram.errors import first_line
from reprogram.progress import Progress, for_stream
from reprogram.report.outline import distinct_names, outline
from reprogram.report.write import REPORT, comparison, write_report
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.record import read_run

#: Headings in two lines, so that the table fits a terminal.
_NARROW = {"95 % interval": "95 %\ninterval", "accuracy": "saved\nmodel", "selected": "sel.\non val", "last": "last\nepoch"}
_NARROW |= {"best": "best\non test", "epochs": "epo-\nchs", "trained": "trained\nnumbers", "seconds": "sec-\nonds"}


def report(command: ReportCommand) -> None:
    """Write the page, or print the table that it shows for several runs."""
    if command.text:
        records = [read_run(run) for run in command.runs]
        told = [outline(*both) for both in zip(records, distinct_names(records), strict=True)]
        headings, rows, same = comparison([replace(one, settings="") for one in told])
        shared = f"{'all runs: ' if len(rows) > 1 else ''}{same}" if same else "selected on val is what you get"
        show(f"test accuracy in %; {shared}")
        dropped = {"selected"} if all(one.selected in (None, one.accuracy) for one in told) else set()  # said once
        if not any(one.reference for one in told):  # which are there for their cost, too
            dropped.add("trained")
        kept = [place for place, (text, _) in enumerate(headings) if text not in dropped]
        headings, rows = [headings[place] for place in kept], [[row[place] for place in kept] for row in rows]
        narrow = [[cell.replace(" %", "").replace(" to ", "–") for cell in row] for row in rows]
        names = {text: _NARROW.get(text, text) for text, _ in headings}
        show_table(list(names.values()), narrow, numbers=[names[text] for text, numeric in headings if numeric])
        return
    files_matter()
    progress = for_stream()
    written = write_report(command.runs, command.out, images=command.images)
    progress.say(f"report {written}")


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
