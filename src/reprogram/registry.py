"""What can be called by a name (a mapping, a program, a model source, a data format): one record each, in one table.

Other packages add their own: a module that registers when it is imported, named as an entry point of the group
`reprogram`. Such modules are imported at the first look into any table, so what they add is there like what is built in.
"""

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Generic, Protocol, TypeVar

from reprogram.errors import ReprogramError, first_line, unknown
from reprogram.settings import Settings, Spell

Record = TypeVar("Record")
GROUP = "reprogram"


class Registry(Mapping[str, Record], Generic[Record]):
    """Records by name, in the order of their registration.

    Args:
        kind: what the names name, for messages: "mapping", "program".

    >>> programs = Registry[int]("program")
    >>> programs.register("padding", 1)
    >>> programs["paddin"]
    Traceback (most recent call last):
    ...
    reprogram.errors.ReprogramError: program 'paddin' is not known; did you mean 'padding'? (known: padding)
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._records: dict[str, Record] = {}

    def register(self, name: str, record: Record) -> None:
        """Add a record; a name can be taken once."""
        if name in self._records:
            raise ReprogramError(f"{self.kind} {name!r} is registered already; give yours another name")
        self._records[name] = record

    def __getitem__(self, name: str) -> Record:
        """The record of a name, or the error that names the nearest one."""
        load_plugins()
        if name not in self._records:
            raise unknown(self.kind, str(name), self._records)
        return self._records[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The record of a name, or the default."""
        return self[name] if name in self else default  # noqa: SIM401  # this is that method

    def __contains__(self, name: object) -> bool:
        load_plugins()
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(list(self._records))

    def __len__(self) -> int:
        load_plugins()
        return len(self._records)


class Settled(Protocol):
    """A record that owns settings."""

    @property
    def settings(self) -> type[Settings]:
        """The class of its settings."""
        ...


SettledRecord = TypeVar("SettledRecord", bound=Settled)


class SettingsRegistry(Registry[SettledRecord]):
    """A registry whose records own settings, each a subclass of `Settings`."""

    def read(self, name: str, given: Mapping[str, Any], spell: Spell | None = None) -> Any:
        """Check the settings of one record: None takes the default, and one that belongs to others is refused."""
        values = {setting: value for setting, value in given.items() if value is not None}
        known = self[name].settings.model_fields
        for setting in values:
            if setting in known:
                continue
            others = ", ".join(other for other, record in self.items() if setting in record.settings.model_fields)
            if not others:
                raise unknown("setting", setting, sorted(self.setting_names()))
            raise ReprogramError(
                f"{self.kind} {name!r} does not use {setting}; leave it out, or choose one that does: {others}"
            )
        return self[name].settings.read(values, spell)

    def setting_names(self) -> set[str]:
        """The settings of all records."""
        return {setting for record in self.values() for setting in record.settings.model_fields}


def load_plugins() -> None:
    """Import the modules that other packages have named in the entry point group `reprogram`, once."""
    if (problem := _plugin_problem()) is not None:
        sentence, cause = problem
        raise ReprogramError(sentence) from cause


@cache  # also of a failure: a second try would find half of that plugin's names taken, and blame those
def _plugin_problem() -> tuple[str, Exception] | None:
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            reason = str(error) if isinstance(error, ReprogramError) else f"{type(error).__name__}: {first_line(error)}"
            named = f"the plugin {point.name!r} ({point.value}) cannot be imported ({reason})"
            return f"{named}; mend or uninstall the package that brings it", error
    return None


def imported(reference: Any) -> Any:
    """What a record refers to: the object itself, or `"module:name"`, which is imported only here.

    >>> imported("math:floor")(2.5), imported(len)("ab")
    (2, 2)
    """
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
