"""One view or several of each training image, with 4 and 16 images of each class.

    python benchmarks/views.py FOLDER [FOLDER ...]

Test logits as in benchmarks/sets.py; the training images go through the model again, as often as they have views. Writes
benchmarks/views.json and docs/results/views.md.
"""

import argparse
import json
import os
import statistics as stats
import sys
from pathlib import Path

import torch

from reprogram import Reprogrammed, load_data, load_frozen, make_mapping
from reprogram.programs import NoProgram
from reprogram.training.views import count_images

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from sets import MODEL, load_logits  # noqa: E402
from shots import drawn  # noqa: E402

SHOTS, SEEDS, VIEWS = (4, 16), 3, 4


def measured(folder: str) -> dict[str, dict[str, list[float]]]:
    """Test accuracies in % for each seed, by shots, and by how the images were seen."""
    known, data, frozen = load_logits(folder), load_data(folder), load_frozen(MODEL)
    test, truth = torch.from_numpy(known.logits["test"]), torch.from_numpy(known.labels["test"])
    found: dict[str, dict[str, list[float]]] = {}
    mapping = make_mapping("gaussian", frozen.labels, data.classes)
    model = Reprogrammed(NoProgram(frozen.input_size), frozen, mapping)
    ways = {"1 view": (1, False), f"{VIEWS} windows": (VIEWS, False), f"{VIEWS} windows, mirrored": (VIEWS, True)}
    for seed in range(SEEDS):
        for shots in SHOTS:
            part = data.train.subset(drawn(data.train.labels, shots, seed))
            pixels = part.pixels(model.program.image_size, model.program.interpolation)
            for name, (views, mirror) in ways.items():
                counted = mapping.new_statistics()
                for images, labels in zip(pixels.split(64), part.labels.split(64), strict=True):
                    count_images(model, images, labels, counted, views=views, seed=seed, mirror=mirror)
                mapping.estimate(counted)
                accuracy = 100 * float((mapping(test).argmax(1) == truth).double().mean())
                found.setdefault(str(shots), {}).setdefault(name, []).append(accuracy)
        print(known.name, seed, found, flush=True)
    return found


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    results = {Path(folder).name: measured(folder) for folder in parser.parse_args().folders}
    lines = [
        "# Several views of each training image",
        "",
        f"Test accuracy in % of `gaussian` without a program, mean of {SEEDS} draws of the training images, and in brackets",
        "the lowest and the highest. The frozen model is the bundled EfficientNet-Lite0.",
        "",
        f"Made by `python benchmarks/views.py {' '.join(results)}`",
        f"(2 cores, torch {torch.__version__}).",
        "",
    ]
    names = list(next(iter(next(iter(results.values())).values())))
    lines += [f"| data | images of each class | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for data, found in results.items():
        for shots, row in found.items():
            cells = " | ".join(f"{stats.mean(v):.1f} ({min(v):.1f} to {max(v):.1f})" for v in row.values())
            lines.append(f"| {data} | {shots} | {cells} |")
    rows = [row for found in results.values() for row in found.values()]
    above = {name: stats.mean(stats.mean(row[name]) - stats.mean(row[names[0]]) for row in rows) for name in names[1:]}
    gains = [f"{name}: {gain:+.1f}" for name, gain in above.items()]
    lines += ["", f"Points above one view, on average: {'; '.join(gains)}. Three draws tell only large differences."]
    (HERE / "views.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    (HERE.parent / "docs" / "results" / "views.md").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
