"""Cards: whatever the names are, they stay text in a card that needs nothing from outside."""

from hypothesis import given
from hypothesis import strategies as st

from card_reader import Card
from reprogram.cards import Bar, Listing, card, named
from reprogram.text import printable, shortened

ANY = st.text(st.characters(codec=None, categories=None))  # with control characters and lone surrogates
HOSTILE = st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</style><b>",
        "]]><!--",
        "&lt;b&gt;",
        "[red]",
        "\u202egpj",
        "a\nb",
        "x" * 300,
        "猫" * 300,
        "\udce9",
        "'",
    ]
)
NAME = ANY | HOSTILE


@given(NAME, NAME, NAME, st.floats(), st.integers(0, 10**9))
def test_any_text_stays_text(first, second, third, share, count):
    html = card(
        first,
        second,
        {third: first, "share": Bar(share, second), "other": third or "-"},
        listings=[Listing((first, "n", "share"), [[second, count, Bar(share, third)]] * 2, third)],
        notes=[first, second, third],
        picture=(b"PNG", third),
    )
    read = Card(html)
    assert len(read.sources) == 1
    for text in (first, second, third):
        assert not text or shortened(printable(text), 60) in read.words
    assert f"{count:,}" in read.words
    assert len(html) < 20_000


def test_a_long_name_is_shortened_and_whole_where_the_pointer_rests():
    read = Card(card("DataSet", "n" * 300, {}))
    assert "n" * 300 in read.titles
    assert max(map(len, read.words)) == 60


def test_what_is_not_there_takes_no_room():
    read = Card(card("Mapping", "blm", {"samples": "", "classes": "2"}, listings=[Listing(("class",), [])]))
    assert "samples" not in read.words
    assert read.open == []
    assert "rp-list" not in card("Mapping", "blm", {}, listings=[Listing(("class",), [])]).partition("</style>")[2]


def test_many_notes_are_counted():
    assert "... and 3 more notes" in Card(card("DataSet", "", {}, notes=[f"note {i}" for i in range(7)])).words


def test_many_names_are_counted():
    assert named(["a\nb", "c" * 300]) == f"a\\nb, {'c' * 15}…{'c' * 8}"
    assert named(map(str, range(1200)), 2) == "0, 1 ... (1,200 in all)"


def test_colours_follow_the_notebook_before_the_system():
    style = Card(card("DataSet", "", {})).style
    system = style.index("prefers-color-scheme:dark")
    for page in ('[data-jp-theme-light="false"]', '[data-jp-theme-light="true"]', ".vscode-dark", '[theme="dark"]'):
        assert style.index(page) > system  # later rules win, and these say more
