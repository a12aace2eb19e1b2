"""`reprogram fit` and `reprogram demo`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprogram.cli.checks import FitPlan
from reprogram.cli.commands import DemoCommand
from reprogram.cli.outside import files_matter
from reprogram.cli.report import REPORT, report_at_the_end
from reprogram.cli.result import show_result
from reprogram.cli.text import pasted, percent, show_table
from reprogram.files import claimed_folder
from reprogram.mappings.registry import MAPPINGS
from reprogram.progress import Progress, for_stream
from reprogram.ranks import LostRank, Ranks, joined
from reprogram.run.config import FitConfig
from reprogram.run.folder import run_fit
from reprogram.run.paths import default_folder

DEMO_METHODS = ("rlm", "flm", "ilm", "blm", "blm+", "gaussian")


def fit(plan: FitPlan) -> None:
    """Carry out a run and show its result."""
    files_matter()
    with joined() as ranks:
        progress = for_stream() if ranks.leads else Progress()
        with _claimed(plan, ranks) as folder:
            try:
                result = run_fit(plan.config, folder, resume=plan.resume, progress=progress, ranks=ranks)
            except (KeyboardInterrupt, LostRank) as error:
                again = f"continue with: reprogram fit --resume --out {pasted(folder)}" if _begun(folder) else ""
                lost = str(error) if isinstance(error, LostRank) else ranks.lost()
                if lost:  # torchrun interrupts the others when it notices
                    raise LostRank("; ".join(filter(None, (lost, again)))) from None
                if again:
                    progress.say(f"interrupted; {again}")
                    if (folder / "artefact").is_dir() and not (folder / "result.json").exists():
                        progress.say(f"what was found so far: reprogram predict {pasted(folder)} IMAGE")
                raise
    if ranks.leads:
        show_result(result, folder, progress)
        progress.say(f"classify an image: reprogram predict {pasted(folder)} IMAGE")
        report_at_the_end([folder], folder / REPORT, progress, [result.model])


@contextlib.contextmanager
def _claimed(plan: FitPlan, ranks: Ranks) -> Iterator[Path]:
    """The run folder, which the first process claims; the others are told its name."""
    with contextlib.ExitStack() as stack:

        def claim() -> tuple[str, dict[str, Any]]:
            wanted = claimed_folder(plan.out or default_folder(plan.config), numbered=plan.out is None)
            return str(stack.enter_context(wanted)), {}

        yield Path(ranks.told(claim)[0])


def _begun(folder: Path) -> bool:
    return (folder / "config.json").exists()


def demo(command: DemoCommand) -> None:
    """Run six mappings on the digits, one after the other."""
    files_matter()
    progress = for_stream()
    progress.say("An ImageNet network that has never seen a digit learns to read them; not one of its weights changes.")
    progress.say("")
    rows, models = [], []
    with claimed_folder(Path(command.out or "runs/demo").expanduser(), numbered=command.out is None) as folder:
        for method in DEMO_METHODS:
            settings = {"program": "padding", "canvas": 48, "image_size": 32, "epochs": command.epochs, "seed": command.seed}
            try:
                result = run_fit(
                    FitConfig.read({"mapping": method, **settings}), folder / method, resume=True, progress=progress
                )
            except KeyboardInterrupt:
                again = f"reprogram demo --epochs {command.epochs} --seed {command.seed} --out {pasted(folder)}"
                progress.say(f"interrupted; continue with: {again}")
                raise
            models.append(result.model)
            scores = [percent(score) for score in result.accuracy.values() if score is not None]
            speed = max(record["images_per_second"] for record in result.records)
            rows.append([method, MAPPINGS[method].summary, *scores, f"{result.seconds:.0f}", f"{speed:.0f}"])
            progress.say("")
    progress.say("test accuracy on handwritten digits (chance: 10 %)")
    numbers = ("last\nepoch", "selected\non val", "best\non test", "seconds", "images/s")
    show_table(("mapping", "what it is", *numbers), rows, numbers=numbers)
    progress.say(f"run folders: {', '.join(pasted(folder / method) for method in DEMO_METHODS)}")
    report_at_the_end([folder / method for method in DEMO_METHODS], folder / REPORT, progress, models)
    progress.say("")
    progress.say(f"look closer:     reprogram evaluate {pasted(folder / 'blm+')}")
    progress.say("your own images: reprogram fit --data FOLDER")
