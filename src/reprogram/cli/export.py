"""`reprogram export`: a run's model as files that others can use."""

from pathlib import Path

from reprogram.cli.commands import ExportCommand
from reprogram.cli.text import pasted
from reprogram.export.api import export_run
from reprogram.progress import for_stream


def export(command: ExportCommand) -> None:
    """Write the export, and tell how far it is from the live model."""
    progress = for_stream()
    done = export_run(
        command.run,
        str(command.out),
        format=command.format,
        backbone=command.backbone,
        weights=command.weights,
        replace=command.replace,
        images=command.images,
        progress=progress,
    )
    for name, size in done.sizes.items():
        progress.say(f"{name}: {size:,} bytes")
    progress.say(f"compared on {done.comparison}")
    progress.say(f"export: {pasted(Path(str(command.out)))}")
