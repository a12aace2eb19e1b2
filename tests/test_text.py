"""Hostile text: nothing steers a terminal, no cell is a formula, every JSON parser reads what was written."""

import csv
import io
import json
import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from reprogram.text import csv_cell, csv_line, csv_text, finite, json_text, printable, read_csv, shortened, whole

ANY = st.text(st.characters(codec=None, categories=None))  # with control characters and lone surrogates
FORMULA = "=+-@\t\r\n\0＝＋－＠"
NEAR = st.text(st.sampled_from([*"'=+-@ \t\r\nab", "＝", "＋", "－", "＠", '"', ",", "\0", "\u2028", "\udcff"]), max_size=6)


@given(ANY)
def test_what_is_printable_is_one_line_of_visible_characters(text):
    shown = printable(text)
    assert all(unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") for character in shown)
    assert len(shown.splitlines()) <= 1
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff")
    shown.encode()
    assert printable(shown) == shown


@given(ANY | st.text("猫a\u0301\u200d", max_size=80), st.integers(8, 60))
def test_what_is_shortened_fits_and_keeps_its_ends(text, most):
    text = printable(text)
    short = shortened(text, most)
    assert cell_len(short) <= most
    assert shortened(short, most) == short
    if short != text:
        start, _, end = short.rpartition("…")
        assert len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text) > most
        assert text.startswith(start)
        assert text.endswith(end)
        assert len(short) >= most // 2 - 2


@pytest.mark.parametrize("text", ["é", "猫", "🐈‍⬛", "👩‍👩‍👧", "🏴󠁧󠁢󠁷󠁬󠁳󠁿", "می‌خواهم", "ﷺ", ":cat:", "[red]", "a\\b", "❤️"])
def test_ordinary_text_stays(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\r\nb\tc\x7f", r"a\r\nb\tc\x7f"),
        ("photo\u202egpj.exe", r"photo\u202egpj.exe"),
        ("caf\udce9", r"caf\udce9"),
        ("\U000e0041hidden", r"\U000e0041hidden"),
    ],
)
def test_the_rest_is_shown_as_python_writes_it(text, shown):
    assert printable(text) == shown


@given(ANY | NEAR)
def test_a_guarded_cell_is_no_formula_and_comes_back(text):
    cell = csv_cell(text)
    assert cell[:1] not in FORMULA or not cell
    assert cell.lstrip()[:1] not in tuple("=+-@＝＋－＠")
    assert csv_text(cell) == text
    assert cell in (text, f"'{text}")


@given(st.lists(st.lists(ANY | NEAR, min_size=2, max_size=2), max_size=5))
def test_rows_come_back_from_a_file(rows):
    """Also those with line ends of all kinds, quotes, and bytes of file names that are no UTF-8."""
    text = csv_line(["one", "two"]) + "".join(csv_line(map(csv_cell, row)) for row in rows)
    content = io.BytesIO(text.encode("utf-8", "surrogateescape"))
    with io.TextIOWrapper(content, "utf-8", "surrogateescape", newline="") as file:
        found = [list(map(csv_text, row)) for row in csv.reader(file)][1:]
    # bytes side by side may be UTF-8 after all, so the texts are compared as what was written
    assert [[cell.encode("utf-8", "surrogateescape") for cell in row] for row in found] == [
        [whole(cell).encode("utf-8", "surrogateescape") for cell in row] for row in rows
    ]


def test_a_file_of_ours_is_read_back(tmp_path):
    names = ["=cmd|' /C calc'!A0", "''-tis", "'tis", "a\rb", 'c"d,e\nf', "caf\udce9", " +1", "猫"]
    lines = [csv_line(["class", "weight"]), *(csv_line([csv_cell(name), "-0.5"]) for name in names)]
    (tmp_path / "t.csv").write_text("".join(lines), encoding="utf-8", errors="surrogateescape", newline="")
    rows = read_csv(tmp_path / "t.csv")
    assert [row["class"] for row in rows] == names
    assert {row["weight"] for row in rows} == {"-0.5"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.booleans())
def test_json_is_valid_everywhere_and_says_the_same(content, ascii_only):
    text = json_text(content, ascii_only=ascii_only)
    text.encode("ascii" if ascii_only else "utf-8")
    assert printable(text) == text
    assert json.loads(text, parse_constant=pytest.fail) == finite(content)


@given(st.lists(st.floats() | st.lists(st.floats())))
def test_what_is_finite_stays(values):
    for before, after in zip(values, finite(values), strict=True):
        if isinstance(before, list):
            assert after == [value if math.isfinite(value) else None for value in before]
        else:
            assert after == (before if math.isfinite(before) else None)


def test_json_may_be_laid_out():
    assert json_text({"a": [1, float("-inf")]}, indent=2) == json.dumps({"a": [1, None]}, indent=2)
