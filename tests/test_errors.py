"""Words for mistakes: near ones are found in no time, and hostile ones stand in a sentence without breaking it."""

import time

import pytest

from reprogram.errors import nearest, short, shown, unknown


@pytest.mark.parametrize("length", [101, 5_000, 100_000])
def test_a_long_word_is_compared_with_nothing(length):
    """Comparing takes time that grows with the square of the length: this would be hours."""
    begun = time.monotonic()
    assert nearest("ab" * length, ["ba" * length] * 100) == ""
    assert nearest("padding", ["ba" * length] * 100 + ["paddin"]) == "; did you mean 'paddin'?"
    assert time.monotonic() - begun < 5


def test_a_sentence_stays_one_whatever_was_given():
    words = str(unknown("class", "a\nb" * 5000, (f"class {number}\n" for number in range(10_000))))
    assert words.startswith(r"class 'a\nba\nb")
    assert words.endswith(r"'class 59\n' ...)")
    assert "\n" not in words


def test_what_is_shown_of_others_words():
    assert short("crane") == "crane"
    assert short("\x1b[31m") == r"'\x1b[31m'"
    assert len(short("a" * 10**6)) == len(shown("a" * 10**6)) == 207
    assert len(shown(b"a" * 10**6)) == len(shown(["a" * 10**6])) == 80
    assert shown("/a" * 500 + "/x.pt").endswith("/a/a/x.pt'")  # the end of a path says most
    assert len(shown("\x1b" * 10**6)) == 260
    assert shown(["a\n"]) == r"['a\n']"
