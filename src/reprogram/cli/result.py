"""What a run has brought, in the last lines of a command."""

from pathlib import Path

from reprogram.cli.text import percent
from reprogram.progress import Progress
from reprogram.training.result import FitResult


def show_result(result: FitResult, folder: Path, progress: Progress) -> None:
    """The test accuracies with what they mean, the interval, and where it all is."""
    epoch = f"epoch {result.selected_epoch}" if result.selected_epoch else "without a program"
    names = {
        "last": "last epoch",
        "selected": f"selected on validation ({epoch})",
        "best_on_test": "best on test (the published protocol; optimistic)",
    }
    progress.say("")
    progress.say("test accuracy")
    if not result.selected_epoch:  # what was tried besides was told, and is not what anybody gets
        progress.say(f"  {epoch:<50} {percent(result.test.accuracy)}")
    else:
        for key, value in result.accuracy.items():
            progress.say(f"  {names[key]:<50} {percent(value)}")
    low, high = result.test.score.interval
    progress.say(f"  {'95 % interval of the saved model':<50} {100 * low:.1f} to {100 * high:.1f} %")
    progress.say("")
    progress.say(f"run folder {folder}")
