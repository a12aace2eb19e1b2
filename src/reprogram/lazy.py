"""Names that a package offers without importing where they come from, until somebody asks for one.

torch takes seconds to import. A package that re-exports lazily lets the command line check its arguments before that.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's `__getattr__`, `__dir__` and `__all__` for names that are found in other modules.

    Args:
        package: the package's `__name__`.
        where: for each name the module that defines it.
    """

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(where[name]), name)
        setattr(sys.modules[package], name, value)  # the next time it is found without coming here
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *where}), sorted(where)
