"""`finetune-linear` and `finetune-full`: the loop that trains programs, on other weights."""

from typing import Any

from reprogram.progress import Progress
from reprogram.references.settings import ReferenceSettings
from reprogram.run.build import Prepared, decoding_of
from reprogram.run.folder import FolderBook
from reprogram.run.steps import epoch_line, spent_seconds, write_planned
from reprogram.training.loop import fit
from reprogram.training.result import FitResult


def finetune(prepared: Prepared, _settings: ReferenceSettings, book: FolderBook, progress: Progress) -> FitResult:
    """Train what `ReferenceModel.trained` names, for as many epochs as the configuration says; resumable to the bit."""

    def on_epoch(records: list[dict[str, Any]], epochs: int) -> None:
        book.write_records(records)
        progress.say(epoch_line(records[-1], epochs))

    return fit(
        prepared.model,
        prepared.data,
        prepared.config.training(),
        checkpoint=book.checkpoint,
        decoding=decoding_of(prepared.config),
        progress=progress,
        on_epoch=on_epoch,
        on_plan=lambda epochs: write_planned(prepared, book, epochs),
        spent=spent_seconds(prepared),
    )
