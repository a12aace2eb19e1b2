"""Two published formats hold pickles. A pickle is a program, so it is not run here: it is read by a machine of our own.

The standard library's `pickletools` takes a pickle apart into its instructions and checks every declared length against
the bytes that are there. The machine below knows those instructions that make numbers, text, bytes, lists, tuples and
dictionaries of them, and nothing else. For the CIFAR files of 2009 it also knows four names, and answers them with
stand-ins of our own, so that not even numpy's own functions are called by the file. Memory and time grow with the
file's length alone.
"""

import pickletools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from reprogram.errors import ReprogramError, first_line

_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_FRESH: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_STRINGS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_VALUES = frozenset({*_NUMBERS, *_STRINGS, *_TEXTS})
_FETCH, _STORE = frozenset({"GET", "BINGET", "LONG_BINGET"}), frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_BY_NAME = frozenset({"GLOBAL", "INST"})  # their argument is the name
_CALLS = frozenset({"REDUCE", "BUILD", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"})
# A list of a million keys takes three million instructions; lists and tuples are a handful in each of these files.
_INSTRUCTIONS, _CONTAINERS = 5_000_000, 10_000
_MAKES_CONTAINER = frozenset({*_FRESH, *_TUPLES, "TUPLE", "LIST", "DICT", "MARK"})


class _RefusedError(Exception):
    """The pickle asks for something by name."""


class _Array:
    """Stands in for `numpy.ndarray`: takes the state of a pickled array of bytes and keeps it as a real one."""

    array: "np.ndarray[Any, Any]"

    def take(self, state: Any) -> None:
        """The state: version, shape, kind, order and bytes."""
        _, shape, kind, column_major, raw = state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(kind, _Kind) or not isinstance(raw, bytes):
            raise ValueError("an array of something else than bytes")
        self.array = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if column_major is True else "C")


class _Kind:
    """Stands in for `numpy.dtype`, of which only uint8 is admitted."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or code not in ("u1", "|u1"):
            raise ValueError(f"an array of {code[:20]!r} instead of bytes" if isinstance(code, str) else "an odd array")

    def take(self, state: Any) -> None:
        """The byte order, which a single byte does not have."""


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: Any, codec: Any = "latin1") -> bytes:
    if not isinstance(text, str) or codec != "latin1":
        raise ValueError("text that is not latin1")
    return text.encode("latin1")


def _no_array(*_: Any) -> Any:
    raise ValueError("an array without its bytes")


_CIFAR_NAMES: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray _reconstruct": _reconstruct,
    "numpy ndarray": _no_array,  # named as an argument, never called
    "numpy dtype": _Kind,
    "_codecs encode": _encode,  # how Python 3 writes bytes for Python 2
}


class _Machine:
    """Reads one pickle: a stack of values, marks on it, and a memory of values by number."""

    def __init__(self, data: bytes, names: Mapping[str, Callable[..., Any]]) -> None:
        self.data, self.names = data, names
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}

    def read(self) -> Any:
        """The value that the pickle makes."""
        containers = 0
        for count, (opcode, argument, _) in enumerate(pickletools.genops(self.data)):
            if opcode.name == "STOP":
                return self.stack.pop()
            containers += opcode.name in _MAKES_CONTAINER
            if count > _INSTRUCTIONS or containers > _CONTAINERS:
                raise ValueError("it has more parts than any file of this kind")
            self.step(opcode.name, argument)
        raise ValueError("it has no end")

    def step(self, name: str, argument: Any) -> None:
        """One instruction."""
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _FRESH:
            stack.append(_FRESH[name]())
        elif name in _TUPLES:
            stack.append(tuple(self.taken(_TUPLES[name])))
        elif name in _STORE:
            self.memory[len(self.memory) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in _FETCH:
            stack.append(self.memory[argument])
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("TUPLE", "LIST"):
            stack.append(tuple(self.marked()) if name == "TUPLE" else self.marked())
        elif name in ("APPEND", "APPENDS"):
            items = self.taken(1) if name == "APPEND" else self.marked()
            self.last(list).extend(items)
        elif name in ("SETITEM", "SETITEMS", "DICT"):
            items = self.taken(2) if name == "SETITEM" else self.marked()
            if name == "DICT":
                stack.append({})
            self.last(dict).update(_pairs(items))
        elif name in _BY_NAME or name == "STACK_GLOBAL":
            self.look_up(argument if name in _BY_NAME else " ".join(self.taken(2)), called=name == "INST")
        elif name in ("REDUCE", "BUILD") and self.names:
            self.call(name, *self.taken(2))
        elif name in _CALLS:
            raise _RefusedError("an object by its number" if name.startswith(("EXT", "PERS", "BINPERS")) else "an object")
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"the instruction {name}, which plain values do not need")

    def look_up(self, name: str, called: bool) -> None:
        module, _, attribute = name.partition(" ")
        known = self.names.get(f"{module.replace('numpy._core', 'numpy.core')} {attribute}")
        if known is None or called:
            raise _RefusedError(f"{module}.{attribute}"[:160])
        self.stack.append(known)

    def call(self, name: str, target: Any, argument: Any) -> None:
        if name == "BUILD" and isinstance(target, (_Array, _Kind)):
            target.take(argument)
            self.stack.append(target)
        elif name == "REDUCE" and any(target is known for known in self.names.values()) and isinstance(argument, tuple):
            self.stack.append(target(*argument))
        else:
            raise _RefusedError("an object")

    def taken(self, count: int) -> list[Any]:
        """The last values of the stack, taken from it."""
        begin = len(self.stack) - count
        if begin < (self.marks[-1] if self.marks else 0):
            raise ValueError("it takes what it has not made")
        items = self.stack[begin:]
        del self.stack[begin:]
        return items

    def marked(self) -> list[Any]:
        """The values after the last mark, taken from the stack."""
        begin = self.marks.pop()
        items = self.stack[begin:]
        del self.stack[begin:]
        return items

    def last(self, kind: type[Any]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"it fills something that is no {kind.__name__}")
        return self.stack[-1]


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    keys = items[::2]
    # the hash of a tuple of tuples of tuples ... takes for ever, or the whole stack
    if len(items) % 2 or not all(isinstance(key, (str, bytes, int)) for key in keys):
        raise ValueError("a dictionary with other keys than text, bytes and numbers")
    return list(zip(keys, items[1::2], strict=True))


def read_plain_pickle(data: bytes, what: str) -> Any:
    """Read a pickle of tuples, lists, dicts, bytes, text and numbers; refuse one that holds or calls anything else."""
    return _read(data, {}, what)


def read_cifar_pickle(data: bytes, what: str) -> dict[str, Any]:
    """Read one of CIFAR's python batches: a dict whose `data` becomes a uint8 array (n, 3072)."""
    content = _read(data, _CIFAR_NAMES, what)
    if not isinstance(content, dict):
        raise ReprogramError(f"{what} holds a {type(content).__name__}, but CIFAR's dict is expected; download it again")
    return {
        _text(key): getattr(value, "array", None) if isinstance(value, _Array) else value for key, value in content.items()
    }


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _read(data: bytes, names: Mapping[str, Callable[..., Any]], what: str) -> Any:
    try:
        return _Machine(data, names).read()
    except _RefusedError as refused:
        raise ReprogramError(
            f"{what} is refused, because reading it would call {refused}, and only plain values are expected; "
            "do not trust this file, and get it again from its authors"
        ) from None
    except Exception as error:  # malformed bytes lead to many kinds, all meaning the same
        raise ReprogramError(f"{what} cannot be read ({first_line(error)}); download it again") from None
