"""Damage that keeps the form: JSON stays JSON, a zip archive keeps its checksums, headers keep their length."""

import ast
import io
import json
import random
import struct
import zipfile
import zlib
from typing import Any

from soak.mutate import BYTES, TEXT, Known, Mutator, change_digits, set_number

_RAW = "\x00raw\x00"
_RAW_WRITTEN = json.dumps(_RAW)
_ODD_VALUES = (
    "null", "true", "false", "-1", "0", "1", "2", "-0.0", "0.5", "1e-400", "1e400", "-1e400", "NaN", "Infinity", "-Infinity",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e308",
    "123456789012345678", "1000000000", "9" * 4400, '""', '" "', '"x"', '"\\u0000"', '"\\ud800"', '"\\udcff"',
    '"\\u001b[31m"', '"../../etc/passwd"', '"/"', '"~nobody/x"', '"nan"', '"0"', '"-1"', '"name\\nline"',
    '"' + "long" * 20000 + '"', "[]", "{}", "[null]", "[[]]", '[""]', "[1]", "[true]", "[NaN]", '{"": null}', '{"name": 1}',
    '["a", "a"]', "[" * 30 + "]" * 30, "[" * 3000 + "]" * 3000, '{"a":' * 1500 + "1" + "}" * 1500, "[" * 100000,
    "[" + "0," * 5000 + "0]",
)  # fmt: skip


_ODD_TYPES: tuple[Any, ...] = (
    "<f2", "<f4", ">f8", "<f8", "<f16", "|O", "<i1", "|u1", "<i8", ">i8", "<u8", "|b1", "<c8", "<c16", "<U4", "|S3", "|V8",
    "<M8[ns]", "<m8", "|V0", "<U0", "<U99999999", [("a", "<f4")], [("a", "|O")], [], None, 5, "x", "f4,f4", ("<f4", (2,)),
    "<T", "V9999999999",
)  # fmt: skip


def json_node(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Replace, remove, double or move any node of a JSON text."""
    try:
        content = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return data
    changed = _changed(content, rng)
    return data if changed is None else changed.encode("utf-8", "surrogateescape")


def json_line(data: bytes, rng: random.Random, known: Known) -> bytes:
    """The same for one line of many."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    lines[place] = json_node(lines[place], rng, known)
    return b"\n".join(lines)


def _changed(content: Any, rng: random.Random) -> str | None:
    """The JSON text of a value with one node changed, or None."""
    places: list[tuple[Any, Any]] = []
    _collect(content, places)
    raw = rng.choice(_ODD_VALUES)
    if not places or rng.random() < 0.02:
        return raw
    holder, key = rng.choice(places)
    if rng.random() < 0.3:  # near the top, where the schema is
        holder, key = rng.choice(places[: 1 + len(places) // 4])
    value, choice = holder[key], rng.randrange(10)
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.8:  # JSON inside JSON
        try:
            inner = _changed(json.loads(value), rng)
        except (ValueError, RecursionError):
            inner = None
        if inner is not None:
            holder[key] = inner
            return _dump(content)
    if choice == 0:
        del holder[key]
        return _dump(content)
    if choice == 1:
        other_holder, other_key = rng.choice(places)
        try:
            holder[key] = json.loads(json.dumps(other_holder[other_key]))
        except (ValueError, RecursionError):
            return None
        return _dump(content)
    if choice == 2 and isinstance(holder, dict):
        if rng.random() < 0.5:  # the key twice
            raw = f"{_dump(value)},{json.dumps(key)}:{raw}"
        else:  # another key
            del holder[key]
            holder[rng.choice(("", "x", key.upper(), key + "_", key[:-1], "\x1b[31m", "\ud800", "name", "0"))] = value
            return _dump(content)
    elif choice == 2 and isinstance(holder, list):
        holder[key : key + 1] = [value] * rng.choice((2, 3, 1000))
        return _dump(content)
    elif choice == 3 and isinstance(value, bool | int | float):
        raw = str(
            rng.choice(
                (value + 1, value - 1, -value, value * 2, float(value) if abs(value) < 1e300 else 0, 1 << 62, f'"{value}"')
            )
        )
    elif choice == 3 and isinstance(value, str):
        raw = json.dumps(
            rng.choice((value[:-1], value + "x", value * 2, value.upper(), value + "\x00", value + "\n", value + "\ud8ff"))
        )
    elif choice == 4:
        raw = rng.choice((f"[{_dump(value)}]", f'{{"x": {_dump(value)}}}', json.dumps(str(value))))
    holder[key] = _RAW
    return _dump(content).replace(_RAW_WRITTEN, raw, 1)


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    """All places of a value, level by level; of a long list only the first ones, so that other places are met as well."""
    level = [value] if isinstance(value, dict | list) else []
    while level and len(places) < 2000:
        below = []
        for each in level:
            keys: Any = list(each) if isinstance(each, dict) else range(min(len(each), 12))
            for key in keys:
                places.append((each, key))
                if isinstance(each[key], dict | list):
                    below.append(each[key])
        level = below


def _dump(content: Any) -> str:
    try:
        return json.dumps(content)
    except RecursionError:
        return "[]"


def npy_header(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Another shape, order or type in the header of an array, whose length field stays right."""
    if data[:6] != b"\x93NUMPY" or len(data) < 10:
        return data
    wide = data[6] > 1
    start = 12 if wide else 10
    length = struct.unpack("<I" if wide else "<H", data[8:start])[0]
    try:
        header = ast.literal_eval(data[start : start + length].decode("latin1"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return data
    if not isinstance(header, dict):
        return data
    key = rng.choice(("shape", "shape", "descr", "descr", "fortran_order", "other"))
    if key == "shape":
        before = header.get("shape")
        shape: list[Any] = list(before) if isinstance(before, (tuple, list)) else []
        odd: Any = rng.choice((0, 1, -1, 2**31, 2**32, 2**62, 2**63, 10**30, "3", None, True, 1.0, 3))
        if shape and rng.random() < 0.7:
            shape[rng.randrange(len(shape))] = odd
        else:
            shape.insert(rng.randrange(len(shape) + 1), odd)
        header["shape"] = tuple(shape) if rng.random() < 0.9 else rng.choice((shape, None, 5, (), ((1,),), "x", (1,) * 70))
    elif key == "descr":
        header["descr"] = rng.choice(_ODD_TYPES)
    elif key == "fortran_order":
        header["fortran_order"] = rng.choice((True, False, None, 1, "x"))
    else:
        header[rng.choice(("x", "shape ", 1))] = 1
        if rng.random() < 0.5:
            del header[rng.choice(list(header))]
    text = repr(header).encode("latin1", "replace")
    text += b" " * (-(start + len(text) + 1) % 64) + b"\n"
    if not wide and len(text) > 65535:
        return data
    return data[:8] + struct.pack("<I" if wide else "<H", len(text)) + text + data[start + length :]


def zip_member(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Damage, rename, double, drop or compress a member of an archive; its checksums are right afterwards."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(info.file_size for info in archive.infolist()) > 1 << 24:
                return data
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # damaged by an earlier step
        return data
    if not members:
        return data
    place = rng.randrange(len(members))
    name, content = members[place]
    choice = rng.randrange(8)
    if choice < 4:
        inner = rng.choice((npy_header, npy_header, json_node, *BYTES))
        members[place] = (name, inner(content, rng, known))
    elif choice == 4:
        words = [word.decode("latin1") for word in known.dictionary] or ["x.npy"]
        members[place] = (
            rng.choice((*words, name + "x", name.upper(), "../" + name, "/" + name, "", name.removesuffix(".npy"))),
            content,
        )
    elif choice == 5:
        members.append(rng.choice(members))
    elif choice == 6:
        del members[place]
    else:
        members[place] = (name, rng.choice(members)[1])
    compression = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    return _zipped(members, compression)


def _zipped(members: list[tuple[str, bytes]], compression: int) -> bytes:
    """An archive of these members, also of several with one name, written by hand because zipfile warns about that."""
    body, listing = io.BytesIO(), io.BytesIO()
    for name, content in members:
        raw, offset = name.encode("utf-8", "surrogateescape")[:60000], body.tell()
        packed = content
        if compression == zipfile.ZIP_DEFLATED:
            packer = zlib.compressobj(1, zlib.DEFLATED, -15)
            packed = packer.compress(content) + packer.flush()
        common = struct.pack(
            "<HHHHHIIIHH", 20, 0x800, compression, 0, 33, zlib.crc32(content), len(packed), len(content), len(raw), 0
        )
        body.write(b"PK\x03\x04" + common + raw + packed)
        listing.write(b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, offset) + raw)
    start, length = body.tell(), listing.tell()
    body.write(listing.getvalue())
    body.write(b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, len(members), len(members), length, start, 0))
    return body.getvalue()


def safetensors_header(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Change a node of a safetensors header, whose length field stays right."""
    if len(data) < 8:
        return data
    length = struct.unpack("<Q", data[:8])[0]
    if length > len(data) - 8:
        return data
    header = data[8 : 8 + length]
    changed = header
    if rng.random() < 0.4:
        changed = _other_tensor(header, rng)
    if changed == header:
        changed = json_node(header, rng, known)
    if changed == header:
        return data
    changed += b" " * (-len(changed) % 8)
    return struct.pack("<Q", len(changed)) + changed + data[8 + length :]


def _other_tensor(header: bytes, rng: random.Random) -> bytes:
    """Another shape or type of a tensor that takes as many bytes: what the file's own checks let through."""
    try:
        content = json.loads(header)
    except (ValueError, RecursionError):
        return header
    if not isinstance(content, dict):
        return header
    names = [
        name for name in content if name != "__metadata__" and isinstance(content[name], dict) and "shape" in content[name]
    ]
    if not names:
        return header
    name = rng.choice(names)
    entry = content[name]
    shape = entry["shape"]
    choice = rng.randrange(5)
    if choice == 0:
        entry["shape"] = list(reversed(shape)) if isinstance(shape, list) else shape
    elif choice == 1:
        entry["shape"] = [1, *shape] if isinstance(shape, list) else shape
    elif choice == 2:
        same = {
            8: ("F64", "I64", "U64"),
            4: ("F32", "I32", "U32"),
            2: ("F16", "BF16", "I16", "U16"),
            1: ("U8", "I8", "BOOL", "F8_E4M3"),
        }
        group = next((kinds for kinds in same.values() if entry.get("dtype") in kinds), same[4])
        entry["dtype"] = rng.choice(group)
    elif choice == 3:
        content[name + "x"] = content.pop(name)
    else:
        other = rng.choice(names)
        content[name], content[other] = content[other], content[name]
    return json.dumps(content).encode()


def safetensors_numbers(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Odd numbers in the tensors themselves."""
    if len(data) < 8:
        return data
    start = 8 + struct.unpack("<Q", data[:8])[0]
    if start >= len(data):
        return data
    return data[:start] + set_number(data[start:], rng, known)


JSON: tuple[Mutator, ...] = (*(json_node,) * 24, *TEXT)
JSON_LINES: tuple[Mutator, ...] = (*(json_line,) * 16, *TEXT)
NPY: tuple[Mutator, ...] = (*(npy_header,) * 10, *BYTES)
ZIPS: tuple[Mutator, ...] = (*(zip_member,) * 14, change_digits, *BYTES)
SAFETENSORS: tuple[Mutator, ...] = (*(safetensors_header,) * 14, *(safetensors_numbers,) * 4, *BYTES)
