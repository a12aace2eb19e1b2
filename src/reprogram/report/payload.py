"""One run as compact JSON values: all that the page draws its charts and tables from."""

from dataclasses import replace
from typing import Any

import numpy as np

from reprogram.references.defaults import FOREIGN
from reprogram.report.names import image_name, shown
from reprogram.report.outline import Outline
from reprogram.report.packing import by_likeness, packed, picture
from reprogram.report.worries import independent_share, training_counts
from reprogram.run.examples import Example, Examples
from reprogram.run.outcomes import Outcomes
from reprogram.run.record import RunRecord
from reprogram.statistics.joint import JointStatistics
from reprogram.text import finite

#: Source labels that are named for each class, and rows of the picture of ω.
LABELS, ROWS = 8, 80
#: Entries of J up to which it is put into the page: beyond that, λ cannot be changed there.
MOST_ENTRIES = 120_000
_EPOCH_SERIES = ("train", "val", "test")
_PATHS = ("data", "data_root", "weights", "prior")


def run_payload(record: RunRecord, told: Outline, examples: Examples) -> dict[str, Any]:
    """What the page knows of one run; names are made safe, numbers are rounded to what can be seen."""
    labels = _Labels(record.source_labels)
    content: dict[str, Any] = {
        "name": told.name,
        "kind": record.kind,
        "mapping": told.mapping,
        "program": told.program,
        "what": told.what,
        "tested": told.tested,
        "classes": [shown(name) for name in record.classes],
        "training": training_counts(record),
        "selected": None if record.result is None else record.result["selected_epoch"],
        "validated": told.selected is not None,
        "epochs": _epochs(record),
        # a reference has no mapping: there is nothing to draw then
        "weights": None if record.reference is not None else _weights(record, labels),
        "joint": None if record.reference is not None else _joint(record, labels),
        "matrix": None if record.reference is not None else _matrix(record, labels),
        "pictures": _pictures(record, examples, labels),
        "facts": _facts(record),
    }
    if record.test is not None and len(record.test):
        content["test"] = {**_test(record.test, record.classes), "independent": _rounded(independent_share(record))}
    content["labels"] = labels.names()
    found: dict[str, Any] = finite(content)
    return found


class _Labels:
    """The source labels that the page names, each once: of a thousand, most are never looked at."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._places: dict[int, int] = {}
        self._by_name = {name: place for place, name in reversed(list(enumerate(names)))}

    def place(self, number: int) -> int:
        """Where the page finds the name of this source label."""
        return self._places.setdefault(number, len(self._places))

    def named(self, name: str) -> int:
        """The same for a source label that is known by its name."""
        return self.place(self._by_name[name])

    def names(self) -> list[str]:
        """The names, in the order of their places."""
        return [shown(self._names[number]) for number in self._places]


def _epochs(record: RunRecord) -> dict[str, Any] | None:
    if not record.epochs:
        return None
    return {
        "epoch": [one["epoch"] for one in record.epochs],
        "loss": [_rounded(one["loss"]) for one in record.epochs],
        "change": [_rounded(one["mapping_change"]) for one in record.epochs],
        **{name: [_rounded(one["accuracy"].get(name)) for one in record.epochs] for name in _EPOCH_SERIES},
    }


def _rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def _weights(record: RunRecord, labels: _Labels) -> dict[str, Any]:
    """The strongest source labels of each class."""
    omega = record.omega
    signed = bool((omega < 0).any())
    count = min(LABELS, len(omega))
    order = np.argsort(-omega if not signed else -np.abs(omega), axis=0, kind="stable")[:count]
    columns = []
    for column in range(omega.shape[1]):
        rows = [row for row in order[:, column].tolist() if omega[row, column] != 0]
        columns.append([[labels.place(row), _rounded(float(omega[row, column]))] for row in rows])
    return {"signed": signed, "top": columns}


def _joint(record: RunRecord, labels: _Labels) -> dict[str, Any] | None:
    """J as its entries, where ω is nothing but Bayes' rule on it, so that the page can compute it anew."""
    statistics, joint = record.mapping.statistics, record.joint
    if record.mapping.name not in ("blm", "blm+") or joint is None or not isinstance(statistics, JointStatistics):
        return None
    settings = record.description["mapping"]
    told = {
        "smoothing": settings["smoothing"],
        "top_ratio": settings.get("top_ratio"),
        "top_k": statistics.top_k if record.mapping.name == "blm+" else None,
        "sources": len(joint),
        "classes": joint.shape[1],
        "samples": float(statistics.weight),
    }
    rows = np.flatnonzero(joint.any(1))
    flat = joint[rows].ravel()
    places = np.flatnonzero(flat)
    if len(places) > MOST_ENTRIES:
        return {**told, "entries": len(places)}
    whole = bool((flat[places] == np.floor(flat[places])).all())
    kind = "varint" if whole else "f32"
    return {
        **told,
        "entries": len(places),
        "labels": [labels.place(int(row)) for row in rows],
        "steps": packed(np.diff(places, prepend=-1), "varint"),
        "type": kind,
        "values": packed(flat[places], kind),
    }


def _matrix(record: RunRecord, labels: _Labels) -> dict[str, Any]:
    """ω of the source labels that matter, clustered: the strongest of each class, then what is strong anywhere."""
    omega = record.omega
    size = np.abs(omega)
    share = size / np.maximum(size.sum(0), 1e-30)
    columns = by_likeness(omega.T)
    first = share.argmax(0)
    strongest = np.argsort(-share.max(1), kind="stable").tolist()
    wanted = list(dict.fromkeys([*first[np.argsort(-share.max(0), kind="stable")].tolist(), *strongest]))
    rows = [row for row in wanted if size[row].any()][: max(min(ROWS, 3 * omega.shape[1]), 10)]
    position = {column: place for place, column in enumerate(columns)}
    rows.sort(key=lambda row: (position[int(share[row].argmax())], -float(share[row].max()), row))
    values = omega[rows][:, columns].astype(np.float64)
    scale = float(np.abs(values).max()) if values.size else 0.0
    return {
        "rows": [labels.place(row) for row in rows],
        "columns": columns,
        "scale": _rounded(scale),
        "values": packed(np.round(values / (scale or 1) * 32767 + 32768), "u16"),
    }


def _test(test: Outcomes, classes: tuple[str, ...]) -> dict[str, Any]:
    """What was said about the test images, summed up so that its size does not grow with them."""
    confusion = test.confusion
    rows, columns = np.nonzero(confusion)
    wrong = confusion.astype(float)
    np.fill_diagonal(wrong, 0)
    both = wrong / np.maximum(confusion.sum(1, keepdims=True), 1)
    bins = np.clip(np.round(test.confidence * 1e6).astype(np.int64) // 1000, 0, 1000)
    scores = test.per_class().values()
    intervals = [score.interval for score in scores]
    reliable = test.reliability()
    return {
        # an updated run has other classes now than when it was tested
        "classes": None if test.classes == classes else [shown(name) for name in test.classes],
        "n": [score.n for score in scores],
        "right": [score.correct for score in scores],
        "low": [_rounded(low, 4) for low, _ in intervals],
        "high": [_rounded(high, 4) for _, high in intervals],
        "confusion": packed(np.stack([rows, columns, confusion[rows, columns]], 1), "varint"),
        "order": by_likeness(both + both.T + np.eye(len(both))),
        "confidence": {
            "n": packed(np.bincount(bins, minlength=1001), "varint"),
            "right": packed(np.bincount(bins[test.right], minlength=1001), "varint"),
        },
        "reliability": [
            [int(n), _rounded(None if n == 0 else float(sure)), 0 if n == 0 else round(float(right) * int(n))]
            for n, sure, right in zip(reliable.count, reliable.confidence, reliable.accuracy, strict=True)
        ],
        "error": _rounded(reliable.error),
    }


def _pictures(record: RunRecord, examples: Examples, labels: _Labels) -> dict[str, Any]:
    places = {name: number for number, name in enumerate(record.classes)}
    tested = () if record.test is None else record.test.classes
    numbers = {name: number for number, name in enumerate(tested)}
    shows = bool(record.program is not None and record.program.free_parameters)
    return {
        "classes": {
            str(places[name]): [picture(one.pixels) for one in found]
            for name, found in examples.classes.items()
            if name in places
        },
        "right": [_answer(one, numbers, labels, record) for one in examples.right],
        "wrong": [_answer(one, numbers, labels, record) for one in examples.wrong],
        "canvases": [
            {
                "label": places.get(one.label),
                "before": picture(one.before),
                "after": picture(_limited(one.after)),
            }
            for one in examples.canvases
        ],
        "program": _program(record) if shows else None,
        "notes": [shown(note) for note in examples.notes],
    }


def _answer(example: Example, numbers: dict[str, int], labels: _Labels, record: RunRecord) -> dict[str, Any]:
    data = None if record.config is None else record.config.data
    return {
        "image": picture(example.pixels) if example.pixels.size else None,
        "name": shown(image_name(example.name, data), 120),
        "label": numbers[example.label],
        "predicted": None if example.predicted is None else numbers[example.predicted],
        "confidence": _rounded(example.confidence, 4),
        "evidence": [[labels.named(one.source), _rounded(float(one.product), 3)] for one in example.evidence],
        "top": [[labels.named(one.source), _rounded(one.probability, 3)] for one in example.top],
    }


def _program(record: RunRecord) -> dict[str, Any]:
    """The program around or over a grey image, now and after some epochs, amplified so that a faint one is seen."""
    from reprogram.programs.appearance import appearance

    assert record.program is not None
    moved = appearance(record.program, min(record.program.canvas, 160)).permute(1, 2, 0).numpy()
    factor = _factor(float(np.abs(moved).max()))
    found: dict[str, Any] = {"image": picture(_grey(moved, factor)), "factor": factor, "frames": []}
    if record.history is not None:
        grown = record.history.moved().numpy()
        each = _factor(float(np.abs(grown).max()))  # one for all, so that growth can be seen
        chosen = _spread(len(grown), 6)
        found["frames"] = [[record.history.epochs[place], picture(_grey(grown[place], each))] for place in chosen]
    return found


def _factor(most: float) -> int:
    return max(1, int(0.5 / max(most, 1e-3)))


def _grey(moved: np.ndarray[Any, np.dtype[Any]], factor: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    found: np.ndarray[Any, np.dtype[np.uint8]] = (np.clip(0.5 + factor * moved, 0, 1) * 255).round().astype(np.uint8)
    return found


def _limited(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A canvas of at most 160 pixels a side, by leaving pixels out: what it looks like, not every pixel of it."""
    step = max(1, -(-max(pixels.shape[:2]) // 160))
    return pixels[::step, ::step]


def _spread(count: int, most: int) -> list[int]:
    return sorted(set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()))


def _facts(record: RunRecord) -> list[list[str]]:
    """How it was made: what of the settings was decided, and on which machine."""
    found: dict[str, Any] = {}
    if record.config is not None:
        foreign = FOREIGN if record.reference is not None else ()
        settings = record.config.model_dump().items()
        found |= {name: value for name, value in settings if value is not None and name not in foreign}
        # a report is sent around: where things lie on this machine is nobody's business
        found |= {name: str(found[name]).rstrip("/").rpartition("/")[2] for name in _PATHS if name in found}
    if record.environment is not None:
        packages = record.environment.get("packages") or {}
        versions = ", ".join(f"{name} {value}" for name, value in packages.items() if value)
        found |= {name: record.environment.get(name) for name in ("python", "platform", "device", "threads")}
        found["packages"] = versions
    if record.source is not None:
        found["fingerprint of the model"] = record.source.get("fingerprint")
    return [[name, shown(str(value))] for name, value in found.items() if value is not None]


def without_pictures(examples: Examples) -> Examples:
    """The same without a single pixel; what was said of the images stays."""
    none = np.zeros((0, 0, 3), np.uint8)
    return replace(
        examples,
        classes={},
        right=tuple(replace(one, pixels=none) for one in examples.right),
        wrong=tuple(replace(one, pixels=none) for one in examples.wrong),
        canvases=(),
    )
