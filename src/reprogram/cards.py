"""Small HTML cards, by which a notebook shows an object at a glance: one piece without scripts, ids or outside resources.

A card is readable wherever it stands. Its colours follow the notebook where that says whether it is light or dark
(JupyterLab, VS Code, Colab, pages of Sphinx), which need not be what the system prefers, and else `prefers-color-scheme`.
Where styles are taken out, as in previews of repositories, plain tables are left.
"""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprogram.text import printable, shortened

_LIGHT = "--bg:#fff;--fg:#1f2328;--dim:#59636e;--line:#d1d9e0;--bar:#0072b2;--warn:#9a4a00;color-scheme:light"
_DARK = "--bg:#1b1f24;--fg:#e6edf3;--dim:#9aa4af;--line:#3a424b;--bar:#56b4e9;--warn:#f0a860;color-scheme:dark"
_DARK_PAGES = '[data-jp-theme-light="false"],[data-theme="dark"],[theme="dark"],.vscode-dark,.vscode-high-contrast'
_LIGHT_PAGES = '[data-jp-theme-light="true"],[data-theme="light"],[theme="light"],.vscode-light'
_STYLE = (
    f".rp-card{{{_LIGHT}}}@media(prefers-color-scheme:dark){{.rp-card{{{_DARK}}}}}"
    f":is({_LIGHT_PAGES}) .rp-card{{{_LIGHT}}}:is({_DARK_PAGES}) .rp-card{{{_DARK}}}"
    ".rp-card{background:var(--bg);color:var(--fg);border:1px solid var(--line);border-radius:6px;padding:10px 14px;"
    "max-width:46rem;box-sizing:border-box;font:13px/1.45 system-ui,sans-serif;overflow-wrap:anywhere;overflow-x:auto}"
    ".rp-card .rp-head{font-weight:600;font-size:14px;margin-bottom:6px}"
    ".rp-card .rp-head span{font-weight:400;color:var(--dim)}"
    ".rp-card table{border-collapse:collapse;margin:0 0 6px;background:none;border:0;font:inherit;color:inherit}"
    ".rp-card tr,.rp-card tbody tr:nth-child(n){background:none}"
    ".rp-card th,.rp-card td{padding:1px 14px 1px 0;text-align:left;vertical-align:top;border:0;color:inherit;"
    "font-size:13px;max-width:none;white-space:normal}"
    ".rp-card th{font-weight:400;color:var(--dim);white-space:nowrap}.rp-card .rp-n{text-align:right;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}.rp-card .rp-list th{border-bottom:1px solid var(--line)}"
    ".rp-card img{float:right;width:96px;height:96px;margin:0 0 6px 12px;border:1px solid var(--line);"
    "image-rendering:pixelated}"
    ".rp-card .rp-bar{display:inline-block;width:6rem;height:.55em;border:1px solid var(--line);"
    "background:none;margin-right:6px}"
    ".rp-card .rp-bar i{display:block;height:100%;background:var(--bar)}.rp-card .rp-note{color:var(--warn);margin:2px 0}"
    ".rp-card .rp-more{color:var(--dim)}"
)
_NAME = 60  # places of a name that are shown
_NOTE = 400
_NOTES = 4


@dataclass(frozen=True)
class Bar:
    """A share from 0 to 1 that is drawn, with the text beside it."""

    share: float
    text: str


@dataclass(frozen=True)
class Listing:
    """A table below the facts.

    Attributes:
        headings: of the columns.
        rows: of cells; numbers stand flush right.
        left_out: what is said of the rows that are not there, such as "and 90 more classes".
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str | int | Bar]]
    left_out: str = ""


def card(
    kind: str,
    name: str,
    facts: Mapping[str, str | Bar],
    *,
    listings: Iterable[Listing] = (),
    notes: Sequence[str] = (),
    picture: tuple[bytes, str] | None = None,
) -> str:
    """A card; every text in it may come from anybody.

    Args:
        kind: what the object is, such as "Reprogrammed".
        name: what it is called, or what it does, in a few words.
        facts: short values by what they are.
        listings: tables below them.
        notes: what a reader should know.
        picture: a PNG and what is seen on it.

    >>> card("DataSet", "<b>", {"classes": "2"}).endswith("</table></div>"), "<b>" in card("DataSet", "<b>", {})
    (True, False)
    """
    parts = [f'<div class="rp-card"><style>{_STYLE}</style>']
    if picture is not None:
        content = base64.b64encode(picture[0]).decode("ascii")
        words = html.escape(printable(picture[1]))
        parts.append(f'<img alt="{words}" title="{words}" src="data:image/png;base64,{content}">')
    parts.append(f'<div class="rp-head">{_escaped(kind)} <span>{_escaped(name)}</span></div>')
    rows = (f'<tr><th scope="row">{_escaped(what)}</th>{_cell(value, _NOTE)}</tr>' for what, value in facts.items() if value)
    parts.append(f"<table>{''.join(rows)}</table>")
    parts += [_listed(listing) for listing in listings if listing.rows]
    parts += [f'<div class="rp-note">note: {_escaped(note, _NOTE)}</div>' for note in notes[:_NOTES]]
    if len(notes) > _NOTES:
        parts.append(f'<div class="rp-more">... and {len(notes) - _NOTES} more notes</div>')
    return "".join([*parts, "</div>"])


def _listed(listing: Listing) -> str:
    numbers = [isinstance(value, int) for value in listing.rows[0]]
    heads = (
        f'<th scope="col"{_number(number)}>{_escaped(text)}</th>'
        for text, number in zip(listing.headings, numbers, strict=True)
    )
    rows = (f"<tr>{_cell(row[0], _NAME)}{''.join(map(_cell, row[1:]))}</tr>" for row in listing.rows)
    more = f'<div class="rp-more">... {_escaped(listing.left_out)}</div>' if listing.left_out else ""
    return f'<table class="rp-list"><tr>{"".join(heads)}</tr>{"".join(rows)}</table>{more}'


def _cell(value: str | int | Bar, most: int = 2 * _NAME) -> str:
    if isinstance(value, Bar):
        width = 100 * min(max(value.share, 0.0), 1.0)
        drawn = f'<span class="rp-bar" aria-hidden="true"><i style="width:{width:.1f}%"></i></span>'
        return f"<td>{drawn}{_escaped(value.text, _NOTE)}</td>"
    if isinstance(value, int):
        return f"<td{_number(True)}>{value:,}</td>"
    return f"<td>{_escaped(value, most)}</td>"


def _number(yes: bool) -> str:
    return ' class="rp-n"' if yes else ""


def _escaped(text: str, most: int = _NAME) -> str:
    """A text as HTML that keeps its direction to itself; of a long one the ends, and the whole where the pointer rests."""
    visible = printable(text)
    if (short := shortened(visible, most)) == visible:
        return f"<bdi>{html.escape(visible)}</bdi>"
    return f'<bdi title="{html.escape(visible[:2000])}">{html.escape(short)}</bdi>'


def named(names: Iterable[str], count: int = 8, most: int = 24) -> str:
    """The first of some names, each in at most so many places, and how many there are.

    >>> named(["cat", "dog", "crane"], 2)
    'cat, dog ... (3 in all)'
    """
    every = list(names)
    shown = ", ".join(shortened(printable(name), most) for name in every[:count])
    return shown if len(every) <= count else f"{shown} ... ({len(every):,} in all)"
