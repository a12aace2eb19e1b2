"""`reprogram reference`."""

from pathlib import Path

from reprogram.cli.checks import ReferencePlan
from reprogram.cli.outside import files_matter
from reprogram.cli.report import REPORT, report_at_the_end
from reprogram.cli.result import show_result
from reprogram.cli.text import pasted
from reprogram.files import claimed_folder
from reprogram.progress import for_stream
from reprogram.references.folder import run_reference
from reprogram.run.paths import default_folder


def reference(plan: ReferencePlan) -> None:
    """Carry out a reference method and show its result."""
    files_matter()
    progress = for_stream()
    named = default_folder(plan.fit.config)
    place = plan.fit.out or named.with_name(f"{Path(named).name}-{plan.name}")
    with claimed_folder(place, numbered=plan.fit.out is None) as folder:
        try:
            result = run_reference(
                plan.name, plan.fit.config, folder, resume=plan.fit.resume, progress=progress, **plan.settings
            )
        except KeyboardInterrupt:
            if (folder / "config.json").exists():
                again = f"reprogram reference {plan.name} --resume --out {pasted(folder)}"
                progress.say(f"interrupted; continue with: {again}")
            raise
    show_result(result, folder, progress)
    report_at_the_end([folder], folder / REPORT, progress)
    progress.say(f"beside other runs: reprogram report {pasted(folder)} RUN [RUN ...]")
