"""The programs by name: for each its class and its settings.

A program of your own is one file: a settings class, a subclass of `reprogram.programs.base.Program`, and a call of
`register_program`. The command line, saving and loading know it from there.
"""

from dataclasses import dataclass
from typing import Any

from reprogram.errors import ReprogramError
from reprogram.programs.settings import PaddingSettings, ProgramSettings, WatermarkSettings
from reprogram.registry import SettingsRegistry, imported


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


PROGRAMS: SettingsRegistry[ProgramKind] = SettingsRegistry("program")
#: The images unchanged first, then a trial of training, kept where it pays.
AUTO = "auto"
#: The program of that trial. Untrained, it is no program: what it brings is what its training brings.
TRIED = "watermark"


def register_program(name: str, program: Any, settings: type[ProgramSettings], summary: str) -> None:
    """Make a program known by a name; the arguments are those of `ProgramKind`."""
    if name == AUTO:
        raise ReprogramError(f"a program cannot be called {AUTO!r}, which means that one is tried; give it another name")
    PROGRAMS.register(name, ProgramKind(name, summary, program, settings))


register_program("padding", "reprogram.programs.padding:Padding", PaddingSettings, "a trainable border around the image")
register_program(
    "watermark", "reprogram.programs.watermark:Watermark", WatermarkSettings, "a trainable pattern added to the image"
)
register_program("none", "reprogram.programs.base:NoProgram", ProgramSettings, "the image alone, nothing to train")
