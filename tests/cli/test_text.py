"""Tables for people: whatever the names are, a table stays one."""

import contextlib
import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from reprogram.cli.text import show_table
from reprogram.text import printable

ANY = st.text(st.characters(codec=None, categories=None), max_size=30)
HOSTILE = st.sampled_from(["<script>", "[red]", "[/]", ":cat:", "\u202egpj", "a\nb", "x" * 300, "猫" * 300, "e\u0301" * 300])
NAME = ANY | HOSTILE


def printed(*arguments, **options):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        show_table(*arguments, **options)
    return out.getvalue()


@given(st.lists(st.tuples(NAME, st.lists(NAME, max_size=3)), min_size=1, max_size=3))
def test_no_name_steers_a_terminal_or_breaks_a_table(rows):
    text = printed(("class", "n", "source labels"), [[name, "17", labels] for name, labels in rows], numbers=("n",))
    lines = text.splitlines()
    assert all(printable(line) == line for line in text.split("\n"))
    assert max(map(cell_len, lines)) <= 80
    assert sum("17" in line.split() for line in lines) >= len(rows)
    assert len(lines) < 8 + 16 * len(rows)


def test_markup_and_emoji_are_text():
    text = printed(("class",), [["[red]a[/red] :cat:"], ["plain"]])
    assert "[red]a[/red] :cat:" in text


def test_a_long_name_keeps_its_end():
    text = printed(("image", "wrong"), [[f"{'folder/' * 40}{number}.jpg", "1"] for number in range(2)])
    assert ["/0.jpg" in text, "/1.jpg" in text, "…" in text] == [True] * 3
