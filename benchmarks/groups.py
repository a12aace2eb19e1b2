"""How much leave-one-out flatters where samples are views of the same thing, and that leaving whole groups out does not.

    python benchmarks/groups.py FOLDER [FOLDER ...]

Each training image's logits are repeated five times with a little noise, as frames of a video are. The accuracy that
leave-one-out, leave-one-group-out and five folds tell of the Gaussian mapping and of BLM+ is compared with the truth: the
accuracy on the test images, none of which has a view among the training samples. Writes groups.json and the page
docs/results/groups.md.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reprogram.mappings.left_out import LeftOut
from reprogram.mappings.making import make_mapping
from reprogram.mappings.neighbours import missing_groups
from reprogram.scores import Score, grouped_score
from sets import load_logits

VIEWS = 5
NOISE = 0.3  # of each logit's deviation
MAPPINGS = ("gaussian", "blm+")
HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "groups.md"


def measured(folder: str) -> dict[str, Any]:
    """The numbers of one set."""
    data = load_logits(folder)
    logits, labels = torch.from_numpy(data.logits["train"]), torch.from_numpy(data.labels["train"])
    rng = np.random.default_rng(0)
    groups = torch.arange(len(labels)).repeat_interleave(VIEWS)
    noise = torch.from_numpy(rng.normal(size=(len(groups), logits.shape[1])).astype(np.float32))
    views, targets = logits[groups] + NOISE * logits.std(0) * noise, labels[groups]
    found: dict[str, Any] = {"set": data.name, "images": len(labels), "views": len(groups), "mappings": {}}
    chosen = torch.from_numpy(rng.permutation(len(groups)))
    fitted, held = chosen[len(chosen) // 5 :], chosen[: len(chosen) // 5]
    found["hint"] = {
        "on the views, a fifth held out": missing_groups(views[fitted], views[held]),
        "on the set itself": missing_groups(logits, torch.from_numpy(data.logits["test"])),
    }
    for name in MAPPINGS:
        mapping = make_mapping(name, data.source_labels, data.classes)
        rows: dict[str, Any] = {}
        for way, block in (("leave-one-out", (views, targets)), ("leave-one-group-out", (views, targets, groups))):
            started = time.perf_counter()
            scores = torch.cat([part for part, _ in LeftOut(mapping)(block)])
            right = (scores.argmax(1) == targets).tolist()
            score = grouped_score(right, groups.tolist()) if len(block) == 3 else Score(sum(right), len(right))
            rows[way] = {**score.to_json(), "seconds": time.perf_counter() - started}
        mapping.estimate(mapping.count(views, targets))
        said = mapping(torch.from_numpy(data.logits["test"])).argmax(1)
        test = Score(int((said == torch.from_numpy(data.labels["test"])).sum()), len(said))
        rows["new images"] = test.to_json()
        found["mappings"][name] = rows
        print(data.name, name, {way: round(100 * row["accuracy"], 1) for way, row in rows.items()}, flush=True)
    return found


def page(results: list[dict[str, Any]]) -> str:
    """The page."""
    lines = [
        "# Groups: what leave-one-out is worth on repeated views",
        "",
        f"Every training image stands {VIEWS} times in the data, each time with noise of {NOISE:g} of each logit's",
        "deviation, as frames of one video do. The truth is the accuracy on test images, which have no view among the",
        "training samples. Intervals are 95 %; those of leave-one-group-out count effective samples (a group of five tells",
        "little more than one image), those of leave-one-out take every view for a sample of its own.",
        "",
        f"Made by `python benchmarks/groups.py {' '.join(result['set'] for result in results)}`",
        f"({torch.get_num_threads()} core, torch {torch.__version__}).",
        "",
        "| set | mapping | leave-one-out | leave-one-group-out | effective samples | new images |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        for name, rows in result["mappings"].items():
            grouped = rows["leave-one-group-out"]
            cells = [_cell(rows[way]) for way in ("leave-one-out", "leave-one-group-out", "new images")]
            told = f"{grouped['effective_n']:.0f} of {grouped['n']}" if "effective_n" in grouped else str(grouped["n"])
            lines.append(f"| {result['set']} | `{name}` | {cells[0]} | {cells[1]} | {told} | {cells[2]} |")
    gaps = {
        way: [
            100 * (rows[way]["accuracy"] - rows["new images"]["accuracy"])
            for result in results
            for rows in [result["mappings"]["gaussian"]]
        ]
        for way in ("leave-one-out", "leave-one-group-out")
    }
    covered = sum(
        rows["leave-one-group-out"]["interval_95"][0] <= rows["new images"]["interval_95"][1]
        and rows["new images"]["interval_95"][0] <= rows["leave-one-group-out"]["interval_95"][1]
        for result in results
        for rows in result["mappings"].values()
    )
    hints = {key: sum(result["hint"][key] is not None for result in results) for key in results[0]["hint"]}
    seconds = [
        (rows["leave-one-group-out"]["seconds"], rows["leave-one-out"]["seconds"])
        for result in results
        for rows in result["mappings"].values()
    ]
    lines += [
        "",
        "For the Gaussian mapping, leave-one-out is "
        f"{min(gaps['leave-one-out']):+.1f} to {max(gaps['leave-one-out']):+.1f} points off the accuracy on new images, and "
        f"leave-one-group-out {min(gaps['leave-one-group-out']):+.1f} to {max(gaps['leave-one-group-out']):+.1f}.",
        f"The intervals of leave-one-group-out and of the new images overlap in {covered} of {2 * len(results)} rows.",
        "BLM+ adds up evidence and hardly learns single images by heart, so leave-one-out flatters it less.",
        f"All leave-one-group-out passes together took {sum(one for one, _ in seconds):.0f} s, those of leave-one-out "
        f"{sum(two for _, two in seconds):.0f} s.",
        "",
        f"The hint at missing groups is given for {hints['on the views, a fifth held out']} of {len(results)} sets of",
        f"views of which a fifth was held out at random, and for {hints['on the set itself']} of the sets as they are.",
    ]
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any]) -> str:
    low, high = row["interval_95"]
    return f"{100 * row['accuracy']:.1f} ({100 * low:.1f} to {100 * high:.1f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+")
    results = [measured(folder) for folder in parser.parse_args().folders]
    (HERE / "groups.json").write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))
