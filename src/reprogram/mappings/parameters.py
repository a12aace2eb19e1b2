"""The parameters of the scikit-learn face: the settings of all mappings, also of those that other packages bring."""

import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any, ParamSpec, cast

from reprogram.errors import unknown
from reprogram.mappings.registry import MAPPINGS

Arguments = ParamSpec("Arguments")


def mapper_settings() -> list[str]:
    """The settings of all mappings that matter on fixed logits, in the order of their registration."""
    named = (name for family in MAPPINGS.values() for name in family.settings.without_training())
    return list(dict.fromkeys(named))


def check_mapper_settings(names: Any) -> None:
    """Raise for a name that is no mapping's setting, as Python does for an argument that a function does not have."""
    known = mapper_settings()
    for name in names:
        if name not in known:
            raise TypeError(str(unknown("setting", name, known)))


def with_settings(init: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Let `inspect.signature` see `**settings` as the parameters that they are.

    scikit-learn reads the names of an estimator's parameters from there: to copy it, to search over them, to print it. The
    signature is made when somebody asks, so that it has the mappings that were registered by then.
    """
    return cast(Callable[Arguments, None], _Init(init))


class _Init:
    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        self.__name__ = "__init__"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **options: Any) -> None:
        self._function(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        found = inspect.signature(self._function)
        own = [part for part in found.parameters.values() if part.kind is not inspect.Parameter.VAR_KEYWORD]
        further = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in mapper_settings()]
        return found.replace(parameters=[*own, *further])
