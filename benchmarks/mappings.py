"""Every mapping on real data with no trained program, beside what gradients reach on the same model.

    python benchmarks/mappings.py FOLDER [FOLDER ...]

Each folder holds train/, val/ and test/ with one folder of images per class. The images are resized to the frozen model's
own input; mappings are estimated on train. The learned baselines choose learning rate, epochs and regularisation on val,
`auto` chooses by leave-one-out on train, everything else has its defaults; test is only looked at for the table. Writes
benchmarks/mappings.json and docs/results/mappings.md.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from reprogram import Frozen, LabelMapper, LabelMapperCV, load_data, load_frozen
from reprogram.data import DataSet
from reprogram.programs import NoProgram
from reprogram.run.folder import environment
from reprogram.scores import Score

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "mappings.md"
SEEDS = (0, 1, 2)
Arrays = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
ROWS: dict[str, str] = {
    "rlm": "random one-to-one",
    "flm": "greedy one-to-one; on fixed logits also ilm",
    "blm": "as published",
    "blm centre": "logits centred",
    "blm standardise": "logits standardised",
    "blm+": "as published",
    "blm+ centre": "logits centred",
    "blm+ standardise": "logits standardised",
    "gaussian": "shrinkage by closed form (OAS)",
    "auto": "chosen by leave-one-out",
    "linear": "back-propagated matrix, tuned on val",
    "features": "logistic regression on penultimate features, tuned on val: another model, not a mapping",
}
GRADIENT_FREE = [name for name in ROWS if name not in ("linear", "features", "auto")]


@torch.no_grad()
def arrays_of(frozen: Frozen, data: DataSet) -> Arrays:
    """Logits, penultimate features and labels of each split."""
    program = NoProgram(frozen.input_size).bind(frozen.mean, frozen.std)
    found: Arrays = {}
    for name in ("train", "val", "test"):
        split = getattr(data, name)
        logits, features = [], []
        for images in split.pixels(program.image_size, program.interpolation).split(64):
            maps = frozen.module.forward_features(program(images))
            features.append(frozen.module.forward_head(maps, pre_logits=True))
            logits.append(frozen.module.get_classifier()(features[-1]))
        found[name] = (torch.cat(logits).numpy(), torch.cat(features).numpy(), split.labels.numpy())
    return found


def learned(data: Arrays, seed: int) -> tuple[LabelMapper, str]:
    """The back-propagated linear mapping with the best validation accuracy of a small grid."""
    best: tuple[float, LabelMapper, str] | None = None
    for rate in (0.1, 0.01, 0.001):
        for epochs in (5, 20, 100):
            model = LabelMapper("linear", learning_rate=rate, max_iter=epochs, random_state=seed)
            score = model.fit(data["train"][0], data["train"][2]).score(data["val"][0], data["val"][2])
            if best is None or score > best[0]:
                best = (score, model, f"learning rate {rate:g}, {epochs} epochs")
    assert best is not None
    return best[1], best[2]


def probe(data: Arrays) -> tuple[object, str]:
    """Logistic regression on standardised features, regularised as validation likes it."""
    best: tuple[float, object, str] | None = None
    for strength in (0.0001, 0.001, 0.01, 0.1, 1.0):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=5000))
        score = model.fit(data["train"][1], data["train"][2]).score(data["val"][1], data["val"][2])
        if best is None or score > best[0]:
            best = (score, model, f"C = {strength:g}")
    assert best is not None
    return best[1], best[2]


def judge(data: Arrays, name: str) -> dict[str, object]:
    """Test accuracy, seconds of estimating (selection included), and what was chosen, for one row of the table."""
    method, _, normalize = name.partition(" ")
    seeds = SEEDS if method in ("rlm", "linear") else (0,)
    makers: dict[str, Callable[[int], tuple[object, str]]] = {
        "linear": lambda seed: learned(data, seed),
        "features": lambda _: probe(data),
        "auto": lambda _: chosen(data),
    }
    correct, seconds, notes = [], [], []
    column = 1 if name == "features" else 0
    for seed in seeds:
        started = time.perf_counter()
        if method in makers:
            model, note = makers[method](seed)
        else:
            model, note = LabelMapper(method, normalize=normalize or "none", random_state=seed), ""
            model.fit(data["train"][0], data["train"][2])
        seconds.append(time.perf_counter() - started)
        correct.append(int((model.predict(data["test"][column]) == data["test"][2]).sum()))
        notes.append(note)
    mean = statistics.mean(correct)
    n = len(data["test"][2])
    return {
        "accuracy": mean / n,
        "interval_95": list(Score(round(mean), n).interval),
        "seeds": [value / n for value in correct],
        "seconds": min(seconds),
        "chosen": notes[0],
    }


def chosen(data: Arrays) -> tuple[LabelMapperCV, str]:
    """The mapping that leave-one-out on train prefers."""
    model = LabelMapperCV().fit(data["train"][0], data["train"][2])
    return model, str(model.selection_.choice)


def page(results: dict[str, dict[str, dict[str, object]]], sizes: dict[str, str], made: dict[str, object]) -> str:
    """The table for a reader."""
    names = list(results)
    lines = [
        "# Label mappings with no trained program",
        "",
        "Test accuracy in % with its 95 % interval, and seconds to estimate. The frozen model is the bundled",
        "EfficientNet-Lite0; images are resized to its input, nothing is trained but in the last two rows. rlm and",
        "linear: mean of three seeds.",
        "",
        "Made by `python benchmarks/mappings.py " + " ".join(names) + "`",
        f"({made['cores']} cores, torch {made['packages']['torch']}).",
        "",
        "| mapping | what it is | " + " | ".join(f"{name}<br>{sizes[name]}" for name in names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for row, what in ROWS.items():
        cells = []
        for name in names:
            found = results[name][row]
            low, high = (100 * value for value in found["interval_95"])
            cells.append(f"{100 * found['accuracy']:.1f} ({low:.1f}–{high:.1f}), {found['seconds']:.1f} s")
        lines.append(f"| {row} | {what} | " + " | ".join(cells) + " |")
    lines += ["", "What was chosen:", ""]
    for name in names:
        picks = "; ".join(f"{row}: {results[name][row]['chosen']}" for row in ("auto", "linear", "features"))
        lines.append(f"- {name}: {picks}")
    lines += ["", *verdict(results)]
    return "\n".join(lines) + "\n"


def verdict(results: dict[str, dict[str, dict[str, object]]]) -> list[str]:
    """The two comparisons that the table is made for, in words, whatever they say."""
    lines = ["| data | best gradient-free mapping | less linear | auto less the best single mapping |", "|---|---|---|---|"]
    for name, rows in results.items():
        best = max(GRADIENT_FREE, key=lambda row: rows[row]["accuracy"])
        top = max(rows[row]["accuracy"] for row in [*GRADIENT_FREE, "linear"])
        lead = 100 * (rows[best]["accuracy"] - rows["linear"]["accuracy"])
        behind = 100 * (rows["auto"]["accuracy"] - top)
        lines.append(f"| {name} | {best} | {lead:+.1f} points | {behind:+.1f} points |")
    return lines


def main() -> None:
    """Judge all rows on all folders and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    folders: list[str] = parser.parse_args().folders
    frozen = load_frozen("bundled:efficientnet_lite0")
    results: dict[str, dict[str, dict[str, object]]] = {}
    sizes = {}
    for folder in folders:
        data = load_data(folder)
        name = Path(folder).resolve().name
        arrays = arrays_of(frozen, data)
        results[name] = {}
        sizes[name] = f"{len(data.classes)} classes, {len(data.train)} / {len(data.test)}"
        for row in ROWS:
            results[name][row] = judge(arrays, row)
            print(name, row, json.dumps(results[name][row]), flush=True)
    made = environment(torch.device("cpu"))
    (HERE / "mappings.json").write_text(json.dumps({"environment": made, "results": results}, indent=1) + "\n")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(results, sizes, made))


if __name__ == "__main__":
    main()
