"""`reprogram reproduce`: a table or a figure of the paper, ours beside the paper's."""

from collections.abc import Sequence
from pathlib import Path

from reprogram.cli.compare import FAILED, Teller
from reprogram.cli.outside import files_matter
from reprogram.cli.reproduce_command import ReproducePlan
from reprogram.cli.text import pasted, show, show_pairs, show_table
from reprogram.data.paper_sets import PAPER, paper_set
from reprogram.experiments.cost import Estimate, estimate
from reprogram.experiments.items import ITEMS, datasets_of
from reprogram.experiments.published import published_table
from reprogram.experiments.reproduction import Reproduction, planned
from reprogram.experiments.reproduction import reproduce as carry_out
from reprogram.experiments.settings import Plan
from reprogram.experiments.verdicts import Line, Sample
from reprogram.progress import for_stream
from reprogram.threads import granted_cpus

_PLURAL = {"agrees": "agree"}


def reproduce(plan: ReproducePlan) -> int:
    """Carry out what is missing, and show the comparison."""
    command = plan.command
    if plan.item is None:
        show_pairs({item.name: item.meaning for item in ITEMS.values()})
        return 0
    name, root, out = plan.item.name, plan.data_root, plan.out
    datasets, seeds, progress = command.datasets, command.seeds, for_stream()
    if command.dry_run:
        found = planned(name, out, data_root=root, datasets=datasets, seeds=seeds)
        _list(found, root)
        left = [cell for cell in found.status.cells if found.status.states[cell.name] != "done"]
        if left:
            _cost(estimate(left, progress))
        else:
            show("nothing is left to carry out")
        return 0
    files_matter()
    how = Plan(**{name: getattr(command, name) for name in Plan.model_fields})
    with Teller(progress) as teller:
        try:
            found = carry_out(
                name, out, how, data_root=root, datasets=datasets, seeds=seeds, progress=progress, on_change=teller
            )
        except KeyboardInterrupt:
            progress.say("interrupted; the same command continues")
            raise
    show_comparison(found)
    failed = found.status.those("failed")
    for cell in failed:
        progress.say(f"failed: {cell.name}: {found.status.notes[cell.name].error} (log: {found.status.folder.log(cell)})")
    progress.say(f"written to {pasted(found.status.folder.path / found.item.name)}.csv and .json")
    return FAILED if failed else 0


# ---- ours beside the paper's


def show_comparison(found: Reproduction) -> None:
    """Print every line, and how many of each verdict there are."""
    for table in found.item.tables:
        show(f"paper: {published_table(table).source}")
    axes = list(dict.fromkeys(axis for line in found.lines for axis in line.labels))
    axes = [axis for axis in axes if len({line.labels.get(axis, "") for line in found.lines}) > 1]
    quantities = {line.quantity for line in found.lines}
    what = ["of"] if len(quantities) > 1 else []
    numbers = ("paper", "ours,\nbest on test", "difference", "ours,\nselected", "ours,\nlast", "runs")
    headings = ("data", *axes, *what, *numbers[:3], "verdict", *numbers[3:])
    rows = [
        [
            line.data.removeprefix("paper:"),
            *(line.labels.get(axis, "") for axis in axes),
            *(line.quantity for _ in what),
            *_row(line),
        ]
        for line in found.lines
    ]
    show_table(headings, rows, numbers=numbers)
    if found.item.name == "figure5":
        _show_gains(found)
    show(", ".join(f"{count} {_PLURAL.get(verdict, verdict)}" for verdict, count in found.verdicts.items()))


def _row(line: Line) -> list[str]:
    published = line.published
    paper = "-" if published is None else _spread(published.mean, published.std, _digits(line))
    difference = "-" if line.difference is None else f"{line.difference:+.{_digits(line)}f}"
    ours = [_sample(line.sample, _digits(line)), difference, line.verdict]
    others = [_sample(line.ours.get(name), 1) for name in ("selected", "last")]
    return [paper, *ours, *others, f"{line.done}/{line.runs}"]


def _digits(line: Line) -> int:
    return 1 if line.quantity == "accuracy" else 2


def _sample(sample: Sample | None, digits: int) -> str:
    return "-" if sample is None else _spread(sample.mean, sample.std, digits)


def _spread(mean: float, std: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"


def _show_gains(found: Reproduction) -> None:
    """What Figure 5 draws: the gain over ILM, by the number of classes."""
    at = {
        (line.data, line.labels["mapping"]): line for line in found.lines if line.published and not line.published.is_average
    }
    rows = []
    for entry in sorted(PAPER.values(), key=lambda entry: entry.classes):
        row = [entry.title, str(entry.classes)]
        for mapping in ("blm", "blm+"):
            one, base = (at.get((f"paper:{entry.name}", name)) for name in (mapping, "ilm"))
            if one is None or base is None or one.published is None or base.published is None:
                break
            row.append(f"{one.published.mean - base.published.mean:+.1f}")
            row.append("-" if not (one.sample and base.sample) else f"{one.sample.mean - base.sample.mean:+.1f}")
        else:
            rows.append(row)
    headings = ("data", "classes", "BLM,\npaper", "BLM,\nours", "BLM+,\npaper", "BLM+,\nours")
    show("gain over ILM, in points")
    show_table(headings, rows, numbers=headings[1:])


# ---- what it would take


def _list(found: Reproduction, root: Path) -> None:
    """The runs, and the data that they need."""
    show(f"{found.item.name}: {found.item.meaning}")
    _show_runs(found.lines)
    counts = found.status.counts
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    show(f"{len(found.status.cells)} runs: {told}")
    names = datasets_of(found.status.cells)
    rows = [
        [
            entry.title,
            f"{entry.train:,}",
            f"{entry.test:,}",
            str(entry.classes),
            "missing" if name in found.missing else "there",
        ]
        for name, entry in ((name, paper_set(name)) for name in names)
    ]
    headings = ("data set", "training images", "test images", "classes", f"in {root}")
    show_table(headings, rows, numbers=headings[1:4])
    for name in found.missing:
        show(f"get {name}: {paper_set(name).how_to_get}")


def _show_runs(lines: Sequence[Line]) -> None:
    axes = list(dict.fromkeys(axis for line in lines for axis in line.labels))
    rows = {
        (line.data, *line.labels.values()): [
            line.data.removeprefix("paper:"),
            *(line.labels.get(axis, "") for axis in axes),
            "-" if line.published is None else _spread(line.published.mean, line.published.std, _digits(line)),
            f"{line.done}/{line.runs}",
        ]
        for line in reversed(lines)
        if line.published is None or not line.published.is_average
    }
    show_table(("data", *axes, "paper", "runs done"), list(rows.values())[::-1], numbers=("paper", "runs done"))


def _cost(cost: Estimate) -> None:
    """Weights, hours here and hours on the paper's machine."""
    models = {kind.model: speed.parameters for kind, speed in cost.speeds.items()}
    for model, parameters in models.items():
        show(f"weights: {model}, about {4 * parameters / 1e6:.0f} MB, downloaded on first use unless its library has them")
    for kind, speed in cost.speeds.items():
        step, passed = 1000 * speed.step.per_image(256), 1000 * speed.forward.per_image(256)
        show(f"measured: {kind}: {step:.1f} ms a training step and {passed:.1f} ms a pass, per image, one thread")
    cores = granted_cpus()
    show(
        f"estimate for {cost.runs} runs: {cost.core_hours:,.0f} core hours here, {cost.core_hours / cores:,.0f} hours on "
        f"{cores} cores; {cost.gpu_hours:,.0f} hours on one A100, by the times of the paper's Table 8"
    )
