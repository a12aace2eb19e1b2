"""The programs by name: for each its class and its settings.

A program of your own is one file: a settings class, a subclass of `reprogram.programs.base.Program`, and a call of
`register_program`. The command line, saving and loading know it from there.
"""

from dataclasses import dataclass
from typing import Any

from reprogram.errors import ReprogramError
from reprogram.programs.settings import PaddingSettings, ProgramSettings, WatermarkSettings
from reprogram.registry import Registry, imported


@dataclass(frozen=True)
class ProgramKind:
    """A named program.

    Attributes:
        name: what it is called.
        summary: what it is, in a few words.
        program: its class, a subclass of `Program`, or "module:Class"; called with `canvas`, `interpolation` and settings.
        settings: its settings, a subclass of `ProgramSettings`.
    """

    name: str
    summary: str
    program: Any
    settings: type[ProgramSettings]

    def load(self) -> Any:
        """The class."""
        return imported(self.program)

    def read(self, given: dict[str, Any]) -> ProgramSettings:
        """Check settings; one that is None is left to the model and the data, one that the program lacks is refused."""
        given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            if name not in self.settings.model_fields:
                takers = ", ".join(kind.name for kind in PROGRAMS.values() if name in kind.settings.model_fields)
                if takers:
                    raise ReprogramError(f"{name} = {value} was given, but only program {takers} takes it; leave it out")
        return self.settings.read(given)


PROGRAMS: Registry[ProgramKind] = Registry("program")


def register_program(name: str, program: Any, settings: type[ProgramSettings], summary: str) -> None:
    """Make a program known by a name; the arguments are those of `ProgramKind`."""
    PROGRAMS.register(name, ProgramKind(name, summary, program, settings))


register_program("padding", "reprogram.programs.padding:Padding", PaddingSettings, "a trainable border around the image")
register_program(
    "watermark", "reprogram.programs.watermark:Watermark", WatermarkSettings, "a trainable pattern added to the image"
)
register_program("none", "reprogram.programs.base:NoProgram", ProgramSettings, "the image alone, nothing to train")
