"""Progress never ends what it tells of, and no name in it steers the terminal."""

import contextlib
import io

import pytest

from reprogram.progress import Outlet, PlainProgress, Progress, TerminalProgress, for_stream

HOSTILE = "\x1b]0;x\x07 :cat: [red]a[/red]\nb"
SHOWN = r"\x1b]0;x\x07 :cat: [red]a[/red]\nb"


class Live(io.StringIO):
    def isatty(self):
        return True


class Broken(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize(("stream", "kind"), [(io.StringIO, PlainProgress), (Live, TerminalProgress)])
def test_names_are_shown_as_they_are_and_steer_nothing(stream, kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.redirect_stdout(stream()) as heard:
        progress = for_stream()
        assert type(progress) is kind
        progress.say(HOSTILE)
        if kind is PlainProgress:
            progress.interval = -1.0
        assert list(progress.track([1, 2], HOSTILE)) == [1, 2]
    text = heard.getvalue()
    assert text.startswith(f"{SHOWN}\n")
    assert text.count(SHOWN) >= 2  # in the line and in the bar
    assert "\x1b]" not in text
    assert "\x07" not in text


@pytest.mark.parametrize("kind", [PlainProgress, TerminalProgress])
def test_a_reader_that_is_gone_ends_nothing(kind):
    with contextlib.redirect_stdout(Broken()):
        progress = kind()
        progress.say("one")
        assert list(progress.track([1, 2, 3], "steps")) == [1, 2, 3]


def test_there_may_be_no_standard_output_at_all(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    progress = for_stream()
    progress.say("one")
    assert list(progress.track([1], "steps")) == [1]


def test_the_silent_one_says_nothing(capsys):
    Progress().say("one")
    assert list(Progress().track([1], "steps")) == [1]
    assert capsys.readouterr().out == ""


def test_an_outlet_keeps_the_first_error_and_raises_it_where_it_is_needed():
    outlet = Outlet(Broken())
    assert outlet.write("one") == 3
    first = outlet.lost
    assert isinstance(first, BrokenPipeError)
    outlet.write("two")
    assert outlet.lost is first
    assert not outlet.isatty()
    outlet.needed = True
    with pytest.raises(BrokenPipeError):
        outlet.write("three")
    outlet.flush()
    stream = io.StringIO()
    heard = Outlet(stream, needed=True)
    heard.write("one")
    assert (stream.getvalue(), heard.lost) == ("one", None)
    stream.close()
    with pytest.raises(OSError, match="closed"):
        heard.write("two")
