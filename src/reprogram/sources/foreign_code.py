"""Code that comes with a model is never run, whatever a file of the model asks for, and nobody is asked whether it may.

Settings in a file are handed on to other packages by lists of those that are known to be harmless.
"""

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reprogram.errors import ReprogramError

# transformers' own switches are one for the whole process: two threads must not turn them back for each other
_ONE_AT_A_TIME = threading.RLock()
_SIGNS = ("trust_remote_code", "custom code")


def allowed(names: str) -> frozenset[str]:
    """A list of the settings that a file may make, from their names in one text.

    >>> sorted(allowed("width heads"))
    ['heads', 'width']
    """
    return frozenset(names.split())


@contextmanager
def no_foreign_code(name: str) -> Iterator[None]:
    """Keep transformers from running code of a model, also inside packages that call it without a word about that.

    Every call of ours says `trust_remote_code=False`. Packages in between do not, and then transformers asks on standard
    input, or lets a setting in a file decide. Here its one importer of such code refuses, and it does not ask.

    Args:
        name: how the message calls the model.

    Raises:
        ReprogramError: in the place of the error of transformers, where the model cannot be had without its code.
    """
    try:
        dynamic: Any = importlib.import_module("transformers.dynamic_module_utils")
    except ModuleNotFoundError:  # without it nothing can run code
        yield
        return

    def refuse(*_: Any, **__: Any) -> Any:
        raise _refusal(name)

    with _ONE_AT_A_TIME:
        switches = {"get_class_in_module": refuse, "TIME_OUT_REMOTE_CODE": 0}  # it does not ask with 0 seconds to answer
        before = {switch: getattr(dynamic, switch) for switch in switches}
        try:
            vars(dynamic).update(switches)
            yield
        except ReprogramError:
            raise
        except Exception as error:
            if any(sign in str(error) for sign in _SIGNS):
                raise _refusal(name) from error
            raise
        finally:
            vars(dynamic).update(before)


def _refusal(name: str) -> ReprogramError:
    return ReprogramError(
        f"{name} brings code of its own, which is never run; choose a model that its package knows by itself, or load it "
        "yourself and hand it over as Frozen(module, ...)"
    )
