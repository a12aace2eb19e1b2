"""What a report tells of one run in numbers: the row of the table of runs, and what its sentences are made of."""

from dataclasses import dataclass
from typing import Any

from reprogram.answers.mapping import HeldOutScore
from reprogram.mappings.registry import MAPPINGS
from reprogram.references.registry import REFERENCES
from reprogram.report.names import shown
from reprogram.run.record import RunRecord

#: Settings of mappings that a reader wants to see beside the name.
_TOLD = ("smoothing", "top_ratio", "top_k", "shrinkage", "weighting", "normalize", "prior")
_USUAL = {"normalize": "none", "prior": "none"}


@dataclass(frozen=True)
class Outline:
    """One run in numbers.

    Attributes:
        name: what it is called here; different for every run of a report.
        data: what it was trained on; a dash where nobody knows.
        model: the frozen model; a dash where nobody knows.
        program: the program that is kept, "none" without one.
        mapping: the mapping; of a reference, the method.
        settings: of the mapping, those that matter, in words.
        accuracy: of the saved model on what it had not seen; None where that was not measured.
        interval: the 95 % interval of that.
        tested: how many images or rows that was measured on.
        what: what these are, "test images" or "rows that were held out".
        last: test accuracy of the last epoch.
        selected: of the epoch that is best on validation.
        best_on_test: the best of all epochs on test.
        epochs: how many were trained.
        trained: how many numbers were trained by gradients and are kept; None where nobody knows.
        seconds: how long the run took.
        reference: whether it is a reference method, not a mapping.
    """

    name: str
    data: str
    model: str
    program: str
    mapping: str
    settings: str
    accuracy: float | None
    interval: tuple[float, float] | None
    tested: int
    what: str
    last: float | None = None
    selected: float | None = None
    best_on_test: float | None = None
    epochs: int = 0
    trained: int | None = None
    seconds: float | None = None
    reference: bool = False


def outline(record: RunRecord, name: str | None = None) -> Outline:
    """The numbers of one run or mapping."""
    config, result = record.config, record.result
    values = {"name": record.reference} if record.reference is not None else record.description["mapping"]
    known = {key: values[key] for key in _TOLD if values.get(key) is not None and values[key] != _USUAL.get(key)}
    if "top_k" in known:
        known.pop("top_ratio", None)  # which the number of labels came from
    program = "–" if record.program is None else record.program.name
    common: dict[str, Any] = {
        "name": shown(name or record.name),
        "data": "–" if config is None else shown(_data_name(config.data)),
        "model": "–" if record.source is None else shown(str(record.source.get("name", "–"))),
        "program": program,
        "mapping": str(values["name"]),
        "reference": record.reference is not None,
        "settings": ", ".join(f"{_WORDS.get(key, key)} {_value(value)}" for key, value in known.items()),
    }
    if result is None:
        held = held_out(record)
        score = None if held is None else held.score
        return Outline(
            **common,
            accuracy=None if score is None else score.accuracy,
            interval=None if score is None else score.interval,
            tested=0 if score is None else score.n,
            what="rows that were held out" if record.kind == "mapping" else "test images",
        )
    trained = sum(record_["epoch"] > 0 for record_ in record.epochs)
    accuracy = result["accuracy"]
    low, high = result["interval_95"]
    return Outline(
        **common,
        accuracy=_kept(record),
        interval=(low, high),
        tested=result["images"]["test"],
        what="test images",
        last=accuracy.get("last"),
        selected=accuracy.get("selected"),
        best_on_test=accuracy.get("best_on_test"),
        epochs=trained,
        trained=result["parameters"]["free"],
        seconds=result["seconds"],
    )


_WORDS = {"smoothing": "λ", "top_ratio": "α", "top_k": "K"}


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _data_name(data: str) -> str:
    """The last part of a path; the whole of a name such as `paper:dtd`."""
    return data.rstrip("/").rpartition("/")[2] or data


def _kept(record: RunRecord) -> float | None:
    """The test accuracy of the model as it was saved."""
    assert record.result is not None
    counts = record.result["per_class"].values()
    images = sum(count["images"] for count in counts)
    return sum(count["correct"] for count in counts) / images if images else None


def held_out(record: RunRecord) -> HeldOutScore | None:
    """How a mapping from files did on rows that it had not seen."""
    held = record.description.get("held_out")
    return HeldOutScore.from_json(held) if isinstance(held, dict) else None


def mapping_summary(name: str) -> str:
    """What a mapping, or a reference, is in a few words; nothing where nobody has said it."""
    if name in REFERENCES:
        return REFERENCES[name].summary
    return MAPPINGS[name].summary if name in MAPPINGS else ""


def distinct_names(records: list[RunRecord]) -> list[str]:
    """What to call each run: its folder's name, with as many folders above it as tell it from the others."""
    depth = 1
    while True:
        names = ["/".join(record.folder.absolute().parts[-depth:]) for record in records]
        longest = max(len(record.folder.absolute().parts) for record in records)
        if len(set(names)) == len(names) or depth >= longest:
            return names
        depth += 1
