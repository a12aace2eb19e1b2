"""Seals put on damaged content again, so that the code behind the check of the seal is reached."""

import hashlib
import json
import struct

from reprogram.files.seals import encoded, sealed_text, tensor_digest

_MARK = '"sha256": "'


def reseal_json(data: bytes) -> bytes:
    """A damaged JSON table with the right seal at its end; its text stays as odd as it is otherwise."""
    text = data.decode("utf-8", "surrogateescape").rstrip()
    before, mark, _ = text.rpartition(_MARK)
    if not mark:
        if not text.endswith("}"):
            return data
        before = text[:-1].rstrip()
        before += "" if before.endswith("{") else ", "
    before += _MARK
    return encoded(f'{before}{hashlib.sha256(encoded(before)).hexdigest()}"}}\n')


def reseal_lines(data: bytes) -> bytes:
    """Many such tables, one per line."""
    return b"".join(reseal_json(line) for line in data.splitlines() if line)


def reseal_text(data: bytes) -> bytes:
    """Damaged lines with the right last one."""
    lines = data.decode("utf-8", "replace").split("\n")
    return sealed_text(line for line in lines if line and not line.startswith("sha256: ")).encode()


def reseal_tensors(data: bytes) -> bytes:
    """A damaged safetensors file with the right seal in its header; one that cannot be loaded has none."""
    from safetensors.torch import load

    size = struct.unpack("<Q", data[:8])[0]
    described = json.loads(data[8 : 8 + size])
    metadata = described["__metadata__"]
    metadata["sha256"] = tensor_digest(load(data), metadata["header"])
    header = json.dumps(described).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def digest_of(data: bytes) -> str | None:
    """The seal that a safetensors file carries, if it can be found."""
    try:
        size = struct.unpack("<Q", data[:8])[0]
        found = json.loads(data[8 : 8 + size])["__metadata__"]["sha256"]
    except Exception:  # any damage
        return None
    return found if isinstance(found, str) else None
