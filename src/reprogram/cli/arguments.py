"""Command-line arguments → a checked schema: tyro splits them into flags and words, pydantic says what they may be.

tyro is handed every flag as a text, so that one room decides what a value may be: the schema, which also reads
configuration files and Python's keywords. A mistake becomes one sentence.
"""

import contextlib
import dataclasses
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin

import tyro
from pydantic.fields import FieldInfo

from reprogram.errors import ReprogramError, nearest, short, shown
from reprogram.settings import Settings

Schema = TypeVar("Schema", bound=Settings)


def parse(
    schema: type[Schema], arguments: Sequence[str], prog: str, further: Mapping[str, FieldInfo] | None = None
) -> dict[str, Any]:
    """What was given, by field name: texts, lists of texts, and True or False for switches.

    Args:
        schema: the fields; those marked with `tyro.conf.Positional` are words, the others flags.
        arguments: what stands behind the verb.
        prog: how the command is called, for help and messages.
        further: fields beside those of the schema.
    """
    fields = {**_own_first(schema), **(further or {})}
    form = dataclasses.make_dataclass("Arguments", [_argument(name, field) for name, field in fields.items()], kw_only=True)
    switches = {_flag(name) for name, field in fields.items() if field.annotation is bool}
    flags = [token.split("=")[0].replace("_", "-") for token in arguments if token.startswith("--") and token != "--"]
    for flag, count in Counter(flags).items():
        if count > 1:
            raise ReprogramError(f"{short(flag)} was given {count} times, but it counts once; give it once")
    for token in arguments:
        flag, has_value, value = token.replace("_", "-").partition("=")
        if flag.startswith("--tyro-"):
            raise ReprogramError(f"{shown(token)} was not expected after {prog}; flags start with -- (see {prog} --help)")
        if has_value and flag in switches | {f"--no-{switch[2:]}" for switch in switches}:
            flag = f"--{flag.removeprefix('--').removeprefix('no-')}"
            raise ReprogramError(f"{flag} takes no value, but {shown(value)} was given; write {flag} or --no-{flag[2:]}")
    with contextlib.ExitStack() as stack:
        if errors := _error_hook():
            stack.enter_context(errors.on_parse_error(lambda event: _explain(event, fields, prog, arguments)))
        found: Any = tyro.cli(form, args=list(arguments), prog=prog, description=schema.__doc__ or "", add_help=True)
    given = {name: value for name in fields if (value := getattr(found, name)) is not None}
    said = {token.split("=")[0].replace("_", "-") for token in arguments}
    for flag in switches:
        if not said & {flag, f"--no-{flag[2:]}"}:
            del given[_name(flag)]
    return given


def read(schema: type[Schema], given: Mapping[str, Any]) -> Schema:
    """Check what `parse` found; a mistake is told in the words of the command line."""
    return schema.read(dict(given), spell=spell)


def spell(name: str, value: Any) -> str:
    """How a setting and its value are written on the command line.

    >>> spell("batch_size", "many")
    '--batch-size many'
    """
    return f"{short(_flag(name))} {short(str(value))}"


def _own_first(schema: type[Settings]) -> dict[str, FieldInfo]:
    """The fields of a schema, its own before those of what it extends: help begins with what matters most."""
    order = [name for kind in schema.__mro__ for name in inspect.get_annotations(kind)]
    return {name: schema.model_fields[name] for name in dict.fromkeys(order) if name in schema.model_fields}


def _argument(name: str, field: FieldInfo) -> tuple[str, Any, Any]:
    """The same field for tyro: text in, help as the schema has it."""
    words = tyro.conf.Positional in field.metadata
    metavar = next((entry.metavar for entry in field.metadata if hasattr(entry, "metavar")), None) or _metavar(field)
    kind: Any = str if words and field.is_required() else str | None
    default: Any = dataclasses.MISSING if words and field.is_required() else None
    if field.annotation is bool:
        kind, default, metavar = bool, bool(field.default), None
    elif get_origin(field.annotation) is list:
        kind = list[str]
        default = dataclasses.MISSING if field.is_required() else dataclasses.field(default_factory=list)
    # tyro would add its own remark about the default, which is None here: the schema's stands in the text
    help_text = (field.description or "") + _default_remark(field)
    notes = [tyro.conf.arg(help=help_text, metavar=metavar, help_behavior_hint="")]
    kind = Annotated[(kind, *notes, *([tyro.conf.Positional] if words else []))]
    return (name, kind) if default is dataclasses.MISSING else (name, kind, default)  # type: ignore[return-value]


def _metavar(field: FieldInfo) -> str:
    options = [field.annotation, *get_args(field.annotation)]
    options = [get_args(part)[0] if get_origin(part) is Annotated else part for part in options]
    words = [word for part in options if get_origin(part) is Literal for word in get_args(part)]
    kinds = {int: "INT", float: "NUMBER", str: "TEXT"}
    names = [*map(str, words), *(kinds[part] for part in options if part in kinds)]
    return "|".join(names) or "TEXT"


def _default_remark(field: FieldInfo) -> str:
    decided = isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("resolved")
    if field.is_required() or field.default in (None, [], "") or field.annotation is bool or decided:
        return ""
    return f" (default: {field.default})"


def _error_hook() -> Any:
    """Tyro's hook for errors, which is no public part of it; where it is missing, tyro tells mistakes in its own words."""
    errors = getattr(tyro, "_errors", None)
    return errors if hasattr(errors, "on_parse_error") else None


def _explain(event: Any, fields: Mapping[str, FieldInfo], prog: str, arguments: Sequence[str]) -> NoReturn:
    """Say in one sentence what tyro has found."""
    see = f"(see {prog} --help)"
    kind = type(event).__name__
    if kind == "UnrecognizedArgs":
        token = event.tokens[0]
        flag = token.split("=")[0].replace("_", "-")
        if not token.startswith("--"):
            raise ReprogramError(f"{shown(token)} was not expected after {prog}; flags start with -- {see}")
        switches = [_flag(name) for name, field in fields.items() if field.annotation is bool]
        named = [_flag(name) for name, field in fields.items() if tyro.conf.Positional not in field.metadata]
        known = [*named, *(f"--no-{flag[2:]}" for flag in switches)]
        raise ReprogramError(f"flag {short(flag)} is not known{nearest(flag, known)} {see}")
    if kind == "MissingArgs":
        missing = event.missing_arguments[0].arg
        name = next(name for name in fields if name == missing.field.intern_name)
        word = _flag(name) if tyro.conf.Positional not in fields[name].metadata else _word(name, fields[name])
        raise ReprogramError(f"{word} is missing, but {prog} needs it; add it {see}")
    if kind in ("BadValue", "InvalidChoice", "InstantiationFailure") and event.argument is not None:
        name = event.argument.field.intern_name
        flag = _flag(name)
        places = [place for place, token in enumerate(arguments) if token.replace("_", "-") == flag]
        alone = places and (places[-1] + 1 == len(arguments) or arguments[places[-1] + 1].startswith("--"))
        if kind == "BadValue" or alone:
            raise ReprogramError(f"{flag} needs a value; write {flag} {_metavar(fields[name])}")
    text = getattr(event, "message", "") or "the arguments cannot be read"
    raise ReprogramError(f"{short(text)} {see}")


def _word(name: str, field: FieldInfo) -> str:
    return next((entry.metavar for entry in field.metadata if getattr(entry, "metavar", None)), name.upper())


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
