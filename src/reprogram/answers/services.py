"""What services and tools answer about one image, whatever they call its parts: JSON values as columns of a row."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reprogram.answers.block import COLUMNS, check_columns
from reprogram.errors import ReprogramError, short, shown

#: Under which keys services list their labels, and what they call a label and its score there; case does not matter.
LISTS = ("customLabels", "labels", "tags", "labelAnnotations", "predictions")
NAMES = ("name", "label", "description", "class")
SCORES = ("score", "confidence", "probability")
#: Where the path of an image stands in the files of SpeciesNet, MegaDetector and others, if it is under no name of ours.
_PATHS = ("filepath", "file")
Row = dict[str, Any]


def row_of(path: Path, number: int, content: Any) -> tuple[Row, bool]:
    """The columns of one answer, and whether its scores are known to run to 100.

    Args:
        path: the file.
        number: of the row in it, for errors.
        content: an object with columns of ours; with a list of labels under one of `LISTS`, as Rekognition and Cloud Vision
            write it; with `classifications` of SpeciesNet; or a list of labels, as Hugging Face pipelines return it.
    """
    if isinstance(content, list):
        labels, scores = _labels_of(path, number, content)
        return {"topk_labels": labels, "topk_scores": scores}, False
    if not isinstance(content, Mapping):
        raise ReprogramError(
            f"row {number} of {str(path)!r} is a {type(content).__name__}, but an object is expected; write one per line"
        )
    values = {
        column: content[alias] for column, aliases in COLUMNS.items() for alias in reversed(aliases) if alias in content
    }
    for column in ("logits", "topk_labels", "topk_scores"):
        if not isinstance(values.get(column), (list, type(None))):
            raise ReprogramError(f"{column} in row {number} of {str(path)!r} is no list; write a list")
    percent = False
    if "logits" not in values and "topk_labels" not in values:
        if "image" not in values and (image := _image_of(content)) is not None:
            values["image"] = image
        if is_speciesnet(content):
            values["topk_labels"], values["topk_scores"] = _speciesnet(path, number, content)
        else:
            percent = _add_list(path, number, content, values)
    check_columns(path, values, list(content), also=f", or a list under {', '.join(LISTS)}")
    return values, percent


def is_row(content: Any) -> bool:
    """Whether a value is an answer, and not one label of an answer."""
    if not isinstance(content, Mapping):
        return isinstance(content, list)
    lowered = {key.lower() for key in content}
    return bool(lowered & {"logits", "topk_labels", *map(str.lower, LISTS)}) or is_speciesnet(content)


def is_speciesnet(content: Mapping[str, Any]) -> bool:
    """Whether an object is what SpeciesNet says about an image; without `classifications`, where its classifier failed."""
    found = content.get("classifications")
    return (isinstance(found, Mapping) and "classes" in found) or (
        "filepath" in content and not {key.lower() for key in content} & set(map(str.lower, LISTS))
    )


def ranked(labels: Sequence[Any], scores: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Labels by their scores, the best first and each once; as they are where a score is missing.

    >>> ranked(["fox", "elk", "fox"], [0.2, 0.5, 0.3])
    (['elk', 'fox'], [0.5, 0.3])
    """
    places = list(range(len(labels)))
    if len(labels) != len(scores) or not all(isinstance(label, str) for label in labels):
        return list(labels), list(scores)
    if all(type(score) in (int, float) for score in scores):
        places.sort(key=lambda place: scores[place], reverse=True)
    first: dict[str, int] = {}
    for place in places:
        first.setdefault(labels[place], place)
    return list(first), [scores[place] for place in first.values()]


def _image_of(content: Mapping[str, Any]) -> Any:
    """What the image is called: a path, or the address that Cloud Vision repeats."""
    context = content.get("context")
    address = context.get("uri") if isinstance(context, Mapping) else None
    return next((content[key] for key in _PATHS if key in content), address)


def _speciesnet(path: Path, number: int, content: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    found = content.get("classifications")
    if found is None:
        return [], []
    classes, scores = (found.get(key) if isinstance(found, Mapping) else None for key in ("classes", "scores"))
    if not isinstance(classes, list) or not isinstance(scores, (list, type(None))):
        raise ReprogramError(
            f"the classifications in row {number} of {str(path)!r} are {shown(found)}, but the lists classes and scores of "
            "SpeciesNet are expected; write the file again"
        )
    return ranked(classes, [None] * len(classes) if scores is None else scores)


def _add_list(path: Path, number: int, content: Mapping[str, Any], values: Row) -> bool:
    """Take the labels from the list under a key of services; whether they are known to be percentages."""
    lowered = {key.lower(): value for key, value in content.items()}
    for key in map(str.lower, LISTS):
        if key in lowered:
            values["topk_labels"], values["topk_scores"] = _labels_of(path, number, lowered[key])
            return _is_rekognition(content, values["topk_scores"])
    if isinstance(content.get("error"), Mapping):  # of Cloud Vision, which could not read this image
        values["topk_labels"] = []
    return False


def _is_rekognition(content: Mapping[str, Any], scores: Sequence[Any]) -> bool:
    """Whether an answer is Rekognition's by its spelling, whose confidences run from 0 to 100."""
    items = next((content[key] for key in ("Labels", "CustomLabels") if key in content), None)
    if not isinstance(items, list) or not all(isinstance(item, Mapping) and "Confidence" in item for item in items):
        return False
    numbers = [score for score in scores if type(score) in (int, float)]
    return "LabelModelVersion" in content or max(numbers, default=0) > 1


def _labels_of(path: Path, number: int, answer: Any) -> tuple[list[Any], list[Any]]:
    """The labels and scores of a list of objects; a missing score is None."""
    labels, scores = [], []
    for item in answer if isinstance(answer, list) else [None] * (answer is not None):
        if isinstance(item, str):
            item = {"name": item}
        lowered = {key.lower(): value for key, value in item.items()} if isinstance(item, Mapping) else {}
        name = next((lowered[key] for key in NAMES if key in lowered), None)
        if not isinstance(name, (str, int)):
            found = (
                f"holds a label with the keys {', '.join(map(short, list(lowered)[:8]))}"
                if lowered
                else "is no list of labels with names"
            )
            raise ReprogramError(
                f"the answer in row {number} of {str(path)!r} {found}, but the name is expected under one of "
                f'{", ".join(NAMES)}; write for example [{{"name": "Tabby", "score": 0.91}}]'
            )
        labels.append(name)
        scores.append(next((lowered[key] for key in SCORES if key in lowered), None))
    return labels, scores
