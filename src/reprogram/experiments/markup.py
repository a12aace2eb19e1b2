"""Names that others wrote, as text in Markdown and in LaTeX: what means something there is escaped, what steers is shown."""

import re
import unicodedata

from reprogram.text import printable, whole

# `.` and `:` only where they would make a link of what stands there
_MARKDOWN = re.compile(r"[\\`*_{}\[\]#!|<>&~$@]|(?<=www)\.|:(?=//)", re.IGNORECASE)
_BEGINNING = re.compile(r"^(\d*)([-+=.)])(?=[\s=-]|$)")  # of a list, or of the line under a heading
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"


def _greek(letter: str) -> str:
    """Its name in LaTeX; Unicode spells one of them otherwise."""
    name = unicodedata.name(letter).rpartition(" ")[2].replace("LAMDA", "LAMBDA")
    return name.lower() if letter.islower() else name.capitalize()


# `[`, `*` and `]` in braces, because a row that begins with one would be taken for an option of the line before it
_LATEX = {
    **{letter: f"$\\{_greek(letter)}$" for letter in _GREEK},
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"{{{letter}}}" for letter in "[]*-`'\"?!,"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "±": "$\\pm$",
    "−": "$-$",
    "×": "$\\times$",
    "≥": "$\\geq$",
    "≤": "$\\leq$",
    "²": "$^2$",
    "–": "--",
    "…": "\\dots{}",
    "†": "\\textdagger{}",
    "‡": "\\textdaggerdbl{}",
    "\u00a0": "~",
}
_PLAIN = re.compile(r"(?<![-`'\"?!,])[-,'!?](?![-`'\"?!,])")  # alone they join nothing and may stand as they are


def markdown_text(text: str) -> str:
    r"""A text inside a Markdown table or paragraph, on one line, none of it taken for markup, a link, a formula or HTML.

    >>> print(markdown_text("a|b_c <b> $x$"))
    a\|b\_c &lt;b&gt; \$x\$
    """
    escaped = _MARKDOWN.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), _seen(text).strip())
    return _BEGINNING.sub(lambda found: f"{found[1]}\\{found[2]}", escaped)


def latex_text(text: str) -> str:
    r"""A text inside a LaTeX table or paragraph, on one line, none of it taken for a command, a comment or a ligature.

    Greek letters become mathematics; other letters beyond ASCII need LuaLaTeX, XeLaTeX or a fitting package.

    >>> print(latex_text("50 % of a_b, α ± 1"))
    50 \% of a\_b, $\alpha$ $\pm$ 1
    """
    seen = _seen(text)
    plain = {found.start() for found in _PLAIN.finditer(seen)}
    return "".join(letter if place in plain else _LATEX.get(letter, letter) for place, letter in enumerate(seen))


def _seen(text: str) -> str:
    return printable(whole(text))
