"""The page: its template, its style and its script, with one report in them, as one text that needs nothing else."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any

from reprogram.report.names import counted, percent
from reprogram.report.outline import Outline
from reprogram.report.words import Accuracy, Passage, Sentence
from reprogram.report.worries import Worry
from reprogram.text import escaped_json, finite

#: The parts of the script, in the order in which they are read.
_SCRIPTS = ("base", "rules", "tables", "charts", "matrix", "mapping", "classes", "sections", "main")
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_UNSAFE = re.compile("[<>&\u2028\u2029]")


def page(title: str, runs: list[dict[str, Any]], summary: str) -> str:
    """The whole page.

    Args:
        title: of the page.
        runs: of `run_payload`, one for each run.
        summary: HTML of `summary_html` and `table_html`.
    """
    style, script = _part("page.css"), _script()
    made = f"reprogram {version('reprogram')}"
    parts = {
        "policy": html.escape(
            f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        "generator": html.escape(made),
        "title": html.escape(title),
        "style": style,
        "summary": summary,
        "footer": html.escape(f"Made by {made}. This file is complete: it asks nothing of any network."),
        "data": embedded({"runs": runs}),
        "script": script,
    }
    return _PLACE.sub(lambda found: parts[found[1]], _part("page.html"))


def embedded(content: Any) -> str:
    r"""JSON that can stand inside a script element, whatever texts are in it.

    >>> embedded({"label": "</script>"})
    '{"label":"\\u003c/script\\u003e"}'
    """
    text = escaped_json(json.dumps(finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    return _UNSAFE.sub(lambda found: _ESCAPED[found[0]], text)


@cache
def _part(name: str) -> str:
    return (resources.files("reprogram.report") / "page" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """The parts of the script as one function of its own, so that nothing but its name for tests is global."""
    return '(() => {\n"use strict";\n' + "\n".join(_part(f"{name}.js") for name in _SCRIPTS) + "})();"


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def summary_html(
    number: int, told: Outline, three: list[Accuracy], parts: list[Passage], found: list[Worry], chance: float | None
) -> str:
    """The first thing that is seen of a run: readable without the script."""
    kind = "reference" if told.reference else "mapping"
    tags = [("data", told.data), ("model", told.model), ("program", told.program), (kind, told.mapping)]
    lines = [
        f'<article class="summary" data-run="{number}">',
        f'<div class="head"><h1><bdi>{html.escape(told.name)}</bdi></h1>',
        '<ul class="tags">',
        *(f"<li>{name} <b><bdi>{html.escape(text)}</bdi></b></li>" for name, text in tags if text != "–"),
        "</ul></div>",
        f'<div class="{"hero" if three else "cards"}">',
        *_headline(told, chance),
        *_three(three),
        "</div>",
        '<div class="words">',
        *(_passage(part) for part in parts),
        "</div>",
        '<section class="part"><h2>What to worry about</h2>',
        '<ul class="worries">',
        *(f'<li class="{one.level}"><b>{html.escape(one.title)}</b><span>{_coded(one.text)}</span></li>' for one in found),
        "</ul></section>",
        "</article>",
    ]
    return "\n".join(lines)


def _headline(told: Outline, chance: float | None) -> list[str]:
    if told.accuracy is None or told.interval is None:
        return ['<div class="card"><p class="label">accuracy</p><p class="number">–</p><p>It was not measured.</p></div>']
    low, high = told.interval
    value, unit = f"{100 * told.accuracy:.1f}", "%"
    guess = "" if chance is None else f" Guessing gives {percent(chance)}."
    return [
        '<div class="card"><p class="label">accuracy of the saved model</p>',
        f'<p class="number">{value}<small> {unit}</small></p>',
        f"<p>of {told.tested:,} {html.escape(told.what)} are classified rightly. The true share lies between {percent(low)} "
        f"and {percent(high)} (95 % interval).{guess}</p>".replace(" %", "\u00a0%"),
        *_scale(told.accuracy, low, high, chance),
        "</div>",
    ]


def _scale(share: float, low: float, high: float, chance: float | None) -> list[str]:
    """The accuracy with its interval, and chance, between 0 and 100 %: SVG, as the policy allows no style attributes."""
    marks = [
        '<rect class="ground" x="0" y="3" width="100" height="8"/>',
        f'<rect class="heat" fill-opacity="0.4" x="{100 * low:.2f}" y="3" width="{100 * (high - low):.2f}" height="8"/>',
        f'<rect class="heat" x="{100 * share - 0.35:.2f}" y="0" width="0.7" height="14"/>',
    ]
    if chance is not None:
        marks.append(f'<rect class="wrong" x="{100 * chance - 0.25:.2f}" y="0" width="0.5" height="14"/>')
    middle = "" if chance is None else "<span>orange: guessing</span>"
    return [
        f'<svg class="scale" viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">{"".join(marks)}</svg>',
        f'<p class="ends"><span>0 %</span>{middle}<span>100 %</span></p>',
    ]


def _three(three: list[Accuracy]) -> list[str]:
    if not three:
        return []
    rows = [
        f"<dt>{percent(one.share)}</dt><dd>{html.escape(one.name)}<span>{html.escape(one.meaning)}</span></dd>"
        for one in three
    ]
    measured = [one.share for one in three if one.share is not None]
    agree = "All three agree here." if len(measured) == len(three) else "Those that there are agree."
    note = [f'<p class="small soft">{agree}</p>'] if len(set(measured)) == 1 and len(measured) > 1 else []
    return ['<div class="card"><h3>Three test accuracies</h3><dl class="three">', *rows, "</dl>", *note, "</div>"]


def _passage(part: Passage) -> str:
    return f"<div><h3>{html.escape(part.heading)}</h3><p>{' '.join(map(_sentence, part.sentences))}</p></div>"


def _sentence(sentence: Sentence) -> str:
    text = _coded(sentence.text)
    return f'<span class="seconds">{text}</span>' if sentence.timed else text


def _coded(text: str) -> str:
    """A text with `commands` set as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text)).replace(" %", "\u00a0%")


def table_html(
    outlines: list[Outline], headings: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]], same: str
) -> str:
    """The table of several runs, which the page makes sortable.

    Args:
        outlines: the runs.
        headings: of the columns, and which hold numbers.
        rows: a cell for each heading.
        same: what all runs have in common, in words.
    """
    kinds = [_kind(text, numeric) for text, numeric in headings]
    heads = "".join(
        f'<th scope="col"{kind}>{html.escape(text)}</th>' for (text, _), kind in zip(headings, kinds, strict=True)
    )
    body = []
    for number, (told, row) in enumerate(zip(outlines, rows, strict=True)):
        cells = []
        for (_, numeric), kind, cell in zip(headings, kinds, row, strict=True):
            text = html.escape(cell).replace(" %", "\u00a0%")
            cells.append(f"<td{kind}>{text}</td>" if numeric else f"<td{kind}><bdi>{text}</bdi></td>")
        bounds = f'data-low="{_bound(told, 0)}" data-high="{_bound(told, 1)}"'
        body.append(f'<tr data-run="{number}" {bounds}>{"".join(cells)}</tr>')
    shared = f"All have {html.escape(same)}. " if same else ""
    return (
        f'<section id="runs"><div class="head"><h1>{counted(len(outlines), "run")} side by side</h1></div>'
        f'<p class="lead">{shared}Accuracy is that of the saved model, with its 95\u00a0% interval. Of the three test '
        "accuracies, <b>selected</b> on validation is what you get, <b>last</b> is the final epoch, and <b>best</b> was "
        "chosen on test, so it is too good. <b>trained</b> counts the numbers that gradients have chosen.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of runs"><table class="runs">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        '<div id="overlay"></div></section>'
    )


def _kind(heading: str, numeric: bool) -> str:
    """The classes of a column: numbers, times (which no two runs share), and what a phone has no room for."""
    names = [name for name, fits in (("n", numeric), ("seconds", heading == "seconds")) if fits]
    if heading not in ("run", "mapping", "accuracy", "selected"):
        names.append("hide-narrow")
    return f' class="{" ".join(names)}"' if names else ""


def _bound(told: Outline, place: int) -> str:
    return "" if told.interval is None else f"{told.interval[place]:.6f}"
