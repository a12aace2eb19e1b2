"""The base of all settings: immutable, checked, and a mistake in them is one sentence."""

from collections.abc import Iterable
from typing import Any, Self

import pydantic
from pydantic import ConfigDict

from reprogram.errors import ReprogramError, unknown


def expectation(message: str) -> str:
    """What pydantic's message says the value should be, in our words.

    >>> expectation("Input should be a valid integer, unable to parse string as an integer")
    'an integer'
    """
    wanted = message.removeprefix("Input should be ").split(", unable")[0]
    kind = wanted.removeprefix("a valid ")
    return wanted if kind == wanted else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def first_problem(error: pydantic.ValidationError, known: Iterable[str]) -> ReprogramError:
    """Turn pydantic's report into our one sentence about its first finding."""
    finding = error.errors()[0]
    field = ".".join(str(part) for part in finding["loc"][:1])
    if finding["type"] == "extra_forbidden":
        return unknown("setting", field, known)
    if isinstance(cause := finding.get("ctx", {}).get("error"), ReprogramError):  # a validator of ours has said it
        return cause
    given = f"{field} = {finding['input']!r}" if field else repr(finding["input"])
    return ReprogramError(f"{given} was given, but it should be {expectation(finding['msg'])}; change that value")


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
            name: value.item() if type(value).__module__ == "numpy" and not value.shape else value
            for name, value in values.items()
        }

    @classmethod
    def read(cls, values: object) -> Self:
        """Validate a dictionary, with a `ReprogramError` for the first mistake in it."""
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            raise first_problem(error, cls.model_fields) from None
