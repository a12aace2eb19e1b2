"""Command-line arguments → a checked schema: tyro does the parsing, and a mistake becomes one sentence."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import pydantic
import tyro

from reprogram.errors import ReprogramError, nearest
from reprogram.settings import Settings, expectation

Schema = TypeVar("Schema", bound=Settings)


def parse(schema: type[Schema], arguments: Sequence[str], verb: str, default: Schema | None = None) -> Schema:
    """Read the arguments of a verb; `default` replaces the schema's own defaults."""
    prog = f"reprogram {verb}"
    if not {"-h", "--help"} & set(arguments):
        _check(schema, arguments, prog)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                schema,
                args=list(arguments),
                prog=prog,
                default=default if default is not None else tyro.MISSING_NONPROP,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        words = " ".join(re.sub(r"[^\w\s'\"=.,:;()/<>{}|*+-]|─", " ", complaint.getvalue()).split())
        raise ReprogramError(f"{words or 'the arguments cannot be read'} (see {prog} --help)") from None


def peek(arguments: Sequence[str], flag: str) -> str | None:
    """The value given for a flag, before the real parsing; the last one wins."""
    value = None
    for place, token in enumerate(arguments):
        if token == flag and place + 1 < len(arguments):
            value = arguments[place + 1]
        elif token.startswith(f"{flag}="):
            value = token.split("=", 1)[1]
    return value


def _check(schema: type[Settings], arguments: Sequence[str], prog: str) -> None:
    """Find an unknown flag, a missing value, a value of the wrong kind or a word too many."""
    flags = {f"--{name.replace('_', '-')}": name for name in schema.model_fields if not _positional(schema, name)}
    switches = {flag for flag, name in flags.items() if schema.model_fields[name].annotation is bool}
    switches |= {f"--no-{flag[2:]}" for flag in switches}
    takes_words = len(flags) < len(schema.model_fields)
    tokens = iter(arguments)
    for token in tokens:
        flag, has_value, value = token.partition("=")
        flag = flag.replace("_", "-")
        if not token.startswith("--"):
            if not takes_words:
                raise ReprogramError(f"{token!r} was not expected after {prog}; flags start with -- (see {prog} --help)")
        elif flag in switches:
            if has_value:
                raise ReprogramError(f"{flag} takes no value, but {value!r} was given; write {flag} or --no-{flag[2:]}")
        elif flag not in flags:
            raise ReprogramError(f"flag {flag} is not known{nearest(flag, [*flags, *switches])} (see {prog} --help)")
        else:
            given = value if has_value else next(tokens, None)
            if given is None or (given.startswith("--") and not has_value):
                raise ReprogramError(f"{flag} needs a value; write {flag} {_metavar(schema, flags[flag])}")
            _check_value(schema, flags[flag], flag, given)


def _check_value(schema: type[Settings], name: str, flag: str, given: str) -> None:
    field = schema.model_fields[name]
    kind: Any = field.annotation
    for constraint in field.metadata:
        kind = Annotated[kind, constraint]
    try:
        pydantic.TypeAdapter(kind, config=pydantic.ConfigDict(allow_inf_nan=False)).validate_python(
            None if given == "None" else given
        )
    except pydantic.ValidationError as error:
        expected = " or ".join(dict.fromkeys(expectation(finding["msg"]) for finding in error.errors()))
        raise ReprogramError(f"{flag} {given} was given, but it should be {expected}; change that value") from None


def _positional(schema: type[Settings], name: str) -> bool:
    return tyro.conf.Positional in schema.model_fields[name].metadata


def _metavar(schema: type[Settings], name: str) -> str:
    default = schema.model_fields[name].default
    return str(default) if isinstance(default, (str, int, float)) else name.upper()
