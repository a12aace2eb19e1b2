"""One change at a time, whole or not at all: for estimators that several threads may share.

The locks stand beside the estimators, not in them: these are copied, pickled and printed by what they hold.
"""

import os
from collections.abc import Callable
from functools import wraps
from threading import Lock, RLock
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Self = TypeVar("Self")

_locks: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()
_guard = Lock()


def exclusive(
    method: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """A method during which no other such method of the same object runs; what it raises leaves the attributes as before."""

    @wraps(method)
    def alone(self: Self, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with _lock_of(self):
            before = dict(vars(self))
            try:
                return method(self, *args, **options)
            except BaseException:
                for name in set(vars(self)).difference(before):
                    delattr(self, name)
                vars(self).update(before)
                raise

    return cast("Callable[Concatenate[Self, Arguments], Result]", alone)


def _lock_of(owner: Any) -> Any:
    with _guard:
        return _locks.setdefault(owner, RLock())


def _forget_locks() -> None:
    """In a forked process there is no thread that could give back what was locked."""
    global _guard
    _guard = Lock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
