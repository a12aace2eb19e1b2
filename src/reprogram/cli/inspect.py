"""`reprogram models` and `reprogram datasets`: what there is."""

from pathlib import Path

from reprogram.cli.commands import CheckDataCommand, DatasetsCommand, ModelsCommand, ShowModelCommand
from reprogram.cli.text import show, show_pairs, show_table
from reprogram.data.paper import PAPER, check_paper, find_paper
from reprogram.data.registry import FORMATS
from reprogram.errors import ReprogramError, unknown
from reprogram.progress import for_stream
from reprogram.sources.load import describe_model, explain_sources, list_models


def models(command: ModelsCommand) -> None:
    """List what matches a pattern."""
    names, explained = list_models(command.pattern), explain_sources(command.pattern)
    if not names and not explained:
        raise ReprogramError(f"no model matches {command.pattern!r}; try 'timm:resne*' or 'bundled:*'")
    for line in (*names, *(f"{form}  ({meaning})" for form, meaning in explained.items())):
        show(line)


def show_model(command: ShowModelCommand) -> None:
    """Describe one model."""
    facts = describe_model(command.name)
    show_pairs(
        {
            "model": facts["name"],
            "labels": f"{facts['classes']}: {'; '.join(label.split(',')[0] for label in facts['labels'])} ...",
            "their names": facts["label_source"],
            "input": f"{facts['input_size']} x {facts['input_size']} px, resized {facts['interpolation']}",
            "normalised": "  ".join(f"{key} {' '.join(map(str, value))}" for key, value in facts["normalisation"].items()),
            "parameters": f"{facts['parameters']:,}" if facts["parameters"] else "unknown",
            "gradients": "yes" if facts["differentiable"] else "no: --program none only",
        }
    )


def datasets(command: DatasetsCommand) -> None:
    """List the formats and the paper's sets."""
    root = Path(command.data_root).expanduser()
    show_pairs({kind.form: kind.meaning for kind in FORMATS.values()})
    numbers = ("classes", "train", "val", "test")
    rows = []
    for name, entry in PAPER.items():
        counts = [f"{entry.counts[split]:,}" if entry.counts.get(split) else "-" for split in ("train", "val", "test")]
        there = "present" if find_paper(name, root) is not None else "missing"
        rows.append([f"paper:{name}", str(entry.classes), *counts, there])
    show_table(("the paper's sets", *numbers, f"under {root}/"), rows, numbers=numbers)
    missing = [name for name in PAPER if find_paper(name, root) is None]
    if missing:
        show("how to get the missing ones:")
        for name in missing:
            show(f"  {name}: {PAPER[name].how_to_get}")
    show("reprogram datasets check NAME counts one that is there and decodes every file of it")


def check_data(command: CheckDataCommand) -> None:
    """Verify one of the paper's sets."""
    name, root = command.name.removeprefix("paper:"), Path(command.data_root).expanduser()
    if name not in PAPER:
        raise unknown("data set of the paper", name, PAPER)
    progress = for_stream()
    findings = check_paper(name, root, progress)
    for finding in findings:
        progress.say(finding)
    if findings:
        raise ReprogramError(f"paper:{name} under {str(root)!r} is not as published ({len(findings)} findings above)")
    progress.say(f"paper:{name}: all counts are as published and every image can be decoded")
