"""SHA-256 over what we write, kept in the file itself, so that damage is noticed when it is read.

A seal is no signature: whoever may write a file may seal it again. It tells of damage, of editing, and of files that do
not belong together.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprogram.text import escaped_json

if TYPE_CHECKING:
    from torch import Tensor

KEY = "sha256"
#: Where a safetensors file keeps its SHA-256 and what else it tells: one entry, because several have no fixed order.
HEADER = "sha256 header"
_DIGITS = 64


def sha256(path: Path) -> str:
    """The checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encoded(text: str) -> bytes:
    """A text as it stands in a file: names that are no UTF-8 keep their bytes."""
    return text.encode("utf-8", errors="surrogateescape")


def sealed_json(content: Mapping[str, Any]) -> str:
    """A JSON table for a file of its own, its last key the SHA-256 of all that stands before the digest.

    >>> print(sealed_json({"a": 1})[:22])
    {
      "a": 1,
      "sha256"
    """
    return _sealed(content, "\n", indent=2)


def sealed_line(content: Mapping[str, Any]) -> str:
    """The same as one line, for files of many."""
    return _sealed(content, "", indent=None)


def _sealed(content: Mapping[str, Any], end: str, indent: int | None) -> str:
    text = escaped_json(json.dumps({**content, KEY: ""}, indent=indent, ensure_ascii=False, allow_nan=False))
    before = text[: text.rindex('"')]
    return f'{before}{hashlib.sha256(encoded(before)).hexdigest()}"{end}}}\n'


def is_sealed(text: str) -> bool:
    """Whether a text of `sealed_json` or `sealed_line` is as it was written, to the byte.

    >>> is_sealed(sealed_json({"a": 1})), is_sealed(sealed_json({"a": 1}).replace("1", "2"))
    (True, False)
    """
    for end in ('"\n}\n', '"}\n'):
        if text.endswith(end):
            before, digest = text[: -len(end) - _DIGITS], text[-len(end) - _DIGITS : -len(end)]
            return before.endswith(f'"{KEY}": "') and hashlib.sha256(encoded(before)).hexdigest() == digest
    return False


def sealed_text(lines: Iterable[str]) -> str:
    """Lines, and a last one with the SHA-256 of those before it.

    >>> lines_of(sealed_text(["a", "b"]))
    ['a', 'b']
    """
    text = "".join(f"{line}\n" for line in lines)
    return f"{text}{KEY}: {hashlib.sha256(encoded(text)).hexdigest()}\n"


def lines_of(text: str) -> list[str] | None:
    """The lines of a `sealed_text` without the last one; None if they are not as they were written."""
    before, mark, digest = text.rpartition(f"{KEY}: ")
    return before.splitlines() if mark and f"{hashlib.sha256(encoded(before)).hexdigest()}\n" == digest else None


def sealed_page(text: str) -> str:
    """An HTML page, and behind it a remark with the SHA-256 of all that stands before.

    >>> is_sealed_page(sealed_page("<html></html>")), is_sealed_page("<html></html>")
    (True, False)
    """
    return f"{text}<!-- {KEY}: {hashlib.sha256(encoded(text)).hexdigest()} -->\n"


def is_sealed_page(text: str) -> bool:
    """Whether a text of `sealed_page` is as it was written, to the byte."""
    before, mark, _ = text.rpartition(f"<!-- {KEY}: ")
    return bool(mark) and sealed_page(before) == text


def tensor_digest(tensors: "Mapping[str, Tensor]", header: str) -> str:
    """One digest over names, types, shapes and bytes of tensors, and over the header that belongs to them."""
    import torch

    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode(errors="surrogateescape"))
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
