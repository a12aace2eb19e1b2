"""Names that others wrote (classes, source labels, files), as they may stand in a sentence or in the page's data."""

from collections.abc import Iterable

from reprogram.text import printable, whole

_LONGEST = 300
_IN_A_SENTENCE = 40
_ISOLATE, _END = "\u2068", "\u2069"  # what stands between them runs in its own direction and turns nothing around it


def shown(name: str, longest: int = _LONGEST) -> str:
    r"""A name on one line without characters that are not seen, cut where it is very long.

    >>> shown("a\nb"), shown("x" * 500)[-3:]
    ('a\\nb', 'xx…')
    """
    text = printable(whole(name))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def quoted(name: str) -> str:
    """A name inside a sentence: in quotation marks, and isolated from the direction of the text around it."""
    return f"“{_ISOLATE}{shown(name, _IN_A_SENTENCE)}{_END}”"


def image_name(name: str, data: str | None) -> str:
    """The name of an image without the folder of the data: a report is sent around, and what is told is where in the data.

    >>> image_name("/home/me/birds/test/wren/1.jpg", "/home/me/birds"), image_name("digits/3", "digits")
    ('test/wren/1.jpg', 'digits/3')
    """
    root = f"{(data or '').rstrip('/')}/"
    return name[len(root) :] if root.startswith("/") and name.startswith(root) else name


def synonym(label: str) -> str:
    """The first of the many names that some models give one label.

    >>> synonym("cougar, puma, catamount, mountain lion"), synonym("Paris, Texas")
    ('cougar', 'Paris, Texas')
    """
    return label.partition(", ")[0] if len(label) > 20 else label


def listed(texts: Iterable[str], most: int = 5) -> str:
    """Texts with commas and an "and", and how many more there are.

    >>> listed(["a", "b", "c"]), listed(map(str, range(9)), most=2)
    ('a, b and c', '0, 1 and 7 more')
    """
    given = list(texts)
    parts = given if len(given) <= most else [*given[:most], f"{len(given) - most} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def counted(number: int, word: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "class"), counted(1200, "image"), counted(2, "class", "classes")
    ('1 class', '1,200 images', '2 classes')
    """
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share for a reader, or a dash.

    >>> percent(0.5), percent(None)
    ('50.0 %', '–')
    """
    return "–" if share is None else f"{100 * share:.{digits}f} %"
