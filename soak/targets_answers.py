"""Fuzz targets of files of answers, of tables of images, and of lists of prompts."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reprogram.answers.fit import fit_files
from reprogram.answers.mapping import AnswerMapping
from reprogram.answers.shards import read_blocks
from reprogram.data.load import load_data
from reprogram.errors import ignore_evidence_warnings
from reprogram.sources.texts import Texts, read_templates
from soak.material import logits
from soak.mutate import TEXT
from soak.structure import JSON, JSON_LINES, ZIPS
from soak.targets import FileTarget, FolderTarget, Target

_NAMES = ("cat", "dog", "owl")
_WORDS = (
    b"label",
    b"logits",
    b"topk_labels",
    b"topk_scores",
    b"logit_0",
    b"logits:cat",
    b"split",
    b"test",
    b"image",
    b"|",
    b"[]",
)


def _rows(count: int = 12) -> list[dict[str, Any]]:
    """Rows of top-K answers."""
    return [
        {
            "image": f"{row}.png",
            "label": _NAMES[row % 3],
            "topk_labels": [_NAMES[row % 3], "fox"],
            "topk_scores": [0.75, 0.125],
        }
        for row in range(count)
    ]


def _npz_seeds(folder: Path) -> list[bytes]:
    answers, labels = logits(12)
    names = np.array([_NAMES[label] for label in labels])
    contents: list[dict[str, Any]] = [
        {"logits": answers[:, :4].numpy(), "label": names, "split": np.array(["train", "test"] * 6)},
        {"logits": np.asfortranarray(answers[:, :4].numpy()), "labels": labels.numpy()},
        {"topk_labels": answers[:, :4].argsort(1).numpy(), "topk_scores": np.full((12, 4), 0.25), "label": labels.numpy()},
        {"topk_labels": np.array([["cat", "dog"]] * 12), "label": names, "image": names},
    ]
    made = []
    for number, content in enumerate(contents):
        buffer = io.BytesIO()
        (np.savez_compressed if number % 2 else np.savez)(buffer, allow_pickle=False, **content)
        made.append(buffer.getvalue())
    return made


def _table(delimiter: str, head: list[str], rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows([head, *rows])
    return text.getvalue().encode()


def _csv_seeds(delimiter: str) -> Callable[[Path], list[bytes]]:
    answers, labels = logits(9)
    numbers = [
        [_NAMES[label], *(f"{value:.3f}" for value in row[:3].tolist())] for row, label in zip(answers, labels, strict=True)
    ]
    top = [[row["label"], json.dumps(row["topk_labels"]), "0.5|0.25"] for row in _rows(9)]
    return lambda folder: [
        _table(delimiter, ["label", "logit_0", "logit_1", "logit_2"], numbers),
        _table(delimiter, ["label", *(f"logits:{name}" for name in _NAMES)], numbers),
        _table(delimiter, ["label", "topk_labels", "topk_scores"], top),
    ]


def _json_line_seeds(folder: Path) -> list[bytes]:
    answers, labels = logits(6)
    numbers = [{"label": _NAMES[label], "logits": row[:3].tolist()} for row, label in zip(answers, labels, strict=True)]
    return ["\n".join(map(json.dumps, rows)).encode() for rows in (_rows(6), numbers)]


def _parquet_seeds(folder: Path) -> list[bytes]:
    import pyarrow
    from pyarrow import parquet

    made = []
    for number, compression in enumerate(("none", "snappy")):
        path = folder / f"{number}.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(_rows()), path, compression=compression)
        made.append(path.read_bytes())
    return made


def _read(path: Path) -> None:
    for with_logits in (True, False):
        for block in read_blocks(path, logits=with_logits):
            block.place(0)


def _map(path: Path) -> None:
    """Everything that `reprogram map` and `map predict` do with a shard."""
    with ignore_evidence_warnings():
        fitted = fit_files(path, "blm")
    _predict(fitted, path)


def _predict(fitted: AnswerMapping, path: Path) -> None:
    for classified in fitted.predict_files([path]):
        assert len(classified.predictions.labels) == classified.block.rows


def _make_images(folder: Path) -> None:
    rows = []
    for number in range(10):
        Image.new("RGB", (6, 5), (number * 20, 0, 0)).save(folder / f"{number}.png")
        rows.append([f"{number}.png", _NAMES[number % 2], "test" if number > 7 else "train"])
    (folder / "table.csv").write_bytes(_table(",", ["path", "label", "split"], rows))


def _use_images(folder: Path) -> None:
    data = load_data(str(folder / "table.csv"))
    if len(data.train) <= 100:
        data.train.labels.sum()


def _template_seeds(folder: Path) -> list[bytes]:
    return [b"a photo of a {}.\nThis is a photo of a {}.\n\n", "ein Foto von einem {}, schön\n".encode()]


def _use_templates(path: Path) -> None:
    Texts(_NAMES, read_templates(path)).zero_shot(_NAMES)


TARGETS: list[Target] = [
    FileTarget("answers.npz", _npz_seeds, _read, file="shard.npz", mutators=ZIPS, dictionary=_WORDS),
    FileTarget("answers.csv", _csv_seeds(","), _read, file="shard.csv", mutators=TEXT, dictionary=_WORDS),
    FileTarget("answers.tsv", _csv_seeds("\t"), _read, file="shard.tsv", mutators=TEXT, dictionary=_WORDS),
    FileTarget("answers.jsonl", _json_line_seeds, _read, file="shard.jsonl", mutators=JSON_LINES, dictionary=_WORDS),
    FileTarget("answers.parquet", _parquet_seeds, _read, file="shard.parquet", dictionary=_WORDS, slow=True, weight=3.0),
    FileTarget("map.npz", _npz_seeds, _map, file="shard.npz", mutators=ZIPS, dictionary=_WORDS),
    FileTarget("map.csv", _csv_seeds(","), _map, file="shard.csv", mutators=TEXT, dictionary=_WORDS),
    FileTarget("map.jsonl", _json_line_seeds, _map, file="shard.jsonl", mutators=JSON_LINES, dictionary=_WORDS),
    FolderTarget("images.csv", _make_images, _use_images, files=("table.csv",), mutators=TEXT, dictionary=(b"path", b"..")),
    FileTarget("templates", _template_seeds, _use_templates, file="templates.txt", mutators=(*TEXT, *JSON[:1])),
]
