"""What the entry point names: five records. Nothing here imports torch, so `reprogram` checks its arguments without it."""

from pydantic import Field

from reprogram.answers.registry import register_reader
from reprogram.data.registry import DataFormat, ends_with, given_path, register_format
from reprogram.mappings.registry import register_mapping
from reprogram.mappings.settings import EstimatedSettings, NormalizedSettings
from reprogram.programs.registry import register_program
from reprogram.programs.settings import ProgramSettings
from reprogram.sources.registry import Source, register_source


class ShareSettings(NormalizedSettings, EstimatedSettings):
    """Of share: its fields are flags of `fit` and `map` and parameters of `LabelMapper`."""

    power: float = Field(1.0, gt=0, description="Sharpen the shares by this power.")


class CornerSettings(ProgramSettings):
    """Of corner."""

    band: int = Field(16, ge=1, description="Width of the trainable band beside and below the image.")


register_mapping("share", "reprogram_example.mapping:ShareMapping", ShareSettings, "p(source label given class)")
register_program("corner", "reprogram_example.program:Corner", CornerSettings, "the image in a corner, a band around it")
register_source(
    Source(
        "colours",
        load="reprogram_example.source:load",
        form="colours:NAME",
        meaning="a classifier of plain colours",
        names="reprogram_example.source:names",
    )
)
register_format(
    DataFormat(
        "colours",
        "FILE.colours",
        "one image per line, such as: train warm #ff8800",
        matches=ends_with(".colours"),
        load="reprogram_example.data_format:load",
        path=given_path,
    )
)
register_reader(".answers", "reprogram_example.shard_format:read")
