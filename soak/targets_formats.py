"""Fuzz targets of answers as tools and services write them, and of tables of labels beside them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprogram.answers.fit import fit_files
from reprogram.answers.shards import find_shards, read_blocks
from reprogram.answers.truth import LabelTable
from reprogram.errors import ignore_evidence_warnings
from soak.mutate import TEXT
from soak.structure import JSON, JSON_LINES
from soak.targets import FileTarget, Target

_NAMES = ("red fox", "elk", "b;mammalia;;;panthera;leo;lion", "<script>")
_WORDS = tuple(
    f'"{word}"'.encode()
    for word in (
        "predictions", "filepath", "classifications", "classes", "scores", "images", "file", "detections", "conf",
        "category", "classification_categories", "detection_categories", "info", "responses", "labelAnnotations",
        "description", "score", "Labels", "Name", "Confidence", "LabelModelVersion", "context", "uri", "error", "label",
    )
)  # fmt: skip
_COLUMNS = (b"Start (s)", b"End (s)", b"Common name", b"Confidence", b"File", b"nocall", b"nan", b"#0-3", b"begin", b"end")


def _pairs(row: int) -> list[tuple[str, float]]:
    return [(_NAMES[row % 4], 0.75), (_NAMES[(row + 1) % 4], 0.125)]


def _speciesnet() -> Any:
    items: list[dict[str, Any]] = [
        {
            "filepath": f"site/{row}.jpg",
            "classifications": {"classes": [name for name, _ in _pairs(row)], "scores": [score for _, score in _pairs(row)]},
            "detections": [{"category": "1", "conf": 0.9, "bbox": [0, 0, 1, 1]}],
        }
        for row in range(6)
    ]
    return {"predictions": [*items, {"filepath": "6.jpg", "failures": ["CLASSIFIER"]}]}


def _megadetector(images_first: bool) -> Any:
    images = {
        "images": [
            {
                "file": f"{row}.jpg",
                "detections": [{"category": "1", "conf": 0.9, "classifications": [["0", 0.8], ["1", 0.1]]}],
            }
            for row in range(6)
        ]
    }
    named = {
        "info": {"detector_metadata": {"typical_detection_threshold": 0.3}},
        "detection_categories": {"1": "animal"},
        "classification_categories": {"0": "fox", "1": "fox"},
    }
    return {**images, **named} if images_first else {**named, **images}


def _vision() -> Any:
    answers = [
        {
            "labelAnnotations": [{"description": name, "score": score} for name, score in _pairs(row)],
            "context": {"uri": "gs://a"},
        }
        for row in range(5)
    ]
    return {"responses": [*answers, {"error": {"code": 3}}]}


def _rekognition(row: int) -> Any:
    labels = [{"Name": name, "Confidence": 100 * score, "Parents": []} for name, score in _pairs(row)]
    return {"Labels": labels, "LabelModelVersion": "3.0"}


def _pipeline(row: int) -> Any:
    return [{"score": score, "label": name} for name, score in _pairs(row)]


def _document_seeds(folder: Path) -> list[bytes]:
    contents = [
        _speciesnet(), _megadetector(True), _megadetector(False), _vision(), _rekognition(0), _pipeline(0),
        [_pipeline(row) for row in range(5)], [_rekognition(row) for row in range(5)],
    ]  # fmt: skip
    return [json.dumps(content, indent=number % 2 or None).encode() for number, content in enumerate(contents)]


def _line_seeds(folder: Path) -> list[bytes]:
    made: list[Callable[[int], Any]] = [_rekognition, _pipeline, lambda row: _speciesnet()["predictions"][row]]
    return ["\n".join(json.dumps(make(row)) for row in range(6)).encode() for make in made]


def _table_seeds(folder: Path) -> list[bytes]:
    rows = [(3 * (row // 2), name, score) for row in range(8) for name, score in _pairs(row)[row % 2 :][:1]]
    csv = ["Start (s),End (s),Scientific name,Common name,Confidence,File"]
    csv += [f"{begin}.0,{begin + 3}.0,Aves,{name},{score},dawn.wav" for begin, name, score in rows]
    raven = ["Selection\tBegin Time (s)\tEnd Time (s)\tCommon Name\tSpecies Code\tConfidence\tBegin Path"]
    raven += [f"1\t{begin}\t{begin + 3}\t{name}\tabc\t{score}\tdawn.wav" for begin, name, score in rows]
    return ["\n".join(lines).encode() for lines in (csv, raven)]


def _label_seeds(folder: Path) -> list[bytes]:
    rows = [(f"site/{row}.jpg", ("cat", "dog")[row % 2]) for row in range(6)]
    return [
        "\n".join(["image,label", *map(",".join, rows)]).encode(),
        "\n".join(["image\tlabel\tsplit", *("\t".join((*row, "train")) for row in rows)]).encode(),
        "\n".join(["label", *(label for _, label in rows), "cat"]).encode(),
        "\n".join(["file,begin,end,label", *(f"{name},0,3,{label}" for name, label in rows), "5.jpg,,,dog"]).encode(),
    ]


def _read(path: Path) -> None:
    for with_logits in (True, False):
        for block in read_blocks(path, logits=with_logits):
            block.place(0)
            block.image(0)
    find_shards(f"{path.parent}/*")


def _prepare(folder: Path) -> None:
    (folder / "predictions.json").write_text(json.dumps(_speciesnet()))


def _use_labels(path: Path) -> None:
    labels = LabelTable.read(path)
    with ignore_evidence_warnings():
        fitted = fit_files(path.parent / "predictions.json", "blm", labels=labels)
    for classified in fitted.predict_files(path.parent / "predictions.json", labels):
        assert classified.block.rows == len(classified.predictions.labels)


TARGETS: list[Target] = [
    FileTarget("formats.json", _document_seeds, _read, file="shard.json", mutators=JSON, dictionary=_WORDS),
    FileTarget("formats.jsonl", _line_seeds, _read, file="shard.jsonl", mutators=JSON_LINES, dictionary=_WORDS),
    FileTarget("formats.csv", _table_seeds, _read, file="shard.csv", mutators=TEXT, dictionary=_COLUMNS),
    FileTarget("formats.txt", _table_seeds, _read, file="shard.txt", mutators=TEXT, dictionary=_COLUMNS),
    FileTarget(
        "labels.csv", _label_seeds, _use_labels, file="labels.csv", prepare=_prepare, mutators=TEXT, dictionary=_COLUMNS
    ),
]
