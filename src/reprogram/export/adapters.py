"""ONNX Runtime adapter files (`.onnx_adapter`): a few named arrays beside a model that many tasks share.

onnxruntime writes them. They are read here by hand, byte by byte with every offset checked, because a file may come from
anywhere and onnxruntime's own reader is written for files that are as they should be. Nothing here imports torch.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reprogram.errors import ReprogramError, extra_missing, first_line
from reprogram.files import read_bytes

#: The most bytes that an adapter may have: a pattern on a canvas of 8192, and a head of as many numbers.
MOST_BYTES = 2**31
_MARK = b"TORT"  # stands at byte 4 of each such file
_FORMAT = 1
_MOST_ARRAYS, _MOST_SIDES = 64, 8
_TYPES = {1: np.float32, 10: np.float16, 11: np.float64, 2: np.uint8, 4: np.uint16, 6: np.int32, 7: np.int64}
_AGAIN = "export it again"
Array = np.ndarray[Any, Any]


def import_onnxruntime() -> Any:
    """onnxruntime, or the sentence that says how to install it."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise extra_missing("onnxruntime", "onnx", "an exported model") from None
    return onnxruntime


def write_adapter(path: Path, arrays: Mapping[str, Array], version: int = 1) -> None:
    """Write arrays as an ONNX Runtime adapter; the same arrays give the same bytes."""
    runtime = import_onnxruntime()
    adapter = runtime.AdapterFormat()
    adapter.set_adapter_version(version)
    adapter.set_model_version(version)
    values = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    adapter.set_parameters({name: runtime.OrtValue.ortvalue_from_numpy(value) for name, value in values.items()})
    try:
        adapter.export_adapter(str(path))
    except Exception as error:  # onnxruntime's own types, which have no common base
        raise ReprogramError(f"{str(path)!r} cannot be written ({first_line(error)}); check the space") from None


def read_adapter(path: Path) -> dict[str, Array]:
    """The arrays of an adapter file, by name; all numbers are finite."""
    return parse_adapter(read_bytes(path, "adapter", MOST_BYTES), f"adapter {str(path)!r}")


def parse_adapter(content: bytes, what: str = "adapter") -> dict[str, Array]:
    """The same from the bytes of such a file, which is a table of FlatBuffers: version numbers and a list of arrays."""
    try:
        found = _Buffer(content).arrays()
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise ReprogramError(f"{what} is damaged or of another kind ({first_line(error)}); {_AGAIN}") from None
    for name, array in found.items():
        if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
            raise ReprogramError(f"the array {name[:80]!r} of {what} holds NaN or infinity; {_AGAIN}")
    return found


class _Buffer:
    """The bytes of a FlatBuffer; every offset that they name is checked before it is followed."""

    def __init__(self, content: bytes) -> None:
        if len(content) < 12 or content[4:8] != _MARK:
            raise ValueError("it does not begin as an ONNX Runtime adapter")
        self.content, self.size = content, len(content)

    def arrays(self) -> dict[str, Array]:
        root = self._forward(0)
        form = self._field(root, 0)
        if form is None or self._int("<i", form) != _FORMAT:
            raise ValueError("it is of another version")
        place = self._field(root, 3)
        start, count = (0, 0) if place is None else self._vector(place, 4)
        if count > _MOST_ARRAYS:
            raise ValueError(f"it names {count} arrays")
        found: dict[str, Array] = {}
        for index in range(count):
            name, array = self._array(self._forward(start + 4 * index))
            if name in found:
                raise ValueError(f"it has two arrays {name[:80]!r}")
            found[name] = array
        return found

    def _array(self, table: int) -> tuple[str, Array]:
        fields = [self._field(table, number) for number in range(4)]
        if fields[0] is None or fields[2] is None:
            raise ValueError("an array has no name or no type")
        start, length = self._vector(fields[0], 1)
        name = self.content[start : start + length].decode("utf-8")
        kind = self._int("<i", fields[2])
        if kind not in _TYPES:
            raise ValueError(f"the array {name[:80]!r} is of type {kind}")
        start, sides = (0, 0) if fields[1] is None else self._vector(fields[1], 8)
        if sides > _MOST_SIDES:
            raise ValueError(f"the array {name[:80]!r} has {sides} sides")
        shape = [self._int("<q", start + 8 * side) for side in range(sides)]
        start, length = (0, 0) if fields[3] is None else self._vector(fields[3], 1)
        dtype, total = np.dtype(_TYPES[kind]).newbyteorder("<"), 1
        for side in shape:
            if not 0 <= side <= self.size:
                raise ValueError(f"the array {name[:80]!r} has a side of {side}")
            total *= side
        if total * dtype.itemsize != length:
            raise ValueError(f"the array {name[:80]!r} has {length} bytes for the shape {shape}")
        return name, np.frombuffer(self.content, dtype, total, start).reshape(shape).astype(_TYPES[kind])

    def _int(self, form: str, place: int) -> int:
        if place < 0:
            raise ValueError("an offset leads before its beginning")
        return int(struct.unpack_from(form, self.content, place)[0])

    def _forward(self, place: int) -> int:
        """Where an offset at a place leads: always ahead."""
        target = place + self._int("<I", place)
        if not place < target < self.size:
            raise ValueError("an offset leads beyond its end")
        return target

    def _field(self, table: int, number: int) -> int | None:
        """Where a field of a table is; None if it has its default."""
        directory = table - self._int("<i", table)
        if 6 + 2 * number > self._int("<H", directory):
            return None
        offset = self._int("<H", directory + 4 + 2 * number)
        return table + offset if offset else None

    def _vector(self, place: int, width: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        start = self._forward(place)
        count = self._int("<I", start)
        if start + 4 + count * width > self.size:
            raise ValueError("a list is longer than the file")
        return start + 4, count
