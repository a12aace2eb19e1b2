"""Two published formats hold pickles. A pickle is a program, so these readers refuse every name that it could call.

Code can run while a pickle is read only through an object that the pickle looks up by name, and all look-ups go through
`Unpickler.find_class`. The first reader refuses them all, which leaves numbers, text, bytes and containers of them. The
second one, for the CIFAR files of 2009, admits four names and answers them with stand-ins of our own, so that not even
numpy's own functions are called by the file.
"""

import io
from pickle import Unpickler, UnpicklingError
from typing import Any

import numpy as np
from typing_extensions import override

from reprogram.errors import ReprogramError

# What malformed bytes make an unpickler raise. MemoryError: an opcode can claim any length.
_MALFORMED = (
    UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    MemoryError,
    OverflowError,
)


class _PlainUnpickler(Unpickler):
    """Reads tuples, lists, dicts, bytes, text and numbers; anything else needs `find_class`, which never answers."""

    @override
    def find_class(self, module: str, name: str) -> Any:
        raise _RefusedError(f"{module}.{name}")

    @override
    def persistent_load(self, pid: Any) -> Any:
        raise _RefusedError("an object stored elsewhere")


class _CifarUnpickler(_PlainUnpickler):
    """Reads also numpy's arrays of bytes, through stand-ins for the names that such an array is pickled with."""

    @override
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy._core", "numpy.core")
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise _RefusedError(f"{module}.{name}") from None


class _RefusedError(Exception):
    """The pickle asks for something by name."""


class _Array:
    """Stands in for `numpy.ndarray`: takes the state of a pickled array of bytes and keeps it as a real one."""

    array: "np.ndarray[Any, Any]"

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, column_major, raw = state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(kind, _Kind) or not isinstance(raw, bytes):
            raise ValueError("an array of something else than bytes")
        self.array = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if column_major else "C")


class _Kind:
    """Stands in for `numpy.dtype`, of which only uint8 is admitted."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in ("u1", "|u1"):
            raise ValueError(f"an array of {code!r} instead of bytes")

    def __setstate__(self, state: Any) -> None:
        """The byte order, which a single byte does not have."""


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, codec: str = "latin1") -> bytes:
    if codec != "latin1":
        raise ValueError(f"text in {codec!r}")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,  # how Python 3 writes bytes for Python 2
}


def read_plain_pickle(data: bytes, what: str) -> Any:
    """Read a pickle of tuples, lists, dicts, bytes, text and numbers; refuse one that holds or calls anything else."""
    return _read(_PlainUnpickler(io.BytesIO(data)), what)


def read_cifar_pickle(data: bytes, what: str) -> dict[str, Any]:
    """Read one of CIFAR's python batches: a dict whose `data` becomes a uint8 array (n, 3072)."""
    content = _read(_CifarUnpickler(io.BytesIO(data), encoding="latin1"), what)  # written by Python 2
    if not isinstance(content, dict):
        raise ReprogramError(f"{what} holds a {type(content).__name__}, but CIFAR's dict is expected; download it again")
    return {str(key): value.array if isinstance(value, _Array) else value for key, value in content.items()}


def _read(unpickler: Unpickler, what: str) -> Any:
    try:
        return unpickler.load()
    except _RefusedError as refused:
        raise ReprogramError(
            f"{what} is refused, because reading it would call {refused}, and only plain values are expected; "
            "do not trust this file, and get it again from its authors"
        ) from None
    except _MALFORMED as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise ReprogramError(f"{what} cannot be read ({reason}); download it again") from None
