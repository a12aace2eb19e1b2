"""What the runs of a grid have come to, as statistics and tables take it."""

from reprogram.experiments.comparison import Status
from reprogram.experiments.outcomes import Failure, Outcome, outcome_of


def gathered(status: Status) -> tuple[list[Outcome], list[Failure]]:
    """The outcomes of the runs that are done, and those that failed with their errors."""
    outcomes = [outcome_of(status.folder.run(cell), cell.told, cell.seed) for cell in status.those("done")]
    failures = [
        Failure(cell.name, cell.told, cell.seed, status.notes[cell.name].error or "it failed")
        for cell in status.those("failed")
    ]
    return outcomes, failures
