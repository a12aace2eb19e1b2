"""`reprogram figure`: one figure of a run as a file, or which ones it has."""

from typing import Any

from reprogram.cli.run_checks import FigurePlan
from reprogram.cli.text import pasted, show_table
from reprogram.figures.drawing import draw_figure, lacking
from reprogram.figures.registry import FIGURES
from reprogram.progress import for_stream
from reprogram.run.record import read_run


def figure(plan: FigurePlan) -> None:
    """Draw the figure, or list those that there are."""
    records = [read_run(run) for run in plan.runs]
    if plan.kind is None or plan.out is None:
        rows = []
        for name, kind in FIGURES.items():
            reason = lacking(kind, records[0])
            rows.append(
                [name, kind.meaning, "yes" if reason is None else f"no: {reason.partition(': ')[2].partition(';')[0]}"]
            )
        show_table(("figure", "what it shows", "here"), rows, longest=100)
        drawable = [row[0] for row in rows if row[2] == "yes"]
        for one in [name for name in ("confusion", "mapping") if name in drawable][:1]:  # one that this folder has
            for_stream().say(f"draw one: reprogram figure {pasted(plan.runs[0])} {one} --out {one}.png")
        return
    options: dict[str, Any] = {"classes": plan.command.classes} if plan.command.classes else {}
    path, notes = draw_figure(plan.kind.name, records, plan.out, dark=plan.command.dark, **options)
    say = for_stream().say
    for note in notes:
        say(f"note: {note}")
    say(f"figure {path}" if path.suffix.lower() != ".csv" else f"data {path}")
