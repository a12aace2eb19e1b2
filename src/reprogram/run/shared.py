"""The book of a run that several processes carry out: the first one keeps it, and reads to the others what stands there."""

from pathlib import Path
from typing import Any

from typing_extensions import override

from reprogram.mappings.selection import Selection
from reprogram.programs.base import Program
from reprogram.ranks import Ranks
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.config import FitConfig
from reprogram.run.first import FirstAnswer
from reprogram.run.steps import Book
from reprogram.sources.frozen import Frozen


def checkpoint_of(folder: Path) -> Path:
    """Where a run folder has what a training continues from."""
    return folder / "checkpoint" / "state.safetensors"


class SharedBook(Book):
    """What all processes of a run write and read alike, so that they go on alike.

    Args:
        own: the book of the first process; of the others, one that keeps nothing.
        ranks: the processes.
        folder: of the run.
    """

    def __init__(self, own: Book, ranks: Ranks, folder: Path) -> None:
        self.own, self.ranks, self.folder, self.checkpoint = own, ranks, folder, checkpoint_of(folder)

    @override
    def write_config(self, config: FitConfig) -> None:
        self.own.write_config(config)

    @override
    def write_selection(self, selection: Selection) -> None:
        self.own.write_selection(selection)

    @override
    def write_records(self, records: list[dict[str, Any]]) -> None:
        self.own.write_records(records)

    @override
    def write_program(self, epoch: int, program: Program) -> None:
        self.own.write_program(epoch, program)

    @override
    def catch_up(self, program: Program) -> None:
        self.own.catch_up(program)

    @override
    def write_first(self, first: FirstAnswer, *, usable: bool) -> FirstAnswer:
        return self.own.write_first(first, usable=usable)

    @override
    def read_first(self) -> FirstAnswer | None:
        first = self.own.read_first()
        values, _ = self.ranks.told(lambda: (None if first is None else first.to_json(), {}))
        return first if self.ranks.leads or values is None else FirstAnswer.from_json(values)

    @override
    def first_model(self, first: FirstAnswer, frozen: Frozen) -> Reprogrammed | None:
        content, tensors = self.ranks.told(lambda: self.own.first_artefact(first) or (None, {}))
        return None if content is None else Reprogrammed.restored(content, tensors, self.folder / "artefact", frozen)
