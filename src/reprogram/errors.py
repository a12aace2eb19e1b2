"""The one kind of error a user of the library can cause, and how it names the nearest right word."""

import difflib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_VALUE = 80  # letters of a value that stand in a sentence
_SHOWN = 200  # and of a text: most paths are shorter
_END = 60  # of them from its end, which says most of a path
_COMPARED = 100  # letters of the longest word for which a near one is looked for
_LISTED = 60  # words of a table that stand in a sentence


class ReprogramError(ValueError):
    """A mistake that the caller can mend.

    Its text is one sentence that names what was given, what was expected and what to do. The command line
    prints that sentence and exits with code 2; a library user catches it as the `ValueError` that it is.
    """


class NonFiniteError(ReprogramError):
    """Numbers that are NaN, infinite, or too large or too small to compute with; what was found stands before the comma."""

    @property
    def found(self) -> str:
        """The first clause, for a sentence that knows better what to do.

        >>> NonFiniteError("the logits hold NaN, but finite numbers are expected; check them").found
        'the logits hold NaN'
        """
        return str(self).partition(",")[0]


class EvidenceWarning(UserWarning):
    """A target class has no evidence in the statistics, or a sample is none, so a column of the mapping is a guess."""


def nearest(given: str, known: Iterable[str], alike: float = 0.5) -> str:
    """Return a clause that proposes the known word closest to `given`, or an empty string where none is so much `alike`.

    >>> nearest("paddin", ["padding", "watermark"])
    "; did you mean 'padding'?"
    >>> nearest("zebra", ["padding", "watermark"])
    ''
    """
    if len(given) > _COMPARED:  # no misspelling, and comparing takes time that grows with the square of the length
        return ""
    words = [word for word in known if len(word) <= 3 * _COMPARED]
    matches = difflib.get_close_matches(given, words, n=1, cutoff=alike)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def unknown(kind: str, given: str, known: Iterable[str]) -> ReprogramError:
    """Build the error for a name that is in no table: what was given, the nearest name, and all there are.

    >>> str(unknown("program", "paddin", ["padding", "none"]))
    "program 'paddin' is not known; did you mean 'padding'? (known: padding, none)"
    """
    names = list(known)
    some = f"{', '.join(map(short, names[:_LISTED]))}{' ...' if len(names) > _LISTED else ''}"
    return ReprogramError(f"{kind} {shown(given)} is not known{nearest(given, names)} (known: {some})")


def extra_missing(package: str, extra: str, needed_by: str = "this model") -> ReprogramError:
    """Build the error for a package that is not installed, with the extra of this package that brings it.

    >>> str(extra_missing("timm", "models"))
    "timm is not installed, but this model needs it; run: pip install 'reprogram[models]'"
    """
    return ReprogramError(f"{package} is not installed, but {needed_by} needs it; run: pip install 'reprogram[{extra}]'")


def first_line(error: BaseException) -> str:
    r"""What an exception of another package says, short enough to stand inside a sentence.

    >>> first_line(OSError("no space left\nat all")), first_line(KeyError())
    ('no space left', 'KeyError')
    """
    return str(error).strip().split("\n")[0][:160] or type(error).__name__


def shown(value: object) -> str:
    r"""A value as Python writes it, on one line, and not all of a long one.

    >>> shown("two\nlines"), len(shown("a" * 5000))
    ("'two\\nlines'", 207)
    """
    if isinstance(value, str):
        if len(value) > _SHOWN:  # before it is escaped, which takes long for a long one
            value = f"{value[: _SHOWN - _END]} ... {value[-_END:]}"
        most = _SHOWN + _END
    else:
        value, most = value[:_SHOWN] if isinstance(value, bytes) else value, _VALUE
    text = repr(value).replace("\n", " ")
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def short(word: str) -> str:
    r"""A word that somebody else wrote, as it stands where that is possible: on one line, visible, and not too long.

    >>> short("Forest"), short("two\nlines")
    ('Forest', "'two\\nlines'")
    """
    return word if len(word) <= _SHOWN and word.isprintable() else shown(word)


@contextmanager
def ignore_evidence_warnings() -> Iterator[None]:
    """Where classes without evidence are expected and not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        yield
