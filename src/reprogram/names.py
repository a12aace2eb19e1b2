"""Class names: when two spellings mean one thing."""


def plain_name(name: str) -> str:
    """A class name as it stands in a text and as names are compared: lower case, `_` and `-` as spaces, single spaces.

    >>> plain_name("Forest_Broad-Leaved")
    'forest broad leaved'
    """
    return " ".join(name.lower().replace("_", " ").replace("-", " ").split())
