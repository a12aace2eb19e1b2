"""`write_report`: the page of one run or of several, written as one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reprogram.errors import ReprogramError
from reprogram.files import write_text
from reprogram.files.foreign import expanded
from reprogram.files.seals import sealed_page
from reprogram.report.names import counted, percent
from reprogram.report.outline import Outline, distinct_names, outline
from reprogram.report.page import page, summary_html, table_html
from reprogram.report.payload import run_payload, without_pictures
from reprogram.report.words import accuracies, passages
from reprogram.report.worries import worries
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.examples import Examples, gather_examples
from reprogram.run.record import RunRecord, read_run

#: What the report of a run is called in its folder.
REPORT = "report.html"
#: The side of a thumbnail in the page; of many classes or runs there are fewer.
SIDE = 56
_MOST_THUMBNAILS = 200

HEADINGS: tuple[tuple[str, bool], ...] = (
    ("run", False),
    ("data", False),
    ("model", False),
    ("program", False),
    ("mapping", False),
    ("accuracy", True),
    ("95 % interval", False),
    ("selected", True),
    ("last", True),
    ("best", True),
    ("epochs", True),
    ("trained", True),
    ("seconds", True),
)


def write_report(
    runs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    images: bool = True,
    models: Sequence[Reprogrammed | None] = (),
) -> Path:
    """Write one self-contained HTML file about a run, or about several side by side.

    Args:
        runs: run folders, or folders of mappings.
        out: where; by default `report.html` in the folder of a single run, or here for several.
        images: whether pictures of the data are put into the file; without, what the model said of them stays.
        models: the models of the runs, where they are at hand already; else they are loaded again.

    Returns:
        Where it was written.

    Raises:
        ReprogramError: there is no run, or one cannot be read.
    """
    paths = [runs] if isinstance(runs, (str, Path)) else list(runs)
    if not paths:
        raise ReprogramError("no run was given; give at least one run folder")
    target = expanded(out) if out is not None else (expanded(paths[0]) if len(paths) == 1 else Path()) / REPORT
    if target.is_dir():
        raise ReprogramError(f"{str(target)!r} is a folder, but the report is one file; name it {str(target / REPORT)!r}")
    records = [read_run(path) for path in paths]
    write_text(target, sealed_page(report_text(records, images=images, models=models)))
    return target


def report_text(records: Sequence[RunRecord], *, images: bool = True, models: Sequence[Reprogrammed | None] = ()) -> str:
    """The page of these runs."""
    given = list(records)
    names = [None] if len(given) == 1 else distinct_names(given)
    outlines = [outline(record, name) for record, name in zip(given, names, strict=True)]
    known = [*models, *[None] * len(given)]
    payloads: list[dict[str, Any]] = []
    parts: list[str] = []
    if len(given) > 1:
        parts.append(table_html(outlines, *comparison(outlines)))
    for number, (record, told) in enumerate(zip(given, outlines, strict=True)):
        payloads.append(run_payload(record, told, _examples(record, known[number], images, len(given))))
        chance = None if record.result is None else record.result["chance"]
        parts.append(summary_html(number, told, accuracies(record, told), passages(record, told), worries(record), chance))
    title = outlines[0].name if len(given) == 1 else counted(len(given), "run")
    return page(f"{title} · reprogram", payloads, "\n".join(parts))


def _examples(record: RunRecord, model: Reprogrammed | None, images: bool, runs: int) -> Examples:
    each = max(1, min(4, _MOST_THUMBNAILS // max(len(record.classes) * runs, 1)))
    found = gather_examples(record, model=model, per_class=each, side=SIDE)
    return found if images else without_pictures(found)


def comparison(outlines: Sequence[Outline]) -> tuple[list[tuple[str, bool]], list[list[str]], str]:
    """The table of runs, in the page and on the terminal: headings, rows, and what needs no column, as all have it."""
    rows = [_row(told) for told in outlines]
    alike = [
        place
        for place, (text, _) in enumerate(HEADINGS)
        if text in ("data", "model", "program") and len({row[place] for row in rows}) == 1
    ]
    same = ", ".join(f"{HEADINGS[place][0]} {rows[0][place]}" for place in alike if rows[0][place] != "–")
    kept = [place for place in range(len(HEADINGS)) if place not in alike]
    return [HEADINGS[place] for place in kept], [[row[place] for place in kept] for row in rows], same


def _row(told: Outline) -> tuple[str, ...]:
    interval = "–" if told.interval is None else f"{100 * told.interval[0]:.1f} to {100 * told.interval[1]:.1f} %"
    shares = (told.selected, told.last, told.best_on_test)
    mapping = f"{told.mapping} ({told.settings})" if told.settings else told.mapping
    return (
        told.name,
        told.data,
        told.model,
        told.program,
        mapping,
        percent(told.accuracy),
        interval,
        *map(percent, shares),
        str(told.epochs),
        "–" if told.trained is None else f"{told.trained:,}",
        "–" if told.seconds is None else f"{told.seconds:.0f}",
    )
