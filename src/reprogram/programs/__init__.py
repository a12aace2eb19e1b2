"""f_in: programs on the input. Images in [0, 1] go in, what the frozen model eats comes out."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.programs.base import NoProgram as NoProgram
    from reprogram.programs.base import Program as Program
    from reprogram.programs.base import make_program as make_program
    from reprogram.programs.padding import Padding as Padding
    from reprogram.programs.registry import PROGRAMS as PROGRAMS
    from reprogram.programs.registry import register_program as register_program
    from reprogram.programs.settings import ProgramSettings as ProgramSettings
    from reprogram.programs.settings import Surroundings as Surroundings
    from reprogram.programs.watermark import Watermark as Watermark

_WHERE = {
    "make_program": "reprogram.programs.base",
    "NoProgram": "reprogram.programs.base",
    "Padding": "reprogram.programs.padding",
    "Program": "reprogram.programs.base",
    "PROGRAMS": "reprogram.programs.registry",
    "ProgramSettings": "reprogram.programs.settings",
    "register_program": "reprogram.programs.registry",
    "Surroundings": "reprogram.programs.settings",
    "Watermark": "reprogram.programs.watermark",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
