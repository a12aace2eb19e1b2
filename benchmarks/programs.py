"""When does a trained program bring anything, and if not, why? Step sizes, temperatures of the loss, views, schedules.

    python benchmarks/programs.py FOLDER [FOLDER ...]

Each folder holds train/, val/ and test/ with one folder of images per class. The frozen model is the bundled
EfficientNet-Lite0 on a small canvas, so that an epoch takes seconds. One seed searches on validation; what is kept is
trained with three. Test images are looked at once per run, after its epoch was selected on validation. Each run is written
to benchmarks/programs.json when it is done, and is not done again; --minutes ends it early, and it goes on from there.
Writes the tables of docs/results/programs.md.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram import Reprogrammed, evaluate, fit, load_data, load_frozen, make_mapping
from reprogram.data import DataSet
from reprogram.data.decode import Decoding
from reprogram.data.splits import stratified_folds
from reprogram.mappings.temperature import TemperatureSums
from reprogram.programs import make_program
from reprogram.programs.settings import default_image_size
from reprogram.run.folder import environment
from reprogram.sources import Frozen
from sets import MODEL, drawn

HERE = Path(__file__).parent
KEPT = HERE / "programs.json"
PAGE = HERE.parent / "docs" / "results" / "programs.md"
#: What was cut so that an epoch takes seconds: the canvas, and the training images of each class.
CANVAS = 64
IMAGES = 32
MORE = 128  # of each class, or all there are: what is kept is trained with these, too
NATIVE = 64  # above 32: the image inside a padding is 4/7 of the canvas
SEEDS = (0, 1, 2)
MAPPINGS = ("blm+", "gaussian")
PROGRAMS = ("watermark", "padding")
PLAIN: dict[str, Any] = {"epochs": 6, "batch_size": 32}
RATES = (0.002, 0.05, 0.0005, 0.01)
#: What is tried beside the step size, one after the other.
CHANGES: tuple[dict[str, Any], ...] = (
    {"augment": "trivial"},
    {"refresh": "after"},
    {"schedule": "onecycle"},
    {"average": 1.0},
    {"augment": "crop"},
    {"optimizer": "sgd", "lr": 0.01},
)
STEPS = (0.0, 0.003, 0.01, 0.03, 0.1)
BLOCK = 8  # pixels, over which a gradient is averaged to see whether its coarse part agrees
MARK = "<!-- tables: made by benchmarks/programs.py -->"


class Study:
    """Runs that are kept by what they are."""

    def __init__(self, folders: list[str], minutes: float) -> None:
        self.folders = {Path(folder).resolve().name: folder for folder in folders}
        self.end = time.monotonic() + 60 * minutes
        self.frozen: Frozen = load_frozen(MODEL)
        self.data: dict[tuple[str, int], DataSet] = {}
        self.kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {"runs": {}}
        self.kept["environment"] = environment(torch.device("cpu"))

    def set(self, name: str, images: int = IMAGES) -> DataSet:
        """The images of one folder, so many of each class to train with."""
        if (name, images) not in self.data:
            whole = load_data(self.folders[name])
            most = int(torch.bincount(whole.train.labels).min())
            places = torch.from_numpy(drawn(whole.train.labels.numpy(), min(images, most), 0))
            self.data[name, images] = replace(whole, train=whole.train.subset(places))
        return self.data[name, images]

    def run(self, kind: str, name: str, **how: Any) -> dict[str, Any] | None:
        """The result of one run, from the file or made now; None where time is up."""
        key = json.dumps([kind, name, how], sort_keys=True)
        if key not in self.kept["runs"]:
            if time.monotonic() > self.end:
                return None
            torch.manual_seed(0)  # nothing draws from it, but nothing shall depend on what ran before
            started = time.process_time()
            own = {key: value for key, value in how.items() if key != "images"}
            found = KINDS[kind](self, self.set(name, how.get("images", IMAGES)), **own)
            self.kept["runs"][key] = {**found, "seconds": round(time.process_time() - started, 1)}
            KEPT.write_text(json.dumps(self.kept, indent=1) + "\n")
            told = {part: value for part, value in found.items() if part != "records"}
            print(kind, name, json.dumps(how), json.dumps(told), f"{time.process_time() - started:.1f} s", flush=True)
        found = self.kept["runs"][key]
        assert isinstance(found, dict)
        return found


def build(frozen: Frozen, data: DataSet, program: str, mapping: str, **settings: Any) -> Reprogrammed:
    """A model with a program that is not trained yet."""
    own = {"image_size": default_image_size(NATIVE, CANVAS)} if program == "padding" else {}
    made = make_mapping(mapping, frozen.labels, data.classes, span=frozen.span, **settings)
    return Reprogrammed(make_program(program, CANVAS, **own), frozen, made)


def untrained(study: Study, data: DataSet, program: str) -> dict[str, Any]:
    """The mappings of the images under a program as it begins, or under none."""
    models = {mapping: build(study.frozen, data, program, mapping) for mapping in MAPPINGS}
    one, found = models[MAPPINGS[0]], {}
    with torch.inference_mode():
        logits = {
            name: torch.cat([one.source_logits(part) for part in split.pixels(one.program.image_size).split(64)])
            for name, split in data.splits.items()
        }
        for mapping, model in models.items():
            model.mapping.estimate(model.mapping.count(logits["train"], data.train.labels))
            right = {name: model.mapping(part).argmax(1) == data.splits[name].labels for name, part in logits.items()}
            found[mapping] = {name: float(part.float().mean()) for name, part in right.items()}
    return found


def trained(study: Study, data: DataSet, program: str, mapping: str, seed: int, **how: Any) -> dict[str, Any]:
    """A training, its epochs, and the epoch that validation selects."""
    own = {name: how.pop(name) for name in ("refresh", "folds") if name in how}
    model = build(study.frozen, data, program, mapping, **own)
    norms: list[float] = []
    model.program.theta.register_hook(lambda gradient: norms.append(float(gradient.norm())))
    few = replace(data, test=data.test.subset(torch.arange(10)))  # of which nothing is told
    result = fit(model, few, seed=seed, decoding=Decoding(cache=False), calibration="none", **how)
    steps = len(norms) // len(result.records)
    records = [
        {
            "loss": round(record["loss"], 4),
            "train": round(record["accuracy"]["train"], 4),
            "val": round(record["accuracy"]["val"], 4),
            "mapping_change": round(record["mapping_change"], 4),
            "gradient": statistics.mean(norms[place * steps : (place + 1) * steps]),
        }
        for place, record in enumerate(result.records)
    ]
    return {
        "val": records[result.selected_epoch - 1]["val"],
        "test": evaluate(model, data.test).accuracy,
        "train": evaluate(model, data.train).accuracy,
        "selected_epoch": result.selected_epoch,
        "theta": float(model.program.theta.detach().square().mean().sqrt()),
        "epoch_seconds": round(statistics.mean(record["seconds"] for record in result.records), 2),
        "records": records,
    }


def gradients(study: Study, data: DataSet, program: str, mapping: str) -> dict[str, Any]:
    """What the gradient at the start is made of, with the plain loss and at the calibrated temperature.

    `carried` is how many images of a batch of 64 carry it: (Σg)² / Σg² of the sizes g of their own gradients by the scores.
    `train·train` is the cosine between the gradients of two halves of the training images, `train·val` that between training
    and validation images: what does not agree with it cannot help there. `coarse`: of means over blocks.
    `moved` tells what one step against the sign of the gradient does, with the mapping as it was and estimated anew.
    """
    model = build(study.frozen, data, program, mapping)
    size, theta = model.program.image_size, model.program.theta
    folds = stratified_folds(data.train.labels, model.mapping.folds, 0)
    pixels = {name: split.pixels(size) for name, split in (("train", data.train), ("val", data.val))}
    labels = {"train": data.train.labels, "val": data.val.labels}
    with torch.no_grad():
        logits = torch.cat([model.source_logits(part) for part in pixels["train"].split(64)])
        _estimate(model, logits, labels["train"], folds)
        scores = model.mapping(logits, folds)
    sums = TemperatureSums()
    sums.add(scores, labels["train"])

    def gradient(name: str, places: Tensor, divided: float) -> Tensor:
        total = torch.zeros_like(theta)
        for chosen in places.split(64):
            known = None if folds is None or name == "val" else folds[chosen]
            given = model.mapping(model.source_logits(pixels[name][chosen]), known)
            loss = F.cross_entropy(given / divided, labels[name][chosen], reduction="sum")
            total += torch.autograd.grad(loss, theta)[0]
        return (total / len(places)).flatten()

    def coarse(of: Tensor) -> Tensor:
        return F.avg_pool2d(model.program._on_canvas(of.view_as(theta)), BLOCK).flatten()

    found: dict[str, Any] = {"temperature": sums.temperature(), "moved": {}}
    order = torch.randperm(len(labels["train"]), generator=torch.Generator().manual_seed(0))
    for name, divided in (("plain", 1.0), ("calibrated", sums.temperature())):
        wrongness = (scores / divided).softmax(1) - F.one_hot(labels["train"], len(data.classes))
        batches = wrongness.norm(dim=1)[order].split(64)[:-1]
        halves = [gradient("train", half, divided) for half in order.chunk(2)]
        others = gradient("val", torch.arange(len(labels["val"])), divided)
        found[name] = {
            "loss": float(F.cross_entropy(scores / divided, labels["train"])),
            "carried": statistics.mean(float(part.sum() ** 2 / part.square().sum()) for part in batches),
            "norm": float(sum(halves).norm() / 2),
            "train·train": float(F.cosine_similarity(*halves, dim=0)),
            "train·val": float(F.cosine_similarity(sum(halves), others, dim=0)),
            "coarse train·train": float(F.cosine_similarity(*map(coarse, halves), dim=0)),
            "coarse train·val": float(F.cosine_similarity(coarse(sum(halves)), coarse(others), dim=0)),
        }
    for step in STEPS:  # all pixels by as much as the first step of Adam moves them
        with torch.no_grad():
            theta.copy_(-step * sum(halves).sign().view_as(theta))
            after = {
                name: torch.cat([model.source_logits(part) for part in images.split(64)]) for name, images in pixels.items()
            }
        found["moved"][str(step)] = {"as it was": _right(model, after, labels, folds, sums.temperature())}
        _estimate(model, after["train"], labels["train"], folds)
        found["moved"][str(step)]["estimated anew"] = _right(model, after, labels, folds, sums.temperature())
        _estimate(model, logits, labels["train"], folds)
    return found


def _estimate(model: Reprogrammed, logits: Tensor, labels: Tensor, folds: Tensor | None) -> None:
    """The mapping of these training images."""
    every = [slice(None)] if folds is None else [folds == fold for fold in range(int(folds.max()) + 1)]
    model.mapping.estimate(*(model.mapping.count(logits[part], labels[part]) for part in every))


def _right(model: Reprogrammed, logits: Any, labels: Any, folds: Tensor | None, temperature: float) -> dict[str, Any]:
    """How good it is on training images, left out where there are folds, and on validation images."""
    found = {}
    for name, known in (("train", folds), ("val", None)):
        with torch.no_grad():
            scores = model.mapping(logits[name], known)
        right = float((scores.argmax(1) == labels[name]).float().mean())
        found[name] = {"accuracy": right, "loss": float(F.cross_entropy(scores / temperature, labels[name]))}
    return found


KINDS = {"untrained": untrained, "trained": trained, "gradients": gradients}


def rounds() -> Iterator[dict[str, Any]]:
    """What is trained, in this order: program, mapping, and what is said besides."""
    first, *others = RATES
    for rate, changes in ((first, ({}, *CHANGES[:1])), *((rate, ({},)) for rate in others), (first, CHANGES[1:])):
        for change in changes:
            for program in PROGRAMS:
                for mapping in MAPPINGS:
                    calibrated = {"loss_temperature": "auto"} if mapping == "gaussian" else {}
                    yield {"program": program, "mapping": mapping, "lr": rate, **calibrated, **change}
    for rate in (first, others[-1]):  # the Gaussian with the plain loss
        for program in PROGRAMS:
            yield {"program": program, "mapping": "gaussian", "lr": rate}


def best(study: Study) -> list[dict[str, Any]]:
    """For each program and mapping, what has the best mean validation accuracy of the sets among all that all have."""
    kept = []
    for program in PROGRAMS:
        for mapping in MAPPINGS:
            tried = [{**PLAIN, **how} for how in rounds() if (how["program"], how["mapping"]) == (program, mapping)]
            scores = []
            for how in tried:
                keys = [json.dumps(["trained", name, {"seed": SEEDS[0], **how}], sort_keys=True) for name in study.folders]
                if all(key in study.kept["runs"] for key in keys):
                    scores.append((statistics.mean(study.kept["runs"][key]["val"] for key in keys), how))
            kept += [max(scores, key=lambda each: each[0])[1]] if scores else []
    return kept


def percent(value: float) -> str:
    """A share for a reader."""
    return f"{100 * value:.1f}"


def spread(values: list[float]) -> str:
    """The mean of shares, and their standard deviation where there are several."""
    return percent(statistics.mean(values)) + (f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else "")


def label(how: dict[str, Any]) -> str:
    """Settings for a reader, without those that all have."""
    words = [f"lr {how['lr']:g}", f"{how['epochs']} epochs"]
    words += [
        f"{name.replace('_', ' ')} {value}" for name, value in how.items() if name not in ("lr", "epochs", "batch_size")
    ]
    return ", ".join(words)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """In Markdown."""
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)] + [""]


def tables(study: Study) -> str:
    """What was found, for a reader."""
    names, lines = list(study.folders), []
    runs = [(*json.loads(key), found) for key, found in study.kept["runs"].items()]
    every = {
        (name, how["program"], how.get("images", IMAGES)): found for kind, name, how, found in runs if kind == "untrained"
    }
    start = {(name, program): found for (name, program, images), found in every.items() if images == IMAGES}
    lines += ["### Nothing trained, test accuracy in % (validation)", ""]
    rows = []
    for images in (IMAGES, MORE):
        for program in ("none", *PROGRAMS):
            for mapping in MAPPINGS:
                cells = [every[name, program, images][mapping] for name in names if (name, program, images) in every]
                told = [f"{percent(cell['test'])} ({percent(cell['val'])})" for cell in cells]
                rows += [[program, mapping, str(images), *told]] if told else []
    lines += table(["program", "mapping", "images of each class, at most", *names], rows)
    steep = [(name, how, found) for kind, name, how, found in runs if kind == "gradients" and name in names]
    if steep:
        lines += ["### The gradient at the start, with the plain loss and at the calibrated temperature", ""]
        lines += gradient_table(steep)
        lines += [
            "### One step of so much against the sign of the gradient, accuracy in %: train, val; val by ω estimated anew",
            "",
        ]
        lines += step_table(steep)
    for program in PROGRAMS:
        for mapping in MAPPINGS:
            chosen: dict[str, dict[str, list[Any]]] = {}
            for kind, name, how, found in runs:
                if kind == "trained" and (how["program"], how["mapping"]) == (program, mapping) and name in names:
                    said = {key: value for key, value in how.items() if key not in ("program", "mapping", "seed")}
                    chosen.setdefault(label(said), {}).setdefault(name, []).append(found)
            if chosen:
                lines += [f"### {program}, {mapping}", "", *trained_table(names, chosen, start, program, mapping)]
    return "\n".join(lines)


def gradient_table(steep: list[Any]) -> list[str]:
    """What the gradient is made of."""
    rows = []
    for name, how, found in steep:
        for kind in ("plain", "calibrated"):
            of = found[kind]
            cosines = [f"{of[part]:.2f}" for part in ("train·train", "train·val", "coarse train·train", "coarse train·val")]
            at = 1.0 if kind == "plain" else found["temperature"]
            rows.append(
                [name, how["program"], how["mapping"], f"{at:.2g}", f"{of['loss']:.2f}", f"{of['carried']:.0f}", *cosines]
            )
    head = ["set", "program", "mapping", "T", "loss", "images of 64 that carry it", "cos(train, train)", "cos(train, val)"]
    return table([*head, "coarse cos(train, train)", "coarse cos(train, val)"], rows)


def step_table(steep: list[Any]) -> list[str]:
    """What one step does, at the calibrated temperature."""
    rows = []
    for name, how, found in steep:
        cells = []
        for after in found["moved"].values():
            old, new = after["as it was"], after["estimated anew"]
            values = (old["train"]["accuracy"], old["val"]["accuracy"], new["val"]["accuracy"])
            cells.append("{}, {}; {}".format(*map(percent, values)))
        rows.append([name, how["program"], how["mapping"], *cells])
    return table(["set", "program", "mapping", *(f"{step:g}" for step in STEPS)], rows)


def trained_table(names: list[str], chosen: Any, start: Any, program: str, mapping: str) -> list[str]:
    """One row for each setting; test accuracies only where there are all seeds."""
    head = ["settings"]
    for name in names:
        head += [f"{name}: val", "test", "epoch", "train", "loss", "|gradient|", "θ"]
    rows = []
    for setting, by_set in chosen.items():
        row = [setting]
        for name in names:
            found = by_set.get(name, [])
            if not found:
                row += [""] * 7
                continue
            first, last = (found[0]["records"][place] for place in (0, -1))
            row += [
                spread([run["val"] for run in found]),
                spread([run["test"] for run in found]) if len(found) == len(SEEDS) or "images" in setting else "",
                ", ".join(str(run["selected_epoch"]) for run in found),
                f"{percent(first['train'])} → {percent(last['train'])}",
                f"{first['loss']:.2f} → {last['loss']:.2f}",
                f"{first['gradient']:.2g} → {last['gradient']:.2g}",
                f"{found[0]['theta']:.2f}",
            ]
        rows.append(row)
    for what, shown in ((program, f"{program} as it begins"), ("none", "no program")):
        row = [shown]
        for name in names:
            cell = start[name, what][mapping] if (name, what) in start else None
            row += ["", "", "", "", "", "", ""] if cell is None else [percent(cell["val"]), percent(cell["test"]), *[""] * 5]
        rows.append(row)
    return table(head, rows)


def write_tables(study: Study) -> None:
    """Replace what stands in the page after the mark."""
    before = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(f"{before}{MARK}\n\n{tables(study)}")


def main() -> None:
    """Do what is not done yet, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after so many")
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(given.folders, given.minutes)
    for name in study.folders:
        for program in ("none", *PROGRAMS):
            study.run("untrained", name, program=program)
    for program in PROGRAMS:
        for mapping in MAPPINGS:
            for name in study.folders:
                study.run("gradients", name, program=program, mapping=mapping)
    for how in rounds():
        for name in study.folders:
            study.run("trained", name, seed=SEEDS[0], **{**PLAIN, **how})
    for how in best(study):
        for name in study.folders:
            for seed in SEEDS:
                study.run("trained", name, seed=seed, **how)
    for program in ("none", *PROGRAMS):
        for name in study.folders:
            study.run("untrained", name, program=program, images=MORE)
    for how in best(study):
        for name in study.folders:
            study.run("trained", name, seed=SEEDS[0], **how, images=MORE)
    write_tables(study)


if __name__ == "__main__":
    main()
