"""What a user may say about a model of a certain source besides its name: one class of settings per kind of source.

Each field becomes a keyword of `load_frozen` and a flag of the command line. None, or nothing said, is the default.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, ValidationInfo

from reprogram.errors import ReprogramError
from reprogram.files.foreign import absolute, is_file
from reprogram.settings import Settings

Outputs = Literal["logits", "probabilities"]
TEMPLATES = ("default", "imagenet80", "paper81")


def _words(value: Any) -> Any:
    """Paths are words like others; lists come in as they are."""
    return str(value) if isinstance(value, Path) else value


def _numbers(value: Any, info: ValidationInfo) -> Any:
    """Three numbers, also as a text with commas between, as on the command line."""
    if value is None:
        return None
    try:
        numbers = tuple(float(part) for part in (value.split(",") if isinstance(value, str) else value))
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != 3:
        raise ReprogramError(
            f"{info.field_name} = {value!r} was given, but three numbers are expected, one for each channel; change it"
        )
    return numbers


Words = Annotated[str | tuple[str, ...], BeforeValidator(_words)]
Channels = Annotated[tuple[float, float, float], BeforeValidator(_numbers)]
Taker = TypeVar("Taker", bound=Settings)


class SourceOptions(Settings):
    """Of a source that takes no options."""

    def absolute(self) -> Self:
        """The same with absolute paths in the place of files, so that they hold from any folder."""
        return self


class TextOptions(SourceOptions):
    """Of a source whose labels are texts about the task's classes."""

    templates: Words = Field(
        "paper81",
        description="Texts of a model that compares images with texts: default, imagenet80, paper81 (both), a file with one "
        "template per line, or a list of templates with {} for the class name.",
    )

    def absolute(self) -> Self:
        """The same with an absolute path in the place of a file of templates."""
        return self if self.templates in TEMPLATES else _with_absolute_file(self, "templates")


class OnnxOptions(SourceOptions):
    """Of an ONNX file; what is given here goes before what the metadata of the file say."""

    input_size: int | None = Field(None, ge=1, description="Side of the images, for an ONNX file that leaves it open.")
    mean: Channels | None = Field(
        None, description="Mean of each channel that an ONNX file expects, for pixels in [0, 1]: three numbers with commas."
    )
    std: Channels | None = Field(None, description="Deviation of each channel that an ONNX file expects, the same way.")
    labels: Words | None = Field(
        None,
        description="Names of an ONNX file's outputs: a file (one per line, or a JSON list), or names with commas between.",
    )
    outputs: Outputs | None = Field(
        None, description="What an ONNX file answers with, where that is not to be seen from it."
    )

    def absolute(self) -> Self:
        """The same with an absolute path in the place of a file of labels."""
        return _with_absolute_file(self, "labels")


def _with_absolute_file(options: Taker, field: str) -> Taker:
    value = getattr(options, field)
    if isinstance(value, str) and is_file(path := os.path.expanduser(value)):  # noqa: PTH111  # it may be no path at all
        return options.model_copy(update={field: str(absolute(path))})
    return options
