"""The base of all settings: immutable, checked, and a mistake in them is one sentence."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

import pydantic
from pydantic import ConfigDict

from reprogram.errors import ReprogramError, shown, unknown

Spell = Callable[[str, Any], str]

_LARGEST = 2**63 - 1


def expectation(message: str) -> str:
    """What pydantic's message says the value should be, in our words.

    >>> expectation("Input should be a valid integer, unable to parse string as an integer")
    'an integer'
    """
    wanted = message.removeprefix("Value error, ").removeprefix("Input should be ").split(", unable")[0]
    kind = wanted.removeprefix("a valid ")
    return wanted if kind == wanted else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def spelled(name: str, value: Any) -> str:
    """How a setting and its value are written in Python and in configuration files."""
    return f"{name} = {shown(value)}"


_spelling: ContextVar[Spell] = ContextVar("spelling", default=spelled)


def spelling() -> Spell:
    """How settings are spelled for whoever gave those that are being read."""
    return _spelling.get()


@contextmanager
def spelled_by(spell: Spell) -> Iterator[None]:
    """While it is entered, messages about settings spell them so."""
    before = _spelling.set(spell)
    try:
        yield
    finally:
        _spelling.reset(before)


def first_problem(error: pydantic.ValidationError, known: Iterable[str], spell: Spell = spelled) -> ReprogramError:
    """Turn pydantic's report into our one sentence about its first finding, or about all that one value might have been."""
    finding, *others = error.errors()
    field = str(finding["loc"][0]) if finding["loc"] else ""
    if isinstance(cause := finding.get("ctx", {}).get("error"), ReprogramError):  # a validator of ours has said it
        return cause
    if finding["type"] == "extra_forbidden":
        return unknown("setting", field, known)
    if finding["type"] == "missing" and len(finding["loc"]) == 1:
        return ReprogramError(f"{spell(field, '').split()[0]} is missing; give it a value")
    given = spell(field, finding["input"]) if field else shown(finding["input"])
    same = [finding, *(other for other in others if other["loc"][:1] == finding["loc"][:1])]
    if finding["type"] == "missing":
        return ReprogramError(f"{given} was given, but it has too few parts; add what is missing")
    wanted = " or ".join(dict.fromkeys(expectation(each["msg"]) for each in same))
    return ReprogramError(f"{given} was given, but it should be {wanted}; change that value")


def _plain(scalar: Any) -> Any:
    """A numpy scalar as Python's; one of low precision is the decimal number that was written, not its nearest double."""
    plain = scalar.item()
    return float(str(scalar)) if isinstance(plain, float) else plain


class Settings(pydantic.BaseModel):
    """Base of all settings: immutable, no unknown names, and mistakes in one sentence."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _plain_numbers(cls, values: Any) -> Any:
        """Take numpy's scalars for the numbers that they are: searches over settings hand those out."""
        if not isinstance(values, dict):
            return values
        return {
            name: _plain(value) if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value
            for name, value in values.items()
        }

    @pydantic.model_validator(mode="after")
    def _usable_numbers(self) -> Self:
        """Refuse whole numbers that no library can count with."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise ReprogramError(
                    f"{spelling()(name, value)} was given, but an integer below 2^63 is expected; change that value"
                )
        return self

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except pydantic.ValidationError as error:
            raise first_problem(error, type(self).model_fields, _spelling.get()) from None

    # not an initialiser of another kind: pydantic's own validation need not go through it
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def read(cls, values: object, spell: Spell | None = None) -> Self:
        """Validate a dictionary, with a `ReprogramError` for the first mistake in it.

        Args:
            values: the settings by name.
            spell: how the error spells a setting with its value; by default as Python does, or as whoever is reading
                settings that hold these.
        """
        with spelled_by(spell or _spelling.get()):
            try:
                return cls.model_validate(values)
            except pydantic.ValidationError as error:
                raise first_problem(error, cls.model_fields, _spelling.get()) from None
