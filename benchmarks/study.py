"""What the study on four small sets says: tables, figures and raw numbers of a grid that `reprogram compare` has made.

    cd FOLDER_WITH_THE_FOUR_SETS
    reprogram compare recipes/study.json --out GRID
    python benchmarks/study.py GRID [--out docs/results]

writes `study.csv` (every run), `study-tables.md` and two figures into --out. Runs that are not there are left out, and said.
"""

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

from reprogram.experiments.comparison import status_of
from reprogram.experiments.figures import methods_drawing
from reprogram.experiments.folder import GridFolder
from reprogram.experiments.gather import gathered
from reprogram.experiments.means import mean_of, t_interval
from reprogram.experiments.pairs import compare_pair
from reprogram.experiments.tables import long_csv, results
from reprogram.figures.drawing import write_drawing

MAPPINGS = ["rlm", "flm", "ilm", "blm", "blm+", "gaussian", "auto", "linear", "sigmoid"]
ABLATIONS = ["blm+", "blm+ -Iter", "blm+ -Top-K", "blm+ 40 %", "ilm", "ilm 40 %"]
ORDER = {"mapping": [*MAPPINGS, *ABLATIONS], "program": ["none", "padding", "watermark"], "data": []}


def told(found):
    """A difference in points, with its interval."""
    if found.mean is None:
        return "–"
    low, high = found.interval if found.interval is not None else (None, None)
    inside = "" if low is None else f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"{100 * found.mean:+.1f}{inside}"


def some(outcomes, **labels):
    """The runs with these labels."""
    return [one for one in outcomes if all(one.labels.get(axis) in levels for axis, levels in labels.items())]


def accuracy_part(outcomes):
    main = some(outcomes, mapping=MAPPINGS, program=["none", "padding", "watermark"])
    found = results(main, rows=["data", "program"], columns="mapping", order=ORDER, title="Selected on validation")
    yield found.table.markdown()
    for measure, title in (("last", "Last epoch"), ("best_on_test", "Best on test, as papers publish it")):
        table = results(main, rows=["data", "program"], columns="mapping", measure=measure, order=ORDER, title=title)
        yield table.table.markdown()


def gain_part(outcomes, base, others, axis, title, rows="data"):
    """Differences of levels of an axis to one of them, set by set."""
    lines = [f"### {title}", "", f"| {rows} | " + " | ".join(others) + " |", "|---|" + "---:|" * len(others)]
    for level in sorted({one.labels[rows] for one in outcomes}):
        chosen = [one for one in outcomes if one.labels[rows] == level]
        cells = []
        for other in others:
            pair = compare_pair(chosen, axis, other, base) if some(chosen, **{axis: [other]}) else None
            cells.append("–" if pair is None or not pair.matched else told(pair.difference))
        lines.append(f"| {level} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def optimism_part(outcomes):
    """Best on test minus honest numbers, over the runs of all sets and seeds."""
    lines = ["### How optimistic is best on test?", ""]
    lines += [
        "In points: mean over runs (its 95 % interval; the highest run). No run can be below 0.",
        "",
        "| program | mapping | above selected | above last | runs |",
        "|---|---|---:|---:|---:|",
    ]
    chosen = [(program, mapping) for program in ("padding", "watermark") for mapping in MAPPINGS]
    for program, mapping in [*chosen, ("both", "all")]:
        runs = outcomes if program == "both" else some(outcomes, program=[program], mapping=[mapping])
        if not runs:
            continue
        cells = []
        for above in ("selected", "last"):
            excess = [100 * (one.accuracy["best_on_test"] - one.accuracy[above]) for one in runs]
            low, high = t_interval(excess)
            cells.append(f"{mean_of(excess):.1f} ({max(low, 0):.1f} to {high:.1f}; {max(excess):.1f})")
        lines.append(f"| {program} | {mapping} | {cells[0]} | {cells[1]} | {len(runs)} |")
    return "\n".join([*lines, ""])


def canvas_part(outcomes):
    """The small canvas against the model's own, without a program."""
    names = {"none": "64 px", "none, 224 px": "224 px"}
    chosen = [one for one in some(outcomes, program=list(names), mapping=["blm+", "gaussian"]) if one.seed == 0]
    table = results(
        [replace(one, labels={**one.labels, "program": names[one.labels["program"]]}) for one in chosen],
        rows=["data", "mapping"],
        columns="program",
        order={"program": list(names.values()), "mapping": ["blm+", "gaussian"], "data": []},
        title="What the small canvas costs: no program, seed 0",
    )
    return table.table.markdown()


def cost_part(outcomes):
    """What is trained, and for how long."""
    lines = ["### Cost", "", "| program | mapping | trained numbers | epochs | seconds of the quickest run |"]
    lines += ["|---|---|---:|---:|---:|"]
    for program in ("none", "padding", "watermark"):
        for mapping in MAPPINGS:
            runs = some(outcomes, program=[program], mapping=[mapping], data=["eurosat-mini"])
            if runs:
                trained, epochs = runs[0].extra["parameters"], max(one.extra["epochs"] for one in runs)
                seconds = min(one.seconds for one in runs)
                lines.append(f"| {program} | {mapping} | {trained:,} | {epochs} | {seconds:.0f} |")
    note = "eurosat-mini, two runs at a time on two cores. Some had much other work beside them: rough, and no comparison."
    return "\n".join([*lines, "", note, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    status = status_of(GridFolder(options.grid.absolute()))
    outcomes, failures = gathered(status)
    counts = Counter(status.states.values())
    (options.out / "study.csv").write_text(long_csv(outcomes))
    trained = some(outcomes, program=["padding", "watermark"], mapping=MAPPINGS)
    parts = [
        "# The study in tables",
        "",
        f"Made by `python benchmarks/study.py GRID` from {counts['done']} finished runs of {len(status.cells)} "
        f"({counts['failed']} failed); [every run](study.csv), [what they mean](study.md).",
        "",
        *accuracy_part(outcomes),
        gain_part(
            some(outcomes, mapping=ABLATIONS, program=["padding"], data=["eurosat-mini", "textures10"]),
            "blm+",
            ["ilm", "blm+ -Iter", "blm+ -Top-K", "blm+ 40 %"],
            "mapping",
            "Ablations: points against blm+, padding (ilm is −Bayes)",
        ),
        gain_part(
            some(
                outcomes,
                program=["none", "padding", "watermark"],
                mapping=[name for name in MAPPINGS if name != "auto"],
            ),
            "none",
            ["padding", "watermark"],
            "program",
            "What a trained program brings: points against the images unchanged, by mapping, over the sets that have both",
            rows="mapping",
        ),
        optimism_part(trained),
        canvas_part(outcomes),
        cost_part(outcomes),
    ]
    (options.out / "study-tables.md").write_text("\n".join(parts))
    padding = some(outcomes, program=["padding"], mapping=MAPPINGS, data=["eurosat-mini", "textures10"])
    write_drawing(methods_drawing(padding, "mapping", reference="blm+"), options.out / "study-padding.png")
    plain = some(outcomes, program=["none"], mapping=["rlm", "flm", "ilm", "blm", "blm+", "gaussian", "auto"])
    write_drawing(methods_drawing(plain, "mapping", reference="blm+"), options.out / "study-none.png")
    for one in failures:
        print(f"failed: {one.name}: {one.error}")


if __name__ == "__main__":
    main()
