"""Reading what somebody else may have written: sizes, form and seals are checked before anything relies on them."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from reprogram.errors import ReprogramError, first_line, shown
from reprogram.files.foreign import opened
from reprogram.files.seals import HEADER, KEY, is_sealed, tensor_digest

if TYPE_CHECKING:  # so that files can be looked for before torch is imported
    from torch import Tensor

Schema = TypeVar("Schema", bound=BaseModel)
MOST_BYTES = 64 * 2**20  # of a file that is read as one text: a million labels with their names are half of that
_DEEPEST = 64
_LONGEST_HEADER = 16 * 2**20  # bytes: the descriptions of some hundred tensors, and a hundred thousand epochs
AGAIN = "take it from a backup, or make it again"


def read_bytes(path: Path, what: str, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of a bounded size, or one sentence."""
    with opened(path, what, "check the path") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ReprogramError(
                f"{what} {str(path)!r} has {size:,} bytes, but at most {most:,} are read; check which file it is"
            )
        content = file.read(size + 1)
    if len(content) > size:
        raise ReprogramError(f"{what} {str(path)!r} grew while it was read; wait until it is written")
    return content


def parse_json(text: str | bytes, what: str, remedy: str, *, finite: bool = True, unique: bool = False) -> Any:
    """The value of a JSON text, or our error: what it is not, why, and what to do.

    NaN and Infinity, which are no JSON, and more than 64 levels are refused.

    Args:
        text: the text, or its bytes in UTF-8.
        what: the beginning of the message: what is not readable.
        remedy: what to do.
        finite: whether numbers beyond floating point, such as 1e999, are refused, too. It costs time where there are many.
        unique: whether a name that stands twice in one table is refused; else the last one counts.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="surrogateescape")
        pairs = _once if unique else None
        value = json.loads(text, parse_constant=no_number, parse_float=_finite if finite else None, object_pairs_hook=pairs)
        check_depth(value)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else first_line(error)
        raise ReprogramError(f"{what} ({reason}); {remedy}") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{shown(name)} stands twice in one table")
        found[name] = value
    return found


def read_json(path: Path, what: str, *, most: int = MOST_BYTES) -> Any:
    """Read a JSON file, or say in one sentence what is wrong with it."""
    return parse_json(read_bytes(path, what, most), f"{what} {str(path)!r} is not a readable JSON file", "write it again")


def read_sealed(
    path: Path, what: str, schema: type[Schema] | None = None, *, remedy: str = AGAIN, most: int = MOST_BYTES
) -> dict[str, Any]:
    """Read what `write_sealed` wrote, without the seal; one that does not fit its content is refused.

    Args:
        path: the file.
        what: what it is, for messages.
        schema: what its content must look like.
        remedy: what the user can do about a damaged one.
        most: how many bytes it may have.
    """
    text = read_bytes(path, what, most).decode("utf-8", errors="surrogateescape")
    return parse_sealed(text, f"{what} {str(path)!r}", schema, remedy=remedy)


def parse_sealed(text: str, what: str, schema: type[Schema] | None = None, *, remedy: str = AGAIN) -> dict[str, Any]:
    """The content of a text of `sealed_json` or `sealed_line`."""
    content = parse_json(text, f"{what} is damaged: it is not readable as JSON", remedy)
    if not isinstance(content, dict) or KEY not in content:
        raise ReprogramError(
            f"{what} carries no SHA-256: it is damaged, or an older version or another program wrote it; {remedy}"
        )
    if not is_sealed(text):
        raise ReprogramError(f"{what} has changed since it was written (its SHA-256 differs); {remedy}")
    del content[KEY]
    check_schema(content, what, schema, remedy)
    return content


def check_schema(content: Any, what: str, schema: type[BaseModel] | None, remedy: str) -> None:
    """Raise unless the content has the form that a schema describes."""
    try:
        if schema is not None:
            schema.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ReprogramError(f"{what} does not have the expected form ({place}: {first['msg']}); {remedy}") from None
    except RecursionError:
        raise ReprogramError(f"{what} is nested too deeply; {remedy}") from None


def read_tensors(path: Path, what: str, *, remedy: str = AGAIN) -> "tuple[dict[str, Tensor], Any]":
    """Read what `write_tensors` wrote: the tensors, which are finite, and the header; their SHA-256 is checked.

    The memory that it takes is that of the file: what a header declares beyond it is refused.
    """
    return tensors_with_digest(path, what, remedy=remedy)[:2]


def tensors_with_digest(path: Path, what: str, *, remedy: str = AGAIN) -> "tuple[dict[str, Tensor], Any, str]":
    """The same, and the SHA-256, by which other files can name this one."""
    name = f"{what} {str(path)!r}"
    try:
        from safetensors.torch import load

        _check_extent(path, what)
        content = read_bytes(path, what, most=2**40)
        size = int.from_bytes(content[:8], "little")
        digest, _, text = json.loads(content[8 : 8 + size])["__metadata__"][HEADER].partition(" ")
        tensors = load(content)
    except ReprogramError:
        raise
    except Exception as error:  # a file of another kind fails in many ways, all meaning the same to the caller
        raise ReprogramError(f"{name} is damaged or of another kind ({type(error).__name__}); {remedy}") from None
    if tensor_digest(tensors, text) != digest:
        raise ReprogramError(f"{name} has changed since it was written (its SHA-256 differs); {remedy}")
    for key, tensor in tensors.items():
        if (tensor.is_floating_point() or tensor.is_complex()) and not bool(tensor.isfinite().all()):
            raise ReprogramError(f"the tensor {key!r} of {name} holds NaN or infinity; {remedy}")
    return tensors, parse_json(text, f"the header of {name} is not readable", remedy), digest


def _check_extent(path: Path, what: str) -> None:
    """Raise unless a safetensors file has a header of a bounded size and is as long as that says, before it is all read."""
    with opened(path, what, AGAIN) as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= _LONGEST_HEADER:
            raise ValueError(f"a header of {size} bytes")
        described = json.loads(file.read(size))
        ends = [entry["data_offsets"][1] for key, entry in described.items() if key != "__metadata__"]
        if os.fstat(file.fileno()).st_size != 8 + size + max(ends, default=0):
            raise ValueError("another length than its header says")


def fitting(
    tensors: "Mapping[str, Tensor]", like: "Mapping[str, Tensor]", what: str, remedy: str = AGAIN
) -> "dict[str, Tensor]":
    """The same tensors, if they have the names, shapes and types of others.

    Raises:
        ReprogramError: the first one that differs.
    """
    if different := sorted(tensors.keys() ^ like.keys()):
        there = "has a tensor" if different[0] in tensors else "lacks the tensor"
        raise ReprogramError(f"{what} {there} {different[0]!r}, so its parts do not fit together; {remedy}")
    for name, tensor in tensors.items():
        expected = like[name]
        if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
            raise ReprogramError(
                f"the tensor {name!r} of {what} is {_described(tensor)}, but {_described(expected)} is expected, so its "
                f"parts do not fit together; {remedy}"
            )
    return dict(tensors)


def _described(tensor: "Tensor") -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def no_number(token: str) -> NoReturn:
    """Refuse NaN and Infinity."""
    raise ValueError(f"{token} is not a number that JSON knows")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def check_depth(value: Any) -> None:
    """Level by level, so that no depth can exhaust the stack."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inside
            for outer in level
            if isinstance(outer, (list, dict))
            for inside in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inside, (list, dict))
        ]
        if not level:
            return
    raise ValueError(f"nested more than {_DEEPEST} deep")
