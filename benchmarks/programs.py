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
from sets import MODEL

HERE = Path(__file__).parent
KEPT = HERE / "programs.json"
PAGE = HERE.parent / "docs" / "results" / "programs.md"
CANVAS = 64
NATIVE = 64  # above 32: the image inside a padding is 4/7 of the canvas
EPOCHS = 10
SEEDS = (0, 1, 2)
MAPPINGS = ("blm+", "gaussian")
PROGRAMS = ("padding", "watermark")
PLAIN: dict[str, Any] = {"epochs": EPOCHS, "lr": 0.01, "schedule": "multistep", "augment": "none"}
#: What is changed of PLAIN, by what it is called in the tables.
SEARCH: dict[str, dict[str, Any]] = {
    "lr 0.01, multistep (the paper's, shorter)": {},
    "lr 0.002": {"lr": 0.002},
    "lr 0.05": {"lr": 0.05},
    "loss_temperature auto": {"loss_temperature": "auto"},
    "augment crop": {"augment": "crop"},
    "augment trivial": {"augment": "trivial"},
    "onecycle": {"schedule": "onecycle"},
    "refresh after": {"refresh": "after"},
    "average 1": {"average": 1.0},
}
MARK = "<!-- tables: made by benchmarks/programs.py -->"


class Study:
    """Runs that are kept by what they are."""

    def __init__(self, folders: list[str], minutes: float) -> None:
        self.folders = {Path(folder).resolve().name: folder for folder in folders}
        self.end = time.monotonic() + 60 * minutes
        self.frozen: Frozen = load_frozen(MODEL)
        self.data: dict[str, DataSet] = {}
        self.kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {"runs": {}}
        self.kept["environment"] = environment(torch.device("cpu"))

    def set(self, name: str) -> DataSet:
        """The images of one folder."""
        if name not in self.data:
            self.data[name] = load_data(self.folders[name])
        return self.data[name]

    def run(self, kind: str, name: str, **how: Any) -> dict[str, Any] | None:
        """The result of one run, from the file or made now; None where time is up."""
        key = json.dumps([kind, name, CANVAS, how], sort_keys=True)
        if key not in self.kept["runs"]:
            if time.monotonic() > self.end:
                return None
            torch.manual_seed(0)  # nothing draws from it, but nothing shall depend on what ran before
            started = time.process_time()
            found = KINDS[kind](self, self.set(name), **how)
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


def untrained(study: Study, data: DataSet, program: str, mapping: str) -> dict[str, Any]:
    """The mapping of the images under a program as it begins, or under none."""
    model = build(study.frozen, data, program, mapping)
    size = model.program.image_size
    statistics_ = model.mapping.new_statistics()
    with torch.inference_mode():
        for images, labels in zip(data.train.pixels(size).split(64), data.train.labels.split(64), strict=True):
            statistics_.update(model.source_logits(images), labels)
    model.mapping.estimate(statistics_)
    return {"val": evaluate(model, data.val).accuracy, "test": evaluate(model, data.test).accuracy}


def trained(study: Study, data: DataSet, program: str, mapping: str, seed: int, **how: Any) -> dict[str, Any]:
    """A training, its epochs, and the epoch that validation selects."""
    own = {name: how.pop(name) for name in ("refresh", "folds") if name in how}
    model = build(study.frozen, data, program, mapping, **own)
    before = model.mapping.omega.clone()
    norms: list[list[float]] = []
    model.program.theta.register_hook(
        lambda gradient: norms.append(float(gradient.norm())) if gradient is not None else None
    )
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
    assert not torch.equal(before, model.mapping.omega)
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
    and validation images: what does not agree with it cannot help there.
    """
    model = build(study.frozen, data, program, mapping)
    size, theta = model.program.image_size, model.program.theta
    folds = stratified_folds(data.train.labels, model.mapping.folds, 0)
    pixels = {name: split.pixels(size) for name, split in (("train", data.train), ("val", data.val))}
    labels = {"train": data.train.labels, "val": data.val.labels}
    with torch.no_grad():
        logits = torch.cat([model.source_logits(part) for part in pixels["train"].split(64)])
        parts = [logits] if folds is None else [logits[folds == fold] for fold in range(int(folds.max()) + 1)]
        own = [labels["train"]] if folds is None else [labels["train"][folds == fold] for fold in range(len(parts))]
        model.mapping.estimate(*(model.mapping.count(*pair) for pair in zip(parts, own, strict=True)))
        scores = model.mapping(logits, folds)
    sums = TemperatureSums()
    sums.add(scores, labels["train"])
    temperature = sums.temperature()

    def gradient(name: str, places: Tensor, divided: float) -> Tensor:
        total = torch.zeros_like(theta)
        for chosen in places.split(64):
            known = None if folds is None or name == "val" else folds[chosen]
            given = model.mapping(model.source_logits(pixels[name][chosen]), known)
            loss = F.cross_entropy(given / divided, labels[name][chosen], reduction="sum")
            total += torch.autograd.grad(loss, theta)[0]
        return (total / len(places)).flatten()

    found: dict[str, Any] = {
        "temperature": temperature,
        "accuracy": float((scores.argmax(1) == labels["train"]).float().mean()),
    }
    order = torch.randperm(len(labels["train"]), generator=torch.Generator().manual_seed(0))
    for name, divided in (("plain", 1.0), ("calibrated", temperature)):
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
        }
    return found


KINDS = {"untrained": untrained, "trained": trained, "gradients": gradients}


def searched(study: Study, settings: dict[str, dict[str, Any]], sets: list[str]) -> None:
    """One seed of each setting, for each set, program and mapping."""
    for change in settings.values():
        for name in sets:
            for program in PROGRAMS:
                for mapping in MAPPINGS:
                    study.run("trained", name, program=program, mapping=mapping, seed=SEEDS[0], **{**PLAIN, **change})


def main() -> None:
    """Do what is not done yet, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after so many")
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(given.folders, given.minutes)
    sets = list(study.folders)
    for name in sets:
        for program in ("none", *PROGRAMS):
            for mapping in MAPPINGS:
                study.run("untrained", name, program=program, mapping=mapping)
                if program != "none":
                    study.run("gradients", name, program=program, mapping=mapping)
    searched(study, SEARCH, sets)


if __name__ == "__main__":
    main()
