"""What was said about images, as JSON values: the same names as `reprogram predict --format json` has."""

from heapq import nlargest
from typing import Any

from reprogram.serve.batching import Job


def rows_of(job: Job, top: int) -> list[dict[str, Any]]:
    """One object for each image of a job that is done."""
    classes = job.task.mapping.classes
    rows = []
    for part in job.parts:
        said = part.said
        shown = [classes.index(label) for label in said.labels[part.start : part.stop]]
        most = min(top, len(classes))
        best = _best(said.probabilities[part.start : part.stop].tolist(), shown, most) if most > 1 else None
        shares = said.confidence[part.start : part.stop].tolist()
        for place, row in enumerate(range(part.start, part.stop)):
            content: dict[str, Any] = {"label": said.labels[row], "probability": shares[place]}
            if best is not None:
                content["top"] = [{"label": classes[index], "probability": share} for index, share in best[place]]
            content["evidence"] = [
                {"source": one.source, "weight": one.weight, "logit": one.logit, "contribution": one.product}
                for one in said.evidence[row]
            ]
            if said.sets is not None:
                content["set"] = list(said.sets[row])
            if said.typicality is not None and said.unlike is not None:
                content["p_typical"] = float(said.typicality[row])
                content["none_of_these"] = bool(said.unlike[row])
            rows.append(content)
    return rows


def _best(rows: list[list[float]], shown: list[int], most: int) -> list[list[tuple[int, float]]]:
    """The numbers of the best classes of each row, with their probabilities: what was said, then among equals the first."""
    return [
        nlargest(most, enumerate(row), key=lambda one, first=first: (one[0] == first, one[1]))  # type: ignore[misc]
        for row, first in zip(rows, shown, strict=True)
    ]
